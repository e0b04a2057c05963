"""What every comparison has beside the methods that are compared, and the command with and without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running import changed, command, toml

from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.description import describe
from rookery.studies.opponents import opponents

LOOP = {"engine": "loop"}
DRO = changed(data={"name": "breast-cancer"}, objective={"name": "kl_dro"}, algorithm={"name": "FedDRO", "lr": 0.2}, federation=LOOP,
              run={"rounds": 1, "every": 1})
AP = changed(data={"name": "breast-cancer"}, objective={"name": "ap_surrogate", "sampling": {"name": "Positives", "enrich": 4}},
             algorithm={"name": "FCSG-M", "batch": ..., "outer": 8, "inner": 16}, federation={"weights": "positives", "seed": 3},
             warm_up={"rounds": 2})


def of(*trees: dict[str, Any]) -> dict[str, Any]:
    return opponents({f"m{k}": parse(tree) for k, tree in enumerate(trees)})


def test_opponents_have_the_rows_the_net_the_rounds_and_the_steps_of_the_first() -> None:
    found = of(DRO, AP)
    assert list(found) == ["FedAvg", "class weights", "balanced batches"]
    for tree in found.values():
        described = describe(parse(tree))
        assert described["algorithm"] == {"name": "FedAvg", "lr": 0.2, "local_steps": 3, "batch": 16}
        assert {name: described[name] for name in ("data", "sites", "model", "run", "federation")} == {
            name: describe(parse(DRO))[name] for name in ("data", "sites", "model", "run", "federation")}
    assert [tree["objective"]["name"] for tree in found.values()] == ["cross_entropy", "balanced_cross_entropy", "cross_entropy"]
    job = build(parse(found["balanced batches"]))
    assert type(job.fed.problem.sampling).__name__ == "Balanced"


def test_rows_a_step_are_all_that_are_scored_and_what_is_a_rankings_own_stays_with_it() -> None:
    tree = of(AP)["FedAvg"]
    assert tree["algorithm"] == {"name": "FedAvg", "lr": 0.5, "local_steps": 3, "batch": 24}
    assert "warm_up" not in tree
    assert tree["federation"] == {"seed": 3}
    assert of(changed(federation={"weights": "equal"}))["class weights"]["federation"] == {"weights": "equal"}


@pytest.mark.parametrize("work", [
    {"local_steps": ..., "epochs": 2}, {"local_steps": [1, 2, 3, 4]}, {"lr": {"kind": "cosine", "initial": 0.5, "rounds": 4}},
    {"local_steps": ...}])
def test_local_work_of_any_form_is_handed_on(work: dict[str, Any]) -> None:
    tree = changed(algorithm={"name": "FedProx", "mu": 0.1, **work})
    first, other = parse(tree).algorithm, parse(of(tree)["FedAvg"]).algorithm
    for name in ("lr", "local_steps", "batch"):
        assert getattr(first, name) == getattr(other, name)


@pytest.mark.parametrize(("objective", "left"), [
    ({}, ["class weights", "balanced batches"]), ({"name": "balanced_cross_entropy"}, ["FedAvg", "balanced batches"]),
    ({"sampling": {"name": "Balanced"}}, ["FedAvg", "class weights"]),
    ({"sampling": {"name": "Balanced", "field": "labels"}}, ["FedAvg", "class weights"]),
    ({"sampling": {"name": "Shuffled"}}, ["FedAvg", "class weights", "balanced batches"])])
def test_one_that_is_compared_already_is_left_out(objective: dict[str, Any], left: list[str]) -> None:
    own = changed(objective={"name": "cross_entropy", **objective})
    assert list(of(DRO, own)) == left


def test_a_description_of_the_same_name_keeps_it() -> None:
    assert "FedAvg (opponent)" in opponents({"FedAvg": parse(DRO)})


def test_batches_of_all_rows_cannot_be_balanced() -> None:
    assert list(of(changed(algorithm={"name": "FedProx", "batch": ..., "mu": 0.1}))) == ["FedAvg", "class weights"]


def test_where_nothing_is_classified_by_a_net_of_the_description_there_are_none() -> None:
    maml = changed(objective={"name": "maml"}, algorithm={"name": "FCSG-M", "batch": ..., "outer": 1, "inner": 4})
    assert of(maml) == {}
    assert of({**changed(objective={"name": "robust_regression"}), "algorithm": {"name": "FedAvg", "lr": 0.1}}) == {}


# the command


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("dro.toml").write_text(toml(DRO))
    fair = {"name": "fair", "field": "labels", "kind": "demographic parity"}
    Path("fair.toml").write_text(toml({**DRO, "objective": fair}))
    return tmp_path


def methods(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [entry["label"] for entry in json.loads(capsys.readouterr().out)["methods"]]


def test_the_command_compares_with_opponents_unless_told(files: Path, monkeypatch: pytest.MonkeyPatch,
                                                         capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "dro.toml", "--seeds", "1", "--jobs", "1", "--json"]
    assert command(monkeypatch, *words, "--out", "with", "--grid", "algorithm.lr=0.1,0.3") == 0
    assert methods(capsys) == ["dro", "FedAvg", "class weights", "balanced batches"]
    page = Path("with/report.html").read_text()
    assert all(label in page for label in ("class weights", "balanced batches"))
    tuned = [json.loads(line)["trial"] for line in Path("with/tuning.jsonl").read_text().splitlines()]
    assert len(tuned) == 2 * 4  # the grid is everyone's
    assert command(monkeypatch, *words, "--out", "without", "--no-opponents") == 0
    assert methods(capsys) == ["dro"]
    assert sorted(path.name for path in Path("without").iterdir() if path.is_dir()) == ["dro"]


@pytest.mark.parametrize(("words", "said"), [
    (["dro.toml", "--grid", "objective.lam=1,2"], "no opponents are compared with: FedAvg has no objective.lam to choose from the grid"),
    (["fair.toml", "--by", "validation gap"], "no opponents are compared with: they have no 'validation gap'")])
def test_where_opponents_cannot_be_chosen_alike_that_is_said(words: list[str], said: str, files: Path, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "compare", *words, "--dry-run", "--jobs", "1", "--seeds", "1") == 0
    assert said in capsys.readouterr().out
