"""Personal models: what a model scores at each client after a few steps on the client's own rows, and what these rows give alone."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import AlgorithmError
from ..federation.federation import Federation
from ..federation.oracles import MinimizationClient
from ..federation.placed import Placed
from ..federation.program import Program
from ..problems.kinds import Minimization


@dataclass(frozen=True)
class Adaptation(Program):
    """Gradient steps of every client by itself, on its own training rows.

    batch: rows a step, drawn as the problem says; None: all of them

    >>> import torch
    >>> from rookery import Data
    >>> problem = Minimization(lambda x, b: 0.5 * (x - b.u).square().mean())
    >>> fed = Federation(problem, Data.from_parts({"a": {"u": [1.0]}, "b": {"u": [3.0, 5.0]}}))
    >>> own = Adaptation(lr=0.5, steps=2).of(fed, torch.zeros(1))
    >>> fed.collect(own)  # ¾ of the way to each client's mean
    tensor([[0.7500],
            [3.0000]])
    """

    lr: float = 0.1
    steps: int = 3
    batch: int | None = None

    def __post_init__(self) -> None:
        if not self.lr > 0 or self.steps < 0 or (self.batch is not None and self.batch < 1):
            raise AlgorithmError(f"clients adapt by steps of a positive size, at least none of them, on a row or more; got lr={self.lr}, "
                                 f"steps={self.steps} and batch={self.batch}")

    def of(self, fed: Federation[Minimization], x: Tensor) -> Placed:
        """x after the steps, at each client its own: it stays there, and `evaluate` and `by_client` take it in the place of one x."""
        with fed.phase("evaluation"):
            return fed.iterate(self.step, fed.broadcast(x), self.lr, steps=self.steps)

    def step(self, c: MinimizationClient, x: Tensor, lr: float) -> Tensor:
        x = c.project_x(x)
        return x - lr * c.gradient(x, c.draw(self.batch))
