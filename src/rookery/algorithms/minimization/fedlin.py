"""FedLin: local gradient descent, corrected by the clients' gradients at the point where the round began.

Mitra, Jaafar, Pappas, Hassani, "Linear convergence in federated learning: Tackling client heterogeneity and sparse gradients",
NeurIPS 2021, without the sparsification.   x̄_t, x_{i,ℓ}, g_t, η, τ_i  →  x, xi, g, lr, local_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from ...problems.base import Problem
from ...problems.kinds import Minimization
from ..base import LocalSteps, value_at

if TYPE_CHECKING:
    from ...federation.client import Client
    from ...federation.federation import Federation


@dataclass(frozen=True)
class FedLin(LocalSteps):
    """x_i ← x_i − (lr/τ_i)(∇f_i(x_i) − ∇f_i(x) + g), τ_i times, g = mean_i ∇f_i(x);  x ← mean_i x_i. Two exchanges of d.

    >>> FedLin(lr=0.1, local_steps=5).batch is None
    True
    """

    title: ClassVar[str] = "FedLin"
    solves: ClassVar[type[Problem]] = Minimization
    exact_with_local_steps: ClassVar[bool] = True

    def round(self, fed: Federation, s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.broadcast(s.x)
        sent, Gi = S.map(self.gradient, X)
        G = S.broadcast(S.mean(sent))
        Xi = S.map(self.step, X, Gi, G, value_at(self.lr, s.t), times=S.steps(self.local_steps, self.batch))
        del Gi  # what has no name any more is not kept at the clients
        return self.State(fed.project_x(S.mean(Xi)), s.t + 1)

    def gradient(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        """∇f_i(x) twice: one leaves for the mean, the other stays. With small batches it is one draw a round, unlike FedSVRG's."""
        g = c.gradient(x, c.draw(self.batch))
        return g, g

    def step(self, c: Client, xi: Tensor, gi: Tensor, g: Tensor, lr: float) -> Tensor:
        xi = c.project_x(xi)
        return xi - lr / c.times * (c.gradient(xi, c.draw(self.batch)) - gi + g)
