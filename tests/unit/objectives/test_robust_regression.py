"""Robust regression against its adversary in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from train_val_rows import INPUTS, rows

from rookery import Batch, Bilevel, Federation, LocalSGDA, as_bilevel
from rookery.errors import ProblemError
from rookery.objectives import robust_regression


def test_the_adversary_of_robust_regression_in_closed_form() -> None:
    data = rows()
    problem = robust_regression(penalty=5.0, ridge=0.1)
    batch = Batch(data.views(0))
    x = torch.tensor([0.5, -1.0, 0.3, 0.2], dtype=torch.float64)
    residual = (batch.inputs @ x - batch.targets).mean()
    y = residual * x / (5.0 - x.square().sum())
    assert problem.f_y(x, y, batch).abs().max() < 1e-12
    r = torch.Generator().manual_seed(0)
    best = float(problem.f(x, y, batch))
    for _ in range(200):
        other = y + 0.5 * torch.randn(INPUTS, generator=r, dtype=torch.float64)
        assert float(problem.f(x, other, batch)) < best
    pairs = zip(batch.inputs.numpy(), batch.targets.numpy(), strict=True)
    explicit = np.mean([0.5 * ((a + y.numpy()) @ x.numpy() - t) ** 2 for a, t in pairs])
    assert best == pytest.approx(explicit + 0.05 * float(x.square().sum()) - 2.5 * float(y.square().sum()))


def test_robust_regression_ends_where_the_worst_shift_has_no_gradient_left() -> None:
    data = rows()
    fed = Federation(robust_regression(penalty=20.0, ridge=0.5), data)
    algorithm = LocalSGDA(0.05, 0.05)
    zero = torch.zeros(INPUTS, dtype=torch.float64)
    state = algorithm.init(fed, zero, zero)
    for _ in range(400):
        state = algorithm.round(fed, state)

    def worst(x: Tensor) -> Tensor:
        """max_y of the whole f, by its closed form for equal weights of the clients"""
        parts = [data.views(k) for k in range(3)]
        r = torch.stack([(p["inputs"] @ x - p["targets"]).mean() for p in parts]).mean()
        plain = torch.stack([0.5 * (p["inputs"] @ x - p["targets"]).square().mean() for p in parts]).mean()
        n = x.square().sum()
        return plain + 0.25 * n + 0.5 * r * r * n / (20.0 - n)
    assert torch.autograd.functional.jacobian(worst, state.x).norm() < 1e-6
    assert float(worst(state.x)) < float(worst(zero))


def test_robust_regression_refuses_an_adversary_without_bounds() -> None:
    with pytest.raises(ProblemError, match="the adversary's gain has no end"):
        robust_regression(penalty=0.0)
    held = robust_regression(penalty=0.0, radius=0.5)
    assert held.project_y is not None
    assert float(held.project_y(torch.ones(4)).norm()) == pytest.approx(0.5)
    assert isinstance(as_bilevel(held), Bilevel)
