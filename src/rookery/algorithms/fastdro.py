"""FastDRO: minibatch SGD on the worst case over each batch's weights.

Levy, Carmon, Duchi, Sidford, "Large-scale methods for distributionally robust optimization", NeurIPS 2020, the minibatch estimator.
The weights are part of the problem: `rookery.objectives.fast_dro` solves for them exactly.   x, η, n  →  x, lr, batch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from ..problem import Minimization, Problem
from .mbsgd import AveragedGradient

if TYPE_CHECKING:
    from ..client import Client


@dataclass(frozen=True)
class FastDRO(AveragedGradient):
    """x ← x − lr·mean_k Σ_i p_i ∇ℓ_i(x), p the worst-case weights of the client's batch: one step on `fast_dro(losses, …)`, averaged.

    It is FedAvg with one local step; with more of them, take FedAvg on the same problem.
    """

    title: ClassVar[str] = "FastDRO"
    solves: ClassVar[type[Problem]] = Minimization
    exact_with_local_steps: ClassVar[bool] = True  # it averages after each

    def gradient(self, c: Client, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(self.batch))
