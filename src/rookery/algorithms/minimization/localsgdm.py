"""LocalSGDM: local SGD with momentum, model and momentum averaged.

Yu, Jin, Yang, "On the linear speedup analysis of communication efficient momentum SGD for distributed non-convex optimization",
ICML 2019, with Polyak's momentum.   x_i, u_i, γ, β, I  →  x, u, lr, momentum, local_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...errors import AlgorithmError
from ...federation.epochs import Epochs
from ...federation.federation import Federation
from ...federation.oracles import MinimizationClient
from ...problems.kinds import Minimization
from ..base import Algorithm, Number, check_positive, value_at


@dataclass(frozen=True)
class LocalSGDM(Algorithm[Minimization]):
    """u_i ← momentum·u_i + ∇f_i(x_i; batch), x_i ← x_i − lr·u_i, `local_steps` times; x and u averaged. With momentum=0 it is FedAvg.

    >>> LocalSGDM(lr=0.1, local_steps=5, batch=32).momentum
    0.9
    """

    title: ClassVar[str] = "LocalSGDM"
    plain_average: ClassVar[bool] = True

    lr: Number
    local_steps: int | Epochs = 1
    batch: int | None = None  # None: all rows
    momentum: float = 0.9

    class State(NamedTuple):
        x: Tensor
        u: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)
        if not 0 <= self.momentum < 1:
            raise AlgorithmError(f"momentum must lie in [0, 1); got {self.momentum}")

    def init(self, fed: Federation[Minimization], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, torch.zeros_like(x), 0)

    def round(self, fed: Federation[Minimization], s: State) -> State:
        S = fed.cohort()
        X, U = S.iterate(self.step, S.broadcast(s.x, s.u), value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        x, u = S.mean(X, U)
        return self.State(fed.project_x(x), u, s.t + 1)

    def step(self, c: MinimizationClient, x: Tensor, u: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        x = c.project_x(x)
        u = self.momentum * u + c.gradient(x, c.draw(self.batch))
        return x - lr * u, u
