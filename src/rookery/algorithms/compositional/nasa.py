"""NASA: nested averaged stochastic approximation, compositions on one machine and one time scale.

Ghadimi, Ruszczyński, Wang, "A single timescale stochastic approximation method for nested stochastic optimization", SIAM Journal on
Optimization 2020, Algorithm 1.   x^k, z^k, u^k, 1/β_k, τ_k, a, b  →  x, z, u, lr, tau, a, b;   theory: τ_k ~ 1/√N
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import Number, check_fraction, check_positive, value_at
from ._base import Composition, gradient_at


@dataclass(frozen=True)
class NASA(Composition):
    """x ← x + tau·(P(x − lr·z) − x); z ← (1−a·tau)·z + a·tau·∇g(x)∇f(u); u ← (1−b·tau)·u + b·tau·g(x), both at the new x."""

    title: ClassVar[str] = "NASA"
    inner_map: ClassVar = "one machine"
    exact_with_local_steps: ClassVar[bool] = True  # there are no other clients to drift from

    lr: Number
    tau: Number = 0.1
    a: float = 1.0
    b: float = 1.0
    local_steps: int = 1
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        z: Tensor
        u: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, a=self.a, b=self.b, local_steps=self.local_steps, batch=self.batch)
        check_fraction(tau=self.tau)
        if isinstance(self.tau, int | float) and max(self.a, self.b) * self.tau > 1:
            raise AlgorithmError(f"a·tau and b·tau are weights of averages and must be at most 1; got {self.a * self.tau:g} and "
                                 f"{self.b * self.tau:g}: take a smaller tau")

    def init(self, fed: Federation[Compositional], x: Tensor) -> State:
        x = self.validate(fed, x)
        z, u = fed.mean(*fed.map(self.first_estimates, fed.broadcast(x)))  # the paper leaves them open
        return self.State(x, z, u, 0)

    def round(self, fed: Federation[Compositional], s: State) -> State:
        x, z, u = fed.mean(*fed.iterate(self.step, fed.broadcast(s.x, s.z, s.u), value_at(self.lr, s.t), value_at(self.tau, s.t),
                                        steps=self.local_steps))
        return self.State(x, z, u, s.t + 1)

    def first_estimates(self, c: CompositionalClient, x: Tensor) -> tuple[Tensor, Tensor]:
        b = c.draw(self.batch)
        u = c.g(x, b)
        return gradient_at(c, x, b, u, self.batch), u

    def step(self, c: CompositionalClient, x: Tensor, z: Tensor, u: Tensor, lr: float, tau: float) -> tuple[Tensor, Tensor, Tensor]:
        x = x + tau * (c.project_x(x - lr * z) - x)
        b = c.draw(self.batch)
        z = (1 - self.a * tau) * z + self.a * tau * gradient_at(c, x, b, u, self.batch)  # at the old u
        return x, z, (1 - self.b * tau) * u + self.b * tau * c.g(x, b)
