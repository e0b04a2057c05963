"""FedLin: local gradient descent, corrected by the clients' gradients at the point where the round began.

Mitra, Jaafar, Pappas, Hassani, "Linear convergence in federated learning: Tackling client heterogeneity and sparse gradients",
NeurIPS 2021, without the sparsification.   x̄_t, x_{i,ℓ}, g_t, η, τ_i  →  x, xi, g, lr, local_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.federation import Cohort, Federation
from ...federation.oracles import MinimizationClient
from ...federation.placed import Placed
from ...problems.kinds import Minimization
from ..base import LocalSteps, value_at


@dataclass(frozen=True)
class FedLin(LocalSteps[Minimization]):
    """x_i ← x_i − (lr/τ_i)(∇f_i(x_i) − ∇f_i(x) + g), τ_i times, g = mean_i ∇f_i(x);  x ← mean_i x_i. Two exchanges of d.

    >>> FedLin(lr=0.1, local_steps=5).batch is None
    True
    """

    title: ClassVar[str] = "FedLin"
    exact_with_local_steps: ClassVar[bool] = True

    def round(self, fed: Federation[Minimization], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        return self.State(fed.project_x(S.mean(self.local_round(S, s))), s.t + 1)

    def local_round(self, S: Cohort[Minimization], s: LocalSteps.State) -> Placed:
        """The points x_i after the local steps."""
        X = S.broadcast(s.x)
        sent, Gi = S.map(self.gradient, X)
        G = S.broadcast(S.mean(sent))
        return S.iterate(self.step, X, Gi, G, value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))

    def gradient(self, c: MinimizationClient, x: Tensor) -> tuple[Tensor, Tensor]:
        """∇f_i(x) twice: one leaves for the mean, the other stays. With small batches it is one draw a round, unlike FedSVRG's."""
        g = c.gradient(x, c.draw(self.batch))
        return g, g

    def step(self, c: MinimizationClient, xi: Tensor, gi: Tensor, g: Tensor, lr: float) -> Tensor:
        xi = c.project_x(xi)
        return xi - lr / c.steps * (c.gradient(xi, c.draw(self.batch)) - gi + g)
