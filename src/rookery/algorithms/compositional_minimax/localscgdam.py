"""LocalSCGDAM: local stochastic compositional gradient descent ascent with momentum.

Zhang, Zhang, Yang, Souvenir, Gao, "Federated compositional deep AUC maximization", NeurIPS 2023, Algorithm 1.
    x, y, h, u, v, p  →  x, y, h, u, v, local_steps;   γ_x·η, γ_y·η, α·η, β_x·η, β_y·η  →  lr, inner_lr, tracking, beta, inner_beta

The paper multiplies every rate by η; here each stands by itself, and `theory.local_scgdam` gives all five. Where clients differ the method
stops beside the solution, also at p = 1 and with exact gradients, by two amounts. A client's h is (1−αη)·h̄ + αη·g_k after an average: that
part falls with αη, as the theorem's η² says. And the clients average ∇g_kᵀ∂z f_k, where ∇Φ has the product of the two averages: the
covariance of ∇g_k and ∂z f_k over the clients is left, at any step size. Theorem 1 has no assumption that bounds it, and does not hold
where the two differ together; `experiments/localscgdam-theory` shows both. For AUC that part is of the order of ρ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import CompositionalMinimaxClient
from ...problems.kinds import CompositionalMinimax
from ..base import Algorithm, Number, check_fraction, check_positive, check_start, value_at


@dataclass(frozen=True)
class LocalSCGDAM(Algorithm[CompositionalMinimax]):
    """x ← x − lr·u, y ← y + inner_lr·v, then estimates at the new point, on two draws ξ and ζ:

        h ← (1−tracking)·h + tracking·g(x; ξ)
        u ← (1−beta)·u + beta·∇g(x; ξ)ᵀ∂z f(h, y; ζ)
        v ← (1−inner_beta)·v + inner_beta·∂y f(h, y; ζ)

    `local_steps` times; then x, y, h, u and v are averaged, in one exchange. At the very first step h, u and v are each client's own. Where
    clients' inner maps differ, a smaller `tracking` brings the end nearer to the solution.

    >>> LocalSCGDAM(lr=0.1, inner_lr=0.1, local_steps=8, batch=32).tracking
    0.5
    """

    title: ClassVar[str] = "LocalSCGDAM"
    plain_average: ClassVar[bool] = True

    lr: Number
    inner_lr: Number = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    tracking: Number = 0.5
    beta: Number = 0.5
    inner_beta: Number = 0.5

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        h: Tensor  # empty before the first round
        u: Tensor
        v: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, local_steps=self.local_steps, batch=self.batch)
        check_fraction(tracking=self.tracking, beta=self.beta, inner_beta=self.inner_beta)

    def init(self, fed: Federation[CompositionalMinimax], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        none = x.new_zeros(0)
        return self.State(x, fed.project_y(check_start(x, y)), none, none, none, 0)

    def round(self, fed: Federation[CompositionalMinimax], s: State) -> State:
        S = fed.cohort()
        X, Y = S.broadcast(s.x, s.y)
        H, U, V = S.map(self.first_estimates, X, Y) if s.t == 0 else S.broadcast(s.h, s.u, s.v)
        rates = [value_at(rate, s.t) for rate in (self.lr, self.inner_lr, self.tracking, self.beta, self.inner_beta)]
        x, y, h, u, v = S.mean(*S.iterate(self.step, (X, Y, H, U, V), *rates, steps=self.local_steps))
        return self.State(fed.project_x(x), fed.project_y(y), h, u, v, s.t + 1)

    def first_estimates(self, c: CompositionalMinimaxClient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h, u and v where there is nothing to mix with yet."""
        h, pull = c.g_pullback(x, c.draw(self.batch))
        fz, fy = c.f_gradients(h, y, c.draw(self.batch))
        return h, pull(fz), fy

    def step(self, c: CompositionalMinimaxClient, x: Tensor, y: Tensor, h: Tensor, u: Tensor, v: Tensor, lr: float, inner_lr: float,
             tracking: float, beta: float, inner_beta: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        x, y = c.project_x(x) - lr * u, c.project_y(y) + inner_lr * v
        g, pull = c.g_pullback(c.project_x(x), c.draw(self.batch))
        h = (1 - tracking) * h + tracking * g
        fz, fy = c.f_gradients(h, c.project_y(y), c.draw(self.batch))
        return x, y, h, (1 - beta) * u + beta * pull(fz), (1 - inner_beta) * v + inner_beta * fy
