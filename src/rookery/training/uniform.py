"""The iterate that the theorems speak of: one drawn uniformly from all steps of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from ..algorithms.base import Algorithm
from ..federation.federation import Federation
from ..problems.base import Problem
from .keeper import Keeper
from .result import Run


class Uniform:
    """An iterate after one of the steps 1 … T of all rounds, drawn uniformly before the first.

    Where a round is a number of local steps, the steps before the chosen one are played ahead of their round, from the same state and
    with the same samples, and averaged; that average is all it costs on the network besides what those steps exchange themselves.
    """

    def __init__(self, algorithm: Algorithm[Any], fed: Federation[Problem], rounds: int) -> None:
        self.algorithm, self.fed = algorithm, fed
        steps = getattr(algorithm, "local_steps", 1)
        each = steps if isinstance(steps, int) and algorithm.plain_average else 1
        fed.counters["server:output"] = 0  # so that a resumed run draws the same
        with fed.phase("output"):
            step = 1 + fed.integer(each * rounds) if rounds else 0
        self.round, self.step = divmod(step, each)

    def look(self, made: int, result: Run, keeper: Keeper | None) -> None:
        """Keep the iterate, if it is the one after the rounds made so far, or within the next."""
        if self.round == made:
            result.output = self.iterate(result.state)
            if keeper is not None:
                keeper.keep(result.output)

    def iterate(self, state: Any) -> Tensor:
        if self.step:
            with self.fed.replay():
                state = replace(self.algorithm, local_steps=self.step).round(self.fed, state)  # type: ignore[type-var]
        x: Tensor = state.x
        return x.clone()
