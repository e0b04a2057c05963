"""FedAvg: local SGD and averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-efficient learning of deep networks from decentralized data",
AISTATS 2017.   w, η, E, B  →  x, lr, local_steps=Epochs(E), batch
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
class FedAvg(LocalSteps[Minimization]):
    """x_k ← x_k − lr·∇f_k(x_k; batch), `local_steps` times; x ← mean_k x_k.

    >>> FedAvg(lr=0.1, local_steps=5, batch=32).local_steps
    5
    """

    title: ClassVar[str] = "FedAvg"
    plain_average: ClassVar[bool] = True

    def round(self, fed: Federation[Minimization], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.iterate(self.step, S.broadcast(s.x), value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        return self.State(fed.project_x(S.mean(X)), s.t + 1)

    def step(self, c: MinimizationClient, x: Tensor, lr: float) -> Tensor:
        x = c.project_x(x)
        return x - lr * c.gradient(x, c.draw(self.batch))
