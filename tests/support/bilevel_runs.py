"""A bilevel problem whose second derivatives move with x, its oracles in NumPy, and how runs and twins are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery import Batch, Bilevel, Data, Federation
from rookery.problems import testproblems as known

ROUNDS, ALPHA, BETA, ELL = 8, 0.05, 0.1, 6.0
X0, Y0 = np.array([1.0, -0.5, 0.7]), np.array([0.3, -0.4])
TAU = (3, 1, 2, 4)


def curved(clients: int = 4) -> tuple[Bilevel, Data, dict[str, list[Any]]]:
    """Bilevel with ∇²yy g, ∇²xy g and ∇y f that depend on x, and its oracles by hand in NumPy."""
    data = known.bilevel(sizes=(5, 3, 4, 7)[:clients]).data
    m = [{n: f.mean(0).numpy() for n, f in data.views(i).items()} for i in range(clients)]

    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * ((b.H @ y) @ y).mean() + 0.5 * (x[:2] * y).square().sum() - ((b.C @ x + b.e) @ y).mean()

    def f(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * (y - b.t).square().sum(1).mean() + 0.5 * (x - b.r).square().sum(1).mean() + 0.5 * x[0] * y[0]

    def pad(v: np.ndarray) -> np.ndarray:
        return np.array([v[0], v[1], 0.0])

    first, second = np.array([0.5, 0.0, 0.0]), np.array([0.5, 0.0])
    return Bilevel(f, g), data, {
        "fx": [lambda x, y, p=p: x - p["r"] + first * y[0] for p in m],
        "fy": [lambda x, y, p=p: y - p["t"] + second * x[0] for p in m],
        "gy": [lambda x, y, p=p: p["H"] @ y + x[:2] ** 2 * y - p["C"] @ x - p["e"] for p in m],
        "gyy": [lambda x, y, v, p=p: p["H"] @ v + x[:2] ** 2 * v for p in m],
        "gxy": [lambda x, y, v, p=p: pad(2 * x[:2] * y * v) - p["C"].T @ v for p in m]}


def run(algorithm: Any, fed: Federation, rounds: int = ROUNDS, **start: Any) -> list[Any]:
    state = algorithm.init(fed, torch.from_numpy(X0), torch.from_numpy(Y0), **start)
    states = []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        states.append(state)
    return states


def primes(fed: Federation) -> list[int]:
    """The numbers that `fed.integer` will give are written down here."""
    chosen: list[int] = []
    draw = fed.integer
    fed.integer = lambda bound: chosen.append(draw(bound)) or chosen[-1]  # type: ignore[func-returns-value,method-assign]
    return chosen


def same(states: list[Any], theirs: list[Any], names: str = "xy") -> None:
    assert len(states) == len(theirs)
    for j, name in enumerate(names):
        np.testing.assert_allclose(torch.stack([getattr(s, name) for s in states]).numpy(), np.asarray([row[j] for row in theirs]),
                                   rtol=1e-9, atol=1e-11)


def different(states: list[Any], theirs: list[Any]) -> None:
    assert np.abs(torch.stack([s.x for s in states]).numpy() - np.asarray([row[0] for row in theirs])).max() > 1e-4
