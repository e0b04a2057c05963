"""The measurements of the FCSG theorems: their problem's closed forms, their fits on made-up laws, and a small version of the speed-up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from experiment_files import module
from torch import Tensor

from rookery import Batch, Data, Federation, Program

cosine, rate, speedup = (module("fcsg-theory", name) for name in ("cosine", "rate", "speedup"))
X = torch.tensor([0.5, -0.2], dtype=torch.float64)


@dataclass(frozen=True)
class Ask(Program):
    inner: int

    def gradient(self, c: Any, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(50_000, self.inner))


# the problem


@pytest.mark.parametrize("differ", [False, True])
def test_the_exact_gradient_is_that_of_the_closed_form(differ: bool) -> None:
    """F = mean over the sides of 1 − exp(−(τ² + ρ²‖x − x*‖²)/2), plus (κ/2)v|v|, by automatic differentiation."""
    x = X.clone().requires_grad_()
    F = torch.zeros((), dtype=torch.float64)
    for side in (1, -1):
        star = torch.tensor([cosine.STAR[0], cosine.STAR[1] + differ * side * cosine.APART], dtype=torch.float64)
        rho = 1 + differ * side * cosine.UNEVEN
        F = F + (1 - torch.exp(-(cosine.TAU**2 + rho**2 * (x - star).square().sum()) / 2)) / 2
    v = x[0] - cosine.STAR[0]
    F = F + 0.15 * v * v.abs()
    F.backward()
    torch.testing.assert_close(cosine.exact(X, kink=0.3, differ=differ)[0], x.grad)


@pytest.mark.parametrize(("inner", "kink", "differ"), [(1, 0.0, False), (4, 0.0, False), (1, 0.3, False), (4, 0.0, True)])
def test_the_mean_of_the_estimates_is_the_exact_gradient_with_its_bias(inner: int, kink: float, differ: bool) -> None:
    fed = Federation(cosine.problem(1, kink=kink, differ=differ), Data.streams([f"c{i}" for i in range(6)]), engine="loop", seed=1)
    found = fed.mean(fed.map(Ask(inner).gradient, fed.broadcast(X.float())))
    expected = cosine.exact(X, kink, differ, s=1 / inner)[0]
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.008)  # five standard errors and more
    assert (expected - cosine.exact(X, kink, differ)[0]).norm() > 0.04  # the bias would be seen


def test_replicas_are_problems_of_their_own() -> None:
    r = torch.Generator().manual_seed(0)
    b, eta, zeta = (torch.randn(*shape, generator=r) for shape in ((2, 3), (2, 5, 3, 2), (2, 5, 3)))
    x = torch.randn(6, generator=r)
    together = cosine.problem(3, kink=0.3).gradient(x, Batch({"b": b}, None, Batch({"eta": eta, "zeta": zeta})))
    for i in range(3):
        one = Batch({"b": b[:, i : i + 1]}, None, Batch({"eta": eta[:, :, i : i + 1], "zeta": zeta[:, :, i : i + 1]}))
        torch.testing.assert_close(together[2 * i : 2 * i + 2], cosine.problem(1, kink=0.3).gradient(x[2 * i : 2 * i + 2], one))


# the fits


@pytest.mark.parametrize(("speed", "slope"), [(1.0, -1.0), (0.0, 0.0), (-1.0, 1.0)])
def test_the_fitted_speed_up_is_that_of_the_law(speed: float, slope: float) -> None:
    """Values of C·(K^speed·T)^−½ with noise over replicas reach a level at T ∝ K^−speed."""
    r = np.random.default_rng(0)
    found = {}
    for K in (1, 2, 4, 8):
        steps = np.array([1024, 4096, 16384, 65536]) / K**speed
        found[K] = steps, 0.3 * (K**speed * steps[:, None]) ** -0.5 * r.uniform(0.9, 1.1, (4, 40))
    fit = speedup.fitted(found, 0.0025, resamples=50)
    assert fit["slope"] == pytest.approx(slope, abs=3 * fit["error"])
    assert fit["error"] < 0.03
    assert fit["steps"][1] == pytest.approx((0.3 / 0.0025) ** 2, rel=0.1)
    assert speedup.fitted(found, 1e-5, resamples=2)["slope"] is None  # a level that no run reaches


def test_the_crossing_is_found_on_a_power_law() -> None:
    t = np.geomspace(10, 1000, 8)
    assert rate.first(t.tolist(), 2 / t, 0.01) == pytest.approx(200)
    assert math.isnan(rate.first(t.tolist(), 2 / t, 0.001))


# the measurement


def mean(method: str, regime: str, clients: int, length: int) -> float:
    values = speedup.work({"regime": regime, "method": method, "clients": clients, "length": length, "seed": 7})["values"]
    return float(np.mean(values))


@pytest.mark.slow
def test_four_times_the_clients_are_worth_four_times_the_iterations_unless_bias_is_larger() -> None:
    assert mean("FCSG", "noise", 8, 2048) == pytest.approx(mean("FCSG", "noise", 32, 2048), rel=0.15)
    assert mean("FCSG", "noise", 32, 8192) < 0.6 * mean("FCSG", "noise", 32, 2048)  # a half, by the theorem
    assert mean("FCSG", "bias", 32, 8192) > 0.85 * mean("FCSG", "bias", 32, 2048)


@pytest.mark.slow
@pytest.mark.parametrize("method", list(speedup.METHODS))
def test_iterations_to_a_level_fall_as_one_over_the_clients(method: str) -> None:
    done = [(t, speedup.work(t)) for t in speedup.todo((2, 8, 32), seed=7) if t["regime"] == "noise" and t["method"] == method]
    assert speedup.fitted(speedup.table(done, "noise", method), speedup.REGIMES["noise"]["level"])["slope"] == pytest.approx(-1, abs=0.2)
