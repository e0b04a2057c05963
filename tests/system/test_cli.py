"""Runs from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from running import GOOD, changed, command, toml

from rookery import FedAvg, RookeryError
from rookery.errors import ConfigError
from rookery.studies import algorithms, parse, read
from rookery.studies.build import build


def test_overrides_win(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(toml(GOOD))
    config = read(tmp_path / "run.toml", ["run.rounds=9", "algorithm.name=FedProx", "algorithm.mu=0.5", "model.hidden=[3, 4]"])
    assert (config.run.rounds, config.algorithm.title, config.model.hidden) == (9, "FedProx", (3, 4))


def test_run_list_and_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text(toml(GOOD))
    assert command(monkeypatch, "run", str(file), "--out", str(out)) == 0
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 2, 4]
    assert rows[-1]["test accuracy"] > 0.5 > rows[0]["test accuracy"]
    about = json.loads((out / "about.json").read_text())
    assert (about["reason"], about["ledger"]["train"]["exchanges"]) == ("rounds", 4)
    assert command(monkeypatch, "run", str(file), "--out", str(out)) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert command(monkeypatch, "run", str(file), "--out", str(out), "--resume", "--set", "run.rounds=6") == 0
    whole = tmp_path / "whole"
    assert command(monkeypatch, "run", str(file), "--out", str(whole), "--set", "run.rounds=6") == 0
    last = [json.loads((folder / "history.jsonl").read_text().splitlines()[-1]) for folder in (out, whole)]
    assert {**last[0], "seconds": 0} == {**last[1], "seconds": 0}
    capsys.readouterr()
    assert command(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    assert all(title in printed for title in algorithms())
    assert command(monkeypatch, "show", "acc-fcsg-m") == 0
    assert "own point" in capsys.readouterr().out
    assert command(monkeypatch, "show", "fedavgg") == 2
    assert "did you mean 'FedAvg'" in capsys.readouterr().err


def test_a_run_that_diverges_has_its_own_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    file.write_text(toml(changed(algorithm={"lr": 1e38}, run={"rounds": 60})))
    assert command(monkeypatch, "run", str(file), "--out", str(tmp_path / "out")) == 3
    assert "non-finite" in capsys.readouterr().err


def test_ctrl_c_saves_and_leaves_with_its_own_code(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(toml(changed(run={"rounds": 100_000, "every": 1, "save_every": 50})))
    start = [sys.executable, "-c", "from rookery.cli import main; main()"]
    with subprocess.Popen([*start, "run", str(file), "--out", str(tmp_path / "out")], stdout=subprocess.DEVNULL,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        history = tmp_path / "out" / "history.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (history.exists() and len(history.read_text().splitlines()) > 3):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert json.loads((tmp_path / "out" / "about.json").read_text())["reason"] == "interrupted"
    assert (tmp_path / "out" / "state.ckpt").exists()


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_no_engine_draws_a_batch_below_the_smallest_allowed(engine: str) -> None:
    job = build(parse(changed(federation={"engine": engine, "min_batch": 17})))
    state = job.initial_state()
    with pytest.raises(RookeryError, match=r"fewer than min_batch=17 samples.*a batch of 16 was drawn"):
        job.description.algorithm.round(job.fed, state)
    job = build(parse(changed(federation={"engine": engine, "min_batch": 16})))
    job.description.algorithm.round(job.fed, job.initial_state())


@pytest.mark.parametrize("source", ["csv", "npz", "images"])
def test_a_run_on_a_table_of_ones_own(source: str, tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    age, ward = r.normal(60, 9, 200), np.repeat(["north", "south", "west"], [60, 60, 80])
    ill = (age + r.normal(0, 3, 200) > 62).astype(int)
    tree = changed(data={"name": ..., source: str(tmp_path / "mine"), "label": "ill", "site": "ward", "test_share": 0.3},
                   sites={"how": "column"}, run={"rounds": 5})
    if source == "csv":
        lines = ["age,sex,ward,ill", *(f"{a:.1f},{'f' if i % 2 else 'm'},{w},{'yes' if y else 'no'}"
                                      for i, (a, w, y) in enumerate(zip(age, ward, ill, strict=True)))]
        (tmp_path / "mine").write_text("\n".join(lines))
    elif source == "npz":
        with (tmp_path / "mine").open("wb") as file:
            np.savez(file, inputs=(age[:, None] - 60) / 9, ill=ill, ward=ward)
    else:
        for i, y in enumerate(ill[:40]):
            (tmp_path / "mine" / ("yes" if y else "no")).mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((6, 6), 40 + 150 * y + i, np.uint8)).save(tmp_path / "mine" / ("yes" if y else "no") / f"{i}.png")
        tree = changed(data={"name": ..., "images": str(tmp_path / "mine"), "test_share": 0.3, "size": 6},
                       sites={"how": "iid", "number": 2})
    job = build(parse(tree))
    assert job.fed.data.names == (("north", "south", "west") if source != "images" else ("site-0", "site-1"))
    state = job.initial_state()
    for _ in range(5):
        state = job.description.algorithm.round(job.fed, state)
    assert job.scores(state)["test accuracy"] > job.scores(job.initial_state())["test accuracy"] - 1e-9
    assert job.scores(state)["test accuracy"] > 0.7
    rows = sum(row["rows"] + row["validation rows"] for row in job.sites(job.parameters(state)))
    assert rows + len(job.test) == (200 if source != "images" else 40)


@pytest.mark.parametrize(("objective", "algorithm"), [
    ({"name": "balanced_cross_entropy"}, "FedAvg"), ({"name": "kl_dro"}, "FedDRO"), ({"name": "chi2_dro"}, "FedDRO"),
    ({"name": "chi2_dro", "form": "dual"}, "FedAvg"), ({"name": "cvar"}, "FedAvg"), ({"name": "constrained_dro"}, "FedDRO"),
    ({"name": "mean_variance"}, "FedDRO"), ({"name": "group_dro"}, "FedDRO"), ({"name": "fair", "field": "sex"}, "FedDRO"),
    ({"name": "ap_surrogate", "sampling": {"name": "Positives", "enrich": 4}}, "FCSG-M")],
    ids=lambda v: "-".join(v.values()) if isinstance(v, dict) and len(v) == 1 else None)
def test_every_objective_runs_from_its_name(objective: dict[str, Any], algorithm: str, tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    age, sex = r.normal(60, 9, 300), r.choice(["f", "m"], 300)
    ill = age + 4 * (sex == "f") + r.normal(0, 3, 300) > 62
    lines = [f"{a:.1f},{s},{int(y)}" for a, s, y in zip(age, sex, ill, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join(["age,sex,ill", *lines]))
    sizes = {"batch": ..., "outer": 8, "inner": 16} if algorithm == "FCSG-M" else {}
    tree = changed(data={"name": ..., "csv": str(tmp_path / "mine.csv"), "label": "ill", "keep": ["sex"]},
                   objective=objective, algorithm={"name": algorithm, **sizes, "lr": 0.2}, warm_up={"rounds": 2, "lr": 0.2})
    tree["run"] = {"rounds": 12, "every": 12}
    job = build(parse(tree))
    _, first, last = job.run(None, "x").history
    assert (first["round"], first["exchanges"]) == (2, 3 if algorithm == "FedDRO" else 2)  # its first state takes an exchange
    assert last["test AUC"] > 0.85
    assert last["validation accuracy"] >= first["validation accuracy"] - 0.1
    assert ("test gap" in last) == (objective["name"] == "fair")
    assert ("clamped" in last) == (objective["name"] in ("kl_dro", "constrained_dro"))
    assert job.fed.ledger["train"].exchanges >= 12  # the warm-up's two count


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "examples").rglob("*.toml")), ids=lambda file: file.stem)
def test_the_examples_run(file: Path) -> None:
    job = build(read(file, ["federation.engine=loop"]))
    state = job.description.algorithm.round(job.fed, job.initial_state())
    assert torch.isfinite(state.x).all()
    assert job.fed.data.sizes.min() < job.fed.data.sizes.max()


def test_a_warm_up_longer_than_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"warm_up.rounds is 9, but the run has 4 rounds"):
        build(parse(changed(warm_up={"rounds": 9}))).run(tmp_path, "x")


def test_an_algorithm_derived_from_another_does_not_take_its_name() -> None:
    class Mine(FedAvg):
        """Derived, and without a title of its own."""

    assert algorithms()["FedAvg"] is FedAvg
    assert Mine not in algorithms().values()
