"""Invariant logistic regression against closed forms and a NumPy twin of equation (4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import FCSG, AccFCSGM, Batch, Data, Federation, Program
from rookery.errors import ProblemError
from rookery.objectives import invariant_logistic

TRUTH = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
X = torch.tensor([0.4, -0.7, -0.2], dtype=torch.float64)
CLIENTS = Data.streams(["a", "b", "c"])


@dataclass(frozen=True)
class Ask(Program):
    """Client functions that look at one batch."""

    outer: int
    inner: int

    def gradient(self, c: Any, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(self.outer, self.inner))

    def moments(self, c: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means of b·η, of (η − η')² over pairs of views, of η_1η_2 and of η_1²."""
        batch = c.draw(self.outer, self.inner)
        eta = batch.inner.eta
        apart = (eta[:, 0] - eta[:, 1]).square().mean(0)
        return (batch.b[:, None] * eta.mean(1)).mean(0), apart, (eta[:, 0] * eta[:, 1]).mean(0), eta[:, 0].square().mean(0)


def recorded(algorithm: Any, problem: Any, rounds: int, seed: int = 3) -> tuple[Tensor, list[tuple[np.ndarray, np.ndarray]]]:
    """A run of one client, with the labels and views it drew."""
    drawn: list[tuple[np.ndarray, np.ndarray]] = []
    kind: Any = type(problem.sampling)

    class Recording(kind):  # type: ignore[misc]
        def fetch(self, data: Data, selection: Any) -> Batch:
            batch: Batch = super().fetch(data, selection)
            assert batch.inner is not None
            drawn.append((batch.b.numpy(), batch.inner.eta.numpy()))
            return batch

    s = problem.sampling
    again = Recording(s.outer_shape, s.inner_shape, s.dtype, truth=s.truth, noise=s.noise, scale=s.scale)
    fed = Federation(replace(problem, sampling=again), Data.streams(["only"]), engine="loop", seed=seed)
    state = algorithm.init(fed, X)
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x, drawn


def twin(x: np.ndarray, b: np.ndarray, eta: np.ndarray, lam: float = 0.001, gamma: float = 10.0, inside: bool = True) -> np.ndarray:
    """The gradient of equation (4) on samples, the mean over η inside the logarithm or, wrongly, outside."""
    total = np.zeros_like(x)
    for label, views in zip(b, eta, strict=True):
        for group in [views.mean(0)] if inside else views:
            share = 1 / len(b) / (1 if inside else len(views))
            total += share * -label * group / (1 + math.exp(label * float(group @ x)))
    for i, value in enumerate(x):
        total[i] += lam * 2 * gamma * value / (1 + gamma * value**2) ** 2
    return total


@pytest.mark.parametrize(("inside", "equal"), [(True, True), (False, False)])
def test_fcsg_takes_the_steps_of_a_twin_with_the_mean_inside(inside: bool, equal: bool) -> None:
    found, drawn = recorded(FCSG(0.3, 4, 2, 5), invariant_logistic(TRUTH, noise=1.5), rounds=3)
    x = X.numpy().copy()
    for b, eta in drawn:
        x = x - 0.3 * twin(x, b, eta, inside=inside)
    assert len(drawn) == 12
    assert np.allclose(found.numpy(), x, rtol=1e-12, atol=0) == equal


def test_the_gradient_by_hand_is_that_of_automatic_differentiation_and_of_differences() -> None:
    r = torch.Generator().manual_seed(0)
    batch = Batch({"b": torch.tensor([1.0, -1.0]).double()}, None,
                  Batch({"eta": torch.randn(2, 4, 3, generator=r, dtype=torch.float64)}))
    problem = invariant_logistic(TRUTH, lam=0.3, gamma=2.0)
    by_hand = problem.oracle("gradient")(X, batch)
    torch.testing.assert_close(by_hand, problem.gradient(X, batch))
    steps = 1e-6 * torch.eye(3, dtype=torch.float64)
    differences = torch.stack([(problem.value(X + e, batch) - problem.value(X - e, batch)) / 2e-6 for e in steps])
    torch.testing.assert_close(by_hand, differences, rtol=1e-7, atol=1e-8)


def test_inputs_views_and_labels_have_the_stated_moments() -> None:
    """E[bη] = σ1·√(2/π)·x*/‖x*‖, E(η − η')² = 2σ2², E[ηη'] = σ1², E[η²] = σ1² + σ2², for two views η, η' of one input."""
    problem = invariant_logistic(TRUTH, noise=1.5, scale=0.7)
    fed = Federation(problem, CLIENTS, engine="loop", seed=1)
    signal, apart, together, square = fed.mean(*fed.map(Ask(60_000, 2).moments, fed.broadcast(X)))
    torch.testing.assert_close(signal, 0.7 * math.sqrt(2 / math.pi) * TRUTH / TRUTH.norm(), rtol=0, atol=0.012)
    for found, expected in ((apart, 2 * 1.5**2), (together, 0.7**2), (square, 0.7**2 + 1.5**2)):
        torch.testing.assert_close(found, torch.full_like(found, expected), rtol=0, atol=0.05)


def test_m_views_are_one_view_of_a_smaller_noise() -> None:
    """g is linear, so m views of noise σ2 have the mean gradient of one view of noise σ2/√m; without noise m changes nothing."""
    def mean(noise: float, inner: int) -> Tensor:
        fed = Federation(invariant_logistic(TRUTH, noise), CLIENTS, engine="loop", seed=2)
        found: Tensor = fed.mean(fed.map(Ask(60_000, inner).gradient, fed.broadcast(X)))
        return found

    torch.testing.assert_close(mean(2.0, 4), mean(1.0, 1), rtol=0, atol=0.012)
    assert (mean(2.0, 1) - mean(1.0, 1)).norm() > 0.1
    torch.testing.assert_close(mean(0.0, 1), mean(0.0, 3), rtol=0, atol=1e-12)


def test_engines_draw_the_same_views() -> None:
    problem = invariant_logistic(TRUTH)
    algorithm = AccFCSGM(0.1, 3, 2, 4, beta=0.3)
    ends = []
    for engine in ("loop", "vectorised", "wire"):
        fed = Federation(problem, CLIENTS, engine=engine, seed=5)
        state = algorithm.init(fed, X)
        for _ in range(3):
            state = algorithm.round(fed, state)
        ends.append(state.x)
    for other in ends[1:]:
        torch.testing.assert_close(other, ends[0])


@pytest.mark.parametrize(("change", "said"), [({"noise": -1.0}, "noise must not be negative"), ({"scale": 0.0}, "scale must be positive"),
                                              ({"truth": torch.ones(2, 2)}, "truth is a flat floating vector"),
                                              ({"truth": torch.tensor([1, 2])}, "truth is a flat floating vector")])
def test_what_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        invariant_logistic(**{"truth": TRUTH, **change})
