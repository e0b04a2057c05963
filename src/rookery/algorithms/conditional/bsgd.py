"""BSGD and BSpiderBoost: conditional stochastic optimisation on one machine.

Hu, Zhang, Chen, He, "Biased stochastic first-order methods for conditional stochastic optimization and applications in meta learning",
NeurIPS 2020, Algorithms 1 and 2.   x_t, v_t, γ, m, q  →  x, v, lr, inner, local_steps;  outer batches: large at t mod q = 0, else outer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import ConditionalClient
from ...federation.placed import Placed
from ...problems.kinds import Conditional
from ..base import Algorithm, Number, check_positive, one_machine_only, value_at


@dataclass(frozen=True)
class _Centralised(Algorithm[Conditional]):
    """What the two have in common."""

    exact_with_local_steps: ClassVar[bool] = True  # there are no other clients to drift from

    lr: Number
    local_steps: int = 1
    outer: int | None = None  # None: all rows
    inner: int | None = None  # None: all stored conditional samples

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, outer=self.outer, inner=self.inner)

    def validate(self, fed: Federation[Conditional], x: Tensor) -> Tensor:
        one_machine_only(self, fed, "FCSG or Acc-FCSG-M")
        return super().validate(fed, x)

    def init(self, fed: Federation[Conditional], x: Tensor) -> State:
        return self.State(self.validate(fed, x), 0)


@dataclass(frozen=True)
class BSGD(_Centralised):
    """x ← x − lr·∇F̂(x; outer × inner samples), a new batch each time; a round is `local_steps` of them. FCSG of one client is BSGD.

    >>> BSGD(lr=0.1, outer=1, inner=8).inner
    8
    """

    title: ClassVar[str] = "BSGD"

    def round(self, fed: Federation[Conditional], s: _Centralised.State) -> _Centralised.State:
        X = fed.iterate(self.step, fed.broadcast(s.x), value_at(self.lr, s.t), steps=self.local_steps)
        return self.State(fed.project_x(fed.mean(X)), s.t + 1)

    def step(self, c: ConditionalClient, x: Tensor, lr: float) -> Tensor:
        return c.project_x(x - lr * c.gradient(x, c.draw(self.outer, self.inner)))


@dataclass(frozen=True)
class BSpiderBoost(_Centralised):
    """v = ∇F̂(x; large × inner samples) at a round's start, then v ← v + ∇F̂(x_t; b) − ∇F̂(x_{t−1}; b); x ← x − lr·v after each."""

    title: ClassVar[str] = "BSpiderBoost"
    large: int | None = None  # None: all rows

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(large=self.large)

    def round(self, fed: Federation[Conditional], s: _Centralised.State) -> _Centralised.State:
        return self.State(fed.project_x(fed.mean(self.period(fed, s))), s.t + 1)

    def period(self, fed: Federation[Conditional], s: _Centralised.State) -> Placed:
        """x after q = `local_steps` iterations: v is estimated anew in the next period, so that only x is left of this one."""
        X, lr = fed.broadcast(s.x), value_at(self.lr, s.t)
        X, V = fed.iterate(self.correct, (X, fed.map(self.anchor, X)), lr, steps=self.local_steps - 1)
        return fed.map(self.move, X, V, lr)

    def anchor(self, c: ConditionalClient, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(self.large, self.inner))

    def move(self, c: ConditionalClient, x: Tensor, v: Tensor, lr: float) -> Tensor:
        return c.project_x(x - lr * v)

    def correct(self, c: ConditionalClient, x: Tensor, v: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        new, b = self.move(c, x, v, lr), c.draw(self.outer, self.inner)
        return new, v + c.gradient(new, b) - c.gradient(x, b)
