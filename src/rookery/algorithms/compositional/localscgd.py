"""Local-SCGD and Local-SCGDM: local steps along a tracked inner value.

Gao, Li, Huang, "On the convergence of local stochastic compositional gradient descent with momentum", ICML 2022, for mean_k f_k(g_k(x)),
as the FCSG paper runs them.   x, h, u, c, a, q  →  x, h, u, lr, tracking, beta, local_steps

All variables are averaged, h too. With one local step a client's h is then (1−c)·mean_j g_j + c·g_k near the limit. On a shared inner
map, for which they were not made, mean_j g_j would be right, and the bias falls only with c; on local maps g_k would be, and it falls
only with 1−c. With more local steps the average is forgotten faster, as (1−c)^q.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from ..base import Number, check_fraction, check_positive, value_at
from ._base import Composition, gradient_at

if TYPE_CHECKING:
    from ...federation.client import Client
    from ...federation.federation import Federation


@dataclass(frozen=True)
class LocalSCGD(Composition):
    """h_k ← (1−tracking)·h_k + tracking·g_k(x_k); x_k ← x_k − lr·∇g_k(x_k)∇f_k(h_k); x and h are averaged every `local_steps`."""

    title: ClassVar[str] = "Local-SCGD"
    plain_average: ClassVar[bool] = True
    inner_map: ClassVar = "any"

    lr: Number
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    tracking: Number = 0.5
    inner: int | None = None  # conditional samples of each row, on problems made by `conditional_as_compositional`

    class State(NamedTuple):
        x: Tensor
        h: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch, inner=self.inner)
        check_fraction(tracking=self.tracking)

    def init(self, fed: Federation, x: Tensor) -> State:
        x, S = self.validate(fed, x), fed.cohort()
        return self.State(x, S.mean(S.map(self.start, S.broadcast(x))), 0)

    def round(self, fed: Federation, s: State) -> State:
        S = fed.cohort()
        X, H = S.map(self.step, *S.broadcast(s.x, s.h), value_at(self.lr, s.t), value_at(self.tracking, s.t), times=self.local_steps)
        x, h = S.mean(X, H)
        return self.State(fed.project_x(x), h, s.t + 1)

    def start(self, c: Client, x: Tensor) -> Tensor:
        return c.g(x, c.draw(self.batch, self.inner))

    def step(self, c: Client, x: Tensor, h: Tensor, lr: float, tracking: float) -> tuple[Tensor, Tensor]:
        x, b = c.project_x(x), c.draw(self.batch, self.inner)
        h = (1 - tracking) * h + tracking * c.g(x, b)
        return x - lr * gradient_at(c, x, b, h, self.batch, self.inner), h


@dataclass(frozen=True)
class LocalSCGDM(LocalSCGD):
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

    def init(self, fed: Federation, x: Tensor) -> State:  # type: ignore[override]
        x, S = self.validate(fed, x), fed.cohort()
        u, h = S.mean(*S.map(self.first, S.broadcast(x)))
        return self.State(x, u, h, 0)

    def round(self, fed: Federation, s: State) -> State:  # type: ignore[override]
        S = fed.cohort()
        rates = (value_at(rate, s.t) for rate in (self.lr, self.tracking, self.beta))
        x, u, h = S.mean(*S.map(self.momentum_step, *S.broadcast(s.x, s.u, s.h), *rates, times=self.local_steps))
        return self.State(fed.project_x(x), u, h, s.t + 1)

    def first(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        """u and h at the start: nothing to mix with yet"""
        b = c.draw(self.batch, self.inner)
        h = c.g(x, b)
        return gradient_at(c, x, b, h, self.batch, self.inner), h

    def momentum_step(self, c: Client, x: Tensor, u: Tensor, h: Tensor, lr: float, tracking: float,
                      beta: float) -> tuple[Tensor, Tensor, Tensor]:
        x, b = c.project_x(x), c.draw(self.batch, self.inner)
        h = (1 - tracking) * h + tracking * c.g(x, b)
        u = (1 - beta) * u + beta * gradient_at(c, x, b, h, self.batch, self.inner)
        return x - lr * u, u, h
