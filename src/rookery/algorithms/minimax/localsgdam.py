"""LocalSGDAM: local gradient descent ascent with momentum, all variables averaged.

Sharma, Panda, Joshi, Varshney, "Federated minimax optimization: Improved convergence analyses and algorithms", ICML 2022, Momentum Local
SGDA.   x, y, d_x, d_y, η_x·α, η_y·α, β·α, τ  →  x, y, dx, dy, lr, inner_lr, beta, local_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import MinimaxClient
from ...problems.kinds import Minimax
from ..base import Algorithm, Number, check_fraction, check_positive, check_start, value_at


@dataclass(frozen=True)
class LocalSGDAM(Algorithm[Minimax]):
    """x ← x − lr·dx, y ← y + inner_lr·dy, then d ← (1−beta)·d + beta·∇f(x, y) at the new point, `local_steps` times; all four averaged.

    One exchange. With beta=1 it is LocalSGDA with every gradient used one step later than it was taken.

    >>> LocalSGDAM(lr=0.1, inner_lr=0.2, local_steps=5, batch=32).beta
    0.1
    """

    title: ClassVar[str] = "LocalSGDAM"
    plain_average: ClassVar[bool] = True

    lr: Number
    inner_lr: Number = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    beta: Number = 0.1

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        dx: Tensor  # empty before the first round
        dy: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, local_steps=self.local_steps, batch=self.batch)
        check_fraction(beta=self.beta)

    def init(self, fed: Federation[Minimax], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(check_start(x, y)), x.new_zeros(0), x.new_zeros(0), 0)

    def round(self, fed: Federation[Minimax], s: State) -> State:
        S = fed.cohort()
        X, Y = S.broadcast(s.x, s.y)
        DX, DY = S.map(self.gradients, X, Y) if s.t == 0 else S.broadcast(s.dx, s.dy)
        rates = [value_at(rate, s.t) for rate in (self.lr, self.inner_lr, self.beta)]
        x, y, dx, dy = S.mean(*S.iterate(self.step, (X, Y, DX, DY), *rates, steps=self.local_steps))
        return self.State(fed.project_x(x), fed.project_y(y), dx, dy, s.t + 1)

    def gradients(self, c: MinimaxClient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return c.f_gradients(x, y, c.draw(self.batch))

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, dx: Tensor, dy: Tensor, lr: float, inner_lr: float,
             beta: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, y = c.project_x(x) - lr * dx, c.project_y(y) + inner_lr * dy
        gx, gy = self.gradients(c, c.project_x(x), c.project_y(y))
        return x, y, (1 - beta) * dx + beta * gx, (1 - beta) * dy + beta * gy
