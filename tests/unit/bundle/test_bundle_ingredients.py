"""What does not fit together is refused by sentences before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from bundle_reference import CALIBRATORS
from torch import Tensor, nn

from rookery.bundle.portable import export_torch
from rookery.errors import ConfigError, ModuleError, WriteError

NUMBER: dict[str, Any] = {"name": "n", "kind": "number", "mean": 0.0, "scale": 1.0, "missing": False}
CATEGORY: dict[str, Any] = {"name": "c", "kind": "category", "categories": ["x"], "other": False, "missing": False}
ISOTONIC = CALIBRATORS["isotonic"]


def export(folder: Path, net: nn.Module | None = None, shape: tuple[int, ...] = (1,), classes: Any = ("a", "b"), columns: Any = (NUMBER,),
           calibrator: Any = CALIBRATORS["none"], threshold: Any = None, version: int = 1, **more: Any) -> Path:
    net = nn.Linear(1, len(classes)) if net is None else net
    return export_torch(folder, net.eval(), shape, classes, {"version": version, "columns": list(columns)}, calibrator, threshold, **more)


@pytest.mark.parametrize(("wrong", "sentence"), [
    ({"classes": ("a", "a")}, "two or more different texts; got ['a', 'a']"),
    ({"calibrator": {"method": "beta"}}, "one of none, platt, temperature, isotonic; got 'beta'"),
    ({"calibrator": {"method": "platt", "slope": 1.0}}, "method 'platt' needs 'intercept', finite; got None"),
    ({"calibrator": {"method": "temperature", "slope": float("nan")}}, "needs 'slope', finite; got nan"),
    ({"calibrator": CALIBRATORS["platt"], "classes": ("a", "b", "c")}, "is for two classes; got 3: write 'temperature' or 'none'"),
    ({"calibrator": {**ISOTONIC, "knots": [0.0, 0.0, 1.0, 2.0]}}, "increasing knots and as many values from 0 to 1"),
    ({"calibrator": {**ISOTONIC, "values": [0.5]}}, "got 4 knots and 1 values"),
    ({"calibrator": {"method": "isotonic", "knots": [], "values": []}}, "needs 'knots', finite; got []"),
    ({"threshold": 1.5}, "from 0 to 1 and for two classes, else None; got 1.5 with 2 classes"),
    ({"threshold": 0.5, "classes": ("a", "b", "c")}, "got 0.5 with 3 classes"),
    ({"version": 2}, "got version 2"),
    ({"columns": ()}, "a list of \"columns\""),
    ({"columns": (NUMBER, NUMBER)}, "a name of its own; got 'n': rename it"),
    ({"columns": ({**NUMBER, "kind": "text"},)}, "the kind of column 'n' is one of number, date, category; got 'text'"),
    ({"columns": ({**NUMBER, "scale": 0.0},)}, "'scale' of column 'n' must be a finite number other than 0; got 0.0"),
    ({"columns": ({**NUMBER, "kind": "date"},)}, "'format' of column 'n' must be a text such as \"%d.%m.%Y\"; got None"),
    ({"columns": ({**CATEGORY, "categories": ["x", ""]},)}, "a list of different texts, none empty; got ['x', '']"),
    ({"columns": ({**CATEGORY, "other": 1},)}, "'other' of column 'c' must be true or false; got 1"),
    ({"columns": (NUMBER, CATEGORY)}, "2 numbers a row; its inputs have the shape (1,)"),
    ({"positive": "a"}, "positive must be the second of two classes, as the threshold is on its probability; got 'a'"),
])
def test_wrong_entries(wrong: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        export(tmp_path / "f", **wrong)
    assert sentence in str(caught.value)
    assert not (tmp_path / "f").exists()


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, x if x.sum() > 0 else -x], 1)


class Counting(nn.Module):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        return torch.cat([x, x * self.seen], 1)


@pytest.mark.parametrize(("net", "sentence"), [
    (nn.Linear(1, 3), "a logit for each of 2 classes, or one logit; it gave (3, 3) for 3 rows"),
    (nn.Linear(2, 2), "must take float32 of shape (n, 1), but: "),
    (nn.Sequential(nn.Linear(1, 2), nn.Flatten(0)), "it gave"),
    (Branch(), "without branches on values"),
    (Counting(), "must not write to its tensors in eval mode, but this one writes to 'seen'"),
], ids=["outputs", "inputs", "flat", "branch", "counting"])
def test_wrong_nets(net: nn.Module, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ModuleError) as caught:
        export(tmp_path / "f", net)
    assert sentence in str(caught.value)
    assert not (tmp_path / "f").exists()


def test_a_net_in_training_mode_and_a_folder_that_is_a_file(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(1, 2), nn.Dropout()).eval()
    net[1].train()
    with pytest.raises(ModuleError, match=r"'1' is in training mode; write net.eval\(\)"):
        export_torch(tmp_path / "f", net, (1,), ["a", "b"], None, CALIBRATORS["none"], None)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="could not be written"):
        export(tmp_path / "file")
