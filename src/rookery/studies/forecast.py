"""What a run will send, found before it: a few rounds of one local step at two of its clients, with its own model and problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..algorithms.base import Algorithm
from ..engines.loop import Loop
from ..errors import RookeryError
from ..federation.federation import Cohort, Federation
from ..federation.ledger import Line
from ..federation.operations import Flush, Map
from ..federation.reducer import Reducer
from ..problems.base import Problem


@dataclass(frozen=True)
class Forecast:
    """Exchanges, and bytes up and down, of all clients in all rounds; `each` is what one client sends and receives in a round."""

    exchanges: int
    up: int
    down: int
    each: tuple[int, int]
    how: Literal["", "at most ", "about "] = ""  # it is exact where nothing depends on chance


class _OneStep(Loop):
    """Local work does not cross the network: once is enough."""

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        ops = [replace(op, times=min(op.most, 1)) if isinstance(op, Map) else op for op in flush.ops]
        super().flush(replace(flush, ops=ops), reducer)


class _Small(Federation[Problem]):
    """Random numbers of the server are the largest they can be, and cohorts are counted."""

    random = False
    drawn = 0

    def integer(self, bound: int) -> int:
        self.random = True
        return bound - 1

    def cohort(self, size: int | None = None) -> Cohort[Problem]:
        self.drawn += 1
        return super().cohort(size)


def forecast(algorithm: Algorithm[Any], fed: Federation[Problem], start: Callable[[Federation[Problem]], tuple[Tensor, ...]],
             rounds: int) -> Forecast | None:
    """What training will send, counted as the ledger counts it; None where the rounds that were tried fail, as the run then will.

    start: the starting points, from a federation of all clients that it may use
    """
    try:
        with torch.random.fork_rng(devices=[]):
            return _forecast(algorithm, fed, start, rounds)
    except RookeryError:
        return None


def _forecast(algorithm: Algorithm[Any], fed: Federation[Problem], start: Callable[[Federation[Problem]], tuple[Tensor, ...]],
              rounds: int) -> Forecast:
    device = fed.data.device
    # a graph of all clients takes seconds to trace, which pays for many of them only
    whole = Federation(fed.problem, fed.data, engine="loop" if fed.population <= 1000 else "auto", weights=fed.weights.tolist(),
                       seed=fed.setting.seed, min_batch=fed.setting.min_batch, precision=fed.setting.precision, device=device)
    points = start(whole)
    problem = whole.prepare(points[0])
    few = fed.population if algorithm.pools else 2  # a pool is as long as its clients are many
    chosen = sorted(np.argsort(-fed.weights, kind="stable")[:few].tolist())
    cohort = fed.clients_per_round or fed.population
    some = None if cohort == fed.population else cohort if algorithm.pools else 1
    small = _Small(problem, fed.data.part(*chosen), engine=_OneStep(), seed=fed.setting.seed, min_batch=fed.setting.min_batch,
                   precision=fed.setting.precision, device=device, clients_per_round=some)

    def clients(line: Line) -> float:
        """At how many clients of the whole federation this will cross."""
        if small.clients_per_round is None:
            return fed.population * line.clients / small.population
        return fed.population if line.clients == small.population else cohort

    own = {f.name: tuple(value[i] for i in chosen) for f in fields(algorithm)  # type: ignore[arg-type]
           if isinstance(value := getattr(algorithm, f.name), tuple) and len(value) == fed.population}
    method: Any = replace(algorithm, **own) if own else algorithm  # type: ignore[type-var]
    state: Any = None
    counts, several = list[list[float]](), False
    with small.ledger.recording() as lines:
        for number in range(min(rounds, 3) + 1):
            before, small.drawn = small.ledger["train"].exchanges, 0
            state = method.round(small, state) if number else method.init(small, *points)
            sums = [sum(line.bytes * clients(line) for line in lines if line.direction == way) for way in ("up", "down")]
            counts.append([small.ledger["train"].exchanges - before, *sums])
            # with several cohorts in a round, what a client is sent depends on whether it was in one before
            several = several or (small.clients_per_round is not None and small.drawn > 1)
            lines.clear()
    total = np.sum(counts[:2], axis=0) + (np.mean(counts[2:], axis=0) * (rounds - 1) if rounds > 1 else 0)
    exchanges, up, down = (round(float(value)) for value in total)
    each = (round(counts[-1][1] / cohort), round(counts[-1][2] / cohort)) if rounds else (0, 0)
    same = all(count == counts[2] for count in counts[3:])
    return Forecast(exchanges, up, down, each, "about " if several or not same else "at most " if small.random else "")
