"""FedNest: federated bilevel, minimax and compositional optimisation.

Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest: Federated bilevel, minimax, and compositional optimization", ICML 2022.
    x, y, p, q, h, α, β, T, τ_i, N, ℓ_{g,1}  →  x, y, p, q, h, lr, inner_lr, inner_rounds, local_steps, terms, smoothness

Runs on Bilevel problems; `rookery.reductions.as_bilevel` embeds Minimax, Compositional and Minimization. Exchanges of an outer round:
2T + N' + 3 (N' ~ U{0..N−1}; 2T + N + 3 deterministic), 2T + 3 compositional, 2T + 2 minimax, 2 single-level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from torch import Tensor

from ..data.store import Batch
from ..errors import AlgorithmError
from ..problem import Bilevel, Problem
from .base import Algorithm, Number, positive, value_at

if TYPE_CHECKING:
    from ..client import Client
    from ..fed import Cohort, Epochs, Federation
    from ..tape import Clients


@dataclass(frozen=True)
class FedNest(Algorithm):
    """T times FedInn (FedSVRG on y), FedIHGP (p ≈ [∇²yy g]⁻¹∇y f), FedOut (FedSVRG on x)."""

    title: ClassVar[str] = "FedNest"
    solves: ClassVar[type[Problem]] = Bilevel
    exact_with_local_steps: ClassVar[bool] = True

    lr: Number
    inner_lr: Number = 0.1
    inner_rounds: int = 1
    local_steps: int | Epochs = 1
    terms: int = 5
    smoothness: float = 1.0  # ℓ_{g,1}: at least the largest eigenvalue of ∇²yy g
    series: Literal["random", "deterministic"] = "random"
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def __post_init__(self) -> None:
        positive(lr=self.lr, inner_lr=self.inner_lr, inner_rounds=self.inner_rounds, local_steps=self.local_steps,
                 terms=self.terms, smoothness=self.smoothness, batch=self.batch)
        if self.series not in ("random", "deterministic"):
            raise AlgorithmError(f'series is "random" or "deterministic"; got {self.series!r}')

    def init(self, fed: Federation, x: Tensor, y: Tensor | None = None) -> State:
        """`y` is the starting point of the inner problem; left out where there is none (an embedded minimisation)."""
        x = self.fits(fed, x)
        if y is None and fed.problem.inner:  # type: ignore[attr-defined]
            raise AlgorithmError("this problem has an inner variable: give its starting point, init(fed, x, y)")
        return self.State(x, x.new_zeros(0) if y is None else y.detach(), 0)

    def round(self, fed: Federation, s: State) -> State:
        S, X, y = fed.cohort(), fed.broadcast(s.x), s.y
        for _ in range(self.inner_rounds if y.numel() else 0):
            y = self.fed_inn(S, X, y, value_at(self.inner_lr, s.t))
        Y = fed.broadcast(y)
        p = self.fed_ihgp(fed, X, Y)
        return self.State(self.fed_out(S, X, Y, p, value_at(self.lr, s.t)), y, s.t + 1)

    # FedInn

    def fed_inn(self, S: Cohort, X: Clients, y: Tensor, beta: float) -> Tensor:
        Y = S.broadcast(y)
        q = S.mean(S.map(self.inner_gradient, X, Y))
        Yi = S.map(self.inner_step, Y, X, Y, S.broadcast(q), beta, times=S.steps(self.local_steps, self.batch))
        return S.fed.project_y(S.mean(Yi))

    def inner_gradient(self, c: Client, x: Tensor, y: Tensor) -> Tensor:
        return c.g_y(x, y, c.draw(self.batch))

    def inner_step(self, c: Client, yi: Tensor, x: Tensor, y: Tensor, q: Tensor, beta: float) -> Tensor:
        b = c.draw(self.batch)
        return c.project_y(yi - beta / c.times * (c.g_y(x, yi, b) - c.g_y(x, y, b) + q))

    # FedIHGP

    def fed_ihgp(self, fed: Federation, X: Clients, Y: Clients, terms: int | None = None) -> Tensor | None:
        """p; a fresh cohort for every term. `terms` fixes N' of the random form."""
        inverse = fed.problem.inverse  # type: ignore[attr-defined]
        if inverse == "none":
            return None
        S = fed.cohort()
        v: Tensor = S.mean(S.map(self.outer_gradient, X, Y))
        if inverse == "identity":
            return v
        if self.series == "random":
            p = self.terms / self.smoothness * v
            for _ in range(fed.integer(self.terms) if terms is None else terms):
                p = self.factor(fed, X, Y, p)
            return p
        p = v / self.smoothness
        for _ in range(self.terms):
            v = self.factor(fed, X, Y, v)
            p = p + v / self.smoothness
        return p

    def factor(self, fed: Federation, X: Clients, Y: Clients, p: Tensor) -> Tensor:
        S = fed.cohort()
        return S.mean(S.map(self.hessian_step, X, Y, S.broadcast(p)))  # type: ignore[no-any-return]

    def outer_gradient(self, c: Client, x: Tensor, y: Tensor) -> Tensor:
        return c.f_y(x, y, c.draw(self.batch))

    def hessian_step(self, c: Client, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return p - c.g_yy(x, y, c.draw(self.batch), p) / self.smoothness

    # FedOut

    def fed_out(self, S: Cohort, X: Clients, Y: Clients, p: Tensor | None, alpha: float) -> Tensor:
        placed = (X, Y) if p is None else (X, Y, S.broadcast(p))
        h = S.mean(S.map(self.direct if p is None else self.indirect, *placed))
        step = self.direct_step if p is None else self.indirect_step
        Xi = S.map(step, X, S.broadcast(h), alpha, *placed, times=S.steps(self.local_steps, self.batch))
        return S.fed.project_x(S.mean(Xi))

    def direct(self, c: Client, x: Tensor, y: Tensor) -> Tensor:
        return c.f_x(x, y, c.draw(self.batch))

    def direct_step(self, c: Client, xi: Tensor, h: Tensor, alpha: float, x: Tensor, y: Tensor) -> Tensor:
        b = c.draw(self.batch)
        return c.project_x(xi - alpha / c.times * (c.f_x(xi, y, b) - c.f_x(x, y, b) + h))

    def indirect(self, c: Client, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        return self.h(c, x, y, p, c.draw(self.batch), c.draw(self.batch))

    def indirect_step(self, c: Client, xi: Tensor, h: Tensor, alpha: float, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        bf, bg = c.draw(self.batch), c.draw(self.batch)
        return c.project_x(xi - alpha / c.times * (self.h(c, xi, y, p, bf, bg) - self.h(c, x, y, p, bf, bg) + h))

    @staticmethod
    def h(c: Client, x: Tensor, y: Tensor, p: Tensor, bf: Batch, bg: Batch) -> Tensor:
        """h_i(x) = ∂x f_i(x, y; ξ) − ∇²xy g_i(x, y; ζ)·p"""
        return c.f_x(x, y, bf) - c.g_xy(x, y, bg, p)
