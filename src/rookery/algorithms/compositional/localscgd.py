"""Local-SCGD and Local-SCGDM: local steps along a tracked inner value.

Gao, Li, Huang, "On the convergence of local stochastic compositional gradient descent with momentum", ICML 2022, for mean_k f_k(g_k(x)),
as the FCSG paper runs them.   x, h, u, c, a, q  →  x, h, u, lr, tracking, beta, local_steps

All variables are averaged, h too. With one local step a client's h is then (1−c)·mean_j g_j + c·g_k near the limit. On a shared inner
map, for which they were not made, mean_j g_j would be right, and the bias falls only with c; on local maps g_k would be, and it falls
only with 1−c. With more local steps the average is forgotten faster, as (1−c)^q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import Number, check_fraction, check_positive, value_at
from ._base import Composition, gradient_at


@dataclass(frozen=True)
class _Local(Composition):
    """What the two have in common."""

    plain_average: ClassVar[bool] = True
    inner_map: ClassVar = "any"

    lr: Number
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    tracking: Number = 0.5
    inner: int | None = None  # conditional samples of each row, on problems made by `conditional_as_compositional`

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch, inner=self.inner)
        check_fraction(tracking=self.tracking)


@dataclass(frozen=True)
class LocalSCGD(_Local):
    """h_k ← (1−tracking)·h_k + tracking·g_k(x_k); x_k ← x_k − lr·∇g_k(x_k)∇f_k(h_k); x and h are averaged every `local_steps`."""

    title: ClassVar[str] = "Local-SCGD"

    class State(NamedTuple):
        x: Tensor
        h: Tensor
        t: int

    def init(self, fed: Federation[Compositional], x: Tensor) -> State:
        x, S = self.validate(fed, x), fed.cohort()
        return self.State(x, S.mean(S.map(self.inner_value, S.broadcast(x))), 0)

    def round(self, fed: Federation[Compositional], s: State) -> State:
        S, rates = fed.cohort(), (value_at(self.lr, s.t), value_at(self.tracking, s.t))
        x, h = S.mean(*S.iterate(self.step, S.broadcast(s.x, s.h), *rates, steps=self.local_steps))
        return self.State(fed.project_x(x), h, s.t + 1)

    def inner_value(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return c.g(x, c.draw(self.batch, self.inner))

    def step(self, c: CompositionalClient, x: Tensor, h: Tensor, lr: float, tracking: float) -> tuple[Tensor, Tensor]:
        x, b = c.project_x(x), c.draw(self.batch, self.inner)
        h = (1 - tracking) * h + tracking * c.g(x, b)
        return x - lr * gradient_at(c, x, b, h, self.batch, self.inner), h


@dataclass(frozen=True)
class LocalSCGDM(_Local):
    """Local-SCGD with u_k ← (1−beta)·u_k + beta·∇g_k(x_k)∇f_k(h_k), x_k ← x_k − lr·u_k; x, u and h are averaged."""

    title: ClassVar[str] = "Local-SCGDM"
    beta: Number = 0.5

    class State(NamedTuple):
        x: Tensor
        u: Tensor
        h: Tensor
        t: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(beta=self.beta)

    def init(self, fed: Federation[Compositional], x: Tensor) -> State:
        x, S = self.validate(fed, x), fed.cohort()
        u, h = S.mean(*S.map(self.first_estimates, S.broadcast(x)))
        return self.State(x, u, h, 0)

    def round(self, fed: Federation[Compositional], s: State) -> State:
        S, rates = fed.cohort(), (value_at(rate, s.t) for rate in (self.lr, self.tracking, self.beta))
        x, u, h = S.mean(*S.iterate(self.step, S.broadcast(s.x, s.u, s.h), *rates, steps=self.local_steps))
        return self.State(fed.project_x(x), u, h, s.t + 1)

    def first_estimates(self, c: CompositionalClient, x: Tensor) -> tuple[Tensor, Tensor]:
        """u and h where there is nothing to mix with yet."""
        b = c.draw(self.batch, self.inner)
        h = c.g(x, b)
        return gradient_at(c, x, b, h, self.batch, self.inner), h

    def step(self, c: CompositionalClient, x: Tensor, u: Tensor, h: Tensor, lr: float, tracking: float,
             beta: float) -> tuple[Tensor, Tensor, Tensor]:
        x, b = c.project_x(x), c.draw(self.batch, self.inner)
        h = (1 - tracking) * h + tracking * c.g(x, b)
        u = (1 - beta) * u + beta * gradient_at(c, x, b, h, self.batch, self.inner)
        return x - lr * u, u, h
