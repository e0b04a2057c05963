"""What is built from a description: whose rows are for what, and runs that go on only as they were described."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from running import GOOD, changed
from tables import csv, own

from rookery import Data
from rookery.data import hold_out
from rookery.data.tables.encoder import Number
from rookery.errors import CheckpointError, ConfigError
from rookery.studies import parse
from rookery.studies.build import build


def test_a_class_called_by_a_number_is_the_one_of_that_name(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    counts = [sum(f",{c}," in line for line in path.read_text().splitlines()) for c in (1, 2, 3)]
    for c in (1, 2, 3):
        job = build(parse(own(path, positive=[c])))
        parts = (job.fed.data.fields["labels"], job.held.fields["labels"], job.test.fields["labels"])
        assert sum(int(part.sum()) for part in parts) == counts[c - 1]


def test_test_rows_do_not_depend_on_the_seed(tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv")
    def ages(**tree: Any) -> list[float]:
        """Of the test rows, before they were standardised by the training rows, which do depend on the seed."""
        test = build(parse({**own(path), **tree})).test
        assert test.encoder is not None
        age = test.encoder.columns[0]
        assert isinstance(age, Number)
        return [round(float(value) * age.scale + age.mean, 3) for value in test.fields["inputs"][:, 0]]

    parts = [ages(federation={"seed": seed}) for seed in (0, 7, 10**6)]
    assert parts[0] == parts[1] == parts[2]
    assert ages(**own(path, split_seed=1)) != parts[0]


def test_nobody_has_rows_both_in_training_and_in_validation(tmp_path: Path) -> None:
    job = build(parse(own(csv(tmp_path / "t.csv"), group="patient")))
    parts = [set(data.fields["group"].tolist()) for data in (job.fed.data, job.held)]
    assert parts[0]
    assert parts[1]
    assert not parts[0] & parts[1]  # over all sites
    data = Data.from_parts({"a": {"group": torch.arange(400) // 4}, "b": {"group": torch.arange(50)},
                            "c": {"group": torch.zeros(4).long()}})
    train, held = hold_out(data, 0.25, 3, "group")
    sides = [{int(g) for g in part.fields["group"]} for part in (train, held)]
    assert not sides[0] & sides[1]
    assert {g for g in range(100) if g in sides[1]} == {int(g) for g in held.views(0)["group"]}
    assert 10 <= len(sides[1]) <= 45


def test_a_warm_up_draws_other_rows_and_its_seconds_count(tmp_path: Path) -> None:
    job = build(parse(changed(warm_up={"rounds": 2}, federation={"clients_per_round": 2})))
    result = job.run(tmp_path / "run", "x")
    assert [row["round"] for row in result.history] == [0, 2, 4]
    assert 0 == result.history[0]["seconds"] < result.history[1]["seconds"]
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["rounds"] == GOOD["run"]["rounds"] == about["ledger"]["train"]["exchanges"]


def test_the_uniform_iterate_is_what_is_scored_and_predicted(tmp_path: Path) -> None:
    tree = changed(run={"rounds": 6, "every": 6, "output": "uniform"}, federation={"seed": 1})
    job = build(parse(tree))
    result = job.run(tmp_path / "run", "x")
    assert result.output is not None
    saved = np.load(tmp_path / "run" / "predictions.npz")
    accuracy = float((saved["scores"].argmax(1) == saved["labels"]).mean())
    assert result.history[-1]["test accuracy"] == pytest.approx(accuracy)
    assert json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1]) == result.history[-1]
    assert json.loads((tmp_path / "run" / "about.json").read_text())["iterate"] == "uniform"
    with pytest.raises(CheckpointError, match="drawn from 6 rounds, and they cannot become 9"):
        build(parse({**tree, "run": {**tree["run"], "rounds": 9}})).run(tmp_path / "run", "x", resume=True)


def test_a_run_goes_on_only_as_it_was_described(tmp_path: Path) -> None:
    tree = changed(objective={"name": "kl_dro", "lam": 2.0}, algorithm={"name": "FedDRO"})
    build(parse(tree)).run(tmp_path, "x")
    traffic = json.loads((tmp_path / "about.json").read_text())["traffic"]
    with pytest.raises(CheckpointError, match="another description"):
        build(parse(changed(objective={"name": "kl_dro", "lam": 9.0}, algorithm={"name": "FedDRO"}))).run(tmp_path, "x", resume=True)
    build(parse(tree)).run(tmp_path, "x", resume=True)
    assert json.loads((tmp_path / "about.json").read_text())["traffic"] == traffic != []
    longer = build(parse({**tree, "run": {"rounds": 6}})).run(tmp_path, "x", resume=True)
    assert longer.rounds == 6


def test_a_run_on_the_wire_keeps_its_sites_state_in_its_folder(tmp_path: Path) -> None:
    tree = changed(federation={"engine": "wire"}, algorithm={"name": "SCAFFOLD"})
    build(parse(tree), tmp_path).run(tmp_path, "x")
    assert list((tmp_path / "sites").iterdir())


def test_a_publishers_own_test_rows_cannot_be_chosen_anew() -> None:
    for entries, words in (({"split_seed": 1}, "split_seed"), ({"test_share": 0.5}, "test_share"), ({"split_seed": 1, "test_share": 0.5},
                                                                                               "split_seed and test_share")):
        with pytest.raises(ConfigError, match=rf"mnist has test rows of its own, which its publisher chose: leave {words} out"):
            build(parse(changed(data={"name": "mnist", **entries})))
