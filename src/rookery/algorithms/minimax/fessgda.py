"""FESS-GDA: federated stochastic smoothed gradient descent ascent.

Shen, Huang, Zhang, Shen, "Stochastic smoothed gradient descent ascent for federated minimax optimization", AISTATS 2024, Algorithm 1.
    x, y, z, η_{x,l}, η_{y,l}, η_{x,g}, η_{y,g}, K, p, β  →  x, y, z, lr, inner_lr, server_lr, inner_server_lr, local_steps, smoothing, beta
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import MinimaxClient
from ...problems.kinds import Minimax
from ..base import Algorithm, Number, check_fraction, check_positive, check_start, value_at


@dataclass(frozen=True)
class FESSGDA(Algorithm[Minimax]):
    """LocalSGDA's steps at the clients; at the server a step on f(x, y) + (smoothing/2)‖x − z‖², with z following x:

        x ← x + server_lr·(mean x_i − x) − lr·server_lr·K·smoothing·(x − z)
        y ← y + inner_server_lr·(mean y_i − y),  z ← z + beta·(x − z)

    K are the `local_steps`. The paper has smoothing = 2ℓ for an ℓ-smooth f, and 0 where f is PL on both sides; with smoothing=0 and both
    server rates 1 it is LocalSGDA. One exchange; z stays at the server.

    >>> FESSGDA(lr=0.1, smoothing=2.0).beta
    0.5
    """

    title: ClassVar[str] = "FESS-GDA"

    lr: Number
    inner_lr: Number = 0.1
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    smoothing: float = 1.0
    beta: float = 0.5
    server_lr: float = 1.0
    inner_server_lr: float = 1.0

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        z: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, local_steps=self.local_steps, batch=self.batch, server_lr=self.server_lr,
                       inner_server_lr=self.inner_server_lr)
        check_fraction(beta=self.beta)
        if not self.smoothing >= 0:
            raise AlgorithmError(f"smoothing must not be negative; got {self.smoothing}")

    def init(self, fed: Federation[Minimax], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(check_start(x, y)), x, 0)

    def round(self, fed: Federation[Minimax], s: State) -> State:
        S, lr, inner_lr = fed.cohort(), value_at(self.lr, s.t), value_at(self.inner_lr, s.t)
        xi, yi = S.mean(*S.iterate(self.step, S.broadcast(s.x, s.y), lr, inner_lr, steps=self.local_steps))
        pull = lr * self.server_lr * self.local_steps * self.smoothing
        x = fed.project_x(s.x + self.server_lr * (xi - s.x) - pull * (s.x - s.z))
        y = fed.project_y(s.y + self.inner_server_lr * (yi - s.y))
        return self.State(x, y, s.z + self.beta * (x - s.z), s.t + 1)

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, lr: float, inner_lr: float) -> tuple[Tensor, Tensor]:
        x, y = c.project_x(x), c.project_y(y)
        gx, gy = c.f_gradients(x, y, c.draw(self.batch))
        return x - lr * gx, y + inner_lr * gy
