"""FedGDA-GT: local gradient descent ascent with gradient tracking.

Sun, Wei, "A communication-efficient algorithm with linear convergence for federated minimax learning", NeurIPS 2022.
    x_i, y_i, η, K  →  xi, yi, lr, local_steps;  gx, gy are the means of the gradients where the round began

The paper has full gradients, `batch=None`. With a batch, each local step uses its own at both points, as FedSVRG does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.epochs import Epochs
from ...federation.federation import Federation
from ...federation.oracles import MinimaxClient
from ...problems.kinds import Minimax
from ..base import Number, check_positive, value_at
from ._base import Saddle


@dataclass(frozen=True)
class FedGDAGT(Saddle):
    """x_i ← x_i − lr(∂x f_i(z_i) − ∂x f_i(z) + gx), y_i ← y_i + lr(∂y f_i(z_i) − ∂y f_i(z) + gy), z = (x, y); averaged. Two exchanges.

    >>> FedGDAGT(lr=0.1, local_steps=5).exact_with_local_steps
    True
    """

    title: ClassVar[str] = "FedGDA-GT"
    exact_with_local_steps: ClassVar[bool] = True

    lr: Number
    local_steps: int | Epochs | tuple[int, ...] = 1
    batch: int | None = None  # None: all rows

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)

    def round(self, fed: Federation[Minimax], s: Saddle.State) -> Saddle.State:
        S = fed.cohort()
        X, Y = S.broadcast(s.x, s.y)
        G = S.broadcast(*S.mean(*S.map(self.gradients, X, Y)))
        Xi, Yi = S.iterate(self.step, (X, Y), X, Y, *G, value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        x, y = S.mean(Xi, Yi)
        return self.State(fed.project_x(x), fed.project_y(y), s.t + 1)

    def gradients(self, c: MinimaxClient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return c.f_gradients(x, y, c.draw(self.batch))

    def step(self, c: MinimaxClient, xi: Tensor, yi: Tensor, x: Tensor, y: Tensor, gx: Tensor, gy: Tensor,
             lr: float) -> tuple[Tensor, Tensor]:
        xi, yi, b = c.project_x(xi), c.project_y(yi), c.draw(self.batch)
        (xi_slope, yi_slope), (x_slope, y_slope) = c.f_gradients(xi, yi, b), c.f_gradients(x, y, b)
        return xi - lr * (xi_slope - x_slope + gx), yi + lr * (yi_slope - y_slope + gy)
