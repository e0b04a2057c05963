"""Projections: the nearest feasible point, also under vmap."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rookery import ball, box, simplex


def points(of: str, g: torch.Generator) -> Tensor:
    """Feasible points, not by projection."""
    if of == "ball":
        z = torch.randn(200, 5, generator=g, dtype=torch.float64)
        return 1.5 * z / z.norm(dim=1, keepdim=True) * torch.rand(200, 1, generator=g, dtype=torch.float64)
    if of == "box":
        return torch.rand(200, 5, generator=g, dtype=torch.float64) * 2 - 0.5
    z = -torch.rand(200, 5, generator=g, dtype=torch.float64).log()
    return torch.cat([z / z.sum(1, keepdim=True), torch.eye(5, dtype=torch.float64)])


@pytest.mark.parametrize(("of", "project"), [("ball", ball(1.5)), ("box", box(-0.5, 1.5)), ("simplex", simplex)])
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_a_projection_is_the_nearest_feasible_point(of, project, scale):
    """p is the projection of v onto a convex set if and only if ⟨v − p, z − p⟩ ≤ 0 for all z of the set."""
    g = torch.Generator().manual_seed(0)
    feasible = points(of, g)
    for v in scale * torch.randn(50, 5, generator=g, dtype=torch.float64):
        p = project(v)
        assert ((feasible - p) @ (v - p)).max() <= 1e-12 * max(1.0, scale**2)
        assert torch.allclose(project(p), p, atol=1e-14)
    inside = feasible[0]
    assert torch.allclose(project(inside), inside, atol=1e-14)


def test_the_projections_are_feasible():
    for v in 3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0)):
        assert ball(2.0)(v).norm() <= 2 * (1 + 1e-6)
        assert box(-1.0, 0.5)(v).min() >= -1
        assert box(-1.0, 0.5)(v).max() <= 0.5
        assert simplex(v).min() >= 0
        assert abs(simplex(v).sum() - 1) < 1e-5


@pytest.mark.parametrize("v", [[5.0], [1.0, 1.0, 1.0], [-7.0, -7.0], [0.0, 0.0, 100.0], [0.3, 0.3, 0.4]])
def test_the_simplex_satisfies_its_optimality_conditions(v):
    """v − p is one number τ where p > 0, and at most τ where p = 0."""
    v = torch.tensor(v, dtype=torch.float64)
    p = simplex(v)
    tau = (v - p)[p > 0]
    assert abs(p.sum() - 1) < 1e-12
    assert torch.allclose(tau, tau[:1].expand_as(tau), atol=1e-12)
    assert ((v - p)[p == 0] <= tau[0] + 1e-12).all()


def test_projections_stand_under_vmap():
    v = 3 * torch.randn(6, 5)
    for project in (ball(1.0), box(0.0, 1.0), simplex):
        assert torch.allclose(torch.func.vmap(project)(v), torch.stack([project(row) for row in v]))
