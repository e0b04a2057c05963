"""SCAFFOLD: control variates against client drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic controlled averaging for federated learning", ICML 2020,
Algorithm 1, option II, with |S|/N read as the clients' importance in the cohort (the same where weights are equal).
    x, y_i, c, c_i, η_l, η_g, K  →  x, y, c, ci, lr, server_lr, local_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...problems.base import Problem
from ...problems.kinds import Minimization
from ..base import Algorithm, Number, check_positive, value_at

if TYPE_CHECKING:
    from ...federation.client import Client
    from ...federation.epochs import Epochs
    from ...federation.federation import Federation
    from ...federation.placed import Placed


@dataclass(frozen=True)
class SCAFFOLD(Algorithm):
    """y ← y − lr(∇f_i(y) − c_i + c);  c_i⁺ = c_i − c + (x − y)/(K·lr);  x += server_lr·mean(y − x);  c += |S|/N·mean(c_i⁺ − c_i)."""

    title: ClassVar[str] = "SCAFFOLD"
    solves: ClassVar[type[Problem]] = Minimization
    exact_with_local_steps: ClassVar[bool] = True

    lr: Number
    local_steps: int | Epochs = 1
    batch: int | None = None
    server_lr: float = 1.0

    class State(NamedTuple):
        x: Tensor
        c: Tensor
        ci: Placed | None  # None: all zero
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch, server_lr=self.server_lr)

    def init(self, fed: Federation, x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, torch.zeros_like(x), None, 0)

    def round(self, fed: Federation, s: State) -> State:
        S, lr = fed.cohort(), value_at(self.lr, s.t)
        X, C = S.broadcast(s.x, s.c)
        Ci = S.map(self.zero, X) if s.ci is None else S.take(s.ci, S.map(self.zero, X))
        times = S.steps(self.local_steps, self.batch)
        Y = S.map(self.step, X, Ci, C, lr, times=times)
        dY, dC, Ci = S.map(self.finish, X, Y, Ci, C, times, S.importance, lr)
        ci = fed.put(s.ci, S, Ci)
        del Y, Ci  # what has no name any more is not kept at the clients
        dy, dc = S.mean(dY, dC)
        return self.State(fed.project_x(s.x + self.server_lr * dy), s.c + dc, ci, s.t + 1)

    def zero(self, c: Client, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def step(self, c: Client, y: Tensor, ci: Tensor, cs: Tensor, lr: float) -> Tensor:
        y = c.project_x(y)
        return y - lr * (c.gradient(y, c.draw(self.batch)) - ci + cs)

    def finish(self, c: Client, x: Tensor, y: Tensor, ci: Tensor, cs: Tensor, steps: int, importance: float,
               lr: float) -> tuple[Tensor, Tensor, Tensor]:
        new = ci - cs + (x - y) / (steps * lr)
        return y - x, importance * (new - ci), new
