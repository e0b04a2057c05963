"""FedDRO: federated compositional optimisation with a shared inner value.

Khanduri, Li, Ibn Sultan, Qiang, Kliewer, Zhu, "FedDRO: Federated compositional optimization for distributionally robust learning",
arXiv:2311.12652, Algorithm 2 and equations (7), (8).
    x_k^t, ȳ^t, η, β, I, b  →  x, y, lr, beta, local_steps, batch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..base import Number, check_fraction, check_positive, value_at
from ._base import Composition

if TYPE_CHECKING:
    from ...federation.client import Client
    from ...federation.federation import Federation
    from ...federation.placed import Placed


@dataclass(frozen=True)
class FedDRO(Composition):
    """y_k ← (1−beta)(ȳ − g_k(x_k^{t−1})) + g_k(x_k^t), averaged at every step; x_k ← x_k − lr[∇h_k + ∇g_k·∇f(ȳ)], averaged every I steps.

    A round is I exchanges of d_g numbers and one of d.
    """

    title: ClassVar[str] = "FedDRO"
    plain_average: ClassVar[bool] = True

    lr: Number
    beta: Number = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        last: Placed | None  # x^{t−1} at each client, its own point also across an average; who was away takes x
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)
        check_fraction(beta=self.beta)

    def init(self, fed: Federation, x: Tensor) -> State:
        x = self.validate(fed, x)
        S = fed.cohort()
        # the paper leaves ȳ^0 open; from 0 the logarithm of the KL form would blow up
        return self.State(x, S.mean(S.map(self.start, S.broadcast(x))), None, 0)

    def round(self, fed: Federation, s: State) -> State:
        S, lr, beta = fed.cohort(), value_at(self.lr, s.t), value_at(self.beta, s.t)
        X, shared, y = S.broadcast(s.x), S.broadcast(s.y), s.y
        last = X if s.last is None else S.take(s.last, X)
        for _ in range(self.local_steps):
            if len(y) == 1:  # ∇g_k ∇f(ȳ) is ∇g_k times a number: ∇g_k is had with g_k, and waits for ȳ at the client
                Y, G = S.map(self.estimate_and_slope, X, last, shared, beta)
                y = S.mean(Y)
                shared = S.broadcast(y)
                X, last = S.map(self.step_along, X, G, shared, lr, like=Y)
                del G
            else:
                Y = S.map(self.estimate, X, last, shared, beta)
                y = S.mean(Y)
                shared = S.broadcast(y)
                X, last = S.map(self.step, X, shared, lr, like=Y)
        return self.State(fed.project_x(S.mean(X)), y, last, s.t + 1)

    def start(self, c: Client, x: Tensor) -> Tensor:
        return c.g(x, c.draw(self.batch))

    def estimate(self, c: Client, x: Tensor, last: Tensor, y: Tensor, beta: float) -> Tensor:
        """(8)"""
        b = c.draw(self.batch)
        return (1 - beta) * (y - c.g(last, b)) + c.g(c.project_x(x), b)

    def step(self, c: Client, x: Tensor, y: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """(7), with the batch of (8); lr goes into the d_g numbers of ∇f(ȳ), which spares a pass over d"""
        x = c.project_x(x)
        return self.arrive(c, x, x - c.g_vjp(x, c.draw(self.batch), lr * c.f_gradient(y)), lr)

    def estimate_and_slope(self, c: Client, x: Tensor, last: Tensor, y: Tensor, beta: float) -> tuple[Tensor, Tensor]:
        """(8), and ∇g_k from the same forward pass"""
        b = c.draw(self.batch)
        g, J = c.g_and_jacobian(c.project_x(x), b)
        return (1 - beta) * (y - c.g(last, b)) + g, J[0]

    def step_along(self, c: Client, x: Tensor, slope: Tensor, y: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """(7), with ∇g_k known"""
        if c.problem.h is not None:  # type: ignore[attr-defined]
            c.draw(self.batch)  # that of (8), no longer needed: h has the one after it
        x = c.project_x(x)
        return self.arrive(c, x, torch.addcmul(x, slope, -lr * c.f_gradient(y)), lr)  # in one pass over x

    def arrive(self, c: Client, x: Tensor, moved: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """The new point, with the step along ∇h_k on a batch of its own, and the old one"""
        if c.problem.h is not None:  # type: ignore[attr-defined]
            moved = moved - lr * c.h_gradient(x, c.draw(self.batch))
        return moved, x
