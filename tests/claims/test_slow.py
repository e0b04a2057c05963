"""What takes longer: run by `make slow`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import Conditional, Data, Federation, FedNest, Program
from rookery.data import Normal
from rookery.problems import testproblems as known

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Ask(Program):
    inner: int

    def gradient(self, c: Any, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(40_000, self.inner))


@pytest.mark.parametrize(("kind", "slope"), [("smooth", -1.0), ("kinked", -0.5)])
def test_the_bias_of_the_conditional_gradient(kind: str, slope: float) -> None:
    """A smooth outer function has a bias of O(1/m); one with a kink at the inner mean of O(m^−½), as the paper's bound allows."""
    x = torch.tensor([0.8, -0.5], dtype=torch.float64)

    def f(u: Tensor, xi: Any) -> Tensor:
        return torch.log(torch.cosh(u[:, 0] - 0.5)) if kind == "smooth" else u[:, 0].clamp(min=0)

    def problem(noise: float) -> Conditional:
        # without outer noise the inner mean sits on the kink, where E max(ū, 0) moves by O(m^−½)
        outer = 0.3 if kind == "smooth" else 0.0
        return Conditional(f, lambda z, xi, eta: ((xi.xi[:, None] * outer + eta.eta * noise) @ z)[..., None],
                           sampling=Normal((2,), (2,), torch.float64))

    data = Data.streams([f"c{i}" for i in range(16)])

    def mean_gradient(noise: float, inner: int, seeds: int) -> Tensor:
        found = []
        for seed in range(seeds):
            fed = Federation(problem(noise), data, engine="loop", seed=seed)
            found.append(fed.mean(fed.map(Ask(inner).gradient, fed.broadcast(x))))
        return torch.stack(found).mean(0)

    exact = mean_gradient(0.0, 1, 4)
    m = np.array([2, 4, 8, 16])
    bias = [float((mean_gradient(1.0, int(i), 6) - exact).norm()) for i in m]
    assert np.polyfit(np.log(m), np.log(bias), 1)[0] == pytest.approx(slope, abs=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_fednest_reaches_larger_bilevel_solutions_to_the_last_digit(seed: int) -> None:
    k = known.bilevel(seed=seed, d=20, dy=12, sizes=(6,) * 12)
    fed = Federation(k.problem, k.data)
    algorithm = FedNest(0.05, inner_lr=0.4, inner_rounds=5, local_steps=4, terms=50, smoothness=2.0, inverse_solver="neumann")
    assert k.y0 is not None
    state = algorithm.init(fed, k.x0, k.y0)
    for _ in range(400):
        state = algorithm.round(fed, state)
    assert float((state.x - k.x_star).square().sum()) < 1e-16
