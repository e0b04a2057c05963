"""FedProx: local SGD that is pulled back to where the round began.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, "Federated optimization in heterogeneous networks", MLSys 2020, Algorithm 2.
    w^t, w_k, μ, η  →  x, xi, mu, lr

The paper asks each device for a γ-inexact minimiser of f_k(w) + μ/2‖w − w^t‖²; here, as in its experiments, SGD steps stand for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import MinimizationClient
from ...problems.kinds import Minimization
from ..base import LocalSteps, value_at


@dataclass(frozen=True)
class FedProx(LocalSteps[Minimization]):
    """x_i ← x_i − lr(∇f_i(x_i; batch) + mu(x_i − x)), `local_steps` times; x ← mean_i x_i. With mu=0 it is FedAvg.

    >>> FedProx(lr=0.1, local_steps=5, batch=32, mu=0.01).mu
    0.01
    """

    title: ClassVar[str] = "FedProx"
    plain_average: ClassVar[bool] = True

    mu: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu >= 0:
            raise AlgorithmError(f"mu must not be negative; got {self.mu}")

    def round(self, fed: Federation[Minimization], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.broadcast(s.x)
        Xi = S.iterate(self.step, X, X, value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        return self.State(fed.project_x(S.mean(Xi)), s.t + 1)

    def step(self, c: MinimizationClient, xi: Tensor, x: Tensor, lr: float) -> Tensor:
        xi = c.project_x(xi)
        return xi - lr * (c.gradient(xi, c.draw(self.batch)) + self.mu * (xi - x))
