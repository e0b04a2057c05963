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
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from ...data.store import Batch
from ...errors import AlgorithmError
from ...federation.epochs import Epochs
from ...federation.federation import Cohort, Federation
from ...federation.operations import Index
from ...federation.oracles import BilevelClient
from ...federation.placed import Placed
from ...problems.kinds import Bilevel
from ..base import Algorithm, Number, check_positive, check_start, value_at
from .curvature import conjugate, neumann_product, neumann_sum


@dataclass(frozen=True)
class _Nested(Algorithm[Bilevel]):
    """What the three have in common: hyper-parameters, the state, and T rounds of an inner method on y before x moves."""

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

    def init(self, fed: Federation[Bilevel], x: Tensor, y: Tensor | None = None) -> State:
        """`y` is the starting point of the inner problem; left out where there is none (an embedded minimisation)."""
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(check_start(x, y)) if fed.problem.inner else x.new_zeros(0), 0)

    def round(self, fed: Federation[Bilevel], s: State) -> State:
        X, y = fed.broadcast(s.x), s.y
        for _ in range(self.inner_rounds if y.numel() else 0):
            y = self.fed_inn(fed.cohort(), X, y, value_at(self.inner_lr, s.t))
        return self.State(self.outer(fed, X, y, value_at(self.lr, s.t)), y, s.t + 1)

    def fed_inn(self, S: Cohort[Bilevel], X: Placed, y: Tensor, beta: float) -> Tensor:
        """y after one round of the inner method: plain local SGD, unless a method has another."""
        Yi = S.iterate(self.inner_sgd, S.broadcast(y), X, beta, steps=S.steps(self.local_steps, self.batch))
        return S.fed.project_y(S.mean(Yi))

    def outer(self, fed: Federation[Bilevel], X: Placed, y: Tensor, alpha: float) -> Tensor:
        """x after the outer step."""
        raise NotImplementedError

    @property
    def anchor_batch(self) -> int | None:
        return None if self.full_anchors else self.batch

    def outer_work(self, S: Cohort[Bilevel]) -> int | Index:
        """τ_i of the outer step."""
        return S.steps(self.local_steps, self.batch) if self.outer_steps is None else S.steps(self.outer_steps, self.batch, "outer_steps")

    def inner_sgd(self, c: BilevelClient, yi: Tensor, x: Tensor, beta: float) -> Tensor:
        yi = c.project_y(yi)
        return yi - beta / c.steps * c.g_y(x, yi, c.draw(self.batch))

    @staticmethod
    def h(c: BilevelClient, x: Tensor, y: Tensor, p: Tensor, bf: Batch, bg: Batch) -> Tensor:
        """The direction h_i(x) = ∂x f_i(x, y; ξ) − ∇²xy g_i(x, y; ζ)·p."""
        return c.f_x(x, y, bf) - c.g_xy(x, y, bg, p)


