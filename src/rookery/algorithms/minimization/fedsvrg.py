"""FedSVRG: local SGD with the variance reduction of SVRG around the point where the round began.

Konečný, McMahan, Ramage, Richtárik, "Federated optimization: Distributed machine learning for on-device intelligence", 2016, in the
form of Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest", ICML 2022, where it is FedInn and FedOut.
    x^k, x_{i,ν}, α, τ_i, ξ_{i,ν}  →  x, xi, lr, local_steps, the batch of `step`

It is FedNest on `as_bilevel` of a Minimization, sample for sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import MinimizationClient
from ...problems.kinds import Minimization
from ..base import LocalSteps, value_at


@dataclass(frozen=True)
class FedSVRG(LocalSteps[Minimization]):
    """x_i ← x_i − (lr/τ_i)(∇f_i(x_i; ξ) − ∇f_i(x; ξ) + g), τ_i times, g = mean_i ∇f_i(x; ξ_i);  x ← mean_i x_i. Two exchanges of d.

    >>> FedSVRG(lr=0.1, local_steps=5, batch=32).local_steps
    5
    """

    title: ClassVar[str] = "FedSVRG"
    exact_with_local_steps: ClassVar[bool] = True

    def round(self, fed: Federation[Minimization], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.broadcast(s.x)
        g = S.mean(S.map(self.gradient, X))
        Xi = S.iterate(self.step, X, X, S.broadcast(g), value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        return self.State(fed.project_x(S.mean(Xi)), s.t + 1)

    def gradient(self, c: MinimizationClient, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(self.batch))

    def step(self, c: MinimizationClient, xi: Tensor, x: Tensor, g: Tensor, lr: float) -> Tensor:
        xi, b = c.project_x(xi), c.draw(self.batch)
        return xi - lr / c.steps * (c.gradient(xi, b) - c.gradient(x, b) + g)
