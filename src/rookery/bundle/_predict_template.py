"""The predictions of an exported model for new rows: python predict.py new.csv -o out.csv. It needs Python and PyTorch, nothing else.

From Python:   from predict import Predictor
               Predictor(folder).probabilities([{"age": "50", "sex": "F"}, …])     a table's rows, texts as in a file or numbers
               Predictor(folder).probabilities(pictures)                           pictures, a float tensor with a row for each

The folder has beside this file: model.json and model.safetensors, the net as a list of tensor operations and its numbers, none of which
is unpickled or run as code; encoder.json, how a table's columns become numbers; about.json, the classes, the calibration of their
probabilities, and the threshold above which a row is decided to be of the second of two classes.

One file, because it is copied beside a model and must run alone.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import operator
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MISSING = ("", "?", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "NaT")
DELIMITERS = ",;\t|"
AROUND = " \t\r\n'\"\ufeff"  # around a cell they are not part of it
ISO = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d)?")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
THOUSANDS = {mark: re.compile(rf"[+-]?\d{{1,3}}({re.escape(mark)}\d{{3}})+([{decimal}]\d+)?")
             for mark, decimal in ((",", "."), (".", ","), *((blank, ".,") for blank in " \u00a0\u202f'’"))}
LARGEST = torch.finfo(torch.float32).max
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
          "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
SIZES = {name: getattr(operator, name) for name in ("add", "sub", "mul", "floordiv", "getitem")}  # on numbers of rows and the like
PIECE = 256  # rows that go through the net at a time


class PredictError(Exception):
    """Rows or files that cannot be used; the message says what must hold and what came."""


class Predictor:
    """The model of a folder. After a call, `unreadable` counts by column the cells that were no numbers or dates and taken for missing."""

    def __init__(self, folder: str | Path = Path(__file__).parent) -> None:
        folder = Path(folder)
        self.about, self.encoder = (json.loads((folder / f"{name}.json").read_bytes()) for name in ("about", "encoder"))
        self.net = Net(json.loads((folder / "model.json").read_bytes()), read_tensors(folder / "model.safetensors"))
        self.classes: list[str] = self.about["classes"]
        self.unreadable: dict[str, int] = {}

    @property
    def columns(self) -> list[str]:
        """The names of a table's columns that the model looks at."""
        return [column["name"] for column in self.encoder["columns"]] if self.encoder else []

    def probabilities(self, rows: Sequence[Mapping[str, Any]] | Tensor) -> Tensor:
        """The probabilities of the classes in float64, (rows, classes)."""
        inputs = rows if not self.encoder else self.encode(list(rows))
        shape = tuple(self.about["shape"])
        if not isinstance(inputs, Tensor) or tuple(inputs.shape[1:]) != shape or not inputs.is_floating_point():
            came = f"{inputs.dtype} of shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else f"a {type(inputs).__name__}"
            raise PredictError(f"the pictures must be a float tensor of shape (n, {', '.join(map(str, shape))}), but {came} came")
        with torch.inference_mode():
            starts = range(0, len(inputs), PIECE)  # copies of pieces, as a net may write to its inputs
            pieces = [self.net(inputs[at : at + PIECE].to(torch.float32, copy=True)).double() for at in starts]
            outputs = torch.cat([torch.zeros(0, len(self.classes), dtype=torch.float64), *pieces])
            if len(broken := (~outputs.isfinite()).any(1).nonzero()):
                raise PredictError(f"the net's outputs must be finite, but those of row {int(broken[0]) + 1} are not; correct its values")
            return calibrated(outputs, self.about["calibrator"])

    def decisions(self, probabilities: Tensor) -> list[str]:
        """The class that each row is decided to be of."""
        threshold = self.about["threshold"]
        if threshold is not None:
            return [self.classes[int(row[1] > threshold)] for row in probabilities.tolist()]
        return [self.classes[row.index(max(row))] for row in probabilities.tolist()]

    def encode(self, rows: Sequence[Any]) -> Tensor:
        """A table's rows as the numbers that the net takes."""
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise PredictError(f"a table's rows must be dictionaries from columns to cells, but row {number} is a {type(row).__name__}")
            if lacking := [name for name in self.columns if name not in row]:
                raise PredictError(f"every row must have the column {lacking[0]!r}, but row {number} has {list(row)}")
        self.unreadable = {}
        parts = [self._category(column, rows) if column["kind"] == "category" else self._number(column, rows)
                 for column in self.encoder["columns"]]
        return torch.cat(parts, 1).float()

    def _own_missing(self, column: Mapping[str, Any]) -> set[str]:
        return {*self.encoder.get("missing_values", ()), *column.get("missing_values", ())}

    def _number(self, column: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Tensor:
        name, own = column["name"], self._own_missing(column)
        tokens = {float(token) for token in own if NUMBER.fullmatch(token)}
        decimal = column.get("decimal", self.encoder.get("decimal", "."))
        values = []
        for number, row in enumerate(rows, 1):
            cell = row[name]
            if isinstance(cell, (int, float)) and not isinstance(cell, bool) and column.get("symbol") != "%":
                value = float(cell) if math.isfinite(cell) and cell not in tokens else math.nan
            elif (text := as_text(cell)) in own or text in MISSING:
                value = math.nan
            else:
                value = days(text, column["format"]) if column["kind"] == "date" else as_number(text, decimal, column)
                if math.isnan(value):
                    self.unreadable[name] = self.unreadable.get(name, 0) + 1
            values.append((value - column["mean"]) / column["scale"])
            if abs(values[-1]) > LARGEST:
                raise PredictError(f"column {name!r} must be near what it was in training ({column['mean']:g} ± {column['scale']:g}), but "
                                   f"row {number} has {cell!r}; correct it")
        found = torch.tensor(values, dtype=torch.float64)[:, None]
        known = found.nan_to_num(0.0)
        return torch.cat([known, found.isnan().double()], 1) if column["missing"] else known

    def _category(self, column: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Tensor:
        place = {value: i for i, value in enumerate(column["categories"])}
        known = len(place)
        other = known if column["other"] else -1
        missing = known + column["other"] if column["missing"] else -1
        own, codes = self._own_missing(column), []
        lower = [value.lower() for value in place]
        alike = [value for value in place if value.lower() in ("true", "false") and lower.count(value.lower()) == 1]
        place |= {form: place[value] for value in alike for form in (value.lower(), value.upper(), value.capitalize())}
        for row in rows:
            text = as_text(row[column["name"]])
            # a known value may look like a missing one ("NA" is a country), unless the encoder itself says that it is missing
            codes.append(missing if text in own else place.get(text, missing if text in MISSING else other))
        every = torch.arange(known + column["other"] + column["missing"])
        return (torch.tensor(codes, dtype=torch.int64)[:, None] == every).double()


class Net:
    """A net from its list of operations; only PyTorch's own operations on tensors (ATen) and sums and products of sizes can stand in it."""

    def __init__(self, graph: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.graph, self.tensors = graph, tensors
        self.steps = [(step["name"], operation(step["operation"]), step["args"], step["kwargs"]) for step in graph["steps"]]
        self.last: list[set[str]] = []  # what no later step needs, after each step
        seen = {graph["output"], *tensors}
        for step in reversed(graph["steps"]):
            self.last.insert(0, {*_names([step["args"], step["kwargs"]]), step["name"]} - seen)
            seen |= self.last[0]

    def __call__(self, inputs: Tensor) -> Tensor:
        values: dict[str, Any] = {**self.tensors, self.graph["input"]: inputs}
        for (name, call, args, kwargs), gone in zip(self.steps, self.last, strict=True):
            values[name] = call(*_filled(args, values), **_filled(kwargs, values))
            for old in gone:
                del values[old]
        return values[self.graph["output"]]  # type: ignore[no-any-return]


def operation(name: str) -> Any:
    """The operation of a name such as aten.linear.default, or operator.mul."""
    kind, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    if kind == "operator" and rest in SIZES:
        return SIZES[rest]
    found = getattr(getattr(torch.ops.aten, packet, None), overload, None) if kind == "aten" and packet != "from_file" else None
    if found is None:
        raise PredictError(f"the operations of model.json must be those of PyTorch's tensors, but {name!r} is none of PyTorch "
                           f"{torch.__version__}; install a newer one, or export the model again")
    return found


def _names(tree: Any) -> list[str]:
    if isinstance(tree, Mapping):
        return [tree["value"]] if "value" in tree else [name for one in tree.values() for name in _names(one)]
    return [name for one in tree for name in _names(one)] if isinstance(tree, list) else []


def _filled(tree: Any, values: Mapping[str, Any]) -> Any:
    """Arguments with the values that they name."""
    if not isinstance(tree, Mapping):
        return [_filled(one, values) for one in tree] if isinstance(tree, list) else tree
    if "value" in tree:
        return values[tree["value"]]
    if "torch" in tree:  # a dtype, a layout or a memory format
        return getattr(torch, tree["torch"])
    return float(tree["float"]) if "float" in tree else {name: _filled(one, values) for name, one in tree.items()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file in the format of safetensors: the length of a JSON header, the header, the numbers."""
    content, found = bytearray(path.read_bytes()), {}
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            dtype, (begin, end) = DTYPES[entry["dtype"]], entry["data_offsets"]
            whole = torch.frombuffer(content[start + begin : start + end], dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
            found[name] = whole.reshape(entry["shape"])
    return found


def calibrated(outputs: Tensor, calibrator: Mapping[str, Any]) -> Tensor:
    """Probabilities from a net's outputs."""
    method = calibrator["method"]
    if method in ("none", "temperature"):
        return torch.softmax(outputs * (calibrator["slope"] if method == "temperature" else 1.0), 1)
    margin = outputs[:, 1] - outputs[:, 0]
    if method == "platt":
        score = calibrator["slope"] * margin + calibrator["intercept"]
        return torch.stack([torch.sigmoid(-score), torch.sigmoid(score)], 1)
    knots, values = (torch.tensor(calibrator[name], dtype=torch.float64) for name in ("knots", "values"))
    count = torch.searchsorted(knots, margin, right=True)
    left, right = (count - 1).clamp(min=0), count.clamp(max=len(knots) - 1)
    share = ((margin - knots[left]) / (knots[right] - knots[left]).where(right > left, 1.0)).clamp(0, 1)
    second = values[left] + share * (values[right] - values[left])
    return torch.stack([1 - second, second], 1)


def as_text(cell: Any) -> str:
    """A cell as a text: whole numbers without a point, no value as nothing."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, bool):
        return "True" if cell else "False"
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53 else cell).strip(AROUND)


def as_number(text: str, decimal: str, column: Mapping[str, Any]) -> float:
    """The number that a text writes, NaN where it writes none that is finite."""
    symbol = column.get("symbol", "")
    if symbol == "%" and not (text.startswith(symbol) or text.endswith(symbol)):
        return math.nan  # a share is another number than a percentage
    text = text.strip(symbol + " \u00a0\u202f")
    mark = column.get("thousands", "")
    if mark and mark in text:
        text = text.replace(mark, "") if THOUSANDS[mark].fullmatch(text) else ""
    if decimal != ".":
        text = "" if "." in text else text.replace(decimal, ".")
    value = float(text) if NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else math.nan


def days(text: str, form: str) -> float:
    """Days since the beginning of 1970, with the time of day as a fraction; NaN where a text follows neither the format nor ISO 8601."""
    if ISO.fullmatch(text) and not form.startswith("%Y-%d"):
        form = "%Y-%m-%dT%H:%M:%S" if "T" in text else "%Y-%m-%d"
    try:
        return (datetime.strptime(text, form).replace(tzinfo=None) - datetime(1970, 1, 1)) / timedelta(days=1)
    except ValueError:
        return math.nan


def read_table(path: Path, wanted: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV file with a header line; its delimiter is the one that finds most of the wanted columns."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        csv.field_size_limit(1 << 24)
        readings = []
        for mark in DELIMITERS:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
            names = [cell.strip(AROUND) for cell in next((row for row in reader if any(row)), [])]
            readings.append((len({*wanted} & {*names}), len(names), names, reader))
        _, _, names, reader = max(readings, key=lambda reading: reading[:2])
        for name in wanted:
            if names.count(name) != 1:
                came = "has it twice" if name in names else f"has {names}"
                raise PredictError(f"{path} must have the column {name!r}, but {came}")
        rows = [(reader.line_num, row) for row in reader if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise PredictError(f"{path} must be a CSV file in UTF-8, but {error}; save it anew as one") from None
    for line, row in rows:
        if len(row) != len(names):
            raise PredictError(f"every line of {path} must have {len(names)} values, but line {line} has {len(row)}")
    return [dict(zip(names, row, strict=True)) for _, row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 2 where something is wrong with what it was given."""
    parser = argparse.ArgumentParser(description="Predict the rows of a table with the model of this folder.")
    parser.add_argument("table", type=Path, help="a CSV file with a header line")
    parser.add_argument("-o", "--output", type=Path, help="the CSV file to write; without it the predictions are printed")
    given = parser.parse_args(arguments)
    try:
        predictor = Predictor()
        if not predictor.encoder:
            raise PredictError("this command line is for tables, and the model of this folder is for pictures; write in Python "
                               "Predictor(folder).probabilities(pictures), with a float tensor")
        key = predictor.about.get("id")
        rows = read_table(given.table, [*predictor.columns, *([key] if key and key not in predictor.columns else [])])
        probabilities = predictor.probabilities(rows)
        two = len(predictor.classes) == 2
        header = ["probability"] if two else [f"probability_{name}" for name in predictor.classes]
        lines = [[*([row[key]] if key else []), *(map(repr, one[1:] if two else one)), decision] for row, one, decision
                 in zip(rows, probabilities.tolist(), predictor.decisions(probabilities), strict=True)]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([[*([key] if key else []), *header, "decision"], *lines])
        (given.output.write_bytes if given.output else sys.stdout.buffer.write)(text.getvalue().encode())
    except (PredictError, OSError) as error:
        said = f"{error.filename} cannot be read or written: {error.strerror}" if isinstance(error, OSError) else error
        print(f"predict.py: {said}", file=sys.stderr)
        return 2
    if predictor.unreadable:
        each = ", ".join(f"{number} in {name!r}" for name, number in predictor.unreadable.items())
        total = sum(predictor.unreadable.values())
        print(f"predict.py: cells that are no numbers or dates were taken for missing: {each} ({total} in all)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
