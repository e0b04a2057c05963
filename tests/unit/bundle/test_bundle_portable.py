"""Folders that PyTorch alone can use, as modules and as commands, against the described encoding and calibration around the net itself."""

from __future__ import annotations

import ast
import csv
import importlib.util
import json
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
    CASES,
    CLASSES,
    ENCODER,
    WIDTH,
    assert_decided,
    decisions,
    draw_rows,
    encoded,
    picture_net,
    probabilities,
    table_net,
)
from torch import Tensor, nn

from rookery.bundle.portable import export_torch
from rookery.data.tables import ColumnSchema, Schema, from_frame
from rookery.data.tables.encoder import Category, Encoder
from rookery.models import conv4, densenet121, federated_norm, freeze_norm, lenet, resnet20, to_group_norm

NONE = CALIBRATORS["none"]
SMALL: dict[str, Any] = {"version": 1, "columns": [
    {"name": "age", "kind": "number", "mean": 50.0, "scale": 10.0, "missing": True},
    {"name": "seen", "kind": "date", "mean": 0.0, "scale": 100.0, "missing": False, "format": "%d.%m.%Y"},
    {"name": "land", "kind": "category", "categories": ["NA", "DE"], "other": True, "missing": True}]}


def load(folder: Path) -> Any:
    """The folder's predict.py as a module."""
    spec = importlib.util.spec_from_file_location("predict", folder / "predict.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(cell: Any) -> str:
    return "" if cell is None else cell.strftime("%d.%m.%Y %H:%M") if isinstance(cell, datetime) else str(cell)


def small(folder: Path, encoder: dict[str, Any] = SMALL, **more: Any) -> tuple[Path, nn.Module]:
    torch.manual_seed(6)
    net = nn.Linear(7, 2).eval()
    return export_torch(folder, net, (7,), ["no", "yes"], encoder, NONE, 0.5, **more), net


@pytest.mark.parametrize(("method", "classes"), CASES)
def test_a_folder_is_encoding_net_and_calibration(method: str, classes: int, tmp_path: Path) -> None:
    net, calibrator, threshold = table_net(classes), CALIBRATORS[method], 0.45 if classes == 2 and method != "none" else None
    predictor = load(export_torch(tmp_path / "deep" / "f", net, (WIDTH,), CLASSES[classes], ENCODER, calibrator, threshold)).Predictor(
        tmp_path / "deep" / "f")
    for number in (0, 1, 300):  # more than go through the net at a time
        rows = draw_rows(number)
        found = predictor.probabilities([{name: text(cell) for name, cell in row.items()} for row in rows])
        assert found.dtype == torch.float64
        assert found.shape == (number, classes)
        if number:
            expected = probabilities(net(encoded(rows)), calibrator)
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)
    assert_decided(predictor.decisions(found), decisions(expected, CLASSES[classes], threshold))


