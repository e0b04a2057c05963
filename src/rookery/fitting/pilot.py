"""How long a fit will take, from a few rounds of every method, and how many rounds the wanted minutes allow."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import RookeryError
from .bench import Bench
from .goals import Method, Setting
from .search import SPLITS
from .training import Tree, train, tree_of

FEW = 8  # rounds of a pilot
GROWN = 1.5  # values that a grid grows by on average
LEAST, MOST = 20, 400  # rounds that minutes are turned into
SHORT = 20.0  # seconds of work below which one process does it all
START = 6.0  # seconds that it takes to start processes
AFTER = 4.0  # seconds for scores of test rows, intervals, pooled models and files
SPENT = 0.8  # of the minutes, for trials


@dataclass(frozen=True)
class Pilot:
    """How many rounds, in how many processes, and how many seconds that will take."""

    rounds: int
    seconds: float
    jobs: int


def plan(bench: Bench, base: Tree, methods: Sequence[Method], setting: Setting, seed: int, minutes: float | None, grid: int,
         jobs: int | None, needed: bool = False) -> Pilot:
    """Time a few rounds of every method, and choose; where rounds and processes are given there is nothing to choose, nor to tell."""
    if minutes is None and jobs is not None and not needed:
        return Pilot(setting.rounds, 0.0, jobs)
    began, timed = time.perf_counter(), [_timed(bench, base, method, setting, seed) for method in methods if method.trains]
    rates, fixed, first = sum(rate for rate, _ in timed), sum(once for _, once in timed), timed[0]
    spent = time.perf_counter() - began
    trials, processes = grid + GROWN + SPLITS - 1, jobs or os.cpu_count() or 1

    def work(rounds: int) -> float:
        return trials * (rates * rounds + fixed)

    rounds = setting.rounds
    if minutes is not None:
        ours = max(1.0, SPENT * 60 * minutes - spent)
        rounds = int((ours * processes / trials - fixed) / max(rates, 1e-9))
        rounds = min(max(rounds, LEAST), MOST)
    if jobs is None and work(rounds) < SHORT:
        processes = 1
    # afterwards there are tests, and references: every site alone on the same grid, which is FedAvg without its means
    after = AFTER + grid * (first[0] * rounds + first[1])
    seconds = work(rounds) / processes + (START if processes > 1 else 0) + spent + after
    return Pilot(rounds, round(seconds, 1), processes)


def _timed(bench: Bench, base: Tree, method: Method, setting: Setting, seed: int) -> tuple[float, float]:
    """Seconds that a round takes, and those that a trial takes beside its rounds."""
    tree, rows = tree_of(base, method, replace(setting, rounds=FEW), 0.03, seed), bench.rows(0)
    try:
        train({**tree, "run": {"rounds": 1}, "warm_up": {}}, rows, bench.measure, looks=1)  # what is done once in a process
        began = time.perf_counter()
        found = train(tree, rows, bench.measure, looks=FEW // 2)
    except RookeryError:  # the trial will say why
        return 0.0, 0.0
    whole = time.perf_counter() - began
    looks = found.history
    if len(looks) < 3:
        return 0.0, whole
    # the least of several, as functions are traced when they are first called, which is not always in the first round
    rate = min((b["seconds"] - a["seconds"]) / max(b["round"] - a["round"], 1) for a, b in pairwise(looks[1:]))
    return rate, max(0.0, whole - rate * FEW)  # there were as many looks as in a trial, or one fewer
