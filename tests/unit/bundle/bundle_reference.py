"""What exports are compared with: the encoding and the calibrations of the format's description, in plain Python and NumPy."""

from __future__ import annotations

import random
from datetime import datetime
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rookery.models import conv4, mlp

# names with blanks, dots, letters of other scripts, and those that nodes of exported graphs have
ENCODER: dict[str, Any] = {"version": 1, "columns": [
    {"name": "inputs", "kind": "number", "mean": 50.1, "scale": 12.3, "missing": True},
    {"name": "account no.", "kind": "number", "mean": 1_700_000_000.25, "scale": 1.0, "missing": False},
    {"name": "größe", "kind": "category", "categories": ["klein", "groß", "ÿ 大"], "other": True, "missing": True},
    {"name": "net.0.weight", "kind": "date", "mean": 19_000.5, "scale": 700.0, "missing": True, "format": "%d.%m.%Y %H:%M"},
    {"name": "outputs", "kind": "category", "categories": ["F", "M"], "other": False, "missing": False},
    {"name": "model/1", "kind": "category", "categories": ["only"], "other": False, "missing": True},
    {"name": "batch", "kind": "category", "categories": ["x", "y"], "other": True, "missing": False}]}
WIDTH = 2 + 1 + 5 + 2 + 2 + 2 + 3
CLASSES = {2: ["wohl", "krank"], 3: ["a", "b b", "ç"]}
CALIBRATORS: dict[str, dict[str, Any]] = {
    "none": {"method": "none"}, "platt": {"method": "platt", "slope": 1.7, "intercept": -0.3},
    "temperature": {"method": "temperature", "slope": 0.6},
    "isotonic": {"method": "isotonic", "knots": [-0.6, -0.1, 0.05, 0.4], "values": [0.05, 0.3, 0.3, 0.95]}}
CASES = [(method, 2) for method in CALIBRATORS] + [("none", 3), ("temperature", 3)]


def draw_rows(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Cells as values: floats, moments and texts, None where one is missing; texts that no category has among them."""
    r = random.Random(seed)

    def some(value: Any) -> Any:
        return None if r.random() < 0.2 else value

    return [{"inputs": some(round(r.gauss(50, 15), 3)), "account no.": some(1_700_000_000 + round(r.gauss(0, 2), 4)),
             "größe": some(r.choice(["klein", "groß", "ÿ 大", "grob", "KLEIN"])),
             "net.0.weight": some(datetime(r.randrange(2018, 2026), 2, 1 + r.randrange(28), r.randrange(24), r.randrange(60))),
             "outputs": some(r.choice(["F", "M", "divers"])), "model/1": some(r.choice(["only", "another"])),
             "batch": some(r.choice(["x", "y", "é"]))} for _ in range(number)]


def encoded(rows: list[dict[str, Any]], encoder: dict[str, Any] = ENCODER) -> torch.Tensor:
    """The net's inputs, from exact fractions."""
    out = []
    for row in rows:
        numbers: list[float] = []
        for column in encoder["columns"]:
            cell = row[column["name"]]
            if column["kind"] == "category":
                marks = [cell == known for known in column["categories"]]
                if column["other"]:
                    marks.append(cell is not None and cell not in column["categories"])
                numbers += [float(mark) for mark in [*marks, *([cell is None] if column["missing"] else [])]]
                continue
            value = days(cell) if isinstance(cell, datetime) else cell
            numbers.append(0.0 if value is None else float((Fraction(value) - Fraction(column["mean"])) / Fraction(column["scale"])))
            numbers += [float(value is None)] if column["missing"] else []
        out.append(numbers)
    return torch.from_numpy(np.array(out, dtype=np.float64).reshape(len(rows), -1).astype(np.float32))


def days(moment: datetime) -> Fraction:
    return moment.date().toordinal() - datetime(1970, 1, 1).toordinal() + Fraction(60 * moment.hour + moment.minute, 24 * 60)


def probabilities(outputs: torch.Tensor, calibrator: dict[str, Any]) -> NDArray[np.float64]:
    """From logits, a single one beside 0."""
    z = outputs.detach().numpy().astype(np.float64)
    z = z.reshape(len(z), -1)
    z = np.hstack([np.zeros_like(z), z]) if z.shape[1] == 1 else z
    margin = z[:, 1] - z[:, 0] if z.shape[1] == 2 else z[:, 0]
    if calibrator["method"] == "platt":
        second = 1 / (1 + np.exp(-(calibrator["slope"] * margin + calibrator["intercept"])))
    elif calibrator["method"] == "isotonic":
        second = np.interp(margin, calibrator["knots"], calibrator["values"])
    else:
        e = np.exp(z * (calibrator["slope"] if calibrator["method"] == "temperature" else 1))
        return e / e.sum(1, keepdims=True)
    return np.stack([1 - second, second], 1)


def decisions(found: NDArray[np.float64], classes: list[str], threshold: float | None) -> list[str | None]:
    """None where rounding could decide otherwise."""
    if threshold is not None:
        return [None if abs(p - threshold) < 1e-5 else classes[int(p > threshold)] for p in found[:, 1]]
    top = np.sort(found, 1)
    return [None if row[-1] - row[-2] < 1e-5 else classes[int(np.argmax(own))] for row, own in zip(top, found, strict=True)]


def assert_decided(came: list[str], expected: list[str | None]) -> None:
    assert len(came) == len(expected)
    assert all(e is None or c == e for c, e in zip(came, expected, strict=True))
    assert len({*expected} - {None}) > 1  # rows of which all are decided alike would show nothing


def table_net(outputs: int) -> nn.Module:
    torch.manual_seed(3)
    return mlp(WIDTH, 9, outputs).eval()


def picture_net(outputs: int = 3) -> nn.Module:
    """With batch norms whose statistics differ from those of a new net."""
    torch.manual_seed(4)
    net = conv4(outputs, 1, 16, 4)
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.3)  # type: ignore[union-attr]
                layer.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
                layer.weight.uniform_(0.5, 1.5)
    return net.eval()
