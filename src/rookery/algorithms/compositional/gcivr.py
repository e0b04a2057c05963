"""GCIVR: compositions with variance-reduced estimates of the inner value and its Jacobian, averaged at every iteration.

Zhang, Xiao, "A stochastic composite gradient method with incremental variance reduction", NeurIPS 2019 (CIVR), with h and over clients as
in Haddadpour, Kamani, Mahdavi, Karbasi, "Learning distributionally robust models at scale via composite optimization", ICLR 2022.
    x, y, z (the Jacobian), w, η, τ, B, S  →  x, y, J, w, lr, period, large, batch;   finite sum of m rows: τ = S = √m, B = m
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...data.store import Batch
from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import Number, check_positive, value_at
from ._base import Composition


@dataclass(frozen=True)
class GCIVR(Composition):
    """y, J, w = g, ∇g, ∇h on `large` samples, then y ← y + g_S(x_t) − g_S(x_{t−1}), J and w likewise; x ← x − lr(Jᵀ∇f(y) + w).

    A round is one period of `period` iterations, each an exchange of d_g + d_g·d numbers, and d for w where there is an h.
    """

    title: ClassVar[str] = "GCIVR"
    exact_with_local_steps: ClassVar[bool] = True  # it averages after each

    lr: Number
    period: int = 1
    batch: int | None = None  # None: all rows
    large: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, period=self.period, batch=self.batch, large=self.large)

    def init(self, fed: Federation[Compositional], x: Tensor) -> State:
        return self.State(self.validate(fed, x), 0)

    def round(self, fed: Federation[Compositional], s: State) -> State:
        S, x, lr = fed.cohort(), s.x, value_at(self.lr, s.t)
        X = S.broadcast(x)
        v = S.mean(S.map(self.anchor, X))
        x = self.step(fed, x, v, lr)
        for _ in range(self.period - 1):
            last, X = X, S.broadcast(x)
            v = v + S.mean(S.map(self.change, X, last))
            x = self.step(fed, x, v, lr)
        return self.State(x, s.t + 1)

    def step(self, fed: Federation[Compositional], x: Tensor, v: Tensor, lr: float) -> Tensor:
        """The step x − η(Jᵀ∇f(y) + w), at the server, which knows f."""
        rows = len(v) // (1 + len(x))
        y, flat, w = v[:rows], v[rows : rows + rows * len(x)], v[rows + rows * len(x):]
        J = flat.reshape(rows, len(x))
        direction = J.T @ fed.problem.oracle("f_gradient")(y)
        return fed.project_x(x - lr * (direction + w if len(w) else direction))

    def anchor(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return self.estimate(c, x, c.draw(self.large))

    def change(self, c: CompositionalClient, x: Tensor, last: Tensor) -> Tensor:
        b = c.draw(self.batch)
        return self.estimate(c, x, b) - self.estimate(c, last, b)

    @staticmethod
    def estimate(c: CompositionalClient, x: Tensor, b: Batch) -> Tensor:
        """The estimates y, J (row by row) and w in one vector."""
        y, J = c.g_and_jacobian(x, b)
        w = () if c.problem.h is None else (c.h_gradient(x, b),)
        return torch.cat([y, J.reshape(-1), *w])
