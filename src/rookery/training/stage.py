"""A part of a run: some rounds of one algorithm on one federation, from where the part before it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..algorithms.base import Algorithm
from ..federation.federation import Federation
from ..problems.base import Problem
from .result import Metrics


@dataclass(frozen=True, eq=False)
class Stage:
    """`rounds` rounds of an algorithm on a federation.

    start:    the first state, from the last one of the stage before; None stands for that at the beginning. Exchanges for it are booked
              in the federation's ledger, which goes on from that of the stage before
    evaluate: the metrics of a state
    name:     where a failure in it is said to be, as in "in the warm-up"
    """

    algorithm: Algorithm[Any]
    fed: Federation[Problem]
    rounds: int
    start: Callable[[Any], Any]
    evaluate: Callable[[Any], Metrics] | None = None
    name: str = ""
