"""FedDRO: federated compositional optimisation with a shared inner value.

Khanduri, Li, Ibn Sultan, Qiang, Kliewer, Zhu, "FedDRO: Federated compositional optimization for distributionally robust learning",
arXiv:2311.12652, Algorithm 2 and equations (7), (8).
    x_k^t, ȳ^t, η, β, I, b  →  x, y, lr, beta, local_steps, batch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Cohort, Federation
from ...federation.oracles import CompositionalClient
from ...federation.placed import Placed
from ...problems.kinds import Compositional
from ..base import Number, check_fraction, check_positive, value_at
from ._base import Composition, step_at, value_and_slope


@dataclass(frozen=True)
class FedDRO(Composition):
    """y_k ← (1−beta)(ȳ − g_k(x_k^{t−1})) + g_k(x_k^t), averaged at every step; x_k ← x_k − lr[∇h_k + ∇g_k·∇f(ȳ)], averaged every I steps.

    A round is I exchanges of d_g numbers and one of d.
    """

    title: ClassVar[str] = "FedDRO"
    plain_average: ClassVar[bool] = True

    lr: Number
    beta: Number = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        last: Placed | None  # x^{t−1} at each client, its own point also across an average; who was away takes x
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)
        check_fraction(beta=self.beta)

    def init(self, fed: Federation[Compositional], x: Tensor) -> State:
        x = self.validate(fed, x)
        S = fed.cohort()
        # the paper leaves ȳ^0 open; from 0 the logarithm of the KL form would blow up
        return self.State(x, S.mean(S.map(self.inner_value, S.broadcast(x))), None, 0)

    def round(self, fed: Federation[Compositional], s: State) -> State:
        S, lr, beta = fed.cohort(), value_at(self.lr, s.t), value_at(self.beta, s.t)
        X, shared, y = S.broadcast(s.x), S.broadcast(s.y), s.y
        last = X if s.last is None else S.take(s.last, X)
        for _ in range(self.local_steps):
            X, last, shared, y = self.step(S, X, last, shared, lr, beta)
        return self.State(fed.project_x(S.mean(X)), y, last, s.t + 1)

    def step(self, S: Cohort[Compositional], X: Placed, last: Placed, shared: Placed, lr: float,
             beta: float) -> tuple[Placed, Placed, Placed, Tensor]:
        """One iteration at all clients with its exchange of ȳ: their points after it and before it, and the new ȳ, there and here."""
        Y, slope = S.map(self.track, X, last, shared, beta)
        y = S.mean(Y)
        shared = S.broadcast(y)
        X, last = S.map(self.descend, X, slope, shared, lr, same_draws_as=Y)
        return X, last, shared, y

    def inner_value(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return c.g(x, c.draw(self.batch))

    def track(self, c: CompositionalClient, x: Tensor, last: Tensor, y: Tensor, beta: float) -> tuple[Tensor, Tensor]:
        """Equation (8): y_k = (1−β)(ȳ − g_k(x^{t−1})) + g_k(x^t), and the slope that equation (7) may use."""
        b = c.draw(self.batch)
        g, slope = value_and_slope(c, c.project_x(x), b, y)
        return (1 - beta) * (y - c.g(last, b)) + g, slope

    def descend(self, c: CompositionalClient, x: Tensor, slope: Tensor, y: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        """Equation (7): x − η[∇h_k(x) + ∇g_k(x)∇f(ȳ)] on the batch of equation (8), and x itself."""
        x = c.project_x(x)
        return x - step_at(c, x, slope, y, lr, self.batch), x
