"""How long a run will take, found before it: some of its own rounds and evaluations are made and timed."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import Diverged, NonFinite
from ..training.loop import EVALUATION
from ..training.stage import Stage
from .job import Job

WARM = 2  # rounds in which graphs are traced
LEAST, MOST = 0.3, 30  # seconds that rounds are timed for where they are short, and how many of them at most


@dataclass(frozen=True)
class Pace:
    """The seconds of a run: once `start`, with the stages before the last one, then `each` a round, evaluations in between with it."""

    start: float
    each: float

    def seconds(self, rounds: int) -> float:
        """Of a run whose last stage has so many rounds."""
        return self.start + self.each * rounds


def pace(stages: Sequence[Stage], every: int | None = None, rounds: int = 3) -> Pace:
    """Time at least so many rounds of each stage, after those in which graphs are traced. The stages are not to be run after it.

    every: the rounds between evaluations; None: as many as a run chooses itself
    """
    state, start, each = None, 0.0, 0.0
    for stage in stages:
        began = time.perf_counter()
        state = stage.start(state)
        _evaluate(stage, state)
        for _ in range(min(WARM, stage.rounds)):
            state = stage.algorithm.round(stage.fed, state)
        start += each + time.perf_counter() - began
        each, made, began = 0.0, 0, time.perf_counter()
        while made < min(rounds, stage.rounds) or (made < min(MOST, stage.rounds) and time.perf_counter() - began < LEAST):
            state = stage.algorithm.round(stage.fed, state)
            made += 1
        if made:
            each = (time.perf_counter() - began) / made
            evaluation = _evaluate(stage, state)
            each += evaluation / (every or max(1, math.ceil(evaluation / (EVALUATION * max(each, 1e-9)))))
        if stage is not stages[-1]:
            each *= stage.rounds  # part of the next one's start
    return Pace(start, each)


def seconds(job: Job) -> float | None:
    """How long a job will run, with what it tells of its sites at the end; None where it diverges. The job is not to be run after it."""
    section, stages = job.description.run, job.stages
    try:
        found = pace(stages, section.every).seconds(stages[-1].rounds)
    except (NonFinite, Diverged):
        return None
    if section.minutes is not None:
        found = min(found, 60 * section.minutes)
    began = time.perf_counter()
    job.sites(job.given.vector)
    return found + time.perf_counter() - began


def _evaluate(stage: Stage, state: Any) -> float:
    """Seconds of an evaluation."""
    began = time.perf_counter()
    if stage.evaluate is not None:
        with stage.fed.phase("evaluation"):
            stage.evaluate(state)
    return time.perf_counter() - began
