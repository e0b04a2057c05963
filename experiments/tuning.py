"""Hyper-parameters chosen on held-out rows in the same way for every method, with seeds that no result has.

Step sizes first, on a grid that grows where its end is the best one; then further choices, such as momenta, one after the other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parts import InParts

from rookery.studies.statistics import best
from rookery.studies.trials import Result, Trial

SEEDS = (100, 101, 102)  # of grids; results have other ones
GROWTH = 3  # how often a grid may grow


def rounded(lr: float) -> float:
    """Two digits.

    >>> rounded(0.1 / 3)
    0.033
    """
    return float(f"{lr:.2g}")


class Tuned(InParts):
    """An experiment whose methods are tuned by a metric of held-out rows, `metric`, of which more or less is better."""

    def __init__(self, here: Path, args: argparse.Namespace, small: bool, work: Callable[[Trial], Result], metric: str,
                 larger: bool) -> None:
        super().__init__(here, args, small, work)
        self.metric, self.larger = metric, larger

    def choose(self, some: Sequence[Trial], lrs: Sequence[float], then: Mapping[str, Sequence[float]], seeds: Sequence[int],
               growth: int = GROWTH, **short: Any) -> list[Trial]:
        """The settings with the step size `lr`, and with those entries of `then` that are not None in them, of the best metric.

        short: what trials of the choice have in place of the settings' own, such as fewer steps
        A single step size is no choice, and does not grow.
        """
        grids = [sorted(lrs) for _ in some]
        for _ in range(growth + 1):
            chosen = self._best([[{**s, **short, "lr": lr} for lr in grid] for s, grid in zip(some, grids, strict=True)], seeds)
            before = [len(grid) for grid in grids]
            for grid, found in zip(grids, chosen, strict=True):
                if 1 < len(grid) < len(lrs) + growth and found["lr"] in (grid[0], grid[-1]):
                    grid.append(rounded(grid[0] / 3 if found["lr"] == grid[0] else grid[-1] * 3))
                    grid.sort()
            if before == [len(grid) for grid in grids]:
                break
        for name, values in then.items():
            chosen = self._best([[found] if found.get(name) is None else [{**found, name: value} for value in values] for found in chosen],
                                seeds)
        return [{**found, **{name: s[name] for name in short}} for s, found in zip(some, chosen, strict=True)]

    def _best(self, candidates: Sequence[Sequence[Trial]], seeds: Sequence[int]) -> list[Trial]:
        """Of each list the trial with the best metric in the mean over the seeds; all trials are made together."""
        done = self([{**c, "seed": seed} for several in candidates for c in several for seed in seeds])
        found, place = list[Trial](), 0
        for several in candidates:
            own = done[place : place + len(several) * len(seeds)]
            place += len(own)
            found.append(best(own, (), self.metric, self.larger)[()])
        return found
