"""The problems with a known solution against their own definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from differences import difference
from torch import Tensor

from rookery import Batch, Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization, Pairwise
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem


def total(k: TestProblem, x: Tensor) -> Tensor:
    """The whole objective at x, straight from its definition with all rows."""
    p, parts = k.problem, [Batch(k.data.views(i)) for i in range(len(k.data.names))]

    def mean(fn: Callable[[Batch], Tensor]) -> Tensor:
        return torch.stack([fn(b) for b in parts]).mean(0)

    def argmin(fn: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
        """Newton's step on a quadratic is exact."""
        (gradient,) = torch.autograd.grad(fn(leaf := y.detach().requires_grad_()), leaf)
        return y - torch.linalg.solve(torch.autograd.functional.hessian(fn, y), gradient)

    match p:
        case Minimization():
            return mean(lambda b: p.f(x, b))
        case Conditional():
            return mean(lambda b: p.f((b.eta.mean(1) @ x)[:, None], b).mean()) + p.h(x)  # type: ignore[misc]
        case Compositional():
            return p.f(mean(lambda b: p.g(x, b))) + mean(lambda b: p.h_value(x, b))
        case Minimax():
            assert k.y_star is not None
            y = argmin(lambda y: -mean(lambda b: p.f(x, y, b)), k.y_star + 1)
            return mean(lambda b: p.f(x, y, b))
        case CompositionalMinimax():
            assert k.y_star is not None
            z = mean(lambda b: p.g(x, b))
            y = argmin(lambda y: -mean(lambda b: p.f(z, y, b)), k.y_star + 1)
            return mean(lambda b: p.f(z, y, b))
        case Pairwise():
            rows = k.data.fields
            s, positive = p.s(x, Batch(rows)), rows["labels"] > 0
            return p.f(p.pair_losses(s[positive], s[~positive]).mean(1)).mean()
        case Bilevel():
            assert k.y_star is not None
            y = argmin(lambda y: mean(lambda b: p.g(x, y, b)), k.y_star + 1)
            return mean(lambda b: p.f(x, y, b))
    raise AssertionError


@pytest.mark.parametrize("name", known.ALL)
@pytest.mark.parametrize("seed", [0, 5])
def test_the_closed_forms_are_those_of_the_definition(name: str, seed: int) -> None:
    k = known.ALL[name](seed=seed)
    assert k.gradient(k.x_star).norm() < 1e-10
    torch.testing.assert_close(k.gradient(k.x0), difference(lambda x: total(k, x), k.x0), rtol=1e-5, atol=1e-6)
    away = k.x_star + 0.1 * torch.randn(3, dtype=torch.float64)
    assert total(k, away) > total(k, k.x_star)
    spread = torch.stack([next(iter(k.data.views(i).values())).mean(0) for i in range(4)]).std(0)
    assert spread.min() > 0.01  # the clients differ


@pytest.mark.parametrize("dg", [1, 2, 3, 4])
def test_a_composition_without_h_has_its_shortest_solution(dg: int) -> None:
    """With fewer inner values than unknowns many x solve it, and a rounded AᵀA may or may not be invertible."""
    k = known.compositional(dg=dg, plain=0.0)
    assert k.gradient(k.x_star).norm() < 1e-10
    A = known.client_means(k.data, lambda p: p["A"].mean(0)).numpy()
    if dg <= 3:
        torch.testing.assert_close(k.y_star, torch.ones(dg, dtype=torch.float64))  # f(z) = ½‖z − 1‖²
    across = np.linalg.svd(A)[2][dg:]  # the directions that g does not see
    np.testing.assert_allclose(across @ k.x_star.numpy(), 0, atol=1e-10)
