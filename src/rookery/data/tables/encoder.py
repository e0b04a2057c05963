"""Columns of texts and numbers as the inputs of a net: standardised and one-hot, by numbers that all sites agreed on.

The encoder is plain JSON: the same file encodes at every site, in a simulation, in a bundle, and in an export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from .cells import PLAIN, days_of, how_written, is_missing, is_number, parse_numbers
from .schema import ColumnSchema, Schema, demand_column
from .sheet import Sheet

if TYPE_CHECKING:
    import pandas as pd

LARGEST = float(np.finfo(np.float32).max)
FAR = 3.0  # deviations from the mean at which the median of new rows is strange
Say = Callable[[str], None]


@dataclass(frozen=True)
class Number:
    """A number or a date: (value − mean) / scale; a missing one is 0, and where training rows miss it too it sets a column of its own."""

    name: str
    mean: float
    scale: float
    missing: bool
    kind: str = "number"

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name} missing"] if self.missing else [self.name]


@dataclass(frozen=True)
class Category:
    """One of some values: a column for each; one for other values and one for a missing value, where training rows have any.

    A value that has no column of its own and none to share, because no training row had such a one, sets no column.
    """

    name: str
    categories: tuple[str, ...]
    other: bool
    missing: bool
    kind: str = "category"

    @property
    def names(self) -> list[str]:
        rest = [f"{self.name} other"] * self.other + [f"{self.name} missing"] * self.missing
        return [f"{self.name}={value}" for value in self.categories] + rest


@dataclass(frozen=True)
class Encoder:
    """How the input columns of a schema become numbers, column after column.

    >>> from rookery.data.tables.schema import ColumnSchema
    >>> from rookery.data.tables.sheet import from_frame
    >>> schema = Schema("y", ("0", "1"), {"age": ColumnSchema("number"), "sex": ColumnSchema("category")})
    >>> encoder = Encoder((Number("age", 50.0, 10.0, False), Category("sex", ("f", "m"), False, False)))
    >>> encoder(from_frame({"age": [60, 50], "sex": ["m", "x"]}), schema).tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """

    columns: tuple[Number | Category, ...]

    @classmethod
    def fit(cls, sheet: Sheet, schema: Schema, least: int = 1, say: Say | None = None) -> Encoder:
        """The encoder of rows that are in one place: what sites agree on from sums (see `rookery.studies.agreement`) is the same.

        least: how many rows a category needs for a column of its own, unless the schema declares the categories
        """
        numbers, texts = list[Number | Category](), list[Number | Category]()
        for name in schema.inputs:
            own = schema.columns[name]
            if own.kind == "category":
                cells = sheet.texts(name)
                gone = is_missing(cells, own.missing, schema.missing)
                counts = cells[~gone].value_counts()
                categories = own.categories or tuple(sorted(str(value) for value in counts.index[counts >= least]))
                other = bool((~counts.index.isin(categories)).any())
                texts.append(Category(name, categories, other, bool(gone.any())))
                continue
            values = values_of(sheet, name, schema, say)
            there = values[np.isfinite(values)]
            if not len(there):
                raise DataError(f"column {name!r} of {sheet.file} must have a value in some row, but all are missing; leave it out with "
                                f"drop=[{name!r}]")
            with np.errstate(over="ignore", invalid="ignore"):
                mean, scale = float(there.mean()), float(there.std()) or 1.0
            if not np.isfinite([mean, scale]).all():
                raise DataError(f"column {name!r} of {sheet.file} must hold numbers that can be standardised, but they go from "
                                f"{there.min():g} to {there.max():g}; correct it, or leave it out with drop=[{name!r}]")
            numbers.append(Number(name, mean, scale, len(there) < len(values), own.kind))
        return cls((*numbers, *texts))

    @property
    def names(self) -> tuple[str, ...]:
        """What the numbers of a row are, in their order: numbers and dates first, then categories."""
        return tuple(name for column in self.columns for name in column.names)

    def __call__(self, sheet: Sheet, schema: Schema, say: Say | None = None) -> NDArray[np.float32]:
        """The rows as numbers, one for each of `names`; `say` is told of cells that were taken for missing, and of values never seen."""
        if not self.columns:
            left = ", ".join(f"{name!r} ({column.kind})" for name, column in schema.columns.items())
            raise DataError("a table needs at least one column besides the label, the site and those that are left out; "
                            + (f"left out are {left}: say in a schema what they are" if left else "it has none"))
        out = np.zeros((len(sheet), len(self.names)), dtype=np.float32)
        place = 0
        for column in self.columns:
            demand_column(sheet, column.name)
            width = len(column.names)
            block, own = out[:, place : place + width], schema.columns[column.name]
            if isinstance(column, Number):
                _fill_number(block, column, sheet, schema, say)
            else:
                _fill_category(block, column, sheet, schema, own, say)
            place += width
        return out

    def to_json(self, schema: Schema) -> dict[str, Any]:
        """As plain values, with what a reader without the schema needs to read cells."""
        found = []
        for column in self.columns:
            own = schema.columns[column.name]
            entry = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(column).items()}
            entry |= {"format": own.format} if own.kind == "date" else {}
            entry |= {key: value for key, value in own.writing._asdict().items() if value != getattr(PLAIN, key)}
            entry |= {"missing_values": list(own.missing)} if own.missing else {}
            found.append(entry)
        return {"version": 1, "columns": found, "missing_values": list(schema.missing)}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Encoder:
        """The encoder that `to_json` wrote."""
        try:
            return cls(tuple(Category(c["name"], tuple(c["categories"]), c["other"], c["missing"]) if c["kind"] == "category" else
                             Number(c["name"], c["mean"], c["scale"], c["missing"], c["kind"]) for c in tree["columns"]))
        except (KeyError, TypeError) as error:
            raise DataError(f"an encoder's JSON has columns with name, kind and their numbers; {error} is missing or of another form: "
                            "write the bundle again") from None


def values_of(sheet: Sheet, name: str, schema: Schema, say: Say | None = None) -> NDArray[np.float64]:
    """A column of numbers or dates, NaN where there is none; unreadable cells are taken for missing, said, and refused above a share."""
    own = schema.columns[name]
    if sheet.is_numeric(name) and own.kind == "number" and own.symbol != "%":  # a share is another number than a percentage
        found = sheet.frame[name].to_numpy(dtype=np.float64)
        tokens = [float(token) for token in (*own.missing, *schema.missing) if is_number(token)]
        return np.where(np.isfinite(found) & ~np.isin(found, tokens), found, np.nan)
    cells = sheet.texts(name)
    gone = is_missing(cells, own.missing, schema.missing)
    found = days_of(cells, own.format) if own.kind == "date" else parse_numbers(cells, own.writing)
    found[gone] = np.nan
    odd = np.isnan(found) & ~gone
    if odd.any():
        said = odd_cells(sheet, name, own, odd, int((~gone).sum()))
        if odd.sum() > own.odd * (~gone).sum():
            first = cells.iloc[int(np.flatnonzero(odd)[0])]
            otherwise = 2 * odd.sum() > (~gone).sum()
            raise DataError(f"{said}, which is more than the share of {own.odd:g} that is taken for missing values; " + (
                "the file is written otherwise than the schema says: correct one of them" if otherwise else
                f"correct them, or write in [columns.{name}] of the schema kind = \"category\", missing = [\"{first}\"], or a larger odd"))
        if say is not None:
            say(f"{said}; taken for missing")
    return found


def odd_cells(sheet: Sheet, name: str, own: ColumnSchema, odd: NDArray[np.bool_], known: int) -> str:
    """A sentence about unreadable cells, with the first of them."""
    cells, at = sheet.texts(name), np.flatnonzero(odd)
    shown = ", ".join(f"{cells.iloc[int(row)][:40]!r} in {sheet.where(int(row))}" for row in at[:3])
    what = f"dates as {own.format}" if own.kind == "date" else "percentages with their %" if own.symbol == "%" else "finite numbers"
    other = PLAIN if own.kind == "date" else how_written(cells.iloc[at])
    commas = other.decimal != own.decimal and np.isfinite(parse_numbers(cells.iloc[at], other)).mean() > 0.5
    hint = f", with {other.decimal!r} before decimals where {own.decimal!r} is meant" if commas else ""
    return (f"column {name!r} of {sheet.file} must hold {what}, but {len(at)} of its {known} cells are none: {shown}"
            + (" …" if len(at) > 3 else "") + hint)


def _fill_number(block: NDArray[np.float32], column: Number, sheet: Sheet, schema: Schema, say: Say | None) -> None:
    values = values_of(sheet, column.name, schema, say)
    scaled = np.where(np.isnan(values), 0.0, (values - column.mean) / column.scale)
    far = np.flatnonzero(np.abs(scaled) > LARGEST)
    if len(far):
        raise DataError(f"column {column.name!r} of {sheet.file} must be near what it is in the training rows ({column.mean:g} ± "
                        f"{column.scale:g}), but {sheet.where(int(far[0]))} has {values[far[0]]:g}; correct it")
    block[:, 0] = scaled
    there = np.isfinite(values)
    if column.missing:
        block[:, 1] = ~there
    if say is None:
        return
    if not column.missing and not there.all():
        say(f"column {column.name!r} of {sheet.file} is missing in {int((~there).sum())} rows, and no training row missed it: taken for "
            f"the mean, {column.mean:.4g}")
    if there.sum() >= 10 and abs(float(np.median(scaled[there]))) > FAR:
        say(f"column {column.name!r} of {sheet.file} has a median of {np.median(values[there]):.4g}, and training rows had "
            f"{column.mean:.4g} ± {column.scale:.4g}: is it in other units?")


def _fill_category(block: NDArray[np.float32], column: Category, sheet: Sheet, schema: Schema, own: ColumnSchema, say: Say | None) -> None:
    cells = sheet.texts(column.name)
    gone = is_missing(cells, own.missing, schema.missing)
    codes = _codes(cells, column.categories)
    other = (codes < 0) & ~gone
    at = len(column.categories)
    codes = np.where(other, at if column.other else -1, codes)
    codes = np.where(gone, at + column.other if column.missing else -1, codes)
    rows = np.flatnonzero(codes >= 0)
    block[rows, codes[rows]] = 1
    if say is not None and not column.other and other.any():
        row = int(np.flatnonzero(other)[0])
        say(f"column {column.name!r} of {sheet.file} has values without a column of their own in {int(other.sum())} rows, such as "
            f"{cells.iloc[row]!r} in {sheet.where(row)}; they are taken for none of the known ones ({', '.join(column.categories[:8])}"
            + (" …)" if len(column.categories) > 8 else ")"))


def _codes(cells: pd.Series[str], categories: Sequence[str]) -> NDArray[np.int64]:
    """Each cell's place among the categories, or −1; True is TRUE and true, where only one of them is a category."""
    place = {value: i for i, value in enumerate(categories)}
    lower = [value.lower() for value in categories]
    for value, i in list(place.items()):
        if value.lower() in ("true", "false") and lower.count(value.lower()) == 1:
            place |= {value.lower(): i, value.upper(): i, value.capitalize(): i}
    found = cells.map(place)
    return np.asarray(found.fillna(-1), dtype=np.int64) if place else np.full(len(cells), -1, dtype=np.int64)
