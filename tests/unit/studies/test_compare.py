"""Comparisons: the same seeds for all, one grid for all, chosen on validation rows; schedules; what crosses the network; trackers."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import changed, command, toml
from tables import csv, own

from rookery.errors import ConfigError, NonFinite
from rookery.studies.compare import compare

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
    ({"by": "validation AP"}, "plain has no metric 'validation AP'; by is one of validation loss, .*worst class, .*ECE$"),
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
    words = ["--seeds", "2", "--out", str(out), "--jobs", "1", "--grid", "algorithm.lr=0.1,0.5", "--no-opponents"]
    assert command(monkeypatch, "compare", *files, *words) == 0
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


def test_a_comparison_that_goes_back_to_an_earlier_description_shows_that_one(tmp_path: Path) -> None:
    first, second = (changed(run={"rounds": 2, "every": 1}, algorithm={"lr": lr}) for lr in (0.5, 0.01))
    a = compare({"m": first}, 1, tmp_path, jobs=1)
    compare({"m": second}, 1, tmp_path, jobs=1)
    assert compare({"m": first}, 1, tmp_path, jobs=1) == a
    last = json.loads((tmp_path / "m" / "seed-0" / "history.jsonl").read_text().splitlines()[-1])
    assert last["test loss"] == a[0].spreads["test loss"].mean
    shutil.rmtree(tmp_path / "m")
    assert compare({"m": first}, 1, tmp_path, jobs=1) == a
    assert (tmp_path / "m" / "seed-0" / "about.json").exists()


def test_a_changed_data_file_is_another_trial(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    first = compare({"m": own(path)}, 1, tmp_path / "out", jobs=1)
    csv(path, seed=1)
    assert compare({"m": own(path)}, 1, tmp_path / "out", jobs=1) != first


def test_one_more_seed_does_not_tune_again(tmp_path: Path) -> None:
    tree, grid = changed(run={"rounds": 1}), {"algorithm.lr": [0.1, 0.5]}
    compare({"m": tree}, 1, tmp_path, grid, jobs=1)
    before = (tmp_path / "m" / "seed-0" / "about.json").stat().st_mtime_ns
    compare({"m": tree}, 2, tmp_path, grid, jobs=1)
    assert (tmp_path / "m" / "seed-0" / "about.json").stat().st_mtime_ns == before
    assert len((tmp_path / "tuning.jsonl").read_text().splitlines()) == 2


def test_the_tuning_that_is_told_is_the_mean_that_chose(tmp_path: Path) -> None:
    compare({"m": changed(run={"rounds": 1})}, 1, tmp_path, {"algorithm.lr": [0.1, 0.5]}, tuning_seeds=2, jobs=1)
    tried = json.loads((tmp_path / "m" / "seed-0" / "about.json").read_text())["tuning"]["tried"]
    rows = [json.loads(line) for line in (tmp_path / "tuning.jsonl").read_text().splitlines()]
    for one in tried:
        own = [row["result"]["validation loss"] for row in rows if dict(row["trial"]["values"]) == one["values"]]
        assert len(own) == 2
        assert one["score"] == pytest.approx(np.mean(own))
    assert len(tried) == 2


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "m" / "seed-0").mkdir(parents=True)
    (tmp_path / "m" / "seed-0" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds something else than a run"):
        compare({"m": changed(run={"rounds": 1})}, 1, tmp_path, jobs=1)
    assert (tmp_path / "m" / "seed-0" / "thesis.tex").exists()


def test_a_warm_up_that_diverges_is_the_worst_of_a_grid(tmp_path: Path) -> None:
    tree = changed(run={"rounds": 12}, warm_up={"rounds": 10})
    entries = compare({"m": tree}, 1, tmp_path, {"warm_up.lr": [1e38, 0.1]}, jobs=1)
    assert entries[0].chosen == {"warm_up.lr": 0.1}
    error = pickle.loads(pickle.dumps(NonFinite("north", "is not finite")))
    assert (type(error), error.client, str(error)) == (NonFinite, "north", "client 'north': is not finite")
