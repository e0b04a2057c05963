"""The run loop: history, resuming after any kind of end, budgets, early stopping, divergence."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rookery import SCAFFOLD, FedAvg, FedDRO, Federation, Minimization
from rookery.errors import AlgorithmError, CheckpointError
from rookery.problems import testproblems as known
from rookery.training import EarlyStop, run

K = known.minimization()


def federation(**options: Any) -> Federation:
    return Federation(K.problem, K.data, engine="loop", **options)


def distance(state: Any) -> dict[str, float]:
    return {"distance": float((state.x - K.x_star).norm())}


def test_history_has_every_metric_with_its_axes() -> None:
    fed, algorithm = federation(), FedAvg(0.1, 2, 2)
    seen: list[dict[str, float]] = []
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 10, distance, every=4, callbacks=[seen.append])
    assert [row["round"] for row in result.history] == [0, 4, 8, 10]
    assert seen == result.history
    assert result.column("exchanges") == [0, 4, 8, 10]
    assert result.column("samples") == [0, 4 * 2 * 4 * 2, 8 * 2 * 4 * 2, 10 * 2 * 4 * 2]
    assert result.column("bytes")[-1] == 10 * 2 * 4 * 3 * 8
    assert result.history[-1]["distance"] == distance(result.state)["distance"] < result.history[0]["distance"]
    assert result.column("seconds") == sorted(result.column("seconds"))
    assert (result.reason, result.rounds) == ("rounds", 10)


def test_evaluation_changes_nothing_and_is_booked_apart() -> None:
    algorithm = FedAvg(0.1, 2, 2)
    ends = []
    for every in (1, 7):
        fed = federation(clients_per_round=2)

        def evaluate(state: Any, fed: Federation = fed) -> dict[str, float]:
            return {"mean": float(fed.mean(fed.map(algorithm.step, fed.broadcast(state.x), 0.0)).sum())}

        ends.append(run(algorithm, fed, algorithm.init(fed, K.x0), 9, evaluate, every).state.x)
        assert fed.ledger["train"].exchanges == 9
        assert fed.ledger["evaluation"].exchanges == (10 if every == 1 else 3)
    assert torch.equal(*ends)


def test_how_often_to_evaluate_is_chosen_once_so_that_it_takes_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("rookery.training.loop.time.perf_counter", lambda: now[0])
    fed, algorithm = federation(), FedAvg(0.1)
    genuine = FedAvg.round

    def slow_round(self: FedAvg, fed: Federation, s: Any) -> Any:
        now[0] += 1.0
        return genuine(self, fed, s)

    def evaluate(state: Any) -> dict[str, float]:
        now[0] += 0.5
        return {}

    monkeypatch.setattr(FedAvg, "round", slow_round)
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 40, evaluate)
    assert result.every == 5
    assert result.column("round")[-3:] == [30, 35, 40]


@pytest.mark.parametrize("algorithm", [FedAvg(0.1, 2, 2), SCAFFOLD(0.1, 2, 2)], ids=["FedAvg", "SCAFFOLD"])
def test_a_resumed_run_is_the_unbroken_one(algorithm: Any, tmp_path: Path) -> None:
    whole = federation(clients_per_round=3)
    expected = run(algorithm, whole, algorithm.init(whole, K.x0), 12, distance, 2)
    first = federation(clients_per_round=3)
    run(algorithm, first, algorithm.init(first, K.x0), 5, distance, 2, folder=tmp_path, save_every=1)
    second = federation(clients_per_round=3)
    result = run(algorithm, second, algorithm.init(second, K.x0), 12, distance, 2, folder=tmp_path, resume=True)
    assert torch.equal(result.state.x, expected.state.x)
    assert second.ledger["train"] == whole.ledger["train"]
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows == result.history
    kept = [(row["round"], row["distance"], row["bytes"]) for row in result.history if row["round"] % 2 == 0]
    assert kept == [(row["round"], row["distance"], row["bytes"]) for row in expected.history]


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    algorithm = FedAvg(0.1)
    fed = federation()
    run(algorithm, fed, algorithm.init(fed, K.x0), 2, folder=tmp_path)
    with pytest.raises(CheckpointError, match="resume=True"):
        run(algorithm, fed, algorithm.init(fed, K.x0), 2, folder=tmp_path)
    with pytest.raises(CheckpointError, match="needs the folder"):
        run(algorithm, fed, algorithm.init(fed, K.x0), 2, resume=True)
    with pytest.raises(AlgorithmError, match="at least 1"):
        run(algorithm, fed, algorithm.init(fed, K.x0), 2, every=0)


def test_resuming_an_empty_folder_begins() -> None:
    algorithm, fed = FedAvg(0.1), federation()
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        assert run(algorithm, fed, algorithm.init(fed, K.x0), 3, folder=Path(folder) / "new", resume=True).rounds == 3


def test_a_run_that_diverges_keeps_its_last_good_state(tmp_path: Path) -> None:
    problem = Minimization(lambda x, b: (b.a @ x - b.b).pow(4).mean())
    for engine in ("loop", "vectorised"):
        fed = Federation(problem, K.data, engine=engine)
        algorithm = SCAFFOLD(5.0)
        result = run(algorithm, fed, algorithm.init(fed, 3 * K.x0), 100, folder=tmp_path / engine)
        assert result.reason == "diverged"
        assert result.failure is not None
        assert "site-" in result.failure
        assert torch.isfinite(result.state.x).all()
        again = Federation(problem, K.data, engine=engine)
        from rookery.training.checkpoint import load
        assert torch.equal(load(tmp_path / engine / "state.ckpt", algorithm, again).x, result.state.x)


def test_early_stopping_and_the_budget() -> None:
    algorithm = FedAvg(0.3)
    fed = federation()
    stop = EarlyStop("distance", 3, larger_is_better=False, least=1e-6)
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 1000, distance, 1, stop=stop)
    assert result.reason == "early stop"
    assert 10 < result.rounds < 500
    best = min(result.column("distance")[:-3])
    assert all(value > best - 1e-6 for value in result.column("distance")[-3:])
    with pytest.raises(AlgorithmError, match="'loss'"):
        run(algorithm, federation(), result.state, 3, distance, 1, stop=EarlyStop("loss"))
    assert run(algorithm, federation(), result.state, 1000, minutes=0.0).reason == "minutes"


def test_ctrl_c_ends_after_the_round_and_saves(tmp_path: Path) -> None:
    algorithm, fed = FedAvg(0.1, 2, 2), federation()

    def interrupt(row: dict[str, float]) -> None:
        if row["round"] == 4:
            os.kill(os.getpid(), signal.SIGINT)

    result = run(algorithm, fed, algorithm.init(fed, K.x0), 50, distance, 1, folder=tmp_path, callbacks=[interrupt])
    assert (result.reason, result.rounds) == ("interrupted", 4)
    other, whole = federation(), federation()
    resumed = run(algorithm, other, algorithm.init(other, K.x0), 9, distance, 1, folder=tmp_path, resume=True)
    assert torch.equal(resumed.state.x, run(algorithm, whole, algorithm.init(whole, K.x0), 9, distance, 1).state.x)


VICTIM = """
import sys, torch
torch.set_num_threads(1)
from rookery import FedDRO, Federation, SCAFFOLD
from rookery.problems import testproblems as known
from rookery.training.loop import run
name, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
k = known.minimization() if name == "SCAFFOLD" else known.compositional()
algorithm = SCAFFOLD(0.05, 3, 2) if name == "SCAFFOLD" else FedDRO(0.05, 0.3, 3, 2)
fed = Federation(k.problem, k.data, engine="loop", clients_per_round=3)
print("ready", flush=True)
state = algorithm.init(fed, k.x0)
result = run(algorithm, fed, state, rounds, lambda s: {"norm": float(s.x.norm())}, 3, folder=folder, resume=True, save_every=1)
torch.save({"x": result.state.x, "norms": result.column("norm"), "ledger": fed.ledger.to_json()["train"]}, folder + "/end.pt")
"""


def killed_and_resumed(name: str, kills: int, folder: Path, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run to the end under `kill -9` at random moments, and unbroken; return both ends."""
    r, script = random.Random(seed), folder / "victim.py"
    script.write_text(VICTIM)
    ends = []
    for part, count in (("broken", kills), ("whole", 0)):
        (folder / part).mkdir()
        command = [sys.executable, str(script), name, str(folder / part), "150"]
        for _ in range(count):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(r.uniform(0.0, 0.4))
                process.kill()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        ends.append(torch.load(folder / part / "end.pt", weights_only=True))
    return ends[0], ends[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SCAFFOLD"])
def test_three_kills_at_random_moments_change_nothing(name: str, tmp_path: Path) -> None:
    broken, whole = killed_and_resumed(name, 3, tmp_path, seed=1)
    assert torch.equal(broken["x"], whole["x"])
    assert broken["norms"] == whole["norms"]
    assert broken["ledger"] == whole["ledger"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SCAFFOLD", "FedDRO"])
def test_twenty_kills_at_random_moments_change_nothing(name: str, tmp_path: Path) -> None:
    broken, whole = killed_and_resumed(name, 20, tmp_path, seed=2)
    assert torch.equal(broken["x"], whole["x"])
    assert broken["norms"] == whole["norms"]


def test_a_remote_run_saves_at_the_sites_and_goes_on(tmp_path: Path) -> None:
    from rookery.engines import Wire
    k = known.compositional()
    algorithm = FedDRO(0.1, 0.3, 2, 2)
    sites = tmp_path / "sites"
    sites.mkdir()
    whole = Federation(k.problem, k.data, engine="loop", clients_per_round=3)
    expected = run(algorithm, whole, algorithm.init(whole, k.x0), 7)
    first = Federation(k.problem, k.data, engine=Wire(sites), clients_per_round=3)
    run(algorithm, first, algorithm.init(first, k.x0), 4, folder=tmp_path / "run")
    second = Federation(k.problem, k.data, engine=Wire(sites), clients_per_round=3)
    result = run(algorithm, second, algorithm.init(second, k.x0), 7, folder=tmp_path / "run", resume=True)
    assert torch.equal(result.state.x, expected.state.x)


def test_seconds_are_of_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only evaluations move."""
    clock = [0.0]
    monkeypatch.setattr("rookery.training.loop.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def evaluate(state: Any) -> dict[str, float]:
        clock[0] += 10
        return {"x": 0.0}

    fed, algorithm = Federation(K.problem, K.data, engine="loop"), SCAFFOLD(0.1, 2)
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 4, evaluate, every=1)
    assert len(result.history) == 5
    assert (result.seconds, clock[0]) == (0, 50)


def test_minutes_are_those_of_a_call(tmp_path: Path) -> None:
    fed, algorithm = Federation(K.problem, K.data, engine="loop"), SCAFFOLD(0.1, 2)
    first = run(algorithm, fed, algorithm.init(fed, K.x0), 10**6, minutes=0.005, folder=tmp_path)
    fed = Federation(K.problem, K.data, engine="loop")
    second = run(algorithm, fed, algorithm.init(fed, K.x0), 10**6, minutes=0.005, folder=tmp_path, resume=True)
    assert (first.reason, second.reason) == ("minutes", "minutes")
    assert second.rounds > first.rounds > 0


def test_every_round_is_told_and_a_resumed_run_begins_where_it_was(tmp_path: Path) -> None:
    def told(rounds: int, folder: Path | None, evaluated: bool = True, **options: Any) -> tuple[list[tuple[int, int]], Any]:
        fed, algorithm, seen = federation(), FedAvg(0.1, 2, 2), list[tuple[int, int]]()
        result = run(algorithm, fed, algorithm.init(fed, K.x0), rounds, distance if evaluated else None, every=4, folder=folder,
                     on_progress=lambda made, number: seen.append((made, number)), **options)
        return seen, result.state.x

    assert told(5, None, evaluated=False)[0] == [(made, 5) for made in range(6)]
    assert told(3, tmp_path)[0] == [(made, 3) for made in range(4)]
    seen, x = told(5, tmp_path, resume=True)
    assert seen == [(made, 5) for made in (3, 4, 5)]
    assert torch.equal(x, told(5, None)[1])


def test_rounds_and_evaluations_are_logged_and_nothing_is_printed_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    fed, algorithm = federation(), FedAvg(0.1, 2, 2)
    with caplog.at_level("DEBUG", "rookery"):
        run(algorithm, fed, algorithm.init(fed, K.x0), 2, distance, every=2)
    levels = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    assert levels == [("INFO", "after round 0"), ("DEBUG", "round 1"), ("DEBUG", "round 2"), ("INFO", "after round 2")]
    account = fed.ledger["train"]
    assert f"{account.exchanges} exchanges, {account.bytes_up + account.bytes_down} bytes" in caplog.records[-1].getMessage()
    assert not logging.getLogger("rookery").handlers
