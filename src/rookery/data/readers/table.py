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
from .encode import MISSING, Encoder, Sheet, codes, whole


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
    first = read_sheet(locate(path), header, delimiter, comment)
    if isinstance(label, int) and not -len(first.columns) <= label < len(first.columns):
        raise DataError(f"{first.file} has {len(first.columns)} columns, so the label cannot be column {label}; write -1 for the last one")
    name = label if isinstance(label, str) else list(first.columns)[label]
    if test is not None:
        second = read_sheet(locate(test), header, delimiter, comment)
    else:
        for field, wanted in (("label", name), *([] if group is None else [("group", group)])):
            demand_column(first, wanted)
            demand_values(first, wanted, field)
        owners = None if group is None else first.columns[group]
        parts = split(whole(first.columns[name]), test_share, seed=seed, groups=owners)
        first, second = first.take(parts.train), first.take(parts.test)
    return tables(Path(path).stem, first, second, name, site=site, group=group, keep=keep, drop=drop, text=text)


def read_sheet(path: Path, header: bool | Sequence[str] = True, delimiter: str = ",", comment: str | None = None) -> Sheet:
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
    if header is True and len(names) == 1 and (other := next((mark for mark in ";\t|" if mark in names[0]), None)):
        raise DataError(f"the values of {path.name} must be separated by {delimiter!r}, but its first line has none and is full of "
                        f"{other!r}; save it with commas, or read it with delimiter={other!r}")
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(f"every line of {path.name} must have {len(names)} values, but line {line} has {len(row)}")
    columns = {name: list(values) for name, values in zip(names, zip(*(row for _, row in rows), strict=True), strict=True)}
    return Sheet(columns, path.name, [line for line, _ in rows])


