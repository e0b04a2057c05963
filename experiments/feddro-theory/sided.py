"""A composition that is not convex, meets the theorem's assumptions, and has its gradient in closed form; and one run on it.

    f(z) = √(1 + z²),   g_k(x; ζ) = (a + s_k δ_g + σζ)ᵀx + s_k + σζ_0,   h_k(x; ξ) = Σ_j 1 − cos(x_j − c_j − s_k δ_h + τξ_j)
    ∇Φ(x) = a·f'(aᵀx) + e^{−τ²/2} cos(δ_h) sin(x − c)

with normal ζ, ξ, and s_k = ±1 where clients are heterogeneous, 0 where they are alike. f'(g(x*)) is not 0: Jacobians that differ pull apart
at x* too.

Replicas: x holds many copies of the problem one after the other, and each has samples of its own; f is the sum over them. FedDRO treats
every coordinate alike, so that one run is many independent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import theory
import torch
from common import timed
from torch import Tensor

from rookery import Batch, Compositional, Data, FedAvgCaseI, FedDRO, Federation
from rookery.data.sampling import Selection
from rookery.studies.trials import Result, Trial

REPLICAS = 32
SIGMA, TAU, CENTRE = 0.5, 1.0, 1.0
APART_G, APART_H = 1.0, 0.5  # of heterogeneous clients: the length of δ_g, and δ_h


@dataclass(frozen=True)
class Sides(theory.Sides):
    """Normal samples, and the client's side among the fields of the batch."""

    def fetch(self, data: Data, selection: Selection) -> Batch:
        drawn = super().fetch(data, selection)
        return Batch({**drawn.fields, "side": selection["side"]})


def directions(d: int) -> tuple[Tensor, Tensor]:
    """a and δ_g/‖δ_g‖: unit vectors, at right angles."""
    a = torch.full((d,), 1 / math.sqrt(d))
    other = torch.tensor([1.0, -1.0]).repeat(d // 2) / math.sqrt(d)
    return a, other


def problem(d: int = 2, replicas: int = REPLICAS, differ: bool = False) -> Compositional:
    a, apart = directions(d)

    def g(x: Tensor, b: Batch) -> Tensor:
        slope = a + APART_G * b.side[:, None, None] * apart + SIGMA * b.xi[..., :d]
        return ((slope * x.reshape(replicas, d)).sum(-1) + b.side[:, None] + SIGMA * b.xi[..., d]).mean(0)

    def h(x: Tensor, b: Batch) -> Tensor:
        off = x.reshape(replicas, d) - CENTRE - APART_H * b.side[:, None, None] + TAU * b.xi[..., :d]
        return (1 - torch.cos(off)).sum((1, 2)).mean()

    def g_vjp(x: Tensor, b: Batch, v: Tensor) -> Tensor:
        slope = a + APART_G * b.side[:, None, None] * apart + SIGMA * b.xi[..., :d]
        return (slope.mean(0) * v[:, None]).reshape(-1)

    def h_gradient(x: Tensor, b: Batch) -> Tensor:
        off = x.reshape(replicas, d) - CENTRE - APART_H * b.side[:, None, None] + TAU * b.xi[..., :d]
        return torch.sin(off).mean(0).reshape(-1)

    def f_gradient(z: Tensor, b: Batch | None = None) -> Tensor:
        return z / (1 + z.square()).sqrt()

    return Compositional(lambda z: (1 + z.square()).sqrt().sum(), g, h, sampling=Sides((replicas, d + 1), differ=differ),
                         oracles={"g_vjp": g_vjp, "h_gradient": h_gradient, "f_gradient": f_gradient})


def exact(x: Tensor, d: int = 2, differ: bool = False) -> Tensor:
    """∇Φ of each replica."""
    X, a = x.reshape(-1, d).double(), directions(d)[0].double()
    z = X @ a
    wave = math.exp(-(TAU**2) / 2) * (math.cos(APART_H) if differ else 1.0)
    return (z / (1 + z.square()).sqrt())[:, None] * a + wave * torch.sin(X - CENTRE)


def rule(T: float, K: int, lr: float = 0.5, beta: float = 2.0, local: float = 1.0) -> dict[str, Any]:
    """η, β and I of Theorem 5.1 and Corollary 5.2 with one constant in each place, for all K and T."""
    eta = lr * math.sqrt(K / T)
    return {"lr": eta, "beta": min(1.0, beta * eta), "local_steps": max(1, round(local * T**0.25 / K**0.75))}


@timed
def work(trial: Trial) -> Result:
    """One run of T steps, all replicas: each one's mean of ‖∇Φ‖² over the points at which rounds begin, and what a client sent."""
    K, d, differ = trial["clients"], trial["d"], trial["differ"]
    setting = rule(trial["steps"], K, local=trial["local"])
    if trial["local_steps"]:
        setting["local_steps"] = trial["local_steps"]
    if trial["method"] == "FedDRO":
        algorithm: Any = FedDRO(batch=1, **setting)
    else:
        algorithm = FedAvgCaseI(setting["lr"], setting["local_steps"], batch=1)
    fed = Federation(problem(d, differ=differ), Data.streams([f"client-{k:02}" for k in range(K)]), seed=trial["seed"])
    state = algorithm.init(fed, torch.zeros(REPLICAS * d))
    before = fed.ledger["train"].floats_up + fed.ledger["train"].floats_down
    rounds = max(1, round(trial["steps"] / algorithm.local_steps))
    values = theory.followed(algorithm, fed, state, rounds, lambda x: exact(x, d, differ).square().sum(-1))
    assert values is not None  # no run on this problem counts as lost
    account = fed.ledger["train"]
    floats = (account.floats_up + account.floats_down - before) / K / REPLICAS
    return {"steps": rounds * algorithm.local_steps, "rounds": rounds, "values": theory.mean_where_rounds_begin(values), "floats": floats,
            "floats of x": 2 * d * rounds, "floats of y": floats - 2 * d * rounds}
