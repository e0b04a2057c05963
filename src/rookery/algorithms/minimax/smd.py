"""SMD: proximally guided stochastic mirror descent, in its Euclidean form, on one machine.

Rafique, Liu, Lin, Yang, "Weakly-convex-concave min-max optimization: Provable algorithms and applications in machine learning",
Optimization Methods and Software 2021.   x̄^(t), γ, η, j_t  →  x, prox, lr and inner_lr, local_steps·(t+1)²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import MinimaxClient
from ...problems.kinds import Minimax
from ..base import Number, check_positive, one_machine_only, value_at
from ._base import Saddle


@dataclass(frozen=True)
class SMD(Saddle):
    """x, y ← the averages of j_t = local_steps·(t+1)² steps of descent ascent on f(x, y) + ‖x − x̄‖²/(2·prox), from x̄ = x: a stage.

    >>> SMD(lr=0.1, prox=0.5).stage(2)
    9
    """

    title: ClassVar[str] = "SMD"
    exact_with_local_steps: ClassVar[bool] = True  # there are no other clients to drift from

    lr: Number
    inner_lr: Number = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    prox: float = 1.0

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, local_steps=self.local_steps, batch=self.batch, prox=self.prox)

    def validate(self, fed: Federation[Minimax], x: Tensor) -> Tensor:
        one_machine_only(self, fed, "LocalSGDA or FedGDA-GT")
        return super().validate(fed, x)

    def stage(self, t: int) -> int:
        """The number of steps j_t of stage t."""
        return self.local_steps * (t + 1) ** 2

    def round(self, fed: Federation[Minimax], s: Saddle.State) -> Saddle.State:
        X, Y = fed.broadcast(s.x, s.y)
        rates = value_at(self.lr, s.t), value_at(self.inner_lr, s.t)
        _, _, X, Y = fed.iterate(self.step, (X, Y, *fed.map(self.zeros, X, Y)), X, *rates, steps=self.stage(s.t))
        x, y = fed.mean(X, Y)
        return self.State(fed.project_x(x), fed.project_y(y), s.t + 1)

    def zeros(self, c: MinimaxClient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x), torch.zeros_like(y)

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, mx: Tensor, my: Tensor, centre: Tensor, lr: float,
             inner_lr: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One step of x and y; mx and my become the means of the points that the steps start from."""
        b = c.draw(self.batch)
        return (c.project_x(x - lr * (c.f_x(x, y, b) + (x - centre) / self.prox)), c.project_y(y + inner_lr * c.f_y(x, y, b)),
                mx + x / c.steps, my + y / c.steps)