def _rows(stream: Any, delimiter: str, comment: str | None) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line on which each begins: a text in quotes may go over several lines."""
    lines = ("\n" if comment and line.startswith(comment) else line for line in stream)
    reader, before = csv.reader(lines, delimiter=delimiter, skipinitialspace=True), 0
    for row in reader:
        yield before + 1, ([cell for cell in row if cell] if delimiter == " " else row if any(row) else [])
        before = reader.line_num


def tables(name: str, train: Sheet, test: Sheet, label: str, *, site: str | None = None, group: str | None = None,
           keep: Collection[str] = (), drop: Collection[str] = (), text: Collection[str] = ()) -> tuple[Table, Table]:
    """Two sheets as tables, encoded alike."""
    special = {field: column for field, column in (("site", site), ("group", group)) if column is not None}
    for wanted in (label, *special.values(), *keep, *drop, *text):
        demand_column(train, wanted)
    if list(test.columns) != list(train.columns):
        raise DataError(f"the test columns of {test.file} must be those of the training rows, {list(train.columns)}, but are "
                        f"{list(test.columns)}")
    clash = {"inputs", "labels", "site", "group", "index", "key", "inner", "fields"} & set(keep)
    if clash:
        raise DataError(f"the column {sorted(clash)[0]!r} cannot be kept under its name, which tables use themselves; rename it")
    outside = {label, *drop, *special.values()}
    encoder = Encoder.fit(train, [column for column in train.columns if column not in outside], text)
    fields: list[dict[str, Tensor]] = [{"inputs": torch.from_numpy(encoder(part))} for part in (train, test)]
    names = {"inputs": encoder.names}
    for field, column in {"labels": label, **special, **{c: c for c in keep}}.items():
        if field not in keep:
            for part in (train, test):
                demand_values(part, column, field.removesuffix("s"))
        values = [part.columns[column] for part in (train, test)]
        if field == "labels":
            both = whole(values[0] + values[1])
            values = [both[: len(values[0])], both[len(values[0]):]]
        names[field], found = codes(*values)
        for own, places in zip(fields, found, strict=True):
            own[field] = numbers(places)
    classes = names.pop("labels")
    return Table(fields[0], classes, name, names, encoder), Table(fields[1], classes, name, names, encoder)


def demand_column(sheet: Sheet, wanted: str) -> None:
    """Refuse a sheet that lacks a column."""
    if wanted not in sheet.columns:
        near = difflib.get_close_matches(wanted, sheet.columns, 1)
        known = f"did you mean {near[0]!r}?" if near else f"it has {list(sheet.columns)}"
        raise DataError(f"{sheet.file} has no column {wanted!r}; {known}")


def demand_values(sheet: Sheet, column: str, field: str) -> None:
    """Refuse a sheet with a missing value in a column that cannot miss any."""
    for line, value in zip(sheet.lines, sheet.columns[column], strict=True):
        if value in MISSING:
            what = f"has {value!r}, which stands for a missing one" if value else "has none"
            raise DataError(f"every row of {sheet.file} needs a value in the {field} column {column!r}, but line {line} {what}; "
                            "drop these rows or fill them in")


def read_npz(path: str | Path, label: str = "labels", inputs: str = "inputs", *, test: str | Path | None = None,
             test_share: float = 0.25, seed: int = 0, site: str | None = None, group: str | None = None) -> tuple[Table, Table]:
    """The training and test rows of an NPZ file: arrays with one entry a row, among them the inputs and the labels.

    Inputs of bytes are pixels, of shape (n, h, w) or (n, h, w, c); other inputs become float32 as they are. All other arrays of
    whole numbers or texts become fields too. Test rows come from the file `test` or are split off, as by `read_csv`.
    """
    first = labelled_arrays(locate(path), label, inputs)
    for wanted in (site, group):
        if wanted is not None and wanted not in first:
            raise DataError(f"{Path(path).name} has no array {wanted!r}; it has {sorted(first)}")
    if test is not None:
        second = labelled_arrays(locate(test), label, inputs)
        if set(second) != set(first):
            raise DataError(f"the test file must have the arrays of the training file, {sorted(first)}, but has {sorted(second)}")
    else:
        parts = split(first[label], test_share, seed=seed, groups=None if group is None else first[group])
        first, second = ({name: array[rows] for name, array in first.items()} for rows in (parts.train, parts.test))
    fields = [{"inputs": torch.from_numpy(part[inputs])} for part in (first, second)]
    names: dict[str, tuple[str, ...]] = {}
    called = {label: "labels", site: "site", group: "group"}
    for name in first:
        if name != inputs and first[name].ndim == 1:
            field = called.get(name, name)
            names[field], found = codes(*(texts(part[name]) for part in (first, second)))
            for own, places in zip(fields, found, strict=True):
                own[field] = numbers(places)
    classes = names.pop("labels")
    return Table(fields[0], classes, Path(path).stem, names), Table(fields[1], classes, Path(path).stem, names)


def labelled_arrays(path: Path, label: str, inputs: str) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file with an entry for each row, inputs as numbers of 32 bits."""
    found = arrays(path)
    for wanted in (inputs, label):
        if wanted not in found:
            raise DataError(f"{path.name} has no array {wanted!r}; it has {sorted(found)}: say which it is with inputs= or label=")
    for name, array in found.items():
        if array.ndim == 0 or len(array) != len(found[label]) or len(array) == 0:
            raise DataError(f"every array of {path.name} must have one entry a row, at least one: {label!r} has shape "
                            f"{found[label].shape}, {name!r} has {array.shape}")
    labels = found[label]
    if labels.ndim != 1:
        raise DataError(f"labels must be whole numbers or texts, one a row, but {label!r} of {path.name} has shape {labels.shape}")
    if labels.dtype.kind == "f" and len(odd := np.flatnonzero(~(np.isfinite(labels) & (labels == np.floor(labels))))):
        raise DataError(f"labels must be whole numbers or texts, one a row, but {label}[{odd[0]}] of {path.name} is {labels[odd[0]]}; "
                        "round or bin them, or drop these rows, first")
    found[inputs] = _inputs(found[inputs], f"{inputs}{{}} of {path.name}")
    return found


def texts(array: NDArray[Any]) -> list[str]:
    """The values by name; whole numbers are the same with and without a point."""
    floats = array.dtype.kind == "f" and bool((np.abs(array) < 2**53).all()) and bool((array == np.floor(array)).all())
    return [str(value) for value in (array.astype(np.int64) if floats else array).tolist()]


def _inputs(array: NDArray[Any], where: str) -> NDArray[np.float32]:
    if array.dtype == np.uint8 and array.ndim in (3, 4):
        return pixels(array[:, None] if array.ndim == 3 else array.transpose(0, 3, 1, 2)).numpy()
    if array.dtype.kind not in "fiub":
        raise DataError(f"inputs must be numbers, but are {array.dtype}; a table with texts is better kept as CSV")
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(found))
    if len(bad):
        raise DataError(f"inputs must be finite, as 32-bit numbers too, but {where.format(bad[0].tolist())} is {array[tuple(bad[0])]}; "
                        "drop these rows or fill them in")
    return found
