"""The study behind loss-tuning and hyper-representation: what its trials exchange, and that a small one leaves a record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from experiment_files import module

TRIAL = {"data": "digits", "split": "non-iid", "lr": 0.03, "seed": 5}


@pytest.mark.parametrize(("task", "method", "of_a_round"), [
    ("loss-tuning", "FedNest", 12), ("loss-tuning", "FedNest-SGD", 9), ("loss-tuning", "LFedNest", 4), ("loss-tuning", "FedAvg", 1),
    ("hyper-representation", "FedNest", 10), ("hyper-representation", "FedNest-SGD", 9), ("hyper-representation", "LFedNest", 2)])
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
