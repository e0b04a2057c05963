"""A compositional minimax problem that is not convex in x and has its gradient in closed form; and one run on it.

    g_k(x; ξ) = (A + s_k D + ρ diag(ξ)A)x + s_k b + σξ'
    f_k(z, y; ζ) = Σ_j 1 − cos(z_j − c_j) + y(qᵀz + s_k δ_y + τζ_0) − ½(1 + s_k δ_μ)y² + (r_k e + τζ)ᵀz
    y*(x) = qᵀAx,   ∇Φ(x) = Aᵀ( sin(Ax − c) + q·qᵀAx )

with normal ξ, ξ', ζ; s_k = ±1 at clients of even and odd number where clients differ, 0 where they are alike; r_k says whether their
∂z f_k differ too: 0, or s_k, or ±1 in pairs of clients, so that the mean of r_k s_k is 0. Φ is the same in all cases. There are more inner
values than coordinates of x and ∂z f is not 0 at the solution, so that Jacobians that differ pull apart there too.

What clients average is ∇g_kᵀ∂z f_k, and its mean at a common (z, y) is ∇Φ + (mean r_k s_k)·Dᵀe: where inner maps and outer functions
differ together, it is not the gradient.

Replicas: x, y and the inner value hold many copies of the problem one after the other, and each has samples of its own. LocalSCGDAM treats
every coordinate alike, so that one run is many independent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import theory
import torch
from common import timed
from torch import Tensor

from rookery import Batch, CompositionalMinimax, Data, Federation, LocalSCGDAM
from rookery.data.sampling import Draw, Request, Selection
from rookery.studies.trials import Result, Trial

REPLICAS = 128
A = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])
C = torch.tensor([0.8, -0.8, 1.2])
Q = torch.tensor([0.5, 0.5, 0.0])
SIGMA, RHO, TAU = 0.15, 0.15, 1.5
D = torch.tensor([[0.2, 0.0], [0.0, 0.2], [-0.2, 0.2]])  # clients that differ: their Jacobians, inner values and outer functions
B = torch.tensor([0.5, -0.5, 0.0])
E = torch.tensor([0.6, 0.0, -0.6])
APART_Y, APART_MU = 0.5, 0.3
START = torch.tensor([0.9, -0.5])
INNER, COORDINATES = A.shape


@dataclass(frozen=True)
class Sides(theory.Sides):
    """Normal samples, times `noise`, with the client's s as `side` and its r as `other` among the fields of the batch.

    outer: "same" has r = 0, "joint" r = s, "crossed" r = ±1 for clients 0, 1 and 2, 3 of every four.
    """

    outer: str = "same"
    noise: float = 1.0

    def select(self, draw: Draw, request: Request) -> Selection:
        chosen = super().select(draw, request)
        pairs = torch.from_numpy(np.where(draw.clients // 2 % 2 == 0, 1.0, -1.0)).to(self.dtype)[:, None, None]
        zero = torch.zeros_like(chosen["side"])
        chosen["other"] = {"same": zero, "joint": chosen["side"], "crossed": zero + pairs}[self.outer]
        return chosen

    def fetch(self, data: Data, selection: Selection) -> Batch:
        drawn = super().fetch(data, selection)
        return Batch({"xi": self.noise * drawn.xi, "side": selection["side"], "other": selection["other"]})


def problem(differ: bool = False, outer: str = "same", replicas: int = REPLICAS, noise: float = 1.0) -> CompositionalMinimax:
    def jacobian(b: Batch) -> Tensor:
        return A + b.side[:, None, None, None] * D + RHO * b.xi[..., :INNER, None] * A

    def g(x: Tensor, b: Batch) -> Tensor:
        z = (jacobian(b) * x.reshape(replicas, 1, COORDINATES)).sum(-1) + b.side[:, None, None] * B + SIGMA * b.xi[..., INNER:]
        return z.mean(0).reshape(-1)

    def g_vjp(x: Tensor, b: Batch, v: Tensor) -> Tensor:
        return (jacobian(b).mean(0) * v.reshape(replicas, INNER, 1)).sum(1).reshape(-1)

    def f(z: Tensor, y: Tensor, b: Batch) -> Tensor:
        z = z.reshape(replicas, INNER)
        linear = (b.other[:, None, None] * E + TAU * b.xi[..., :INNER]).mean(0)
        coupled = z @ Q + (APART_Y * b.side[:, None] + TAU * b.xi[..., INNER]).mean(0)
        return ((1 - torch.cos(z - C) + linear * z).sum(-1) + y * coupled - 0.5 * (1 + APART_MU * b.side.mean()) * y.square()).sum()

    def f_z(z: Tensor, y: Tensor, b: Batch) -> Tensor:
        linear = (b.other[:, None, None] * E + TAU * b.xi[..., :INNER]).mean(0)
        return (torch.sin(z.reshape(replicas, INNER) - C) + linear + y[:, None] * Q).reshape(-1)

    def f_y(z: Tensor, y: Tensor, b: Batch) -> Tensor:
        noisy = (APART_Y * b.side[:, None] + TAU * b.xi[..., INNER]).mean(0)
        return z.reshape(replicas, INNER) @ Q + noisy - (1 + APART_MU * b.side.mean()) * y

    return CompositionalMinimax(f, g, sampling=Sides((replicas, 2 * INNER), differ=differ, outer=outer, noise=noise),
                                oracles={"g_vjp": g_vjp, "f_z": f_z, "f_y": f_y})


def exact(x: Tensor) -> Tensor:
    """∇Φ of each replica."""
    X, a, q = x.reshape(-1, COORDINATES).double(), A.double(), Q.double()
    z = X @ a.T
    return (torch.sin(z - C.double()) + (z @ q)[:, None] * q) @ a


def rule(T: float, K: int) -> dict[str, Any]:
    """Theorem 1 and Remark 1: p = T^¼/K^¾ rounded down, and all rates in proportion to η = ½√(K/T).

    One constant stands in each place for all K and T: γ_x = 0.2, γ_y = 1, α = 0.8, β_x = β_y = 5.6.
    """
    eta = 0.5 * math.sqrt(K / T)
    return {"lr": 0.2 * eta, "inner_lr": eta, "tracking": min(1.0, 0.8 * eta), "beta": min(1.0, 5.6 * eta),
            "inner_beta": min(1.0, 5.6 * eta), "local_steps": max(1, math.floor(T**0.25 / K**0.75 * (1 + 1e-12)))}


@timed
def work(trial: Trial) -> Result:
    """One run of T steps, all replicas: each one's mean of ‖∇Φ‖² over the points at which rounds begin. Without noise one is all."""
    K, replicas = trial["clients"], REPLICAS if trial["noise"] else 1
    algorithm = LocalSCGDAM(batch=1, **rule(trial["steps"], K) | trial["changed"])
    fed = Federation(problem(trial["differ"], trial["outer"], replicas, trial["noise"]), Data.streams([f"client-{k:02}" for k in range(K)]),
                     seed=trial["seed"])
    state = algorithm.init(fed, START.repeat(replicas), (START @ A.T @ Q).repeat(replicas))
    rounds = max(1, round(trial["steps"] / algorithm.local_steps))
    values = theory.followed(algorithm, fed, state, rounds, lambda x: exact(x).square().sum(-1))
    assert values is not None  # no run on this problem counts as lost
    return {"steps": rounds * algorithm.local_steps, "rounds": rounds, "values": theory.mean_where_rounds_begin(values)}
