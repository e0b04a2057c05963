"""FedAvg: local SGD and averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-efficient learning of deep networks from decentralized data",
AISTATS 2017.   w, η, E, B  →  x, lr, local_steps=Epochs(E), batch
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from ..problem import Minimization, Problem
from .base import Algorithm, Number, positive, value_at

if TYPE_CHECKING:
    from ..client import Client
    from ..fed import Epochs, Federation


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """x_k ← x_k − lr·∇f_k(x_k; batch), `local_steps` times; x ← mean_k x_k.

    >>> FedAvg(lr=0.1, local_steps=5, batch=32).local_steps
    5
    """

    title: ClassVar[str] = "FedAvg"
    solves: ClassVar[type[Problem]] = Minimization

    lr: Number
    local_steps: int | Epochs = 1
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)

    def init(self, fed: Federation, x: Tensor) -> State:
        x = self.fits(fed, x)
        return self.State(x, 0)

    def round(self, fed: Federation, s: State) -> State:
        S = fed.cohort()
        X = S.map(self.step, S.broadcast(s.x), value_at(self.lr, s.t), times=S.steps(self.local_steps, self.batch))
        return self.State(fed.project_x(S.mean(X)), s.t + 1)

    def step(self, c: Client, x: Tensor, lr: float) -> Tensor:
        return c.project_x(x - lr * c.gradient(x, c.draw(self.batch)))
