"""Runs from the command line, and thirty likely mistakes, each answered by a sentence."""

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
from rookery.studies.build import build
from rookery.studies.description import algorithms, parse, read

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown section": ({"algoritm": {}}, r"no section \[algoritm\]; did you mean 'algorithm'"),
    "section as a value": ({"run": 3}, r"\[run\] is a section of its own"),
    "no data": ({"data": None}, r"needs a section \[data\]"),
    "no algorithm": ({"algorithm": None}, r"needs a section \[algorithm\]"),
    "unknown key": (changed(run={"round": 3}), r"\[run\] has no entry 'round'; did you mean 'rounds'"),
    "key of another section": (changed(run={"lr": 0.1}), r"\[run\] has no entry 'lr'"),
    "unknown algorithm": (changed(algorithm={"name": "Scafold"}), r"no algorithm 'Scafold'; did you mean 'SCAFFOLD'"),
    "algorithm without a name": (changed(algorithm={"name": ...}), r"\[algorithm\] needs name"),
    "algorithm without lr": (changed(algorithm={"lr": ...}), r"\[algorithm\] needs lr"),
    "text for a number": (changed(algorithm={"lr": "fast"}), r"algorithm.lr must be a number"),
    "fraction for a whole number": (changed(algorithm={"batch": 2.5}), r"algorithm.batch must be a whole number"),
    "true for a number": (changed(run={"rounds": True}), r"run.rounds must be a whole number"),
    "number for a text": (changed(data={"name": 3}), r"data.name must be a text"),
    "negative lr": (changed(algorithm={"lr": -0.1}), r"lr must be positive; got -0.1"),
    "zero batch": (changed(algorithm={"batch": 0}), r"batch must be positive"),
    "zero local steps": (changed(algorithm={"local_steps": 0}), r"local_steps must be positive"),
    "steps and epochs": (changed(algorithm={"epochs": 2}), r"both epochs and local_steps"),
    "hyper-parameter of another algorithm": (changed(algorithm={"beta": 0.3}), r"\[algorithm\] has no entry 'beta'; It has lr"),
    "unknown engine": (changed(federation={"engine": "lop"}), r"federation.engine is one of .*did you mean 'loop'"),
    "unknown weights": (changed(federation={"weights": "rows"}), r"federation.weights is one of equal, samples"),
    "unknown partition": (changed(sites={"how": "dirichelet"}), r"sites.how is one of .*did you mean 'dirichlet'"),
    "unknown model": (changed(model={"name": "resnet18"}), r"model.name is one of .*did you mean 'resnet20'"),
    "odd hidden layers": (changed(model={"hidden": [8, "x"]}), r"model.hidden must be a whole number"),
    "unknown objective": (changed(objective={"name": "kldro"}), r"objective.name is one of .*did you mean 'kl_dro'"),
    "unknown data": (changed(data={"name": "digit"}), r"no data set 'digit'; did you mean 'digits'"),
    "more sites than rows": (changed(sites={"number": 5000}), r"5000 sites"),
    "zero sites": (changed(sites={"number": 0}), r"at least one site"),
    "cohort larger than the sites": (changed(federation={"clients_per_round": 9}), r"clients_per_round is 9, but there are 4 sites"),
    "cohort of nobody": (changed(federation={"clients_per_round": 0}), r"clients_per_round lies between 1 and"),
    "algorithm of another kind": (changed(objective={"name": "kl_dro"}), r"FedAvg solves Minimization.*Algorithms that fit: .*FedDRO"),
    "convolutions on a table": (changed(data={"name": "wine"}, model={"name": "small_cnn"}),
                                r"takes images; these rows have the shape \(13,\)"),
    "negative lam": (changed(objective={"name": "kl_dro", "lam": -1.0}), r"lam must be positive"),
    "weight decay with DRO": (changed(objective={"name": "kl_dro", "weight_decay": 0.1}),
                              r"\[objective\] has no entry 'weight_decay'; It has lam"),
    "negative seed": (changed(federation={"seed": -1}), r"seed"),
    "two sources of data": (changed(data={"csv": "a.csv"}), r"give one of name, csv, npz and images; got name, csv"),
    "no source of data": (changed(data={"name": ...}), r"give one of name, csv, npz and images; got none"),
    "csv without a label": (changed(data={"name": ..., "csv": "a.csv"}), r"csv needs label"),
    "no such csv": (changed(data={"name": ..., "csv": "missing.csv", "label": "y"}), r"missing.csv"),
    "column of a data set": (changed(data={"site": "hospital"}), r"site names a column .* goes with csv or npz"),
    "size of a table": (changed(data={"size": 32}), r"size is the height and width"),
    "thinned twice": (changed(data={"positive": [1], "keep_positives": 0.1, "positive_share": 0.1}), r"keep one of them"),
    "labels not binary": (changed(data={"keep_positives": 0.1}), r"labels must be 0 and 1.*Table.binary"),
    "unknown positive class": (changed(data={"positive": ["ten"]}), r"'ten' is not a class"),
    "minority without a share": (changed(data={"minority": [1]}), r"minority_keep = share go together"),
    "unknown minority": (changed(data={"minority": ["x"], "minority_keep": 0.1}), r"'x' is not a class of 'digits'; the classes are 0, 1"),
    "positive share out of range": (changed(data={"positive": [1], "positive_share": 0.9}), r"can only be dropped"),
    "sites by a column that is not there": (changed(sites={"how": "column", "column": "ward"}), r"sites.column is 'ward'"),
    "AP of ten classes": (changed(objective={"name": "ap_surrogate"}), r"needs two classes, there are 10.*positive"),
    "groups that are not there": (changed(objective={"name": "group_dro", "groups": "sex"}), r"objective.groups is 'sex'"),
    "unknown output": (changed(run={"output": "mean"}), r"run.output is one of last, uniform"),
    "share of everything": (changed(data={"validation": 1.0}), r"share|validation"),
}


