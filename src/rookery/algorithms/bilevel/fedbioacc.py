"""FedBiOAcc: federated bilevel optimisation with momentum-based variance reduction in all three variables.

Li, Huang, Huang, "Communication-efficient federated bilevel optimization with global and local lower level problems", NeurIPS 2023.
    x, y, u, ν, ω, q, I  →  x, y, u, nu, omega, q, local_steps
    η, γ, τ, r, α_t = δ/(u_0 + t)^⅓, c_ν = c_ω = c_u  →  lr, inner_lr, solve_lr, radius, scale/(delay + t)^⅓, decay
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...data.store import Batch
from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import BilevelClient
from ...federation.placed import Placed
from ...problems.kinds import Bilevel
from ...problems.projections import ball
from ..base import Algorithm, check_beside, check_positive, check_start
from .curvature import refuse_embedded


@dataclass(frozen=True)
class FedBiOAcc(Algorithm[Bilevel]):
    """y ← y − inner_lr·α_t·ω, x ← x − lr·α_t·ν, u ← u − solve_lr·α_t·q, each of ω, ν, q ← ∇(new; b) + (1 − decay·α_t²)(itself − ∇(old; b)).

    ω follows ∇y g, ν follows ∂x f − ∇²xy g·u, q follows ∇²yy g·u − ∇y f. All six are averaged every `local_steps`: one exchange of
    2d + 4d_y. The old point of a correction is the client's own, also across an average.

    >>> round(FedBiOAcc(lr=0.1, scale=2.0, delay=7.0).alpha(1), 6)
    1.0
    """

    title: ClassVar[str] = "FedBiOAcc"

    lr: float
    inner_lr: float = 0.1
    solve_lr: float = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    scale: float = 1.0
    delay: float = 1.0
    decay: float = 1.0
    radius: float | None = None  # None: u is not projected

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        u: Tensor
        omega: Tensor
        nu: Tensor
        q: Tensor
        last_x: Placed | None  # the point before the last move at each client; who was away takes the average
        last_y: Placed | None
        last_u: Placed | None
        t: int  # rounds; the paper's t is t·local_steps and what follows

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, solve_lr=self.solve_lr, local_steps=self.local_steps, batch=self.batch,
                 scale=self.scale, delay=self.delay, decay=self.decay, radius=self.radius)
        if self.decay * self.alpha(1) ** 2 > 1:
            raise AlgorithmError(f"decay·α_1² must be at most 1, or the momenta change sign; got {self.decay * self.alpha(1) ** 2:.3g}: "
                                 "take a larger delay, or a smaller scale or decay")

    def alpha(self, t: int) -> float:
        """The factor α_t of all step sizes, with t counted from 1."""
        return float(self.scale / (self.delay + t) ** (1 / 3))

    def init(self, fed: Federation[Bilevel], x: Tensor, y: Tensor | None = None, u: Tensor | None = None) -> State:
        """`u` is where [∇²yy g]⁻¹∇y f starts; 0 by default."""
        x = self.validate(fed, x)
        y = fed.project_y(check_start(x, y))
        refuse_embedded(fed, self.title)
        u = self.inside(check_beside(y, u, "u"))
        S = fed.cohort()
        # averaged, as all later ones are after an exchange: else the first step alone would drift from a solution
        omega, nu, q = S.mean(*S.map(self.first, *S.broadcast(x, y, u)))
        return self.State(x, y, u, omega, nu, q, None, None, None, 0)

    def round(self, fed: Federation[Bilevel], s: State) -> State:
        S, t = fed.cohort(), s.t * self.local_steps  # moves made so far
        X, Y, U, Omega, Nu, Q = S.broadcast(s.x, s.y, s.u, s.omega, s.nu, s.q)
        if s.last_x is not None and s.last_y is not None and s.last_u is not None:  # the correction after the average
            last = S.take(s.last_x, X), S.take(s.last_y, Y), S.take(s.last_u, U)
            Omega, Nu, Q = S.map(self.correct, Omega, Nu, Q, X, Y, U, *last, self.alpha(t))
        for j in range(1, self.local_steps):
            X, Y, U, Omega, Nu, Q = S.map(self.step, X, Y, U, Omega, Nu, Q, self.alpha(t + j))
        *moved, last_x, last_y, last_u = S.map(self.leave, X, Y, U, Omega, Nu, Q, self.alpha(t + self.local_steps))
        x, y, u, omega, nu, q = S.mean(*moved)
        return self.State(fed.project_x(x), fed.project_y(y), self.inside(u), omega, nu, q, last_x, last_y, last_u, s.t + 1)

    def inside(self, u: Tensor) -> Tensor:
        return u if self.radius is None else ball(self.radius)(u)

    def first(self, c: BilevelClient, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.directions(c, x, y, u, c.draw(self.batch), c.draw(self.batch))

    def move(self, x: Tensor, y: Tensor, u: Tensor, omega: Tensor, nu: Tensor, q: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
        return x - self.lr * alpha * nu, y - self.inner_lr * alpha * omega, u - self.solve_lr * alpha * q

    def leave(self, c: BilevelClient, x: Tensor, y: Tensor, u: Tensor, omega: Tensor, nu: Tensor, q: Tensor,
              alpha: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The last move of a round and the estimates that it went along, for the mean; the point that it left stays."""
        return (*self.move(x, y, u, omega, nu, q, alpha), omega, nu, q, x, y, u)

    def correct(self, c: BilevelClient, omega: Tensor, nu: Tensor, q: Tensor, x: Tensor, y: Tensor, u: Tensor, last_x: Tensor,
                last_y: Tensor, last_u: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
        """The estimates at the new point, corrected by the directions at the old one on the same samples."""
        bf, bg, keep = c.draw(self.batch), c.draw(self.batch), 1 - self.decay * alpha**2
        here, there = self.directions(c, x, y, u, bf, bg), self.directions(c, last_x, last_y, last_u, bf, bg)
        return here[0] + keep * (omega - there[0]), here[1] + keep * (nu - there[1]), here[2] + keep * (q - there[2])

    def step(self, c: BilevelClient, x: Tensor, y: Tensor, u: Tensor, omega: Tensor, nu: Tensor, q: Tensor,
             alpha: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        moved = self.move(x, y, u, omega, nu, q, alpha)
        new = c.project_x(moved[0]), c.project_y(moved[1]), self.inside(moved[2])
        return (*new, *self.correct(c, omega, nu, q, *new, x, y, u, alpha))

    @staticmethod
    def directions(c: BilevelClient, x: Tensor, y: Tensor, u: Tensor, bf: Batch, bg: Batch) -> tuple[Tensor, Tensor, Tensor]:
        return c.g_y(x, y, bg), c.f_x(x, y, bf) - c.g_xy(x, y, bg, u), c.g_yy(x, y, bg, u) - c.f_y(x, y, bf)