class Reshaped(nn.Module):
    """Sizes of its inputs are numbers in its graph, and it writes to its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.mul_(0.5)
        return self.net(x.view(x.shape[0] * 2, -1)).view(x.shape[0], 2, 3).amax(1).clamp(max=float("inf")).to(torch.float32)


@pytest.mark.parametrize(("net", "shape"), [
    (Reshaped(), (4, 4)), (picture_net(), (1, 16, 16)), (lenet(1, 3, 16), (1, 16, 16)), (freeze_norm(resnet20(3)), (3, 8, 8)),
    (to_group_norm(conv4(3, 1, 16, 4)), (1, 16, 16)), (federated_norm(conv4(3, 1, 16, 4)), (1, 16, 16)),
    pytest.param(densenet121(3), (3, 32, 32), marks=pytest.mark.slow),
], ids=["reshaped", "conv4", "lenet", "resnet20", "group norm", "federated norm", "densenet121"])
def test_a_folder_s_net_is_the_net(net: nn.Module, shape: tuple[int, ...], tmp_path: Path) -> None:
    predictor = load(export_torch(tmp_path, net.eval(), shape, CLASSES[3], None, NONE, None)).Predictor(tmp_path)
    pictures = torch.rand(5, *shape)
    given = pictures.clone()
    np.testing.assert_allclose(predictor.probabilities(pictures).numpy(), probabilities(net(pictures.clone()), NONE), rtol=0, atol=1e-6)
    assert torch.equal(pictures, given)


@pytest.mark.parametrize("flat", [False, True])
def test_a_single_logit_stands_beside_zero(flat: bool, tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 1), *([nn.Flatten(0)] if flat else [])).eval()
    found = load(export_torch(tmp_path, net, (4,), CLASSES[2], None, NONE, None)).Predictor(tmp_path).probabilities(torch.eye(4))
    expected = 1 / (1 + np.exp(-net(torch.eye(4)).detach().double().numpy().reshape(-1)))
    np.testing.assert_allclose(found[:, 1].numpy(), expected, rtol=0, atol=1e-6)


def test_predict_imports_the_standard_library_and_torch_only(tmp_path: Path) -> None:
    tree = ast.parse((small(tmp_path)[0] / "predict.py").read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(node.level == 0 for node in froms)
    roots = {name.split(".")[0] for name in names | {node.module or "" for node in froms}}
    assert roots - sys.stdlib_module_names == {"torch"}
    assert not roots & {"pickle", "marshal", "shelve", "importlib", "subprocess"}
    assert not {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} & {"load", "jit", "export"}


def test_the_command_predicts_where_there_is_only_torch(tmp_path: Path) -> None:
    net = table_net(3)
    export_torch(tmp_path / "f", net, (WIDTH,), CLASSES[3], ENCODER, CALIBRATORS["temperature"], None, id_column="Nr.")
    rows = draw_rows(40, 2)
    with (tmp_path / "new.csv").open("w", encoding="utf-8-sig", newline="") as stream:
        sheet = csv.writer(stream, delimiter=";")
        sheet.writerow(["Nr.", *reversed(rows[0]), "more"])
        sheet.writerows([f"é;{i}", *(text(row[name]) for name in reversed(rows[0])), "x,y"] for i, row in enumerate(rows))
    others = ["rookery", "onnx", "onnxscript", "onnxruntime", "safetensors", "sklearn", "scipy", "pandas"]
    code = (f"import runpy, sys; sys.modules.update(dict.fromkeys({others!r})); sys.argv = ['predict.py', 'new.csv', '-o', 'out.csv']; "
            "runpy.run_path('f/predict.py', run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as stream:
        header, *lines = csv.reader(stream)
    assert header == ["Nr.", "probability_a", "probability_b b", "probability_ç", "decision"]
    assert [line[0] for line in lines] == [f"é;{i}" for i in range(40)]
    expected = probabilities(net(encoded(rows)), CALIBRATORS["temperature"])
    np.testing.assert_allclose(np.array([line[1:4] for line in lines], dtype=float), expected, rtol=0, atol=1e-6)
    assert_decided([line[4] for line in lines], decisions(expected, CLASSES[3], None))


def predict(folder: Path, content: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[list[str]], str]:
    """Exit code, written rows, and what stands on stderr."""
    table, out = folder / "new.csv", folder / "out.csv"
    table.write_bytes(content.encode())
    out.unlink(missing_ok=True)
    code = load(folder).main([str(table), "-o", str(out)])
    return code, list(csv.reader(out.read_text(encoding="utf-8").splitlines())) if out.exists() else [], capsys.readouterr().err


def yes(net: nn.Module, *inputs: list[float]) -> list[float]:
    return [float(p) for p in probabilities(net(torch.tensor(inputs)), NONE)[:, 1]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_cells_mean_what_the_encoder_says(delimiter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, net = small(tmp_path, {**SMALL, "missing_values": ["-9"]})
    lines = ["age,seen,land", "60,11.01.1970,DE", " 40 ,'01.01.1970', NA", "?,-9,-9", "old,1970/01/01,FR", "", "1_0,N/A,null"]
    code, (header, *rows), said = predict(folder, "\r\n".join(lines).replace(",", delimiter), capsys)
    assert (code, header) == (0, ["probability", "decision"])
    nothing = [0, 1, 0, 0, 0, 0, 1]
    expected = yes(net, [1, 0, 0.1, 0, 1, 0, 0], [-1, 0, 0, 1, 0, 0, 0], nothing, [0, 1, 0, 0, 0, 1, 0], nothing)
    np.testing.assert_allclose([float(row[0]) for row in rows], expected, rtol=0, atol=1e-6)
    assert [row[1] for row in rows] == ["yes" if p > 0.5 else "no" for p in expected]
    assert said == "predict.py: cells that are no numbers or dates were taken for missing: 2 in 'age', 1 in 'seen' (3 in all)\n"


@pytest.mark.parametrize("categories", [["False", "True"], ["TRUE", "True"], ["true", "x"]])
def test_truth_is_spelt_in_any_way_where_it_can_be_one_thing_only(categories: list[str], tmp_path: Path) -> None:
    """As the encoder itself reads it; a value that stands for a missing one stays missing."""
    column = {"name": "land", "kind": "category", "categories": categories, "other": True, "missing": True, "missing_values": ["FALSE"]}
    folder, _ = small(tmp_path, {**SMALL, "columns": [*SMALL["columns"][:-1], column]})
    predictor = load(folder).Predictor(folder)
    own = Encoder((Category("land", tuple(categories), True, True),))
    schema = Schema("y", ("0", "1"), {"land": ColumnSchema("category", missing=("FALSE",))})
    for cell in ("true", "True", "TRUE", "false", "False", "FALSE", "x", ""):
        expected = own(from_frame({"land": [cell]}), schema)[0].tolist()
        assert predictor._category(column, [{"land": cell}])[0].tolist() == expected, cell


@pytest.mark.parametrize(("more", "own", "cell", "other"), [
    ({"decimal": ","}, {}, "62,5", "62.5"), ({}, {"decimal": ","}, "62,5", "62.5"), ({}, {}, "62.5", "62,5"), ({}, {}, "6.25e1", "1e999"),
    ({}, {"decimal": ",", "thousands": ".", "symbol": "€"}, "€ 1.062,5", "$ 1.062,5")])
def test_numbers_are_read_as_they_are_written(more: dict[str, str], own: dict[str, str], cell: str, other: str, tmp_path: Path) -> None:
    """And what is written otherwise is missing rather than a number of another size."""
    encoder = {**SMALL, **more, "columns": [{**SMALL["columns"][0], **own}, *SMALL["columns"][1:]]}
    folder, net = small(tmp_path, encoder)
    predictor = load(folder).Predictor(folder)
    value = 1062.5 if own.get("thousands") else 62.5
    rows = [{"age": age, "seen": "", "land": ""} for age in (cell, value)]
    expected = yes(net, [(value - 50) / 10, 0, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(predictor.probabilities(rows)[:, 1].tolist(), expected * 2, rtol=0, atol=1e-6)
    assert predictor.unreadable == {}
    predictor.probabilities([{**rows[0], "age": other}])
    assert predictor.unreadable == {"age": 1}


@pytest.mark.parametrize(("content", "sentence"), [
    ("age,land\n50,DE\n", "must have the column 'seen', but has ['age', 'land']"),
    ("age,seen,land,age\n50,,DE,50\n", "must have the column 'age', but has it twice"),
    ("age,seen,land\n50,,DE\n50,DE\n", "must have 3 values, but line 3 has 2"),
    ("", "must have the column 'age', but has []"),
    ("age,seen,land\n1e300,,DE\n", "column 'age' must be near what it was in training (50 ± 10), but row 1 has '1e300'"),
])
def test_a_table_that_does_not_fit_gets_one_sentence_and_code_2(content: str, sentence: str, tmp_path: Path,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    code, rows, said = predict(small(tmp_path)[0], content, capsys)
    assert (code, rows) == (2, [])
    assert sentence in said
    assert said.startswith("predict.py: ")
    assert said.count("\n") == 1


def test_files_and_pictures_get_sentences_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = small(tmp_path / "table", id_column="key")
    module = load(folder)
    assert module.main([str(tmp_path / "none.csv")]) == 2
    assert "none.csv cannot be read or written: No such file" in capsys.readouterr().err
    (tmp_path / "latin.csv").write_bytes("age,seen,länd".encode("latin-1"))
    assert module.main([str(tmp_path / "latin.csv")]) == 2
    assert "must be a CSV file in UTF-8" in capsys.readouterr().err
    assert predict(folder, "age,seen,land\n50,,DE\n", capsys)[2].endswith("must have the column 'key', but has ['age', 'seen', 'land']\n")
    with pytest.raises(module.PredictError, match="every row must have the column 'seen', but row 2"):
        module.Predictor(folder).probabilities([{"age": 1, "seen": "", "land": ""}, {"age": 1}])
    pictures = export_torch(tmp_path / "pictures", nn.Flatten().eval(), (3,), CLASSES[3], None, NONE, None)
    assert predict(pictures, "a\n", capsys)[2].startswith("predict.py: this command line is for tables")
    with pytest.raises(module.PredictError, match=r"must be a float tensor of shape \(n, 3\), but torch.int64 of shape \(2, 3\)"):
        module.Predictor(pictures).probabilities(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(module.PredictError, match="must be finite, but those of row 2"):
        module.Predictor(pictures).probabilities(torch.tensor([[0.0, 1, 2], [0, torch.nan, 2]]))


@pytest.mark.parametrize("name", ["os.system", "aten.from_file.default", "operator.attrgetter", "aten.no_such.default"])
def test_only_operations_on_tensors_are_run(name: str, tmp_path: Path) -> None:
    folder, _ = small(tmp_path)
    graph = json.loads((folder / "model.json").read_text())
    graph["steps"][0]["operation"] = name
    (folder / "model.json").write_text(json.dumps(graph))
    module = load(folder)
    with pytest.raises(module.PredictError, match=f"must be those of PyTorch's tensors, but '{name}' is none"):
        module.Predictor(folder)
