"""FedNova: normalised averaging, so that clients with more local steps do not count more.

Wang, Liu, Liang, Joshi, Poor, "Tackling the objective inconsistency problem in heterogeneous federated optimization", NeurIPS 2020.
    x, η, τ_i, ρ, p_i, d_i, τ_eff  →  x, lr, local_steps, rho, the federation's weights, d, effective

Local momentum starts at zero in every round, so that x − x_i = lr·Σ_k a_k g_k with ‖a_i‖₁ = [τ_i − ρ(1 − ρ^τ_i)/(1 − ρ)]/(1 − ρ),
which is τ_i for plain SGD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import MinimizationClient
from ...problems.kinds import Minimization
from ..base import LocalSteps, value_at


@dataclass(frozen=True)
class FedNova(LocalSteps[Minimization]):
    """d_i = (x − x_i)/‖a_i‖₁ after τ_i local steps;  x ← x − τ_eff·Σ_i p_i d_i,  τ_eff = Σ_i p_i‖a_i‖₁. With equal τ_i it is FedAvg.

    >>> FedNova(lr=0.1, rho=0.5).norms(np.array([1, 2, 3]))
    array([1.  , 2.5 , 4.25])
    """

    title: ClassVar[str] = "FedNova"

    rho: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rho < 1:
            raise AlgorithmError(f"rho, the local momentum, must lie in [0, 1); got {self.rho}")

    def round(self, fed: Federation[Minimization], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.broadcast(s.x)
        tau = np.full(S.size, S.steps(self.local_steps, self.batch))
        Xi = S.iterate(self.step, (X, S.map(self.zero, X)), value_at(self.lr, s.t), steps=tau)[0]
        norms = self.norms(tau)
        d = S.mean(S.map(self.normalised, X, Xi, norms))
        effective = float(np.average(norms, weights=S.mean_weights))
        return self.State(fed.project_x(s.x - effective * d), s.t + 1)

    def norms(self, tau: NDArray[np.int64]) -> NDArray[np.float64]:
        """‖a_i‖₁ of each client."""
        return np.asarray((tau - self.rho * (1 - self.rho**tau) / (1 - self.rho)) / (1 - self.rho), dtype=np.float64)

    def zero(self, c: MinimizationClient, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def step(self, c: MinimizationClient, xi: Tensor, v: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        xi = c.project_x(xi)
        v = self.rho * v + c.gradient(xi, c.draw(self.batch))
        return xi - lr * v, v

    def normalised(self, c: MinimizationClient, x: Tensor, xi: Tensor, norm: float) -> Tensor:
        return (x - xi) / norm
