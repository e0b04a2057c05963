"""A user's own table: CSV with texts, missing values, a label column and perhaps a site column; or NPZ."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import DataError
from ..folder import locate
from ..split import split
from .base import Table, arrays, numbers, pixels
from .encode import MISSING, Columns, Encoder, codes


def read_csv(path: str | Path, label: str | int, *, test: str | Path | None = None, test_share: float = 0.25, seed: int = 0,
             site: str | None = None, group: str | None = None, keep: Collection[str] = (), drop: Collection[str] = (),
             text: Collection[str] = (), header: bool | Sequence[str] = True, delimiter: str = ",",
             comment: str | None = None) -> tuple[Table, Table]:
    """The training and test rows of a CSV file with a header line.

    Numbers are standardised and texts one-hot encoded by what the training rows say (see `Encoder` for missing values). The columns
    `site`, `group` and those in `keep` become fields of that name whose numbers `Table.values` names; site and group are no inputs.
    Test rows come from the file `test`, else they are a stratified share; with `group` no group has rows in both parts.
    Without a header line (`header=False`) columns are called "0", "1", …, and a label of −1 is the last; `header` may list the names.
    Lines that begin with `comment` are skipped; a delimiter of " " stands for any number of spaces.
    """
    first = read_columns(locate(path), header, delimiter, comment)
    if isinstance(label, int) and not -len(first) <= label < len(first):
        raise DataError(f"{Path(path).name} has {len(first)} columns, so the label cannot be column {label}; write -1 for the last one")
    name = label if isinstance(label, str) else list(first)[label]
    if test is not None:
        second = read_columns(locate(test), header, delimiter, comment)
    else:
        for wanted in (name, *([] if group is None else [group])):
            _demand(first, wanted, Path(path).name)
        parts = split(first[name], test_share, seed=seed, groups=None if group is None else first[group])
        first, second = ({column: [values[row] for row in rows] for column, values in first.items()} for rows in (parts.train, parts.test))
    return tables(Path(path).stem, first, second, name, site=site, group=group, keep=keep, drop=drop, text=text)


def read_columns(path: Path, header: bool | Sequence[str] = True, delimiter: str = ",", comment: str | None = None) -> Columns:
    """The columns of a CSV file as texts without the spaces and quotes around them."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = [(line, [cell.strip().strip("'\"").strip() for cell in row]) for line, row in _rows(stream, delimiter, comment) if row]
    except (UnicodeDecodeError, csv.Error, IsADirectoryError) as error:
        raise DataError(f"{path} must be a CSV file in UTF-8, but {error}; save it anew as one") from None
    names = rows.pop(0)[1] if header is True and rows else []
    if not rows:
        raise DataError(f"{path} must have rows of data, and has none")
    names = list(header) if not isinstance(header, bool) else names if header else [str(i) for i in range(len(rows[0][1]))]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise DataError(f"the columns of {path.name} must have different names, but {twice[0]!r} stands twice; rename one")
    for number, row in rows:
        if len(row) != len(names):
            raise DataError(f"every line of {path.name} must have {len(names)} values, but line {number} has {len(row)}")
    return {name: list(values) for name, values in zip(names, zip(*(row for _, row in rows), strict=True), strict=True)}


def _rows(stream: Any, delimiter: str, comment: str | None) -> Iterator[tuple[int, list[str]]]:
    lines = ("\n" if comment and line.startswith(comment) else line for line in stream)
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    for row in reader:
        yield reader.line_num, ([cell for cell in row if cell] if delimiter == " " else row if any(row) else [])


