"""PDSGD: primal-dual stochastic gradients, for constraints and for worst-case weights.

Xu, "Primal-dual stochastic gradient method for convex programs with many functional constraints", SIAM Journal on Optimization 2020, for
min f_0(x) subject to f_j(x) ≤ 0, j = 1 … M.   x, z, α, β, ρ  →  x, z, lr, penalty, dual_lr

A composition states it: f_0 is h and the constraints are g, whose mean over the clients must not be positive; the composition's f, a
penalty in its place, is not used. The paper is of one machine; the exchanges are ours. FedDRO's paper runs it on DRO, whose weights are
a point of the simplex: `PDSGDWeights` is our form of that, exponentiated ascent on the weights (Nemirovski et al. 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient, MinimaxClient
from ...problems.kinds import Compositional, Minimax
from ..base import Algorithm, Number, check_positive, check_start, value_at
from ._base import Composition, with_h


@dataclass(frozen=True)
class PDSGD(Composition):
    """x ← P(x − lr(∇h + [penalty·g_j(x) + z_j]₊∇g_j)) for a drawn j; z_i ← z_i + dual_lr·max(−z_i/penalty, g_i(x)) for another.

    The sums over constraints are means over them, as in the paper: a multiplier z_j is M times the usual one.
    """

    title: ClassVar[str] = "PDSGD"
    exact_with_local_steps: ClassVar[bool] = True  # it averages after each

    lr: Number
    dual_lr: Number = 0.1
    penalty: float = 1.0
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        z: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, dual_lr=self.dual_lr, penalty=self.penalty, batch=self.batch)
        if isinstance(self.dual_lr, int | float) and self.dual_lr > self.penalty:
            raise AlgorithmError(f"dual_lr must not exceed penalty, or a multiplier can become negative; got {self.dual_lr} and "
                                 f"{self.penalty}: lower dual_lr or raise penalty")

    def init(self, fed: Federation[Compositional], x: Tensor, z: Tensor | None = None) -> State:
        """Multipliers z start at 0; how many there are is asked of the clients once."""
        x, S = self.validate(fed, x), fed.cohort()
        if z is None:
            z = torch.zeros_like(S.mean(S.map(self.constraints, S.broadcast(x))))
        return self.State(x, check_start(x, z), 0)

    def round(self, fed: Federation[Compositional], s: State) -> State:
        S, (j, i) = fed.cohort(), (fed.integer(len(s.z)), fed.integer(len(s.z)))
        X = S.broadcast(s.x)
        g = S.mean(S.map(self.constraints, X))
        if g.shape != s.z.shape:
            raise AlgorithmError(f"one multiplier for each of the {len(g)} constraints is needed; z has {len(s.z)}: leave it out for 0")
        weight = torch.zeros_like(s.z)
        weight[j] = (self.penalty * g[j] + s.z[j]).clamp(min=0)
        x = fed.project_x(s.x - value_at(self.lr, s.t) * S.mean(S.map(self.direction, X, S.broadcast(weight))))
        g = S.mean(S.map(self.constraints, S.broadcast(x)))
        z = s.z.clone()
        z[i] = z[i] + value_at(self.dual_lr, s.t) * torch.maximum(-z[i] / self.penalty, g[i])
        return self.State(x, z, s.t + 1)

    def constraints(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return c.g(x, c.draw(self.batch))

    def direction(self, c: CompositionalClient, x: Tensor, weight: Tensor) -> Tensor:
        return with_h(c, x, c.g_vjp(x, c.draw(self.batch), weight), self.batch)


@dataclass(frozen=True)
class PDSGDWeights(Algorithm[Minimax]):
    """x ← P(x − lr·∂x f(x, p)); p ← p·exp(dual_lr·∂p f(x, p)), normalised: the weights p of groups, classes or rows on the simplex."""

    title: ClassVar[str] = "PDSGD (DRO)"
    exact_with_local_steps: ClassVar[bool] = True  # it averages after each

    lr: Number
    weights: int | None = None  # how many there are; None: as many as the starting point p has
    dual_lr: Number = 0.1
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        p: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, weights=self.weights, dual_lr=self.dual_lr, batch=self.batch)

    def init(self, fed: Federation[Minimax], x: Tensor, p: Tensor | None = None) -> State:
        """All weights are equal at the start, unless `p` is given."""
        x = self.validate(fed, x)
        if p is None:
            if self.weights is None:
                raise AlgorithmError("PDSGD (DRO) needs the number of its weights, or where they start: PDSGDWeights(weights=…), or "
                                     "init(fed, x, p)")
            p = x.new_full((self.weights,), 1 / self.weights)
        if p.shape != (self.weights or len(p),) or not bool((p > 0).all()) or abs(float(p.sum()) - 1) > 1e-5:
            raise AlgorithmError(f"a starting point is {self.weights or len(p)} positive weights that sum to 1; got {p.tolist()[:5]}: "
                                 "leave it out for equal ones")
        return self.State(x, p.detach(), 0)

    def round(self, fed: Federation[Minimax], s: State) -> State:
        S = fed.cohort()
        dx, dp = S.mean(*S.map(self.gradients, *S.broadcast(s.x, s.p)))
        p = torch.softmax(torch.log(s.p.clamp_min(torch.finfo(s.p.dtype).tiny)) + value_at(self.dual_lr, s.t) * dp, 0)
        return self.State(fed.project_x(s.x - value_at(self.lr, s.t) * dx), p, s.t + 1)

    def gradients(self, c: MinimaxClient, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        b = c.draw(self.batch)
        return c.f_x(x, p, b), c.f_y(x, p, b)
