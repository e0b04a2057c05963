"""Columns of text as columns of numbers: one-hot and standardised, by what the training rows say."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError

Columns = dict[str, list[str]]


@dataclass(frozen=True)
class Sheet:
    """Columns of texts, with the file that they are from and the line on which each row begins there; a header line is line 1."""

    columns: Columns
    file: str
    lines: Sequence[int]

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Sheet:
        return Sheet({name: [values[row] for row in rows] for name, values in self.columns.items()}, self.file,
                     [self.lines[row] for row in rows])


MISSING = frozenset({"", "?", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL"})
MANY = 1000  # more different texts than this are names, not categories
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Encoder:
    """What was learned from the training rows: mean and deviation of each number, and the categories of each text.

    A missing number becomes the mean and, if training rows miss it too, sets a column of its own; a missing text is a category of
    its own, `?`. A category that training rows do not have sets no column.
    """

    numbers: Mapping[str, tuple[float, float, bool]]
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def fit(cls, sheet: Sheet, inputs: Collection[str], text: Collection[str] = ()) -> Encoder:
        """Learns from the training rows; a column is of numbers if all its values are, unless it is in `text`."""
        numbers, categories = {}, {}
        for name in inputs:
            values = sheet.columns[name]
            known = [value for value in values if value not in MISSING]
            if not known:
                raise DataError(f"column {name!r} of {sheet.file} must have a value in some row, but all are missing; leave it out with "
                                f"drop=[{name!r}]")
            if name not in text and all(_number(value) is not None for value in known):
                array = _floats(sheet, name)
                with np.errstate(over="ignore", invalid="ignore"):
                    mean, deviation = float(array.mean()), float(array.std()) or 1.0
                if not math.isfinite(mean) or not math.isfinite(deviation):
                    raise DataError(f"column {name!r} of {sheet.file} must hold numbers that can be standardised, but they go from "
                                    f"{array.min():g} to {array.max():g}; correct it, or leave it out with drop=[{name!r}]")
                numbers[name] = (mean, deviation, len(known) < len(values))
                continue
            found = sorted({"?" if value in MISSING else value for value in values})
            if len(found) > MANY:
                raise DataError(f"column {name!r} of {sheet.file} must be numbers or a few categories, but has {len(found)} different "
                                f"texts; leave it out with drop=[{name!r}]")
            categories[name] = tuple(found)
        return cls(numbers, categories)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the result: numbers first."""
        own = [[name, f"{name} missing"] if gaps else [name] for name, (_, _, gaps) in self.numbers.items()]
        own += [[f"{name}={category}" for category in found] for name, found in self.categories.items()]
        return tuple(name for part in own for name in part)

    def __call__(self, sheet: Sheet) -> NDArray[np.float32]:
        """The rows as numbers, one column for each of `names`."""
        columns, parts = sheet.columns, list[NDArray[np.float64]]()
        for name, (mean, deviation, gaps) in self.numbers.items():
            missing = np.asarray([value in MISSING for value in columns[name]])
            array = np.full(len(missing), mean)
            array[~missing] = _floats(sheet, name)
            parts.append((array - mean) / deviation)
            far = np.flatnonzero(np.abs(parts[-1]) > LARGEST)
            if len(far):
                raise DataError(f"column {name!r} of {sheet.file} must be near what it is in the training rows ({mean:g} ± {deviation:g}), "
                                f"but line {sheet.lines[far[0]]} has {columns[name][far[0]]!r}; correct it")
            parts += [missing.astype(float)] if gaps else []
        for name, found in self.categories.items():
            place = {category: i for i, category in enumerate(found)}
            hot = np.zeros((len(found), len(columns[name])))
            for row, value in enumerate(columns[name]):
                i = place.get("?" if value in MISSING else value)
                if i is not None:
                    hot[i, row] = 1
            parts += list(hot)
        if not parts:
            raise DataError("a table needs at least one column besides the label, the site and those dropped; it has none")
        return np.stack(parts, axis=1).astype(np.float32)


def codes(*parts: Sequence[str]) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """The different texts of all parts, sorted (as numbers if they are), and each part as places among them."""
    found = sorted({value for part in parts for value in part}, key=_order)
    place = {value: i for i, value in enumerate(found)}
    return tuple(found), [np.asarray([place[value] for value in part], dtype=np.int64) for part in parts]


def _order(value: str) -> tuple[float, str]:
    number = _number(value)
    return (math.inf if number is None else number, value)


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def whole(values: Sequence[str]) -> list[str]:
    """Labels as they are meant: where all are whole numbers, 1.0 is 1, as a column with gaps is written by some programs.

    >>> whole(["1.0", "0", "01"]), whole(["1.0", "x"]), whole(["1.0", "0.5"])
    (['1', '0', '01'], ['1.0', 'x'], ['1.0', '0.5'])
    """
    found = [_number(value) for value in values]
    if any(number is None or not number.is_integer() for number in found):
        return list(values)
    return [str(int(number)) if number is not None and not value.lstrip("+-").isdigit() else value
            for value, number in zip(values, found, strict=True)]


def _floats(sheet: Sheet, name: str) -> NDArray[np.float64]:
    """The numbers of a column that are there."""
    found = []
    for line, value in zip(sheet.lines, sheet.columns[name], strict=True):
        if value in MISSING:
            continue
        number = _number(value)
        if number is None or not math.isfinite(number):
            raise DataError(f"column {name!r} of {sheet.file} must hold finite numbers, as in the training rows, but line {line} has "
                            f"{value!r}; correct it, or read the column as text with text=[{name!r}]")
        found.append(number)
    return np.asarray(found, dtype=np.float64)
