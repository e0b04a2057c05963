"""FedProx: local SGD that is pulled back to where the round began.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks", MLSys 2020, Algorithm 2.
    w^t, w_k, μ, η  →  x, xi, mu, lr

The paper asks each device for a γ-inexact minimiser of f_k(w) + μ/2‖w − w^t‖²; here, as in its experiments, SGD steps stand for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from ..errors import AlgorithmError
from ..problem import Minimization, Problem
from .base import Algorithm, Number, positive, value_at

if TYPE_CHECKING:
    from ..client import Client
    from ..fed import Epochs, Federation


@dataclass(frozen=True)
class FedProx(Algorithm):
    """x_i ← x_i − lr(∇f_i(x_i; batch) + mu(x_i − x)), `local_steps` times; x ← mean_i x_i. With mu=0 it is FedAvg.

    >>> FedProx(lr=0.1, local_steps=5, batch=32, mu=0.01).mu
    0.01
    """

    title: ClassVar[str] = "FedProx"
    solves: ClassVar[type[Problem]] = Minimization

    lr: Number
    local_steps: int | Epochs = 1
    batch: int | None = None  # None: all rows
    mu: float = 0.1

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)
        if not self.mu >= 0:
            raise AlgorithmError(f"mu must not be negative; got {self.mu}")

    def init(self, fed: Federation, x: Tensor) -> State:
        x = self.fits(fed, x)
        return self.State(x, 0)

    def round(self, fed: Federation, s: State) -> State:
        S = fed.cohort()
        X = S.broadcast(s.x)
        Xi = S.map(self.step, X, X, value_at(self.lr, s.t), times=S.steps(self.local_steps, self.batch))
        return self.State(fed.project_x(S.mean(Xi)), s.t + 1)

    def step(self, c: Client, xi: Tensor, x: Tensor, lr: float) -> Tensor:
        return c.project_x(xi - lr * (c.gradient(xi, c.draw(self.batch)) + self.mu * (xi - x)))
