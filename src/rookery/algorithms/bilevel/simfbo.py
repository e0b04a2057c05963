"""SimFBO and ShroFBO: federated bilevel optimisation in one loop, one exchange a round.

Yang, Xiao, Ji, "SimFBO: Towards simple, flexible and communication-efficient federated bilevel learning", NeurIPS 2023.
    x, y, v, γ_x, γ_y, γ_v, τ_i, r  →  x, y, v, lr, inner_lr, solve_lr, local_steps, radius;  η_x, η_y, η_v  →  local times the γ's

The weights a_i of the local gradients are 1, so that ‖a_i‖₁ = τ_i. A cohort C of n clients has the weights p̃_i = (n/|C|)·p_i, which are
not renormalised: the mean direction over all cohorts is that of all clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...federation.epochs import Epochs
from ...federation.federation import Cohort, Federation
from ...federation.operations import Index
from ...federation.oracles import BilevelClient
from ...federation.placed import Placed
from ...problems.kinds import Bilevel
from ...problems.projections import ball
from ..base import Algorithm, Number, check_beside, check_positive, check_start, value_at
from .curvature import refuse_embedded


@dataclass(frozen=True)
class _OneLoop(Algorithm[Bilevel]):
    """What the two have in common; they differ in what a client sends, and in what the server makes of its mean."""

    lr: Number
    inner_lr: Number = 0.1
    solve_lr: Number = 0.1
    local_steps: int | Epochs | tuple[int, ...] = 1
    batch: int | None = None  # None: all rows
    local: float = 1.0
    radius: float | None = None  # None: v is not projected

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        v: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, solve_lr=self.solve_lr, local_steps=self.local_steps, batch=self.batch,
                 local=self.local, radius=self.radius)

    def init(self, fed: Federation[Bilevel], x: Tensor, y: Tensor | None = None, v: Tensor | None = None) -> State:
        """`v` is where [∇²yy g]⁻¹∇y f starts; 0 by default."""
        x = self.validate(fed, x)
        y = check_start(x, y)
        refuse_embedded(fed, self.title)
        return self.State(x, fed.project_y(y), check_beside(y, v, "v"), 0)

    def round(self, fed: Federation[Bilevel], s: State) -> State:
        S = fed.cohort()
        tau = np.full(S.size, S.steps(self.local_steps, self.batch))
        rates = [value_at(rate, s.t) for rate in (self.lr, self.inner_lr, self.solve_lr)]
        placed = S.broadcast(s.x, s.y, s.v)
        sums = S.iterate(self.step, (*placed, *S.map(self.zeros, *placed)), *(self.local * rate for rate in rates), steps=tau)[3:]
        hx, hy, hv = S.mean(*self.weighted(S, sums, tau))
        scale = S.horvitz_thompson * self.scale(fed)
        v = s.v - scale * rates[2] * hv
        return self.State(fed.project_x(s.x - scale * rates[0] * hx), fed.project_y(s.y - scale * rates[1] * hy),
                          v if self.radius is None else ball(self.radius)(v), s.t + 1)

    def weighted(self, S: Cohort[Bilevel], sums: tuple[Placed, ...], tau: Index) -> tuple[Placed, ...]:
        """What a client sends, from the sums of its directions."""
        raise NotImplementedError

    def scale(self, fed: Federation[Bilevel]) -> float:
        """What the server multiplies the mean of what was sent with."""
        raise NotImplementedError

    def zeros(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros_like(x), torch.zeros_like(y), torch.zeros_like(v)

    def step(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, sx: Tensor, sy: Tensor, sv: Tensor, eta_x: float, eta_y: float,
             eta_v: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        x, y, bf, bg = c.project_x(x), c.project_y(y), c.draw(self.batch), c.draw(self.batch)
        hx = c.f_x(x, y, bf) - c.g_xy(x, y, bg, v)
        hy = c.g_y(x, y, bg)
        hv = c.g_yy(x, y, bg, v) - c.f_y(x, y, bf)
        return x - eta_x * hx, y - eta_y * hy, v - eta_v * hv, sx + hx, sy + hy, sv + hv


@dataclass(frozen=True)
class SimFBO(_OneLoop):
    """τ_i local steps on y, v and x at once along ∇y g, ∇²yy g·v − ∇y f, ∂x f − ∇²xy g·v; the server steps along the means of their sums.

    One exchange of d + 2d_y. With local=1 and no radius the server takes the means of the local points.

    >>> SimFBO(lr=0.1, inner_lr=0.2, solve_lr=0.2, local_steps=5).radius is None
    True
    """

    title: ClassVar[str] = "SimFBO"

    def weighted(self, S: Cohort[Bilevel], sums: tuple[Placed, ...], tau: Index) -> tuple[Placed, ...]:
        return sums

    def scale(self, fed: Federation[Bilevel]) -> float:
        return 1.0


@dataclass(frozen=True)
class ShroFBO(_OneLoop):
    """SimFBO with each client's sums divided by ‖a_i‖₁ = τ_i and the server's steps multiplied by Σ_i p_i‖a_i‖₁.

    Unequal τ_i then do not tilt the objective. With equal τ_i it is SimFBO.
    """

    title: ClassVar[str] = "ShroFBO"

    def weighted(self, S: Cohort[Bilevel], sums: tuple[Placed, ...], tau: Index) -> tuple[Placed, ...]:
        return S.map(self.normalised, *sums, tau)

    def scale(self, fed: Federation[Bilevel]) -> float:
        """Σ_i p_i‖a_i‖₁ over all clients: over the cohort alone it would vary with the sums, and bias their product."""
        return float(np.average(np.full(fed.population, fed.steps(self.local_steps, self.batch)), weights=fed.weights))

    def normalised(self, c: BilevelClient, sx: Tensor, sy: Tensor, sv: Tensor, tau: int) -> tuple[Tensor, Tensor, Tensor]:
        return sx / tau, sy / tau, sv / tau
