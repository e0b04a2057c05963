"""Comparisons: the same seeds for all, one grid for all, chosen on validation rows; schedules; what crosses the network; trackers."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import GOOD, changed, command, toml

from rookery import Epochs, RookeryError
from rookery.errors import ConfigError
from rookery.studies.communication import as_formula, communication
from rookery.studies.compare import compare
from rookery.studies.description import algorithms, describe, parse
from rookery.training import Cosine, Decay, Drop
from rookery.training.tracking import TrackingError, tracker

SMALL = changed(run={"rounds": 2, "every": 1})
OTHER = changed(run={"rounds": 2, "every": 1}, algorithm={"name": "FedProx", "mu": 0.1})


def test_everyone_has_the_same_seeds_and_grid_and_the_choice_is_made_on_validation_rows(tmp_path: Path) -> None:
    grid = {"algorithm.lr": [1e-6, 0.5]}
    entries = compare({"plain": SMALL, "prox": OTHER}, 2, tmp_path, grid, "validation accuracy", jobs=1)
    assert [entry.chosen for entry in entries] == [{"algorithm.lr": 0.5}] * 2
    for label in ("plain", "prox"):
        last = []
        for seed in range(2):
            about = json.loads((tmp_path / label / f"seed-{seed}" / "about.json").read_text())
            assert (about["label"], about["seed"], about["config"]["algorithm"]["lr"]) == (label, seed, 0.5)
            assert [t["values"] for t in about["tuning"]["tried"]] == [{"algorithm.lr": 1e-6}, {"algorithm.lr": 0.5}]
            last.append(json.loads((tmp_path / label / f"seed-{seed}" / "history.jsonl").read_text().splitlines()[-1]))
        entry = next(e for e in entries if e.label == label)
        np.testing.assert_allclose(entry.spreads["test accuracy"].mean, np.mean([row["test accuracy"] for row in last]))
        assert entry.ends == {"rounds": 2}
    assert not entries[0].against_first
    difference = entries[1].spreads["test loss"].mean - entries[0].spreads["test loss"].mean
    np.testing.assert_allclose(entries[1].against_first["test loss"].mean, difference)


def test_a_comparison_goes_on_and_a_changed_description_is_run_again(tmp_path: Path) -> None:
    compare({"plain": SMALL}, 2, tmp_path, jobs=1)
    first = (tmp_path / "plain" / "seed-1" / "about.json").stat().st_mtime_ns
    compare({"plain": SMALL}, 2, tmp_path, jobs=1)
    assert (tmp_path / "plain" / "seed-1" / "about.json").stat().st_mtime_ns == first
    entries = compare({"plain": changed(run={"rounds": 3, "every": 1})}, 2, tmp_path, jobs=1)
    assert json.loads((tmp_path / "plain" / "seed-1" / "about.json").read_text())["rounds"] == 3
    assert entries[0].spreads["test loss"].seeds == 2


@pytest.mark.parametrize(("options", "words"), [
    ({"seeds": 0}, "seeds must be at least 1"), ({"by": "test loss"}, "by is a metric of the validation rows"),
    ({"by": "validation acuracy"}, "plain has no metric 'validation acuracy'; did you mean 'accuracy'"),
    ({"by": "validation AP"}, "plain has no metric 'validation AP'; by is one of validation loss, validation accuracy, .*worst class$"),
    ({"grid": {"algorithm.rate": [0.1]}}, r"plain: \[algorithm\] has no entry 'rate'"),
    ({"grid": {"algoritm.lr": [0.1]}}, r"plain: there is no section \[algoritm\]; did you mean 'algorithm'")])
def test_mistakes_in_a_comparison_come_out_before_anything_is_run(options: dict[str, Any], words: str, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.studies.compare.study", None)
    with pytest.raises(ConfigError, match=words):
        compare({"plain": SMALL}, **{"seeds": 1, "folder": tmp_path, "jobs": 1, **options})


def test_compare_and_report_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    for name, tree in (("plain", SMALL), ("prox", OTHER)):
        (tmp_path / f"{name}.toml").write_text(toml(tree))
    files = [str(tmp_path / f"{name}.toml") for name in ("plain", "prox")]
    out = tmp_path / "out"
    assert command(monkeypatch, "compare", *files, "--seeds", "2", "--out", str(out), "--jobs", "1", "--grid", "algorithm.lr=0.1,0.5") == 0
    printed = capsys.readouterr().out
    assert "against plain" in printed
    assert "prox" in (out / "report.html").read_text()
    page = tmp_path / "page.html"
    assert command(monkeypatch, "report", str(out / "plain" / "seed-0"), "--out", str(page), "--title", "One run") == 0
    assert "One run" in page.read_text()
    assert command(monkeypatch, "report", str(tmp_path), "--out", str(page)) == 2
    assert "history.jsonl is missing" in capsys.readouterr().err
    assert command(monkeypatch, "compare", files[0], files[0]) == 2
    assert "two are called 'plain'" in capsys.readouterr().err
    assert command(monkeypatch, "compare", *files, "--grid", "lr=1") == 2
    assert "section.key=v1,v2" in capsys.readouterr().err


def test_a_description_comes_back_from_its_own_words() -> None:
    tree = changed(algorithm={"lr": {"kind": "drop", "initial": 0.1, "rounds": [3, 5]}, "local_steps": ..., "epochs": 2},
                   model={"name": "mlp", "hidden": [8, 4]}, objective={"name": "cross_entropy", "weight_decay": 0.1},
                   data={"positive": [1, 2]})
    config = parse(tree)
    assert (config.algorithm.lr, config.algorithm.local_steps) == (Drop(0.1, (3, 5)), Epochs(2.0))  # type: ignore[attr-defined]
    assert parse(describe(config)) == config
    assert parse(json.loads(json.dumps(describe(config)))) == config


def test_schedules_at_hand_computed_rounds() -> None:
    assert [Drop(1.0, (2, 4), 0.5).at(t) for t in (1, 2, 4)] == [1.0, 0.5, 0.25]
    np.testing.assert_allclose([Decay(2.0, 0.5, 3).at(t) for t in (0, 9)], [2.0, 1.0])
    np.testing.assert_allclose([Cosine(1.0, 4, 0.2).at(t) for t in (0, 2, 4, 9)], [1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(("lr", "words"), [
    ({"kind": "dorp", "initial": 0.1}, "kind = one of drop, decay, cosine.*did you mean 'drop'"), ({"initial": 0.1}, "kind = one of"),
    ({"kind": "drop", "initial": 0.1}, r"\[algorithm.lr\] needs rounds"), ({"kind": "decay", "initial": -1}, "initial must be positive")])
def test_mistakes_in_a_schedule(lr: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(changed(algorithm={"lr": lr}))


@pytest.mark.parametrize("title", sorted(algorithms()))
def test_what_crosses_the_network_is_found_for_every_algorithm(title: str) -> None:
    _, lines = communication(algorithms()[title])
    assert {line.direction for line in lines} == {"down", "up"}
    fixed = {"FastDRO": {1, 2, 4, 30}}.get(title, {1})  # lengths that do not depend on those of x and y
    assert all(not as_formula(line.floats).isdigit() or line.floats in fixed for line in lines)
    assert all(line.what for line in lines)


def test_crossing_of_feddro_is_its_papers() -> None:
    _, lines = communication(algorithms()["FedDRO"])
    assert [(line.direction, as_formula(line.floats)) for line in lines] == [
        ("down", "d"), ("down", "d_y"), ("up", "d_y"), ("down", "d_y"), ("up", "d_y"), ("down", "d_y"), ("up", "d")]


def test_trackers_write_every_metric_against_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            logged.append((name, value, step))

        def flush(self) -> None:
            pass

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            assert tracking_uri == f"sqlite:///{tmp_path / 'mlflow.db'}"

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return name

        def create_run(self, experiment: str, run_name: str) -> Any:
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"{experiment}/{run_name}"))

        def log_metric(self, run: str, name: str, value: float, step: int) -> None:
            assert run == "rookery/mine"
            logged.append((name, value, step))

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", types.SimpleNamespace(MlflowClient=Client))
    row = {"round": 4, "bytes": 10, "test loss": 0.5}
    tracker("tensorboard", tmp_path, "mine")(row)
    assert logged == [("axes/bytes", 10, 4), ("test/loss", 0.5, 4)]
    logged.clear()
    tracker("mlflow", tmp_path, "mine")(row)
    assert logged == [("bytes", 10, 4), ("test loss", 0.5, 4)]
    with pytest.raises(TrackingError, match="tensorboard or mlflow; got 'wandb'"):
        tracker("wandb", tmp_path, "mine")
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(RookeryError, match=r"pip install 'rookery\[tracking\]'"):
        tracker("mlflow", tmp_path, "mine")


def test_the_good_description_is_good() -> None:
    assert parse(GOOD).algorithm.title == "FedAvg"