@dataclass(frozen=True)
class _Global(_Nested):
    """FedIHGP and FedOut, with exchanges of their own: the outer step of FedNest and FedNest-SGD."""

    def outer(self, fed: Federation[Bilevel], X: Placed, y: Tensor, alpha: float) -> Tensor:
        Y = fed.broadcast(y)
        return self.fed_out(fed.cohort(), X, Y, self.fed_ihgp(fed, X, Y), alpha)

    # FedIHGP

    def fed_ihgp(self, fed: Federation[Bilevel], X: Placed, Y: Placed, terms: int | None = None) -> Tensor | None:
        """p; a fresh cohort for every term. `terms` fixes N' of the random form."""
        if fed.problem.inverse == "none":
            return None
        S = fed.cohort()
        v = S.mean(S.map(self.outer_gradient, X, Y))
        if fed.problem.inverse == "identity":
            return v
        if self.inverse_solver == "cg":
            return conjugate(lambda p: self.averaged(fed, self.hessian_product, X, Y, p), v, self.terms)
        if self.inverse_solver == "random neumann":
            p = self.terms / self.smoothness * v
            for _ in range(fed.integer(self.terms) if terms is None else terms):
                p = self.averaged(fed, self.hessian_step, X, Y, p)
            return p
        p = v / self.smoothness
        for _ in range(self.terms):
            v = self.averaged(fed, self.hessian_step, X, Y, v)
            p = p + v / self.smoothness
        return p

    @staticmethod
    def averaged(fed: Federation[Bilevel], fn: Callable[..., Tensor], X: Placed, Y: Placed, p: Tensor) -> Tensor:
        S = fed.cohort()
        return S.mean(S.map(fn, X, Y, S.broadcast(p)))

    def outer_gradient(self, c: BilevelClient, x: Tensor, y: Tensor) -> Tensor:
        return c.f_y(x, y, c.draw(self.anchor_batch))

    def hessian_step(self, c: BilevelClient, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return p - c.g_yy(x, y, c.draw(self.anchor_batch), p) / self.smoothness

    def hessian_product(self, c: BilevelClient, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return c.g_yy(x, y, c.draw(self.anchor_batch), p)

    # FedOut

    def fed_out(self, S: Cohort[Bilevel], X: Placed, Y: Placed, p: Tensor | None, alpha: float) -> Tensor:
        placed = (X, Y) if p is None else (X, Y, S.broadcast(p))
        h = S.mean(S.map(self.direct if p is None else self.indirect, *placed))
        step = self.direct_step if p is None else self.indirect_step
        Xi = S.iterate(step, X, S.broadcast(h), alpha, *placed, steps=self.outer_work(S))
        return S.fed.project_x(S.mean(Xi))

    def direct(self, c: BilevelClient, x: Tensor, y: Tensor) -> Tensor:
        return c.f_x(x, y, c.draw(self.anchor_batch))

    def direct_step(self, c: BilevelClient, xi: Tensor, h: Tensor, alpha: float, x: Tensor, y: Tensor) -> Tensor:
        xi, b = c.project_x(xi), c.draw(self.batch)
        return xi - alpha / c.steps * (c.f_x(xi, y, b) - c.f_x(x, y, b) + h)

    def indirect(self, c: BilevelClient, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return self.h(c, x, y, p, c.draw(self.anchor_batch), c.draw(self.anchor_batch))

    def indirect_step(self, c: BilevelClient, xi: Tensor, h: Tensor, alpha: float, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        xi, bf, bg = c.project_x(xi), c.draw(self.batch), c.draw(self.batch)
        return xi - alpha / c.steps * (self.h(c, xi, y, p, bf, bg) - self.h(c, x, y, p, bf, bg) + h)


@dataclass(frozen=True)
class FedNest(_Global):
    """T times FedInn (FedSVRG on y), FedIHGP (p ≈ [∇²yy g]⁻¹∇y f), FedOut (FedSVRG on x)."""

    title: ClassVar[str] = "FedNest"
    exact_with_local_steps: ClassVar[bool] = True

    def fed_inn(self, S: Cohort[Bilevel], X: Placed, y: Tensor, beta: float) -> Tensor:
        Y = S.broadcast(y)
        q = S.mean(S.map(self.inner_gradient, X, Y))
        Yi = S.iterate(self.inner_step, Y, X, Y, S.broadcast(q), beta, steps=S.steps(self.local_steps, self.batch))
        return S.fed.project_y(S.mean(Yi))

    def inner_gradient(self, c: BilevelClient, x: Tensor, y: Tensor) -> Tensor:
        return c.g_y(x, y, c.draw(self.anchor_batch))

    def inner_step(self, c: BilevelClient, yi: Tensor, x: Tensor, y: Tensor, q: Tensor, beta: float) -> Tensor:
        yi, b = c.project_y(yi), c.draw(self.batch)
        return yi - beta / c.steps * (c.g_y(x, yi, b) - c.g_y(x, y, b) + q)


@dataclass(frozen=True)
class FedNestSGD(_Global):
    """FedNest with plain local SGD in FedInn, y_i ← y_i − (inner_lr/τ_i)∇y g_i(x, y_i): one exchange instead of two, and drift in y."""

    title: ClassVar[str] = "FedNest-SGD"


@dataclass(frozen=True)
class LFedNest(_Nested):
    """Local SGD on y, then x_i ← x_i − (lr/τ_i)(∂x f_i − ∇²xy g_i·p_i) with p_i of the client's own series, anew at every step.

    mean_i [∇²yy g_i]⁻¹∇y f_i is not [mean ∇²yy g]⁻¹ mean ∇y f: where clients' curvatures differ it settles beside the solution.
    """

    title: ClassVar[str] = "LFedNest"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inverse_solver == "cg":
            raise AlgorithmError('LFedNest sums a Neumann series at each client: inverse_solver is "random neumann" or "neumann"; '
                                 '"cg" is an exchange with all of them, for FedNest and FedNest-SGD')

    def outer(self, fed: Federation[Bilevel], X: Placed, y: Tensor, alpha: float) -> Tensor:
        S = fed.cohort()
        # one N' for all steps of a round: a client draws samples only
        terms = fed.integer(self.terms) if self.inverse_solver == "random neumann" else self.terms
        Xi = S.iterate(self.own_step, X, S.broadcast(y), alpha, terms, steps=self.outer_work(S))
        return fed.project_x(S.mean(Xi))

    def own_step(self, c: BilevelClient, xi: Tensor, y: Tensor, alpha: float, terms: int) -> Tensor:
        xi, inverse = c.project_x(xi), c.problem.inverse
        if inverse == "none":
            h = c.f_x(xi, y, c.draw(self.anchor_batch))
        else:
            v = c.f_y(xi, y, c.draw(self.anchor_batch))
            if inverse == "series":
                v = self.own_series(c, xi, y, v, terms)
            h = self.h(c, xi, y, v, c.draw(self.anchor_batch), c.draw(self.anchor_batch))
        return xi - alpha / c.steps * h

    def own_series(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, terms: int) -> Tensor:
        if self.inverse_solver == "random neumann":
            return self.terms * neumann_product(c, x, y, v, self.anchor_batch, self.smoothness, terms)
        return neumann_sum(c, x, y, v, self.anchor_batch, self.smoothness, terms)
