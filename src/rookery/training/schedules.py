"""Hyper-parameters that change with the round t, for `lr` and its like."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import AlgorithmError
from ..federation.program import Schedule


@dataclass(frozen=True)
class Drop(Schedule):
    """A step size that drops: `start`, multiplied by `factor` from each of `rounds` on.

    >>> schedule = Drop(0.8, (90,), 0.5)
    >>> schedule.at(89), schedule.at(90)
    (0.8, 0.4)
    """

    start: float
    rounds: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        _positive(start=self.start, factor=self.factor)

    def at(self, t: int) -> float:
        return self.start * self.factor ** sum(t >= round for round in self.rounds)


@dataclass(frozen=True)
class Decay(Schedule):
    """A step size that decays, `start`·(1 + t/`over`)^(−`power`): half, a third, … after 1, 2, … times `over` rounds where the power is 1.

    >>> Decay(1.0, over=10).at(30)
    0.25
    """

    start: float
    power: float = 1.0
    over: float = 1.0

    def __post_init__(self) -> None:
        _positive(start=self.start, power=self.power, over=self.over)

    def at(self, t: int) -> float:
        return float(self.start * (1 + t / self.over) ** -self.power)


@dataclass(frozen=True)
class Cosine(Schedule):
    """A step size that falls from `start` to `end` along half a cosine over `rounds` rounds.

    >>> [round(Cosine(1.0, 10).at(t), 3) for t in (0, 5, 10, 20)]
    [1.0, 0.5, 0.0, 0.0]
    """

    start: float
    rounds: int
    end: float = 0.0

    def __post_init__(self) -> None:
        _positive(start=self.start, rounds=self.rounds)

    def at(self, t: int) -> float:
        return self.end + 0.5 * (self.start - self.end) * (1 + math.cos(math.pi * min(t / self.rounds, 1.0)))


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value > 0:
            raise AlgorithmError(f"a schedule's {name} must be positive; got {value}")


SCHEDULES = {"drop": Drop, "decay": Decay, "cosine": Cosine}
