"""Stages of one run: a warm-up counts, is kept, is interrupted and diverges as all rounds do, and gives the numbers it gave by hand."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from running import changed

from rookery import FedAvg, FedDRO, Federation
from rookery.errors import CheckpointError
from rookery.objectives import balanced_cross_entropy
from rookery.problems import testproblems as known
from rookery.studies import parse
from rookery.studies.build import build
from rookery.training import EarlyStop, Run, Stage, run_stages

WARM: dict[str, Any] = {"warm_up": {"rounds": 3, "lr": 0.2, "local_steps": 2, "batch": 8}, "run": {"rounds": 7, "every": 2},
                        "objective": {"name": "kl_dro"}, "algorithm": {"name": "FedDRO", "beta": 0.5},
                        "federation": {"clients_per_round": 3, "engine": "loop"}}


def job(folder: Path | None = None, **sections: Any) -> Any:
    return build(parse(changed(**{s: {**WARM.get(s, {}), **sections.get(s, {})} for s in {**WARM, **sections}})), folder)


def test_a_warm_up_as_a_stage_gives_what_it_gives_by_hand() -> None:
    made = job()
    result = made.run(None, "x")
    again, config = job(), made.description
    warm = Federation(balanced_cross_entropy(again.model), again.fed.data, engine="loop", weights="samples", clients_per_round=3,
                      seed=2**32)
    warm.prepare(again.given.vector)
    first = FedAvg(0.2, 2, 8)
    state = first.init(warm, again.given.vector)
    for _ in range(3):
        state = first.round(warm, state)
    again.fed.ledger.load(warm.ledger.to_json())
    again.fed.prepare(state.x)
    state = config.algorithm.init(again.fed, state.x)
    for _ in range(4):
        state = config.algorithm.round(again.fed, state)
    assert torch.equal(result.state.x, state.x)
    assert made.fed.ledger["train"] == again.fed.ledger["train"]
    assert made.fed.ledger["setup"] == again.fed.ledger["setup"]
    assert [row["round"] for row in result.history] == [0, 2, 3, 5, 7]
    assert result.rounds == 7


def broken_off(folder: Path, at: int, **sections: Any) -> Run:
    """A run that Ctrl-C ends after some round."""
    def interrupt(row: dict[str, float]) -> None:
        if row["round"] == at:
            os.kill(os.getpid(), signal.SIGINT)

    result: Run = job(folder, **sections).run(folder, "x", callbacks=[interrupt])
    assert (result.reason, result.rounds) == ("interrupted", at)
    return result


@pytest.mark.parametrize("engine", ["loop", "wire", "auto"])
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_run_that_ended_in_any_stage_goes_on_to_the_same_bits(at: int, engine: str, tmp_path: Path) -> None:
    sections: dict[str, Any] = {"run": {"every": 1}, "federation": {"engine": engine}}
    whole = job(tmp_path / "whole", **sections)
    expected = whole.run(tmp_path / "whole", "x")
    broken_off(tmp_path / "run", at, **sections)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert (about["rounds"], about["reason"]) == (at, "interrupted")
    second = job(tmp_path / "run", **sections)
    result = second.run(tmp_path / "run", "x", resume=True)
    assert torch.equal(result.state.x, expected.state.x)
    assert second.fed.ledger == whole.fed.ledger

    def rows(run: Run) -> list[dict[str, float]]:
        return [{**row, "seconds": 0} for row in run.history]

    assert rows(result) == rows(expected)


def test_minutes_end_a_warm_up_and_what_it_sent_is_told(tmp_path: Path) -> None:
    first = job(tmp_path)
    result = first.run(tmp_path, "x", minutes=0.0)
    assert (result.reason, result.rounds, result.stage) == ("minutes", 0, 0)
    assert (tmp_path / "predictions.npz").exists()
    broken = job(tmp_path).run(tmp_path, "x", resume=True)
    assert (broken.reason, broken.rounds) == ("rounds", 7)


def test_a_warm_up_that_diverges_keeps_the_last_good_point(tmp_path: Path) -> None:
    made = job(tmp_path, warm_up={"lr": 1e9, "rounds": 3}, run={"every": 1})
    result = made.run(tmp_path, "x")
    assert (result.reason, result.stage) == ("diverged", 0)
    assert result.failure is not None
    assert "in the warm-up" in result.failure
    assert torch.equal(result.state.x, made.given.vector)
    late = job(tmp_path / "late", warm_up={"lr": 1e9, "rounds": 3}, run={"every": 50},  # seen where the objective begins only
               objective={"name": "mean_variance"})
    result = late.run(tmp_path / "late", "x")
    assert (result.reason, result.stage, result.rounds) == ("diverged", 0, 3)
    assert torch.equal(result.state.x, late.given.vector)
    assert [json.loads(line)["round"] for line in (tmp_path / "late" / "history.jsonl").read_text().splitlines()] == [0]


def test_a_run_of_another_number_of_stages_does_not_go_on(tmp_path: Path) -> None:
    k, algorithm = known.minimization(), FedAvg(0.1)

    def stage(rounds: int) -> Stage:
        fed = Federation(k.problem, k.data, engine="loop")
        return Stage(algorithm, fed, rounds, lambda before: algorithm.init(fed, k.x0 if before is None else before.x))

    run_stages([stage(2), stage(3)], folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"saved in stage 2 of a run, and this one has 1"):
        run_stages([stage(5)], folder=tmp_path, resume=True)


def test_stages_of_several_kinds_are_one_run_and_only_the_last_one_stops_early() -> None:
    k, c = known.minimization(d=3), known.compositional(d=3)
    feds = Federation(k.problem, k.data, engine="loop"), Federation(c.problem, c.data, engine="loop")
    plain, nested = FedAvg(0.05), FedDRO(0.05, 0.5)
    seen: list[int] = []

    def flat(state: Any) -> dict[str, float]:
        return {"flat": 1.0}

    stages = [Stage(plain, feds[0], 6, lambda _: plain.init(feds[0], k.x0), flat),
              Stage(nested, feds[1], 9, lambda before: nested.init(feds[1], before.x), flat)]
    result = run_stages(stages, 1, stop=EarlyStop("flat", 3), callbacks=[lambda row: seen.append(int(row["round"]))])
    assert (result.reason, result.rounds, result.stage) == ("early stop", 9, 1)
    assert seen == list(range(10))
    assert feds[1].ledger["train"].exchanges == 6 + 1 + 3 * 2
    assert isinstance(result.state, FedDRO.State)


def test_how_often_to_evaluate_is_chosen_anew_in_every_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("rookery.training.loop.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    k = known.minimization()
    fed, algorithm, genuine, cost = Federation(k.problem, k.data, engine="loop"), FedAvg(0.1), FedAvg.round, [1.0]

    def slow(self: FedAvg, fed: Any, s: Any) -> Any:
        clock[0] += cost[0]
        return genuine(self, fed, s)

    def evaluate(state: Any) -> dict[str, float]:
        clock[0] += 0.5
        return {}

    def start(before: Any) -> Any:
        cost[0] = 1.0 if before is None else 0.25
        return algorithm.init(fed, k.x0)

    monkeypatch.setattr(FedAvg, "round", slow)
    result = run_stages([Stage(algorithm, fed, 10, start, evaluate), Stage(algorithm, fed, 40, start, evaluate)])
    assert result.column("round") == [0, 1, 5, 10, 11, 30, 50]
