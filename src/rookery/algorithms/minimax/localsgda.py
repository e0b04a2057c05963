"""LocalSGDA and FedAvg-S: local gradient descent ascent, averaged.

Deng, Mahdavi, "Local stochastic gradient descent ascent: Convergence analysis and communication efficiency", AISTATS 2021, Algorithm 1.
    x^(i), y^(i), η_x, η_y, τ  →  x, y, lr, inner_lr, local_steps
Hou, Thekumparampil, Fanti, Oh, "Efficient algorithms for federated saddle point optimization", arXiv:2102.06333: FedAvg-S, which is FedAvg
on the saddle operator (∂x f, −∂y f); the FedNest paper compares with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from ...errors import AlgorithmError
from ...federation.epochs import Epochs
from ...federation.federation import Federation
from ...federation.oracles import MinimaxClient
from ...problems.kinds import Minimax
from ..base import Number, check_positive, value_at
from ._base import Saddle


@dataclass(frozen=True)
class _Local(Saddle):
    """What the two have in common: local steps, of which each says its own, and the means of x and y. One exchange."""

    lr: Number
    inner_lr: Number = 0.1
    local_steps: int | Epochs | tuple[int, ...] = 1
    batch: int | None = None  # None: all rows

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, local_steps=self.local_steps, batch=self.batch)

    def round(self, fed: Federation[Minimax], s: Saddle.State) -> Saddle.State:
        S, rates = fed.cohort(), (value_at(self.lr, s.t), value_at(self.inner_lr, s.t))
        x, y = S.mean(*S.iterate(self.step, S.broadcast(s.x, s.y), *rates, steps=S.steps(self.local_steps, self.batch)))
        return self.State(fed.project_x(x), fed.project_y(y), s.t + 1)

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, lr: float, inner_lr: float) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


@dataclass(frozen=True)
class LocalSGDA(_Local):
    """x_i ← x_i − lr·∂x f_i(x_i, y_i), y_i ← y_i + inner_lr·∂y f_i(x_i, y_i), at once and on one batch; x, y ← their means. One exchange.

    >>> LocalSGDA(lr=0.1, inner_lr=0.2, local_steps=5, batch=32).local_steps
    5
    """

    title: ClassVar[str] = "LocalSGDA"

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, lr: float, inner_lr: float) -> tuple[Tensor, Tensor]:
        x, y = c.project_x(x), c.project_y(y)
        gx, gy = c.f_gradients(x, y, c.draw(self.batch))
        return x - lr * gx, y + inner_lr * gy


@dataclass(frozen=True)
class FedAvgS(_Local):
    """FedAvg on (∂x f, −∂y f). `order="simultaneous"` is LocalSGDA; with "y first" each step of x sees the y the client has just made.

    That y is the client's own: "y first" drifts at one local step already.
    """

    title: ClassVar[str] = "FedAvg-S"

    order: Literal["simultaneous", "y first"] = "simultaneous"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.order not in ("simultaneous", "y first"):
            raise AlgorithmError(f'order is "simultaneous" or "y first"; got {self.order!r}')

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, lr: float, inner_lr: float) -> tuple[Tensor, Tensor]:
        x, y, b = c.project_x(x), c.project_y(y), c.draw(self.batch)
        new = y + inner_lr * c.f_y(x, y, b)
        return x - lr * c.f_x(x, y if self.order == "simultaneous" else c.project_y(new), b), new