def tables(name: str, train: Columns, test: Columns, label: str, *, site: str | None = None, group: str | None = None,
           keep: Collection[str] = (), drop: Collection[str] = (), text: Collection[str] = ()) -> tuple[Table, Table]:
    """Two sets of columns as tables, encoded alike."""
    special = {"site": site, "group": group}
    for wanted in (label, *(column for column in special.values() if column is not None), *keep, *drop, *text):
        _demand(train, wanted, name)
    if list(test) != list(train):
        raise DataError(f"the test columns of {name} must be those of the training rows, {list(train)}, but are {list(test)}")
    clash = {"inputs", "labels", "site", "group", "index", "key", "inner", "fields"} & set(keep)
    if clash:
        raise DataError(f"the column {sorted(clash)[0]!r} cannot be kept under its name, which tables use themselves; rename it")
    outside = {label, *drop, *(column for column in special.values() if column is not None)}
    inputs = [column for column in train if column not in outside]
    encoder = Encoder.fit({column: train[column] for column in inputs}, text)
    fields: list[dict[str, Tensor]] = [{"inputs": torch.from_numpy(encoder(part))} for part in (train, test)]
    names = {"inputs": encoder.names}
    known = {"labels": label, **{field: column for field, column in special.items() if column is not None}, **{c: c for c in keep}}
    for field, column in known.items():
        for part in (train, test):
            empty = [row for row, value in enumerate(part[column]) if value in MISSING]
            if empty and field not in keep:
                raise DataError(f"every row of {name} needs a value in the {field.removesuffix('s')} column {column!r}, but row {empty[0]} "
                                "has none; drop these rows or fill them in")
        names[field], found = codes(train[column], test[column])
        for own, places in zip(fields, found, strict=True):
            own[field] = numbers(places)
    classes = names.pop("labels")
    return Table(fields[0], classes, name, names), Table(fields[1], classes, name, names)


def _demand(columns: Columns, wanted: str, where: str) -> None:
    if wanted not in columns:
        near = difflib.get_close_matches(wanted, columns, 1)
        raise DataError(f"{where} has no column {wanted!r}; {f'did you mean {near[0]!r}?' if near else f'it has {list(columns)}'}")


def read_npz(path: str | Path, label: str = "labels", inputs: str = "inputs", *, test: str | Path | None = None,
             test_share: float = 0.25, seed: int = 0, site: str | None = None, group: str | None = None) -> tuple[Table, Table]:
    """The training and test rows of an NPZ file: arrays with one entry a row, among them the inputs and the labels.

    Inputs of bytes are pixels, of shape (n, h, w) or (n, h, w, c); other inputs become float32 as they are. All other arrays of
    whole numbers or texts become fields too. Test rows come from the file `test` or are split off, as by `read_csv`.
    """
    first = _arrays(locate(path), label, inputs)
    for wanted in (site, group):
        if wanted is not None and wanted not in first:
            raise DataError(f"{Path(path).name} has no array {wanted!r}; it has {sorted(first)}")
    if test is not None:
        second = _arrays(locate(test), label, inputs)
        if set(second) != set(first):
            raise DataError(f"the test file must have the arrays of the training file, {sorted(first)}, but has {sorted(second)}")
    else:
        parts = split(first[label], test_share, seed=seed, groups=None if group is None else first[group])
        first, second = ({name: array[rows] for name, array in first.items()} for rows in (parts.train, parts.test))
    fields = [{"inputs": _inputs(part[inputs])} for part in (first, second)]
    names: dict[str, tuple[str, ...]] = {}
    called = {label: "labels", site: "site", group: "group"}
    for name in first:
        if name != inputs and first[name].ndim == 1:
            field = called.get(name, name)
            names[field], found = codes(first[name].astype(str).tolist(), second[name].astype(str).tolist())
            for own, places in zip(fields, found, strict=True):
                own[field] = numbers(places)
    classes = names.pop("labels")
    return Table(fields[0], classes, Path(path).stem, names), Table(fields[1], classes, Path(path).stem, names)


def _arrays(path: Path, label: str, inputs: str) -> dict[str, NDArray[Any]]:
    found = arrays(path)
    for wanted in (inputs, label):
        if wanted not in found:
            raise DataError(f"{path.name} has no array {wanted!r}; it has {sorted(found)}: say which it is with inputs= or label=")
    for name, array in found.items():
        if array.ndim == 0 or len(array) != len(found[label]) or len(array) == 0:
            raise DataError(f"every array of {path.name} must have one entry a row, at least one: {label!r} has shape "
                            f"{found[label].shape}, {name!r} has {array.shape}")
    if found[label].ndim != 1 or (found[label].dtype.kind == "f" and (found[label] != np.floor(found[label])).any()):
        raise DataError(f"labels must be whole numbers or texts, one a row, but {label!r} of {path.name} is not; round or bin it first")
    return found


def _inputs(array: NDArray[Any]) -> Tensor:
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return pixels(array[:, None] if array.ndim == 3 else array.transpose(0, 3, 1, 2))
    if array.dtype.kind not in "fiub":
        raise DataError(f"inputs must be numbers, but are {array.dtype}; a table with texts is better kept as CSV")
    return torch.from_numpy(array.astype(np.float32))
