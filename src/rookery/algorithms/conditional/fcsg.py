"""FCSG, FCSG-M and Acc-FCSG-M: federated conditional stochastic gradients.

Wu, Sun, Hu, Li, Zhang, Huang, "Federated conditional stochastic optimization", NeurIPS 2023, Algorithms 1 and 2.
    x_t, u_t, α, β, q, b, m, B  →  x, u, lr, beta, local_steps, outer, inner, first

A round is q iterations and ends with the paper's server update (lines 5–8); the new estimate at the averaged point
(lines 11–15 of that iteration) opens the next round, so that a client that was away can join there. A client projects a point
before it takes a gradient there; its last move is averaged as it is, and the server projects the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Cohort, Federation
from ...federation.oracles import ConditionalClient
from ...federation.placed import Placed
from ...problems.kinds import Conditional
from ..base import Algorithm, Number, check_fraction, check_positive, value_at


@dataclass(frozen=True)
class _Conditional(Algorithm[Conditional]):
    """What the three have in common."""

    plain_average: ClassVar[bool] = True

    lr: Number
    local_steps: int = 1
    outer: int | None = None  # None: all rows
    inner: int | None = None  # None: all stored conditional samples
    first: int | None = None  # None: as `outer`

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, outer=self.outer, inner=self.inner, first=self.first)

    def first_estimate(self, c: ConditionalClient, x: Tensor) -> Tensor:
        """Line 2: the first estimate, u_1 = ∇F̂(x_0; B samples)."""
        return c.gradient(x, c.draw(self.first or self.outer, self.inner))

    def move(self, c: ConditionalClient, x: Tensor, u: Tensor, lr: float) -> Tensor:
        """Line 10: the step x_t = x_{t−1} − α u_t."""
        return x - lr * u


@dataclass(frozen=True)
class FCSG(_Conditional):
    """x_k ← x_k − lr·∇F̂_k(x_k), a new batch each time; x averaged every `local_steps`. One d-vector an exchange."""

    title: ClassVar[str] = "FCSG"

    class State(NamedTuple):
        x: Tensor
        t: int

    def init(self, fed: Federation[Conditional], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, 0)

    def round(self, fed: Federation[Conditional], s: State) -> State:
        S = fed.cohort()
        return self.State(fed.project_x(S.mean(self.local_round(S, s))), s.t + 1)

    def local_round(self, S: Cohort[Conditional], s: State) -> Placed:
        """The clients' points after q iterations; their last estimates are not kept."""
        X, lr = S.broadcast(s.x), value_at(self.lr, s.t)
        U = S.map(self.first_estimate if s.t == 0 else self.estimate, X)
        X, U = S.iterate(self.step, (X, U), lr, steps=self.local_steps - 1)
        return S.map(self.move, X, U, lr)

    def estimate(self, c: ConditionalClient, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(self.outer, self.inner))

    def step(self, c: ConditionalClient, x: Tensor, u: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        x = c.project_x(self.move(c, x, u, lr))
        return x, self.estimate(c, x)


@dataclass(frozen=True)
class _Momentum(_Conditional):
    """What the two with a running estimate have in common."""

    beta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(beta=self.beta)

    def send(self, c: ConditionalClient, x: Tensor, u: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """The last move of a round, and the estimate that it went along, for the mean."""
        return self.move(c, x, u, lr), u


@dataclass(frozen=True)
class FCSGM(_Momentum):
    """FCSG with u ← (1−beta)·u + beta·∇F̂_k(x_k); x and u are averaged. With beta=1 it is FCSG."""

    title: ClassVar[str] = "FCSG-M"

    class State(NamedTuple):
        x: Tensor
        u: Tensor
        t: int

    def init(self, fed: Federation[Conditional], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, x.new_zeros(0), 0)

    def round(self, fed: Federation[Conditional], s: State) -> State:
        S, lr = fed.cohort(), value_at(self.lr, s.t)
        X = S.broadcast(s.x)
        U = S.map(self.first_estimate, X) if s.t == 0 else S.map(self.estimate, X, S.broadcast(s.u))
        X, U = S.iterate(self.step, (X, U), lr, steps=self.local_steps - 1)
        X, U = S.map(self.send, X, U, lr)
        x, u = S.mean(X, U)
        return self.State(fed.project_x(x), u, s.t + 1)

    def estimate(self, c: ConditionalClient, x: Tensor, u: Tensor) -> Tensor:
        return (1 - self.beta) * u + self.beta * c.gradient(x, c.draw(self.outer, self.inner))

    def step(self, c: ConditionalClient, x: Tensor, u: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        x = c.project_x(self.move(c, x, u, lr))
        return x, self.estimate(c, x, u)


@dataclass(frozen=True)
class AccFCSGM(_Momentum):
    """u ← ∇F̂_k(x_t) + (1−beta)(u − ∇F̂_k(x_{t−1})), both on one batch; x_{t−1} is the client's own point, also across an average."""

    title: ClassVar[str] = "Acc-FCSG-M"

    class State(NamedTuple):
        x: Tensor
        u: Tensor
        last: Placed | None  # x_{t−1} at each client; who was away takes x
        t: int

    def init(self, fed: Federation[Conditional], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, x.new_zeros(0), None, 0)

    def round(self, fed: Federation[Conditional], s: State) -> State:
        S, lr = fed.cohort(), value_at(self.lr, s.t)
        X = S.broadcast(s.x)
        U = S.map(self.first_estimate, X) if s.last is None else S.map(self.correct, X, S.broadcast(s.u), S.take(s.last, X))
        X, U = S.iterate(self.step, (X, U), lr, steps=self.local_steps - 1)
        moved, U = S.map(self.send, X, U, lr)
        x, u = S.mean(moved, U)
        return self.State(fed.project_x(x), u, X, s.t + 1)

    def correct(self, c: ConditionalClient, x: Tensor, u: Tensor, last: Tensor) -> Tensor:
        b = c.draw(self.outer, self.inner)
        return c.gradient(x, b) + (1 - self.beta) * (u - c.gradient(last, b))

    def step(self, c: ConditionalClient, x: Tensor, u: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        new = c.project_x(self.move(c, x, u, lr))
        return new, self.correct(c, new, u, x)
