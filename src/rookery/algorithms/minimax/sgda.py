"""SGDA: stochastic gradient descent ascent with two step sizes.

Lin, Jin, Jordan, "On gradient descent ascent for nonconvex-concave minimax problems", ICML 2020, Algorithm 2.
    x, y, η_x, η_y, M  →  x, y, lr, inner_lr, batch (at each client);  `theory.sgda` has η_y = 1/ℓ, η_x = 1/(κ²ℓ)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import MinimaxClient
from ...problems.kinds import Minimax
from ..base import Number, check_positive, value_at
from ._base import Saddle


@dataclass(frozen=True)
class SGDA(Saddle):
    """x ← x − lr·mean_i ∂x f_i(x, y), y ← y + inner_lr·mean_i ∂y f_i(x, y), an exchange for every step. LocalSGDA with one local step.

    >>> SGDA(lr=0.01, inner_lr=0.1, batch=32).batch
    32
    """

    title: ClassVar[str] = "SGDA"
    exact_with_local_steps: ClassVar[bool] = True  # there are none

    lr: Number
    inner_lr: Number = 0.1
    batch: int | None = None  # None: all rows

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, batch=self.batch)

    def round(self, fed: Federation[Minimax], s: Saddle.State) -> Saddle.State:
        S = fed.cohort()
        gx, gy = S.mean(*S.map(self.gradients, *S.broadcast(s.x, s.y)))
        return self.State(fed.project_x(s.x - value_at(self.lr, s.t) * gx), fed.project_y(s.y + value_at(self.inner_lr, s.t) * gy), s.t + 1)

    def gradients(self, c: MinimaxClient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return c.f_gradients(x, y, c.draw(self.batch))
