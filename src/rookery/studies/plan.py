"""What a comparison will take, found before it from some rounds of its runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

import numpy as np
import torch

from .build import Prepared, assemble, prepare
from .compare import Tree, with_values
from .description import parse
from .job import Job
from .pace import seconds
from .trials import trials


@dataclass(frozen=True)
class Plan:
    """The runs of a comparison, were none of them made already, what they send, and how long they take in so many processes.

    how: "at most " where what is sent depends on the grid or on chance, "about " where it is not known exactly
    exchanges, bytes: None where rounds that were tried fail
    seconds: None where the runs of a description diverge, whatever the values of the grid
    """

    runs: int
    processes: int
    exchanges: int | None
    bytes: int | None
    seconds: float | None
    how: str


def plan(descriptions: Mapping[str, Tree], seeds: int, grid: Mapping[str, Sequence[Any]] | None = None, tuning_seeds: int = 1,
         jobs: int | None = None) -> Plan:
    """What `compare` will take: what is sent with all values of the grid, and the time with those in its middle."""
    combinations, tuning = trials(**(grid or {})), tuning_seeds if grid else 0
    each = seeds + tuning * len(combinations)  # runs of a description
    processes = max(1, min(jobs or os.cpu_count() or 1, each * len(descriptions)))
    rows: dict[str, tuple[Prepared, float]] = {}
    sent, took, hows, threads = np.zeros(2), 0.0, {""}, torch.get_num_threads()
    torch.set_num_threads(1 if processes > 1 else threads)
    try:
        for label, tree in descriptions.items():
            own = [_job(with_values(tree, values, label), rows) for values in combinations]
            amounts = np.array([_sent(job, hows) for job, _ in own])
            sent += tuning * amounts.sum(0) + seeds * amounts.max(0)
            if (amounts != amounts[0]).any():
                hows.add("at most ")
            middle = len(own) // 2
            took += each * next((read + found for job, read in own[middle:] + own[:middle] if (found := seconds(job)) is not None), nan)
    finally:
        torch.set_num_threads(threads)
    exchanges, crossed = (None if isnan(amount) else round(amount) for amount in sent.tolist())
    return Plan(each * len(descriptions), processes, exchanges, crossed, None if isnan(took) else took / processes,
                max(hows, key=["", "at most ", "about "].index))


def _job(tree: Tree, rows: dict[str, tuple[Prepared, float]]) -> tuple[Job, float]:
    """The run of a description, and the seconds that it takes to read its rows, which several may have in common."""
    config, key = parse(tree), json.dumps([tree.get(section) for section in ("data", "sites", "federation")], sort_keys=True)
    if key not in rows:
        began = time.perf_counter()
        rows[key] = prepare(config), time.perf_counter() - began
    return assemble(config, rows[key][0]), rows[key][1]


def _sent(job: Job, hows: set[str]) -> tuple[float, float]:
    """Exchanges and bytes of a run, nan where they are not known."""
    coming = job.forecast()
    if coming is None:
        return nan, nan
    hows.add(coming.how)
    return coming.exchanges, coming.up + coming.down
