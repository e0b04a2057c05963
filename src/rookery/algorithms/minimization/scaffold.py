"""SCAFFOLD: control variates against client drift.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: Stochastic controlled averaging for federated learning", ICML 2020,
Algorithm 1, option II, with |S|/N read as the clients' importance in the cohort (the same where weights are equal).
    x, y_i, c, c_i, η_l, η_g, K  →  x, y, c, ci, lr, server_lr, local_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...federation.epochs import Epochs
from ...federation.federation import Cohort, Federation
from ...federation.oracles import MinimizationClient
from ...federation.placed import Placed
from ...problems.kinds import Minimization
from ..base import Algorithm, Number, check_positive, value_at


@dataclass(frozen=True)
class SCAFFOLD(Algorithm[Minimization]):
    """y ← y − lr(∇f_i(y) − c_i + c);  c_i⁺ = c_i − c + (x − y)/(K·lr);  x += server_lr·mean(y − x);  c += |S|/N·mean(c_i⁺ − c_i)."""

    title: ClassVar[str] = "SCAFFOLD"
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

    def init(self, fed: Federation[Minimization], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, torch.zeros_like(x), None, 0)

    def round(self, fed: Federation[Minimization], s: State) -> State:
        S = fed.cohort()
        dY, dC, ci = self.local_round(fed, S, s)
        dy, dc = S.mean(dY, dC)
        return self.State(fed.project_x(s.x + self.server_lr * dy), s.c + dc, ci, s.t + 1)

    def local_round(self, fed: Federation[Minimization], S: Cohort[Minimization], s: State) -> tuple[Placed, Placed, Placed]:
        """y − x and c_i⁺ − c_i, the latter times the clients' importance, and the population's c_i with those of this cohort in it."""
        X, C = S.broadcast(s.x, s.c)
        lr, steps = value_at(self.lr, s.t), S.steps(self.local_steps, self.batch)
        Ci = S.map(self.zero, X) if s.ci is None else S.take(s.ci, S.map(self.zero, X))
        Y = S.iterate(self.step, X, Ci, C, lr, steps=steps)
        dY, dC, Ci = S.map(self.finish, X, Y, Ci, C, steps, S.importance, lr)
        return dY, dC, fed.put(s.ci, S, Ci)

    def zero(self, client: MinimizationClient, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def step(self, client: MinimizationClient, y: Tensor, ci: Tensor, c: Tensor, lr: float) -> Tensor:
        y = client.project_x(y)
        return y - lr * (client.gradient(y, client.draw(self.batch)) - ci + c)

    def finish(self, client: MinimizationClient, x: Tensor, y: Tensor, ci: Tensor, c: Tensor, steps: int, importance: float,
               lr: float) -> tuple[Tensor, Tensor, Tensor]:
        new = ci - c + (x - y) / (steps * lr)
        return y - x, importance * (new - ci), new
