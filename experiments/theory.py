"""What the measurements of theorems share: clients on two sides, values along a run, and fits of power laws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from common import run_to_end
from torch import Tensor

from rookery import Algorithm, Federation
from rookery.data import Normal
from rookery.data.sampling import Draw, Request, Selection
from rookery.errors import Diverged
from rookery.studies.trials import Results


@dataclass(frozen=True)
class Sides(Normal):
    """Normal samples with the client's side: +1 and −1 for clients of even and odd number where they differ, else 0."""

    differ: bool = False

    def select(self, draw: Draw, request: Request) -> Selection:
        chosen = super().select(draw, request)
        side = np.where(draw.clients % 2 == 0, 1.0, -1.0) if self.differ else np.zeros(len(draw.clients))
        chosen["side"] = torch.from_numpy(side).to(self.dtype)[:, None, None].expand(-1, len(draw.steps), request.outer)
        return chosen


def followed(algorithm: Algorithm[Any], fed: Federation[Any], state: Any, rounds: int, measure: Callable[[Tensor], Tensor],
             lost: Callable[[Tensor], bool] | None = None) -> list[Tensor] | None:
    """What `measure` gives at every point at which a round begins, and at the last point; None of a run that is lost."""
    values: list[Tensor] = []

    def look(s: Any) -> dict[str, float]:
        if lost is not None and lost(s.x):
            raise Diverged("the run is lost")
        values.append(measure(s.x))
        return {}

    done = run_to_end(algorithm, fed, state, rounds, look, may_diverge=lost is not None)
    return values if done.reason == "rounds" else None


def mean_where_rounds_begin(values: list[Tensor]) -> list[float]:
    """Of what `followed` gives, replica by replica: the last point begins no round."""
    found: list[float] = (sum(values[1:-1], values[0]) / (len(values) - 1)).tolist()
    return found


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def reached(steps: Any, means: Any, level: float) -> float:
    """The steps at which log mean, a line between measured lengths, crosses the level; nan if it does not do so in between."""
    below = np.flatnonzero(np.asarray(means) <= level)
    if not len(below) or below[0] == 0:
        return math.nan
    i = below[0]
    return float(np.exp(np.interp(-np.log(level), -np.log(means[i - 1 : i + 1]), np.log(steps[i - 1 : i + 1]))))


def by_clients(done: Results, level: float, resampled: Callable[..., tuple[float, float]]) -> tuple[
        dict[int, float], tuple[float, float], tuple[float, float]]:
    """Steps to the level for each K; their slope over K; the slope of the mean over K·T, all runs together.

    resampled: a fit on the runs' values, and its standard error
    """
    values = [np.array(r["values"]) for _, r in done]
    of = [(t["clients"], r["steps"]) for t, r in done]

    def times(some: list[np.ndarray]) -> dict[int, float]:
        found = {}
        for k in sorted({k for k, _ in of}):
            pairs = [(steps, float(v.mean())) for (c, steps), v in zip(of, some, strict=True) if c == k]
            found[k] = reached([s for s, _ in pairs], [m for _, m in pairs], level)
        return {k: t for k, t in found.items() if not math.isnan(t)}

    def over_clients(some: list[np.ndarray]) -> float:
        found = times(some)
        return slope(list(found), list(found.values())) if len(found) > 2 else math.nan

    def order(some: list[np.ndarray]) -> float:
        return slope([k * steps for k, steps in of], [float(v.mean()) for v in some])

    return times(values), resampled(over_clients, values), resampled(order, values)
