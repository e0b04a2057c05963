"""A bundle with a threshold for each value of a column: what is written, what is decided, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from running import changed, command

import rookery
from rookery.bundle import Bundle
from rookery.errors import BundleError, DataError
from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.leaving import leave
from rookery.training.result import Run

MARGINS = {"": -0.4, "1": 0.3, "2": -0.2, "ü": 0.1}
TREE = changed(data={"name": ..., "label": "state", "positive": ["ill"], "keep": ["ward"], "text": ["ward"]}, model={"name": "linear"},
               sites={"number": 2}, federation={"engine": "loop"}, run={"rounds": 1})


def table(rows: int = 300) -> pd.DataFrame:
    r = np.random.default_rng(0)
    age = r.normal(0, 1, rows)
    ill = age + r.normal(0, 1, rows) > 0
    return pd.DataFrame({"age": age.round(3), "ward": r.choice(list(MARGINS), rows), "state": np.where(ill, "ill", "well")})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a linear model, left with margins by ward."""
    folder = tmp_path_factory.mktemp("left")
    table().to_csv(folder / "t.csv", index=False)
    job = build(parse({**TREE, "data": {**TREE["data"], "table": str(folder / "t.csv")}}))
    result = job.run(None, "x")
    assert set(job.test.names["ward"]) == set(MARGINS)
    leave(job, folder, "x", Run(None, result.history), result.state.x, {"sensitive": "ward"}, True, MARGINS)
    return folder


@pytest.fixture
def bundle(folder: Path) -> Bundle:
    return rookery.load(folder)


def test_margins_become_probabilities_by_the_calibrator(bundle: Bundle) -> None:
    assert bundle.by_group is not None
    assert bundle.by_group["column"] == "ward"
    expected = {value: bundle.calibrator.probability_at(margin) for value, margin in MARGINS.items()}
    assert bundle.by_group["thresholds"] == pytest.approx(expected)
    assert bundle.threshold == pytest.approx(bundle.calibrator.probability_at(np.mean(list(MARGINS.values()))))


def test_rows_are_decided_by_the_threshold_of_their_value_and_others_by_the_common_one(bundle: Bundle) -> None:
    rows = table()
    rows.loc[:20, "ward"] = "elsewhere"
    found = bundle.predict_proba(rows)[:, 1]
    assert bundle.by_group is not None
    limits = np.asarray([bundle.by_group["thresholds"].get(value, bundle.threshold) for value in rows["ward"]])
    assert bundle.predict(rows).tolist() == np.where(found > limits, "ill", "well").tolist()
    assert (bundle.predict(rows) != np.where(found > bundle.threshold, "ill", "well")).any()


def test_values_are_the_same_as_numbers_texts_and_with_gaps(bundle: Bundle) -> None:
    rows = table()
    rows = rows[rows["ward"].isin(["1", "2", ""])].reset_index(drop=True)
    numbers = rows.assign(ward=pd.to_numeric(rows["ward"]))  # 1.0, 2.0 and NaN
    assert bundle.predict(numbers).tolist() == bundle.predict(rows).tolist()


def test_what_is_saved_is_what_is_loaded(bundle: Bundle, tmp_path: Path) -> None:
    again = rookery.load(bundle.save(tmp_path / "b"))
    assert again.by_group == bundle.by_group
    assert again.predict(table()).tolist() == bundle.predict(table()).tolist()
    card = (tmp_path / "b" / "README.md").read_text(encoding="utf-8")
    assert "depends on 'ward'" in card
    assert "Ask whether that column may be used for decisions" in card
    plain = rookery.load(replace(bundle, by_group=None).save(tmp_path / "c"))
    assert plain.by_group is None
    assert "ward'" not in (tmp_path / "c" / "README.md").read_text(encoding="utf-8").partition("##")[0]


@pytest.mark.parametrize("to", ["onnx", "torch"])
def test_an_export_is_refused(to: str, bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="decides by one threshold, and this one has one for each value of 'ward'"):
        bundle.export(to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_without_the_column_are_refused(bundle: Bundle) -> None:
    with pytest.raises(DataError, match="must have the columns that the model was trained on, but has no 'ward'"):
        bundle.predict(table().drop(columns="ward"))
    no_input = replace(bundle, by_group={"column": "race", "thresholds": {"a": 0.5}})
    with pytest.raises(DataError, match="must have the column 'race', for whose values the model has thresholds"):
        no_input.predict(table())
    for rows in (None, np.zeros((2, 1))):
        with pytest.raises(DataError, match="give rows as a table that has this column, or take predict_proba"):
            bundle.decided(np.asarray([[0.5, 0.5]] * 2), rows)


def test_the_command_decides_by_the_values_of_the_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    table().drop(columns="state").to_csv(tmp_path / "new.csv", index=False)
    assert command(monkeypatch, "predict", str(folder / "bundle"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")) == 0
    decisions = pd.read_csv(tmp_path / "out.csv")["decision"].tolist()
    assert decisions == rookery.load(folder).predict(pd.read_csv(tmp_path / "new.csv", keep_default_na=False)).tolist()
    assert command(monkeypatch, "export", str(folder / "bundle"), "--to", "torch", "--out", str(tmp_path / "exported")) == 2
    assert "one for each value of 'ward'" in capsys.readouterr().err
