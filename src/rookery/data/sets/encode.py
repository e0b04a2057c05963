"""Columns of text as columns of numbers: one-hot and standardised, by what the training rows say."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError

Columns = dict[str, list[str]]
MISSING = frozenset({"", "?", "NA", "N/A", "nan", "NaN", "NAN", "null", "NULL"})
MANY = 1000  # more different texts than this are names, not categories


@dataclass(frozen=True)
class Encoder:
    """What was learned from the training rows: mean and deviation of each number, and the categories of each text.

    A missing number becomes the mean and, if training rows miss it too, sets a column of its own; a missing text is a category of
    its own, `?`. A category that training rows do not have sets no column.
    """

    numbers: Mapping[str, tuple[float, float, bool]]
    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def fit(cls, columns: Columns, text: Collection[str] = ()) -> Encoder:
        """Learns from the training rows; a column is of numbers if all its values are, unless it is in `text`."""
        numbers, categories = {}, {}
        for name, values in columns.items():
            known = [value for value in values if value not in MISSING]
            if not known:
                raise DataError(f"column {name!r} must have a value in some row, but all are missing; leave it out with drop=[{name!r}]")
            if name not in text and all(_number(value) is not None for value in known):
                array = _floats(name, known)
                numbers[name] = (float(array.mean()), float(array.std()) or 1.0, len(known) < len(values))
                continue
            found = sorted({"?" if value in MISSING else value for value in values})
            if len(found) > MANY:
                raise DataError(f"column {name!r} must be numbers or a few categories, but has {len(found)} different texts; "
                                f"leave it out with drop=[{name!r}]")
            categories[name] = tuple(found)
        return cls(numbers, categories)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the result: numbers first."""
        own = [[name, f"{name} missing"] if gaps else [name] for name, (_, _, gaps) in self.numbers.items()]
        own += [[f"{name}={category}" for category in found] for name, found in self.categories.items()]
        return tuple(name for part in own for name in part)

    def __call__(self, columns: Columns) -> NDArray[np.float32]:
        """The rows as numbers, one column for each of `names`."""
        parts: list[NDArray[np.float64]] = []
        for name, (mean, deviation, gaps) in self.numbers.items():
            missing = np.asarray([value in MISSING for value in columns[name]])
            array = _floats(name, [repr(mean) if value in MISSING else value for value in columns[name]])
            parts.append((array - mean) / deviation)
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


def _floats(name: str, values: Sequence[str]) -> NDArray[np.float64]:
    found = [_number(value) for value in values]
    for row, value in enumerate(found):
        if value is None or not math.isfinite(value):
            raise DataError(f"column {name!r} must hold finite numbers, as in the training rows, but has {values[row]!r}; "
                            f"correct it, or read the column as text with text=[{name!r}]")
    return np.asarray(found, dtype=np.float64)
