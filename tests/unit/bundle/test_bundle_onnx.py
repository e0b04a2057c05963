"""ONNX files of trained models, run by onnxruntime, against the described encoding and calibration around the net itself."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundle_reference import (
    CALIBRATORS,
    CLASSES,
    ENCODER,
    WIDTH,
    assert_decided,
    days,
    decisions,
    draw_rows,
    encoded,
    picture_net,
    probabilities,
    table_net,
)
from torch import nn

from rookery.bundle.onnx import export_onnx
from rookery.errors import ConfigError, ModuleError, WriteError

NONE = CALIBRATORS["none"]


def run(path: Path, feed: dict[str, Any]) -> tuple[Any, list[str]]:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found, decided = session.run(["probabilities", "decision"], feed)
    assert found.dtype == np.float64
    return found, list(decided)


def cells(rows: list[dict[str, Any]], encoder: dict[str, Any] = ENCODER) -> dict[str, Any]:
    """The inputs of a graph: doubles and texts, (n, 1)."""
    feed = {}
    for column in encoder["columns"]:
        values = [row[column["name"]] for row in rows]
        if column["kind"] == "category":
            feed[column["name"]] = np.array(["" if value is None else value for value in values], dtype=object)[:, None]
        else:
            numbers = [float("nan") if v is None else float(days(v)) if isinstance(v, datetime) else v for v in values]
            feed[column["name"]] = np.array(numbers, dtype=np.float64)[:, None]
    return feed


# the other cases are those of the folder's tests; a conversion by PyTorch takes seconds
@pytest.mark.parametrize(("method", "classes"), [("platt", 2), ("isotonic", 2), ("none", 3), ("temperature", 3)])
def test_a_table_s_graph_is_encoding_net_and_calibration(method: str, classes: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    net, calibrator, threshold = table_net(classes), CALIBRATORS[method], 0.45 if classes == 2 else None
    path = export_onnx(tmp_path / "deep" / "m.onnx", net, (WIDTH,), CLASSES[classes], ENCODER, calibrator, threshold)
    for number in (1, 200):
        rows = draw_rows(number)
        expected = probabilities(net(encoded(rows)), calibrator)
        found, decided = run(path, cells(rows))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert_decided(decided, decisions(expected, CLASSES[classes], threshold))


@pytest.mark.slow
@pytest.mark.parametrize("flat", [False, True])
def test_a_single_logit_stands_beside_zero(flat: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    net = nn.Sequential(table_net(1), *([nn.Flatten(0)] if flat else []))
    path = export_onnx(tmp_path / "m.onnx", net.eval(), (WIDTH,), CLASSES[2], ENCODER, NONE, None)
    rows = draw_rows(50, 1)
    expected = probabilities(net(encoded(rows)), NONE)
    found, decided = run(path, cells(rows))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert_decided(decided, decisions(expected, CLASSES[2], None))


def test_pictures_go_through_batch_norm_with_its_statistics(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    net, pictures = picture_net(), torch.randn(7, 1, 16, 16)
    path = export_onnx(tmp_path / "m.onnx", net, (1, 16, 16), CLASSES[3], None, NONE, None)
    expected = probabilities(net(pictures), NONE)
    found, decided = run(path, {"inputs": pictures.numpy()})
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    assert all(e is None or c == e for c, e in zip(decided, decisions(expected, CLASSES[3], None), strict=True))
    assert b"site-packages" not in path.read_bytes()  # PyTorch notes the exporter's own folders in a graph


def test_numbers_are_standardised_in_double(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    encoder = {"version": 1, "columns": [{"name": "n", "kind": "number", "mean": 1e9, "scale": 1.0, "missing": False}]}
    rows = [{"n": 1e9 + step} for step in (-1.5, -0.25, 0.0, 0.125, 2.75)]
    found, _ = run(export_onnx(tmp_path / "m.onnx", line(), (1,), ["a", "b"], encoder, NONE, None), cells(rows, encoder))
    expected = 1 / (1 + np.exp(-np.array([-1.5, -0.25, 0.0, 0.125, 2.75])))
    np.testing.assert_allclose(found[:, 1], expected, rtol=0, atol=1e-6)
    single = np.float32([row["n"] for row in rows]) - np.float32(1e9)
    assert np.abs(1 / (1 + np.exp(-single)) - expected).max() > 0.05  # which float32 would miss


def line() -> nn.Module:
    """The logit is the input."""
    net = nn.Linear(1, 1)
    with torch.no_grad():
        net.weight.fill_(1)
        net.bias.zero_()
    return net.eval()


NUMBER = {"version": 1, "columns": [{"name": "n", "kind": "number", "mean": 0.0, "scale": 1.0, "missing": False}]}


@pytest.mark.slow
@pytest.mark.parametrize(("knots", "values"), [([-1.0, 0.0, 1.0, 2.0], [0.1, 0.5, 0.5, 0.9]), ([0.25], [0.5]), ([-1.0, 1.0], [0.3, 0.5])])
def test_level_pieces_are_not_above_a_threshold_at_their_height(knots: list[float], values: list[float], tmp_path: Path) -> None:
    """At knots, between equal values and beyond the ends a probability is the very value, so that > is not left to rounding."""
    pytest.importorskip("onnxscript")
    calibrator = {"method": "isotonic", "knots": knots, "values": values}
    margins = [-5.0, -1.0, -0.5, 0.0, 0.25, 0.75, 1.0, 1.5, 2.0, 7.0]
    path = export_onnx(tmp_path / "m.onnx", line(), (1,), ["a", "b"], NUMBER, calibrator, 0.5)
    found, decided = run(path, cells([{"n": margin} for margin in margins], NUMBER))
    expected = np.interp(margins, knots, values)
    np.testing.assert_allclose(found[:, 1], expected, rtol=0, atol=1e-12)
    assert decided == ["b" if p > 0.5 else "a" for p in expected]


def test_infinite_numbers_and_the_encoder_s_own_texts_are_missing(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    encoder = {"version": 1, "missing_values": ["unknown"], "columns": [
        {"name": "n", "kind": "number", "mean": 1.0, "scale": 2.0, "missing": True},
        {"name": "c", "kind": "category", "categories": ["x"], "other": True, "missing": True, "missing_values": ["-9"]}]}
    torch.manual_seed(5)
    net = nn.Linear(5, 2).eval()
    path = export_onnx(tmp_path / "m.onnx", net, (5,), ["a", "b"], encoder, NONE, None)
    feed = {"n": np.array([[np.inf], [-np.inf], [np.nan], [2.0]]), "c": np.array([["unknown"], ["-9"], [""], ["NA"]], dtype=object)}
    inputs = torch.tensor([[0.0, 1, 0, 0, 1], [0, 1, 0, 0, 1], [0, 1, 0, 0, 1], [0.5, 0, 0, 1, 0]])
    np.testing.assert_allclose(run(path, feed)[0], probabilities(net(inputs), NONE), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_an_export_says_nothing_and_names_its_inputs(tmp_path: Path) -> None:
    """In a process of its own, as PyTorch chatters once in each."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    code = ("from pathlib import Path; from bundle_reference import *; from rookery.bundle.onnx import export_onnx; "
            "export_onnx(Path('m.onnx'), table_net(2), (WIDTH,), CLASSES[2], ENCODER, CALIBRATORS['none'], 0.5)")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    graph = onnx.load(str(tmp_path / "m.onnx")).graph
    assert [one.name for one in graph.input] == [column["name"] for column in ENCODER["columns"]]
    assert [one.name for one in graph.output] == ["probabilities", "decision"]


def test_without_the_extra_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("onnx", "onnxscript"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(ConfigError) as caught:
                export_onnx(tmp_path / "m.onnx", line(), (1,), ["a", "b"], NUMBER, NONE, None)
        assert str(caught.value) == ("exporting to ONNX needs onnx and onnxscript, which are not installed: pip install 'rookery[export]'")


def test_wrong_ingredients_get_sentences(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    clash = {"version": 1, "columns": [{**NUMBER["columns"][0], "name": "decision"}]}  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"must not have the name of an output.*'decision': rename it"):
        export_onnx(tmp_path / "m.onnx", line(), (1,), ["a", "b"], clash, NONE, None)
    with pytest.raises(ModuleError, match=r"in training mode; write net.eval\(\)"):
        export_onnx(tmp_path / "m.onnx", line().train(), (1,), ["a", "b"], NUMBER, NONE, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="could not be written"):
        export_onnx(tmp_path / "file" / "m.onnx", line(), (1,), ["a", "b"], NUMBER, NONE, None)
