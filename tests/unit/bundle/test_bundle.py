"""Bundles: what training leaves predicts what training predicted, in Python, from the command line, and in both exports."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from running import changed, command, toml

import rookery
from rookery.bundle import Bundle
from rookery.errors import BundleError, DataError
from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.job import Job

REAL = os.environ.get("ROOKERY_TEST_DATA")
SMALL = {"algorithm": {"name": "FedAvg", "lr": 0.3, "local_steps": 3, "batch": 32}, "run": {"rounds": 3, "every": 3}}


def visits(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    r = np.random.default_rng(seed)
    age = r.normal(60, 15, rows)
    ill = r.random(rows) < 1 / (1 + np.exp(-(age - 65) / 5))
    return pd.DataFrame({"id": [f"v{i:05d}" for i in r.permutation(rows)], "clinic": r.choice(["north", "south"], rows),
                         "age": np.where(r.random(rows) < 0.05, "", age.round(2).astype(str)), "ward": r.choice(["A", "B", "ü c"], rows),
                         "seen": [f"{d:02d}.06.2020" for d in r.integers(1, 29, rows)], "state": np.where(ill, "ill", "well")})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    folder = tmp_path_factory.mktemp("trained")
    visits().to_csv(folder / "t.csv", index=False, sep=";")
    job = build(parse({"data": {"table": str(folder / "t.csv"), "label": "state", "site": "clinic", "keep": ["ward"]}, **SMALL}))
    job.run(folder / "run", "x", bundle=True)
    return job, folder


def outputs(job: Job, folder: Path) -> torch.Tensor:
    """The outputs of the test rows that the run wrote itself: margins."""
    return torch.from_numpy(np.load(folder / "run" / "predictions.npz")["scores"])


def test_a_bundle_predicts_what_the_run_predicted(trained: tuple[Job, Path]) -> None:
    job, folder = trained
    bundle = rookery.load(folder / "run")
    assert isinstance(bundle, Bundle)
    assert bundle.classes == ("well", "ill")
    frame = pd.read_csv(folder / "t.csv", sep=";", dtype=str, keep_default_na=False)
    assert job.test.rows is not None
    tested = frame.iloc[job.test.rows.test].drop(columns="state")
    expected = bundle.calibrator.positive(outputs(job, folder)).numpy()
    np.testing.assert_allclose(bundle.predict_proba(tested)[:, 1], expected, rtol=0, atol=1e-6)
    numbers = tested.assign(age=pd.to_numeric(tested["age"], errors="coerce"))  # a frame of numbers, columns in another order
    np.testing.assert_allclose(bundle.predict_proba(numbers[numbers.columns[::-1]])[:, 1], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(bundle.predict_proba(job.test.fields["inputs"])[:, 1], expected, rtol=0, atol=1e-6)
    assert bundle.threshold is not None
    assert bundle.predict(tested).tolist() == [bundle.classes[int(p > bundle.threshold)] for p in expected]


def test_predictions_are_a_file_with_ids_probabilities_and_decisions(trained: tuple[Job, Path], tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = trained
    new = visits(50, 7).drop(columns="state").assign(extra="?")
    new.loc[3, "ward"] = "unseen"
    new.to_csv(tmp_path / "new.csv", index=False)  # commas, where training had semicolons
    assert command(monkeypatch, "predict", str(folder / "run" / "bundle"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")) == 0
    said = capsys.readouterr()
    assert "values without a column of their own in 1 rows, such as 'unseen' in line 5" in said.err
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["row", "id", "clinic", "probability", "decision"]
    assert [row["id"] for row in rows] == new["id"].tolist()
    expected = rookery.load(folder / "run").predict_proba(new)[:, 1]
    np.testing.assert_allclose([float(row["probability"]) for row in rows], expected, rtol=0, atol=1e-6)
    assert {row["decision"] for row in rows} <= {"ill", "well"}


def test_exports_predict_the_same(trained: tuple[Job, Path], tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    _, folder = trained
    bundle, new = rookery.load(folder / "run"), visits(60, 9)
    new.loc[5, "ward"] = "unseen"
    expected = bundle.predict_proba(new)
    session = runtime.InferenceSession(bundle.export("onnx", tmp_path / "m.onnx"))
    days = (pd.to_datetime(new["seen"], format="%d.%m.%Y") - pd.Timestamp(0)).dt.days
    feed = {"age": pd.to_numeric(new["age"], errors="coerce").to_numpy(np.float64)[:, None], "seen": days.to_numpy(np.float64)[:, None],
            "ward": new["ward"].to_numpy(object)[:, None]}
    probabilities, decision = session.run(["probabilities", "decision"], feed)
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-6)
    assert decision.tolist() == bundle.predict(new).tolist()
    folder = bundle.export("torch", tmp_path / "portable")
    new.to_csv(tmp_path / "new.csv", index=False)
    subprocess.run([sys.executable, str(folder / "predict.py"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")], check=True,
                   capture_output=True)
    found = pd.read_csv(tmp_path / "out.csv")
    np.testing.assert_allclose(found["probability"], expected[:, 1], rtol=0, atol=1e-6)


def test_the_card_says_what_the_model_is_worth_and_needs(trained: tuple[Job, Path]) -> None:
    _, folder = trained
    card = (folder / "run" / "bundle" / "README.md").read_text()
    told = json.loads((folder / "run" / "bundle" / "bundle.json").read_text())
    for words in ("| seen | date |", "| ward | category |", "Platt's method", "'ill' above a probability", "By ward:", "| data digest |"):
        assert words in card
    assert f"| AUC | {told['found']['AUC'][0]:.4f} |" in card
    assert told["about"]["algorithm"] == "FedAvg"
    assert len(told["about"]["data digest"]) == 64
    confusion = told["found"]["confusion"]
    assert sum(confusion.values()) == told["found"]["rows"] == 100


def test_a_run_that_goes_on_leaves_the_bundle_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").write_text(toml(changed(data={"positive": [5, 6, 7, 8, 9]})))
    file, out = str(tmp_path / "run.toml"), tmp_path / "out"
    assert command(monkeypatch, "run", file, "--out", str(out)) == 0
    first = rookery.load(out).predict_proba(np.ones((2, 1, 8, 8), dtype=np.float32))
    assert command(monkeypatch, "run", file, "--out", str(out), "--resume", "--set", "run.rounds=8") == 0
    assert command(monkeypatch, "run", file, "--out", str(tmp_path / "whole"), "--set", "run.rounds=8") == 0
    second, whole = (rookery.load(folder).predict_proba(np.ones((2, 1, 8, 8), dtype=np.float32)) for folder in (out, tmp_path / "whole"))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(second, whole)


def test_a_folder_that_is_no_bundle_or_not_whole_is_refused_by_a_sentence(trained: tuple[Job, Path], tmp_path: Path) -> None:
    _, folder = trained
    with pytest.raises(BundleError, match="must be a bundle"):
        rookery.load(tmp_path)
    for name, content, sentence in (("bundle.json", "{", "is not whole"), ("bundle.json", "{}", "is not whole: 'version'"),
                                    ("model.safetensors", "x", "must hold the numbers of the net"),
                                    ("encoder.json", "{}", "an encoder's JSON"),
                                    ("schema.toml", "label = 3", "must be TOML|needs|is a text")):
        for file in (folder / "run" / "bundle").iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / name).write_text(content)
        with pytest.raises((BundleError, DataError), match=sentence):
            rookery.load(tmp_path)
    bundle = rookery.load(folder / "run")
    for rows, sentence in ((visits(5).drop(columns=["age", "ward"]), "has no 'age', 'ward'"),
                           (np.zeros((2, 3), dtype=np.float32), "rows must have the shape"),
                           (torch.full((2, bundle.shape[0]), torch.nan), "inputs must be finite numbers")):
        with pytest.raises(DataError, match=sentence):
            bundle.predict_proba(rows)
    with pytest.raises(BundleError, match='exported to "onnx" or "torch"; got \'pickle\''):
        bundle.export("pickle", tmp_path / "x")


def test_without_positives_among_the_test_rows_nothing_is_made_up(tmp_path: Path) -> None:
    frame = visits()
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame[frame["state"] == "well"].to_csv(tmp_path / "later.csv", index=False)
    data = {"table": str(tmp_path / "t.csv"), "test": str(tmp_path / "later.csv"), "label": "state", "site": "clinic"}
    job = build(parse({"data": data, **SMALL}))
    history = job.run(tmp_path / "run", "x", bundle=True).history
    assert not {"test AUC", "test worst class", "test balanced accuracy"} & {*history[-1]}
    found = rookery.load(tmp_path / "run").found
    assert found["AUC"] is None
    assert found["sensitivity"] is None
    assert found["specificity"] is not None
    assert "| AUC | undefined |" in (tmp_path / "run" / "bundle" / "README.md").read_text()


def test_several_classes_are_calibrated_by_a_temperature(tmp_path: Path) -> None:
    job = build(parse(changed()))
    job.run(tmp_path / "run", "x", bundle=True)
    bundle = rookery.load(tmp_path / "run")
    assert (bundle.calibrator.method, bundle.threshold, len(bundle.classes)) == ("temperature", None, 10)
    probabilities = bundle.predict_proba(job.test.fields["inputs"])
    logits = torch.from_numpy(np.load(tmp_path / "run" / "predictions.npz")["scores"])
    np.testing.assert_allclose(probabilities, (logits * bundle.calibrator.slope).softmax(1).numpy(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(1), 1)


@pytest.mark.skipif(REAL is None, reason="ROOKERY_TEST_DATA names no folder with the published files")
@pytest.mark.parametrize(("name", "more"), [
    ("mammography", {}), pytest.param("adult", {}, marks=pytest.mark.slow),
    pytest.param("sites/stroke", {"sites": {"least": 30}}, marks=pytest.mark.slow),
    pytest.param("pneumoniamnist", {"model": {"name": "small_cnn"}, "run": {"rounds": 1}}, marks=pytest.mark.slow)])
def test_on_published_rows_bundle_and_exports_agree_with_the_run(name: str, more: dict[str, Any], tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pytest.importorskip("onnxruntime")
    monkeypatch.setenv("ROOKERY_DATA", str(REAL))
    job = build(parse({"data": {"name": name}, **SMALL, **more}))
    job.run(tmp_path / "run", "x", bundle=True)
    bundle, some = rookery.load(tmp_path / "run"), slice(0, 2000)
    expected = bundle.calibrator.positive(outputs(job, tmp_path)).numpy()[some]
    session = runtime.InferenceSession(bundle.export("onnx", tmp_path / "m.onnx"))
    portable = bundle.export("torch", tmp_path / "portable")
    monkeypatch.syspath_prepend(str(portable))
    monkeypatch.delitem(sys.modules, "predict", raising=False)
    import predict  # type: ignore[import-not-found]

    rows = job.test.rows
    if rows is None:
        inputs = job.test.fields["inputs"][some]
        found = {"bundle": bundle.predict_proba(inputs), "torch": predict.Predictor(portable).probabilities(inputs),
                 "onnx": session.run(["probabilities"], {"inputs": inputs.numpy()})[0]}
    else:
        sheet = rows.sheet.take(rows.test[some])
        frame = sheet.frame[rows.schema.inputs]
        texts, numbers = frame.where(~frame.isin(rows.schema.missing), ""), frame.apply(pd.to_numeric, errors="coerce")
        feed = {column: numbers[[column]].to_numpy(np.float64) if rows.schema.columns[column].kind == "number" else
                texts[[column]].to_numpy(object) for column in rows.schema.inputs}
        found = {"bundle": bundle.predict_proba(frame), "torch": predict.Predictor(portable).probabilities(frame.to_dict("records")),
                 "onnx": session.run(["probabilities"], feed)[0]}
    for way, probabilities in found.items():
        np.testing.assert_allclose(np.asarray(probabilities)[:, 1], expected, rtol=0, atol=1e-6, err_msg=way)
