"""How long a run will take: what rounds, evaluations and starts cost, by a clock that only they move."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from running import changed

from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.pace import pace, seconds
from rookery.training import Stage


class Work:
    """Stages whose first two rounds take ten seconds and the others two, with evaluations of one second and a start of three."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.made = 0.0, 0
        monkeypatch.setattr("rookery.studies.pace.time", SimpleNamespace(perf_counter=lambda: self.now))

    def stage(self, rounds: int, evaluated: bool = True) -> Stage:
        first = SimpleNamespace(made=0)

        def round(fed: Any, state: Any) -> Any:
            first.made += 1
            self.made += 1
            self.now += 10 if first.made <= 2 else 2
            return state

        def took(amount: float) -> Any:
            self.now += amount
            return {}

        fed: Any = SimpleNamespace(phase=lambda name: nullcontext())
        algorithm: Any = SimpleNamespace(round=round)
        return Stage(algorithm, fed, rounds, lambda _: took(3), (lambda _: took(1)) if evaluated else None)


def test_a_round_has_its_share_of_an_evaluation_and_tracing_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    found = pace([work.stage(100)], every=4)
    assert (found.start, found.each, work.made) == (3 + 1 + 20, 2 + 1 / 4, 5)
    assert found.seconds(100) == 24 + 225
    assert pace([work.stage(100)]).each == 2 + 1 / 5  # as often as a tenth of the time allows
    assert pace([work.stage(100, evaluated=False)], every=4).each == 2


def test_stages_before_the_last_one_are_part_of_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    found = pace([work.stage(7), work.stage(50)], every=1)
    assert (found.start, found.each) == (24 + 7 * 3 + 24, 3)
    assert pace([work.stage(0)], every=1).seconds(0) == 4


def test_a_job_is_timed_with_its_budget_and_one_that_diverges_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = changed(federation={"engine": "loop"}, run={"minutes": 2.0})
    monkeypatch.setattr("rookery.studies.pace.pace", lambda *_: SimpleNamespace(seconds=lambda rounds: 1000.0 * rounds))
    monkeypatch.setattr("rookery.studies.pace.time", SimpleNamespace(perf_counter=lambda: 0.0))
    assert seconds(build(parse(tree))) == 120
    monkeypatch.undo()
    assert seconds(build(parse(changed(federation={"engine": "loop"}, algorithm={"lr": 1e38})))) is None
