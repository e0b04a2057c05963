"""What a run came to, and what may end it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from ..errors import AlgorithmError
from ..federation.ledger import Line

Metrics = dict[str, float]
Callback = Callable[[Metrics], None]
OnProgress = Callable[[int, int], None]
Reason = Literal["rounds", "minutes", "early stop", "diverged", "interrupted"]
COUNTS = ("round", "exchanges", "bytes", "samples", "seconds")  # of training so far: the axes of a row, not its metrics


@dataclass
class Run:
    """What a run came to: the last state, a row of history per evaluation, and why it ended."""

    state: Any
    history: list[Metrics] = field(default_factory=list)
    reason: Reason = "rounds"
    rounds: int = 0
    seconds: float = 0.0
    every: int | None = None
    failure: str | None = None  # what diverged, in words
    traffic: list[Line] = field(default_factory=list)  # what crossed the network in the last round
    output: Tensor | None = None  # the uniformly drawn iterate, where it was asked for and reached
    stage: int = 0  # which stage the state belongs to

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.history]


@dataclass(frozen=True)
class EarlyStop:
    """Stop when `metric` has not become better by more than `least` for `patience` evaluations."""

    metric: str
    patience: int = 5
    larger_is_better: bool = True
    least: float = 0.0

    def reached(self, history: Sequence[Metrics]) -> bool:
        if history and self.metric not in history[-1]:
            raise AlgorithmError(f"early stopping watches {self.metric!r}; the evaluation gives {sorted(history[-1])}")
        sign = 1 if self.larger_is_better else -1
        best = -math.inf
        since = 0
        for row in history:
            value = sign * row[self.metric]
            best, since = (value, 0) if value > best + self.least else (best, since + 1)
        return since >= self.patience
