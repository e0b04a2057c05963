"""SCGD: stochastic compositional gradient descent on one machine.

Wang, Fang, Liu, "Stochastic compositional gradient descent: Algorithms for minimizing compositions of expected-value functions",
Mathematical Programming 2017, Algorithm 1 (basic SCGD).   x_k, y_k, α_k, β_k  →  x, y, lr, beta

The paper's rates are α_k = k^{−3/4} and β_k = k^{−1/2}; a `Schedule` follows the round, so that they need local_steps=1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import Number, check_fraction, check_positive, value_at
from ._base import Composition, gradient_at


@dataclass(frozen=True)
class SCGD(Composition):
    """y ← (1−beta)·y + beta·g(x; w); x ← P(x − lr·∇g(x; w)∇f(y; v)). With beta=1 it is SGD on the composition, g of the minibatch."""

    title: ClassVar[str] = "SCGD"
    inner_map: ClassVar = "one machine"
    exact_with_local_steps: ClassVar[bool] = True  # there are no other clients to drift from

    lr: Number
    beta: Number = 0.5
    local_steps: int = 1
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)
        check_fraction(beta=self.beta)

    def init(self, fed: Federation[Compositional], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, fed.mean(fed.map(self.inner_value, fed.broadcast(x))), 0)  # the paper leaves y_0 open

    def round(self, fed: Federation[Compositional], s: State) -> State:
        x, y = fed.mean(*fed.iterate(self.step, fed.broadcast(s.x, s.y), value_at(self.lr, s.t), value_at(self.beta, s.t),
                                     steps=self.local_steps))
        return self.State(fed.project_x(x), y, s.t + 1)

    def inner_value(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return c.g(x, c.draw(self.batch))

    def step(self, c: CompositionalClient, x: Tensor, y: Tensor, lr: float, beta: float) -> tuple[Tensor, Tensor]:
        b = c.draw(self.batch)
        y = (1 - beta) * y + beta * c.g(x, b)
        return c.project_x(x - lr * gradient_at(c, x, b, y, self.batch)), y
