"""A fit as a whole: what it leaves, that the best on validation rows is kept, and that test rows choose nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fits import csv, described
from sklearn.metrics import roc_auc_score

import rookery
from rookery import report
from rookery.errors import ConfigError
from rookery.fitting import Options, fit
from rookery.fitting.fit import expected, ready
from rookery.studies.cells import CELLS

QUICK = Options(rounds=2, local_steps=2, batch=8, jobs=1)
CANCER: dict[str, dict[str, Any]] = {"data": {"name": "breast-cancer"}, "sites": {"how": "iid", "number": 2}, "model": {"hidden": [3]},
                                     "federation": {"engine": "loop"}}


def test_a_fit_leaves_a_bundle_its_figures_and_the_runs_of_a_report(brief: None, tmp_path: Path) -> None:
    told: list[tuple[str, float, float]] = []
    done = fit(CANCER, "auc", tmp_path / "out", QUICK, lambda *work: told.append(work))
    folder, rows = done.folder, {row["label"]: row for row in done.told["rows"]}
    assert json.loads((folder / "fit.json").read_text(encoding="utf-8")) == done.told
    assert list(rows) == ["FedAvg", "class weights", "balanced batches", "last layer again", "LocalSCGDAM (AUC)", "LocalSGDAM (AUC)",
                          "pooled, logistic regression", "pooled, gradient boosting"]
    methods = {label: row for label, row in rows.items() if row["kind"] != "reference"}
    kept = max(methods, key=lambda label: methods[label]["validation"])
    assert [label for label, row in rows.items() if row["kept"]] == [kept] == [done.told["kept"]]
    assert done.told["sentence"].endswith(f"Kept, as the best on validation rows: {kept}.")
    assert len(done.runs) == len(methods)
    page = report.write([report.load(run) for run in done.runs], tmp_path / "page.html", "A fit", fit=done.told).read_text()
    assert all(label in page for label in rows)
    bundle = rookery.load(done.bundle)
    assert bundle.classes == ("malignant", "benign")
    for label, run in zip([kept, *(label for label in methods if label != kept)], done.runs, strict=True):
        about, found = json.loads((run / "about.json").read_text()), np.load(run / "predictions.npz")
        assert about["label"] == label
        assert about["tuning"]["chosen"] == rows[label]["setting"]
        assert roc_auc_score(found["labels"], found["scores"]) == pytest.approx(rows[label]["test"][0], abs=1e-6)
    assert rows["FedAvg"]["difference"] is None
    difference = rows["class weights"]["test"][0] - rows["FedAvg"]["test"][0]
    assert rows["class weights"]["difference"][0] == pytest.approx(difference, abs=2e-6)
    assert [now for _, now, _ in told] == sorted(now for _, now, _ in told)
    assert {what for what, _, _ in told} == {"step sizes", "further splits", "what it is worth"}


@pytest.mark.parametrize(("goal", "sites"), [("fair", 1), pytest.param("personal", 2, marks=pytest.mark.slow)])
def test_test_rows_choose_nothing(goal: str, sites: int, brief: None, tmp_path: Path) -> None:
    """With the labels of the test rows mixed up, the same method is kept at the same step size with the same numbers."""
    train, test, found = csv(tmp_path / "train.csv", 300, sites=sites), csv(tmp_path / "test.csv", 120, 5, sites=sites), []
    options = replace(QUICK, pool=False, sensitive="sex")
    for name in ("first", "mixed"):
        done = fit(described(train, test=str(test)), goal, tmp_path / name, options)
        bundle = json.loads((done.bundle / "bundle.json").read_text())
        found.append((done.told["kept"], [(row["label"], row["validation"], row["setting"]) for row in done.told["rows"]],
                      (done.bundle / "model.safetensors").read_bytes(), bundle["threshold"], bundle.get("by group"), bundle["calibrator"]))
        values = [row["test"][0] for row in done.told["rows"]]
        lines = test.read_text().splitlines()
        labels = np.random.default_rng(0).permutation([line[-1] for line in lines[1:]])
        test.write_text("\n".join([lines[0], *(line[:-1] + label for line, label in zip(lines[1:], labels, strict=True))]))
    assert found[0] == found[1]
    assert values != [row["test"][0] for row in json.loads((tmp_path / "first" / "fit.json").read_text())["rows"]]


@pytest.mark.parametrize(("goal", "positives"), [("worst_group", 2), ("accuracy", 5)])
def test_the_bundle_decides_as_the_fit_was_scored(goal: str, positives: int, brief: None, tmp_path: Path) -> None:
    """With one positive in five, the threshold of the best F1 would be another one than that of the best accuracy."""
    options = {"positives": lambda row: row % positives == 0, "sites": 1}
    path, test = csv(tmp_path / "t.csv", 400, **options), csv(tmp_path / "test.csv", 150, 5, **options)
    done = fit(described(path, test=str(test)), goal, tmp_path / "out", replace(QUICK, rounds=4, pool=False, sensitive="sex"))
    table = pd.read_csv(test)
    decided = rookery.load(done.bundle).predict(table)
    right = {(sex, label): (decided[own] == table["y"][own]).mean() for sex in "fm" for label in "ab"
             for own in [(table["sex"] == sex) & (table["y"] == label)]}
    row = next(row for row in done.told["rows"] if row["kept"])
    value = min(right.values()) if goal == "worst_group" else (decided == table["y"]).mean()
    assert value == pytest.approx(row["test"][0], abs=1e-6)


@pytest.mark.parametrize("goal", ["ap", "worst_group"])
def test_a_goal_is_ready_and_its_time_can_be_told(goal: str, tmp_path: Path) -> None:
    base = described(csv(tmp_path / "t.csv", 200))
    start = ready(base, goal, tmp_path / "out", replace(QUICK, sensitive="sex"))
    pilot = expected(start)
    assert (pilot.rounds, pilot.jobs) == (2, 1)
    assert pilot.seconds > 0
    assert not (tmp_path / "out").exists()


def test_minutes_become_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.fitting.pilot._timed", lambda *_: (0.01, 0.1))  # seconds of a round, and of a trial beside its rounds
    base, found = described(csv(tmp_path / "t.csv")), []
    for minutes in (0.01, 0.3, 5.0, 1e4):
        found.append(expected(ready(base, "accuracy", tmp_path, Options(minutes=minutes, jobs=2))).rounds)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (20, 400)
    assert 20 < found[1] < found[2]
    assert expected(ready(base, "accuracy", tmp_path, Options(minutes=5.0, rounds=7))).rounds == 7


# sites


def test_test_rows_of_made_up_sites_are_at_them_where_the_goal_is_about_sites(tmp_path: Path) -> None:
    start = ready({**CANCER, "sites": {}}, "worst_site", tmp_path, QUICK)
    assert sorted(start.rows.data.splits) == ["test", "validation"]
    assert any("sites" in note and "made up" in note for note in start.rows.notes)
    start = ready(CANCER, "accuracy", tmp_path, QUICK)
    assert sorted(start.rows.data.splits) == ["validation"]
    assert not start.rows.notes
    named = ready(described(csv(tmp_path / "t.csv")), "worst_site", tmp_path, QUICK)
    assert sorted(named.rows.data.splits) == ["validation"]


def test_sites_that_are_too_small_to_be_the_worst_are_counted(tmp_path: Path) -> None:
    def notes(rows: int, sites: int) -> list[str]:
        base = described(csv(tmp_path / "t.csv", rows, sites=sites), validation=0.3)
        return [note for note in ready(base, "worst_site", tmp_path, QUICK).rows.notes if "validation rows of either class" in note]

    assert notes(400, 2) == []
    assert "No site has 5" in notes(60, 4)[0]
    path = csv(tmp_path / "t.csv", 300, sites=2)
    path.write_text(path.read_text() + "".join(f"\n0.1,0.2,0.3,f,small,{label}" for label in "abababab"))
    start = ready(described(path, validation=0.3), "worst_site", tmp_path, QUICK)
    assert any(note.startswith("2 of 3 sites have 5 validation rows of either class") for note in start.rows.notes)


def test_sections_that_are_about_training_play_no_part(tmp_path: Path) -> None:
    more = {"warm_up": {"rounds": 3}, "run": {"rounds": 50}, "personal": {"steps": 2}, "objective": {"name": "kl_dro"}}
    assert ready({**CANCER, **more}, "accuracy", tmp_path, QUICK).base == ready(CANCER, "accuracy", tmp_path, QUICK).base


@pytest.mark.parametrize(("kind", "left"), [("equality of opportunity", 0), ("equalised odds", 0), ("demographic parity", 2)])
def test_a_group_that_cannot_be_compared_leaves_no_method_for_fairness_and_is_named(kind: str, left: int, tmp_path: Path) -> None:
    base = described(csv(tmp_path / "t.csv", rare_group=0))
    start = ready(base, "fair", tmp_path, Options(sensitive="sex", kind=kind))
    assert sum(method.kind == "nested" for method in start.methods) == left
    assert any("The group 'm' of 'sex' has no training rows by which to compare it" in note for note in start.rows.notes) == (left == 0)


def test_a_column_of_the_name_of_a_fit_s_own_is_refused(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    path.write_text(path.read_text().replace("sex", CELLS, 1))
    with pytest.raises(ConfigError, match=f"a fit has a column '{CELLS}' of its own; rename yours"):
        ready(described(path, keep=[CELLS]), "fair", tmp_path, Options(sensitive=CELLS))


def test_sites_without_training_rows_have_no_personal_model_and_are_left_out(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", 100)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.replace(",s", f",lone{k}", 1) if k < 12 else line for k, line in enumerate(lines[1:]))]))
    start = ready(described(path), "personal", tmp_path, QUICK)
    assert start.rows.data.names == ("s0", "s1")
    assert set(start.rows.data.splits["test"].names) == {"s0", "s1"}
    assert any("fewer than least = 2 training rows" in note for note in start.rows.notes)


@pytest.mark.parametrize(("goal", "options", "sections", "words"), [
    ("fair", {}, {}, "the goal fair is about groups: name their column as sensitive"),
    ("fair", {"sensitive": "y"}, {"data": {"keep": ["y"]}}, "'y' is what is to be predicted: name another one"),
    ("auc", {"sensitive": "age"}, {}, "the sensitive column 'age' must be one of categories that the rows have; they have sex"),
    ("worst_site", {}, {"federation": {"only_sums": True}}, "worst_site needs scores of single sites"),
    ("auk", {}, {}, "there is no goal 'auk'; did you mean 'auc'")])
def test_what_cannot_be_fitted_is_refused_before_anything_is_trained(goal: str, options: dict[str, Any], sections: dict[str, Any],
                                                                     words: str, tmp_path: Path) -> None:
    base = described(csv(tmp_path / "t.csv"))
    with pytest.raises(ConfigError, match=words):
        ready({**base, **{name: {**base.get(name, {}), **table} for name, table in sections.items()}}, goal, tmp_path, Options(**options))


@pytest.mark.parametrize(("options", "words"), [
    ({"minutes": -1.0}, "minutes must be positive"), ({"minutes": float("nan")}, "minutes must be positive"),
    ({"rounds": 0}, "rounds must be at least 1"), ({"batch": 3}, "a step four rows; got 5 and 3"), ({"local_steps": 0}, "one local step"),
    ({"kind": "odds"}, "kind is one of"), ({"gap": 1.5}, "gap is a difference"), ({"max_fpr": 2.0}, "max_fpr a rate")])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Options(**options)
