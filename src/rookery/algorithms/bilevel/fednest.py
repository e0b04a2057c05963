"""FedNest, FedNest-SGD and LFedNest: federated bilevel, minimax and compositional optimisation.

Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest: Federated bilevel, minimax, and compositional optimization", ICML 2022.
    x, y, p, q, h, α, β, T, τ_i, N, ℓ_{g,1}  →  x, y, p, q, h, lr, inner_lr, inner_rounds, local_steps and outer_steps, terms, smoothness

Run on Bilevel problems; `rookery.as_bilevel` embeds Minimax, Compositional and Minimization. Exchanges of an outer round:

    FedNest       2T + N' + 3 (N' ~ U{0..N−1}), 2T + N + 3 deterministic, at most that with conjugate gradients;
                  2T + 3 compositional, 2T + 2 minimax, 2 single-level
    FedNest-SGD   T less
    LFedNest      T + 1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from torch import Tensor

from ...data.store import Batch
from ...errors import AlgorithmError
from ...problems.base import Problem
from ...problems.kinds import Bilevel
from ..base import Algorithm, Number, check_positive, value_at
from ..minimax._base import start
from .curvature import conjugate, neumann_product, neumann_sum

if TYPE_CHECKING:
    from ...federation.client import Client
    from ...federation.epochs import Epochs
    from ...federation.federation import Cohort, Federation
    from ...federation.operations import Index
    from ...federation.placed import Placed


@dataclass(frozen=True)
class FedNest(Algorithm):
    """T times FedInn (FedSVRG on y), FedIHGP (p ≈ [∇²yy g]⁻¹∇y f), FedOut (FedSVRG on x)."""

    title: ClassVar[str] = "FedNest"
    solves: ClassVar[type[Problem]] = Bilevel
    exact_with_local_steps: ClassVar[bool] = True

    lr: Number
    inner_lr: Number = 0.1
    inner_rounds: int = 1
    local_steps: int | Epochs | tuple[int, ...] = 1  # a tuple: τ_i, one number for each client
    terms: int = 5
    smoothness: float = 1.0  # ℓ_{g,1}: at least the largest eigenvalue of ∇²yy g; see `estimate_smoothness`
    inverse_solver: Literal["random neumann", "neumann", "cg"] = "random neumann"
    batch: int | None = None  # None: all rows
    outer_steps: int | Epochs | tuple[int, ...] | None = None  # τ_i of FedOut; None: those of FedInn
    # all rows for what is averaged before local steps (q, p, h), as in the authors' code; in LFedNest for steps on x
    full_anchors: bool = False

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, inner_rounds=self.inner_rounds, local_steps=self.local_steps,
                 terms=self.terms, smoothness=self.smoothness, batch=self.batch, outer_steps=self.outer_steps)
        if self.inverse_solver not in ("random neumann", "neumann", "cg"):
            raise AlgorithmError(f'inverse_solver is "random neumann", "neumann" or "cg"; got {self.inverse_solver!r}')

    def init(self, fed: Federation, x: Tensor, y: Tensor | None = None) -> State:
        """`y` is the starting point of the inner problem; left out where there is none (an embedded minimisation)."""
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(start(x, y)) if fed.problem.inner else x.new_zeros(0), 0)  # type: ignore[attr-defined]

    def round(self, fed: Federation, s: State) -> State:
        X, y = fed.broadcast(s.x), s.y
        for _ in range(self.inner_rounds if y.numel() else 0):
            y = self.fed_inn(fed.cohort(), X, y, value_at(self.inner_lr, s.t))
        Y = fed.broadcast(y)
        p = self.fed_ihgp(fed, X, Y)
        return self.State(self.fed_out(fed.cohort(), X, Y, p, value_at(self.lr, s.t)), y, s.t + 1)

    @property
    def anchor_batch(self) -> int | None:
        return None if self.full_anchors else self.batch

    def outer_times(self, S: Cohort) -> int | Index:
        return S.steps(self.local_steps, self.batch) if self.outer_steps is None else S.steps(self.outer_steps, self.batch, "outer_steps")

    # FedInn

    def fed_inn(self, S: Cohort, X: Placed, y: Tensor, beta: float) -> Tensor:
        Y = S.broadcast(y)
        q = S.mean(S.map(self.inner_gradient, X, Y))
        Yi = S.map(self.inner_step, Y, X, Y, S.broadcast(q), beta, times=S.steps(self.local_steps, self.batch))
        return S.fed.project_y(S.mean(Yi))

    def inner_gradient(self, c: Client, x: Tensor, y: Tensor) -> Tensor:
        return c.g_y(x, y, c.draw(self.anchor_batch))

    def inner_step(self, c: Client, yi: Tensor, x: Tensor, y: Tensor, q: Tensor, beta: float) -> Tensor:
        yi, b = c.project_y(yi), c.draw(self.batch)
        return yi - beta / c.times * (c.g_y(x, yi, b) - c.g_y(x, y, b) + q)

    # FedIHGP

    def fed_ihgp(self, fed: Federation, X: Placed, Y: Placed, terms: int | None = None) -> Tensor | None:
        """p; a fresh cohort for every term. `terms` fixes N' of the random form."""
        inverse = fed.problem.inverse  # type: ignore[attr-defined]
        if inverse == "none":
            return None
        S = fed.cohort()
        v: Tensor = S.mean(S.map(self.outer_gradient, X, Y))
        if inverse == "identity":
            return v
        if self.inverse_solver == "cg":
            return conjugate(lambda p: self.factor(fed, X, Y, p, self.hessian_product), v, self.terms)
        if self.inverse_solver == "random neumann":
            p = self.terms / self.smoothness * v
            for _ in range(fed.integer(self.terms) if terms is None else terms):
                p = self.factor(fed, X, Y, p)
            return p
        p = v / self.smoothness
        for _ in range(self.terms):
            v = self.factor(fed, X, Y, v)
            p = p + v / self.smoothness
        return p

    def factor(self, fed: Federation, X: Placed, Y: Placed, p: Tensor, fn: Callable[..., Tensor] | None = None) -> Tensor:
        S = fed.cohort()
        return S.mean(S.map(fn or self.hessian_step, X, Y, S.broadcast(p)))  # type: ignore[no-any-return]

    def outer_gradient(self, c: Client, x: Tensor, y: Tensor) -> Tensor:
        return c.f_y(x, y, c.draw(self.anchor_batch))

    def hessian_step(self, c: Client, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return p - c.g_yy(x, y, c.draw(self.anchor_batch), p) / self.smoothness

    def hessian_product(self, c: Client, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return c.g_yy(x, y, c.draw(self.anchor_batch), p)

    # FedOut

    def fed_out(self, S: Cohort, X: Placed, Y: Placed, p: Tensor | None, alpha: float) -> Tensor:
        placed = (X, Y) if p is None else (X, Y, S.broadcast(p))
        h = S.mean(S.map(self.direct if p is None else self.indirect, *placed))
        step = self.direct_step if p is None else self.indirect_step
        Xi = S.map(step, X, S.broadcast(h), alpha, *placed, times=self.outer_times(S))
        return S.fed.project_x(S.mean(Xi))

    def direct(self, c: Client, x: Tensor, y: Tensor) -> Tensor:
        return c.f_x(x, y, c.draw(self.anchor_batch))

    def direct_step(self, c: Client, xi: Tensor, h: Tensor, alpha: float, x: Tensor, y: Tensor) -> Tensor:
        xi, b = c.project_x(xi), c.draw(self.batch)
        return xi - alpha / c.times * (c.f_x(xi, y, b) - c.f_x(x, y, b) + h)

    def indirect(self, c: Client, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return self.h(c, x, y, p, c.draw(self.anchor_batch), c.draw(self.anchor_batch))

    def indirect_step(self, c: Client, xi: Tensor, h: Tensor, alpha: float, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        xi, bf, bg = c.project_x(xi), c.draw(self.batch), c.draw(self.batch)
        return xi - alpha / c.times * (self.h(c, xi, y, p, bf, bg) - self.h(c, x, y, p, bf, bg) + h)

    @staticmethod
    def h(c: Client, x: Tensor, y: Tensor, p: Tensor, bf: Batch, bg: Batch) -> Tensor:
        """h_i(x) = ∂x f_i(x, y; ξ) − ∇²xy g_i(x, y; ζ)·p"""
        return c.f_x(x, y, bf) - c.g_xy(x, y, bg, p)


@dataclass(frozen=True)
class FedNestSGD(FedNest):
    """FedNest with plain local SGD in FedInn, y_i ← y_i − (inner_lr/τ_i)∇y g_i(x, y_i): one exchange instead of two, and drift in y."""

    title: ClassVar[str] = "FedNest-SGD"
    exact_with_local_steps: ClassVar[bool] = False

    def fed_inn(self, S: Cohort, X: Placed, y: Tensor, beta: float) -> Tensor:
        Yi = S.map(self.inner_sgd, S.broadcast(y), X, beta, times=S.steps(self.local_steps, self.batch))
        return S.fed.project_y(S.mean(Yi))

    def inner_sgd(self, c: Client, yi: Tensor, x: Tensor, beta: float) -> Tensor:
        yi = c.project_y(yi)
        return yi - beta / c.times * c.g_y(x, yi, c.draw(self.batch))


@dataclass(frozen=True)
class LFedNest(FedNestSGD):
    """Local SGD on y, then x_i ← x_i − (lr/τ_i)(∂x f_i − ∇²xy g_i·p_i) with p_i of the client's own series, anew at every step.

    mean_i [∇²yy g_i]⁻¹∇y f_i is not [mean ∇²yy g]⁻¹ mean ∇y f: where clients' curvatures differ it settles beside the solution.
    """

    title: ClassVar[str] = "LFedNest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inverse_solver == "cg":
            raise AlgorithmError('LFedNest sums a Neumann series at each client: inverse_solver is "random neumann" or "neumann"; '
                                 '"cg" is an exchange with all of them, for FedNest and FedNest-SGD')

    def round(self, fed: Federation, s: FedNest.State) -> FedNest.State:
        X, y = fed.broadcast(s.x), s.y
        for _ in range(self.inner_rounds if y.numel() else 0):
            y = self.fed_inn(fed.cohort(), X, y, value_at(self.inner_lr, s.t))
        S = fed.cohort()
        # one N' for all steps of a round: a client draws samples only
        terms = fed.integer(self.terms) if self.inverse_solver == "random neumann" else self.terms
        Xi = S.map(self.own_step, X, S.broadcast(y), value_at(self.lr, s.t), terms, times=self.outer_times(S))
        return self.State(fed.project_x(S.mean(Xi)), y, s.t + 1)

    def own_step(self, c: Client, xi: Tensor, y: Tensor, alpha: float, terms: int) -> Tensor:
        xi, inverse = c.project_x(xi), c.problem.inverse  # type: ignore[attr-defined]
        if inverse == "none":
            h = c.f_x(xi, y, c.draw(self.anchor_batch))
        else:
            v = c.f_y(xi, y, c.draw(self.anchor_batch))
            if inverse == "series":
                v = self.own_series(c, xi, y, v, terms)
            h = self.h(c, xi, y, v, c.draw(self.anchor_batch), c.draw(self.anchor_batch))
        return xi - alpha / c.times * h

    def own_series(self, c: Client, x: Tensor, y: Tensor, v: Tensor, terms: int) -> Tensor:
        if self.inverse_solver == "random neumann":
            return self.terms * neumann_product(c, x, y, v, self.anchor_batch, self.smoothness, terms)
        return neumann_sum(c, x, y, v, self.anchor_batch, self.smoothness, terms)