@pytest.mark.parametrize("label", MISTAKES)
def test_a_mistake_is_answered_by_a_sentence(label: str) -> None:
    tree, words = MISTAKES[label]
    tree = {k: v for k, v in {**GOOD, **tree}.items() if v is not None}
    with pytest.raises(RookeryError, match=words) as caught:
        build(parse(tree)).start()
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(("content", "words"), [("[data\nname = 1", "is not TOML"), (None, "there is no file"), ("\xff", "is not TOML")])
def test_a_file_that_cannot_be_read(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match=words):
        read(path)


@pytest.mark.parametrize("override", ["rounds=3", "run.rounds", "=3"])
def test_an_override_of_another_form(override: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(toml(GOOD))
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        read(tmp_path / "run.toml", [override])


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
    assert sum(row["rows"] + row["validation rows"] for row in job.sites(state.x)) + len(job.test) == (200 if source != "images" else 40)


@pytest.mark.parametrize(("objective", "algorithm"), [
    ({"name": "balanced_cross_entropy"}, "FedAvg"), ({"name": "kl_dro"}, "FedDRO"), ({"name": "chi2_dro"}, "FedDRO"),
    ({"name": "chi2_dro", "form": "dual"}, "FedAvg"), ({"name": "cvar"}, "FedAvg"), ({"name": "constrained_dro"}, "FedDRO"),
    ({"name": "mean_variance"}, "FedDRO"), ({"name": "group_dro"}, "FedDRO"), ({"name": "fair", "groups": "sex"}, "FedDRO"),
    ({"name": "ap_surrogate", "enrich": 4}, "FCSG-M")], ids=lambda v: "-".join(v.values()) if isinstance(v, dict) and len(v) == 1 else None)
def test_every_objective_runs_from_its_name(objective: dict[str, Any], algorithm: str, tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    age, sex = r.normal(60, 9, 300), r.choice(["f", "m"], 300)
    ill = age + 4 * (sex == "f") + r.normal(0, 3, 300) > 62
    lines = [f"{a:.1f},{s},{int(y)}" for a, s, y in zip(age, sex, ill, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join(["age,sex,ill", *lines]))
    sizes = {"batch": ..., "outer": 8, "inner": 16} if algorithm == "FCSG-M" else {}
    tree = changed(data={"name": ..., "csv": str(tmp_path / "mine.csv"), "label": "ill", "keep": ["sex"]},
                   objective=objective, algorithm={"name": algorithm, **sizes, "lr": 0.2}, warm_up={"rounds": 2, "lr": 0.2})
    job = build(parse(tree))
    first, state = job.scores(job.initial_state()), job.initial_state()
    for _ in range(10):
        state = job.description.algorithm.round(job.fed, state)
    last = job.scores(state)
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
