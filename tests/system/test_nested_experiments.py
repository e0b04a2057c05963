"""The study behind loss-tuning and hyper-representation: what its trials exchange, that small ones leave a record, and what stays in it."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from experiment_files import module

TRIAL = {"data": "digits", "split": "non-iid", "lr": 0.03, "seed": 5}


@pytest.mark.parametrize(("task", "method", "of_a_round"), [
    ("loss-tuning", "FedNest", 12), pytest.param("loss-tuning", "FedNest-SGD", 9, marks=pytest.mark.slow), ("loss-tuning", "LFedNest", 4),
    ("loss-tuning", "FedAvg", 1), pytest.param("hyper-representation", "FedNest", 10, marks=pytest.mark.slow),
    ("hyper-representation", "FedNest-SGD", 9), pytest.param("hyper-representation", "LFedNest", 2, marks=pytest.mark.slow)])
def test_a_trial_exchanges_what_the_axis_says(task: str, method: str, of_a_round: int) -> None:
    """2T + N + 3, T + N + 3 and T + 1, with T = 3 and N = 3, or T = 1 and N = 5."""
    found = module("loss-tuning", "nested").work({"task": task, "method": method, "exchanges": 13, **TRIAL})
    assert found["rounds"] == 13 // of_a_round
    assert found["exchanges"] == found["rounds"] * of_a_round
    assert found["curve"][0]["exchanges"] == 0
    assert found["test balanced"] != found["curve"][0]["test balanced"]
    assert not found["diverged"]


def test_sites_are_heterogeneous_and_mark_a_fifth_of_their_rows_for_validation() -> None:
    data, held = module("loss-tuning", "nested").sites({"task": "hyper-representation", **TRIAL}, False)
    assert all(len(data.views(k)["labels"].unique()) <= 4 for k in range(len(data.names)))  # of two shards
    assert abs(float(data.fields["validation"].mean()) - 0.2) < 0.02
    assert 0.08 < int(held.sizes.sum()) / int(data.sizes.sum() + held.sizes.sum()) < 0.12


@pytest.mark.slow
def test_a_small_study_leaves_two_tables_a_plot_and_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    nested = module("loss-tuning", "nested")
    monkeypatch.setattr(nested, "METHODS", ("FedAvg", "SGD, one site"))
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--jobs", "1", "--out", str(tmp_path)])
    nested.main("hyper-representation", tmp_path / "here", "about", lrs=(0.01, 0.03))
    printed = capsys.readouterr().out
    assert printed.count("as published: test accuracy") == 2  # once before the grid, which may take long
    assert printed.count("fairly tuned: test accuracy") == 1
    found = json.loads((tmp_path / "results.json").read_text())
    assert {(row["method"], row["setting"]["table"], row["setting"]["split"]) for row in found["rows"]} == {
        (method, table, split) for method in nested.METHODS for table in ("as published", "fairly tuned") for split in nested.SPLITS}
    assert all(0 <= row["mean"] <= 1 for row in found["rows"])
    assert (tmp_path / "accuracy.png").stat().st_size > 5000
    assert not (tmp_path / "here").exists()


# the part of many exchanges


def test_the_part_of_many_exchanges_leaves_its_table_plot_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--parts", "length", "--jobs", "1", "--out", str(tmp_path)])
    module("loss-tuning", "run").main()
    assert "length, non-iid: test accuracy" in capsys.readouterr().out
    found = json.loads((tmp_path / "results.json").read_text())
    assert "earlier" not in found
    assert {row["method"] for row in found["rows"]} == {"FedNest", "FedAvg", "FedAvg, class weights"}
    assert {(row["setting"]["table"], row["setting"]["split"]) for row in found["rows"]} == {("length", "non-iid")}
    assert {row["setting"]["lr"] for row in found["rows"] if row["method"] == "FedNest"} == {0.01}
    assert (tmp_path / "length.png").stat().st_size > 5000
    assert not (tmp_path / "accuracy.png").exists()
    trials = [json.loads(line) for line in (tmp_path / "quick.jsonl").read_text().splitlines()]
    assert all(t["result"]["curve"][-1]["bytes"] == t["result"]["bytes"] > 0 for t in trials)


def test_published_step_sizes_are_no_option_of_the_part_of_many_exchanges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--quick", "--parts", "length", "--published", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        module("loss-tuning", "run").main()


def result(value: float, **more: Any) -> dict[str, Any]:
    metrics = dict.fromkeys(("test balanced", "test worst class", "test accuracy", "held-out balanced"), value)
    curve = [{**metrics, "test balanced": value * i / 5, "exchanges": 600 * i, "bytes": 1e9 * i} for i in range(6)]
    return {**metrics, "diverged": 0.0, "exchanges": 3000, "bytes": 5e9, "curve": curve, "seconds": 60.0, **more}


def test_a_run_of_one_part_keeps_the_tables_of_the_others_and_says_which_run_they_come_from(tmp_path: Path) -> None:
    nested = module("loss-tuning", "nested")
    args = Namespace(quick=True, jobs=1, out=tmp_path, rounds=None, seeds=None, published=False)

    def made(options: str, *tables: tuple[str, float]) -> dict[str, Any]:
        study = nested.Study("loss-tuning", tmp_path, args, (0.01,), options)
        for table, value in tables:
            study.write({table: [({"method": "FedNest", **TRIAL, "exchanges": 3000}, result(value))]})
        found: dict[str, Any] = json.loads((tmp_path / "results.json").read_text())
        return found

    def values(found: dict[str, Any]) -> dict[str, float]:
        return {row["setting"]["table"]: row["mean"] for row in found["rows"] if row["metric"] == "test balanced"}

    first = made("", ("as published", 0.1), ("fairly tuned", 0.2))
    assert "earlier" not in first
    second = made(" --parts length", ("length", 0.3))
    assert values(second) == {"as published": 0.1, "fairly tuned": 0.2, "length": 0.3}
    assert second["command"].endswith("--parts length")
    about = {key: value for key, value in first.items() if key != "rows"}
    assert second["earlier"] == [{**about, "tables": ["as published", "fairly tuned"]}]
    third = made(" --parts length", ("length", 0.4))  # again: only what is not this run's own comes from elsewhere
    assert values(third) == {"as published": 0.1, "fairly tuned": 0.2, "length": 0.4}
    assert third["earlier"] == second["earlier"]
    fourth = made(" --published", ("as published", 0.5))
    assert values(fourth) == {"as published": 0.5, "fairly tuned": 0.2, "length": 0.4}
    assert [(run["command"], run["tables"]) for run in fourth["earlier"]] == [
        (first["command"], ["fairly tuned"]), (second["command"], ["length"])]
    assert "earlier" not in made("", ("as published", 0.6), ("fairly tuned", 0.7), ("length", 0.8))


def test_the_table_of_many_exchanges_compares_on_the_same_seeds_and_counts_runs_that_broke_off_as_guessing() -> None:
    length = module("loss-tuning", "length")
    broken = result(0.1, diverged=1.0)
    broken["curve"] = broken["curve"][:2]
    done = [({"method": "FedNest", "lr": 0.01, "seed": seed}, result(0.5 + 0.1 * seed)) for seed in range(2)]
    done += [({"method": "FedAvg", "lr": 0.1, "seed": seed}, found) for seed, found in enumerate((result(0.4), broken))]
    told = length.report(done, 3000).splitlines()
    assert told[4].startswith("| FedNest | 0.01 | 3000 | 5 | 11.0 ± 1.4 | 22.0 ± 2.8 |")
    assert told[5].startswith("| FedAvg (1 diverged) | 0.1 | 3000 | 5 | 5.0 ± 4.2 | 13.0 ± 4.2 |")
    assert "FedNest − FedAvg, test balanced: +30.0 points (95 % interval -224.1 to +284.1, 2 seeds)" in told
    assert length.shared_bytes(done) == 5e9
