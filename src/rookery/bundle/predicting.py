"""Predictions of a file of rows, written as CSV."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.folder import locate
from ..data.readers.base import arrays
from ..data.readers.images import picture_files, picture_inputs
from ..data.readers.npz import as_inputs
from ..data.readers.sites import name_of, training_sheet
from ..data.tables.encoder import Say
from ..data.tables.files import read_sheet
from ..data.tables.schema import Schema, demand_column
from ..data.tables.sheet import Dialect, Sheet
from ..errors import DataError
from ..training.files import aside
from .bundle import Bundle


@dataclass(frozen=True)
class Predicted:
    """How many rows were predicted, and what came out in a few words."""

    rows: int
    told: str


def predict_file(bundle: Bundle, rows: str, out: Path, keep: Sequence[str] = (), delimiter: str | None = None,
                 say: Say | None = None) -> Predicted:
    """Predict the rows of a file, and write what identifies each of them, its probability and the decision."""
    repeated, source = _read(bundle, rows, keep, delimiter)
    if say is not None:
        if isinstance(source, Sheet):
            _say_unused(bundle, source, say)
        if out.exists():
            say(f"{out} was there already, and is replaced")
    probabilities = bundle.predict_proba(source, say)
    decisions = bundle.decided(probabilities, source)
    two = len(bundle.classes) == 2
    columns: dict[str, Any] = {**repeated, **({"probability": probabilities[:, 1]} if two else
                               {f"probability of {name}": probabilities[:, i] for i, name in enumerate(bundle.classes)})}
    columns["decision"] = decisions
    out.parent.mkdir(parents=True, exist_ok=True)
    with aside(out) as beside, Path(beside).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(list(columns))
        writer.writerows(zip(*(_cells(values) for values in columns.values()), strict=True))
    counts = Counter(decisions.tolist())
    told = ", ".join(f"{counts.get(name, 0)} {name}" for name in bundle.classes)
    told += f"; mean probability of {bundle.classes[1]!r} {probabilities[:, 1].mean():.4g}" if two else ""
    return Predicted(len(decisions), told)


def _say_unused(bundle: Bundle, sheet: Sheet, say: Say) -> None:
    """Columns that are no part of the prediction."""
    assert bundle.schema is not None
    if bundle.schema.label in sheet.names:
        say(f"column {bundle.schema.label!r} of {sheet.file} is the label, and is not used")
    known = {*bundle.schema.columns, bundle.schema.label, bundle.schema.site, bundle.schema.group}
    new = [repr(name) for name in sheet.names if name not in known]
    if new:
        say(f"columns of {sheet.file} that training did not have are not used: {', '.join(new[:8])}{' …' if len(new) > 8 else ''}")


def _cells(values: Any) -> list[Any]:
    return [f"{value:.9g}" for value in values] if getattr(values, "dtype", np.dtype(object)).kind == "f" else list(values)


def _read(bundle: Bundle, rows: str, keep: Sequence[str], delimiter: str | None) -> tuple[dict[str, Any], Sheet | Tensor]:
    """What identifies each row, and the rows."""
    if bundle.schema is None or bundle.encoder is None:
        return _no_table(bundle, rows)
    named = name_of(rows)
    sheet = read_sheet(locate(rows), _dialect(bundle.schema, delimiter)) if named is None else training_sheet(named)
    for name in keep:
        demand_column(sheet, name)
    own = [name for name, column in bundle.schema.columns.items() if column.kind == "id"]
    wanted = [*own, *(c for c in (bundle.schema.group, bundle.schema.site) if c), *keep]
    shown = [name for name in dict.fromkeys(wanted) if name in sheet.names]
    clash = [name for name in shown if name in ("row", "probability", "decision")]
    if clash:
        raise DataError(f"{sheet.file} has a column {clash[0]!r}, as the predictions have; rename it")
    return {"row": np.arange(1, len(sheet) + 1), **{name: sheet.texts(name).tolist() for name in shown}}, sheet


def _dialect(schema: Schema, delimiter: str | None) -> Dialect:
    """New files may have another delimiter and encoding than those of training, but have a header if those had one."""
    return Dialect(delimiter, None, schema.header)


def _no_table(bundle: Bundle, rows: str) -> tuple[dict[str, Any], Tensor]:
    file = locate(rows)
    if file.is_dir():
        if len(bundle.shape) != 3 or bundle.shape[0] not in (1, 3):
            raise DataError(f"{file} is a folder of pictures, but the model was trained on rows of shape {bundle.shape}; give it an NPZ "
                            "file")
        paths = picture_files(file)
        return {"file": [str(path.relative_to(file)) for path in paths]}, picture_inputs(paths, bundle.shape)
    if file.suffix.lower() != ".npz":
        raise DataError(f"the model was trained on rows of shape {bundle.shape}, not on a table of columns; give it an NPZ file with an "
                        "array inputs, or a folder of pictures")
    found = arrays(file)
    if "inputs" not in found:
        raise DataError(f"{file.name} has no array 'inputs'; it has {sorted(found)}")
    inputs = torch.from_numpy(as_inputs(found["inputs"], "inputs{}"))
    return {"row": np.arange(1, len(inputs) + 1)}, inputs
