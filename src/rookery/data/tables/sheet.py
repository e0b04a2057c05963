"""Tables as they come: columns of texts and numbers, from files or data frames, with the places of their cells in the files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

QUOTES = " \t\r\n'\"\ufeff"  # around a cell they are not part of it


def pandas() -> Any:
    """pandas, or a sentence about how to install it."""
    try:
        return importlib.import_module("pandas")
    except ModuleNotFoundError:
        raise ConfigError("reading tables needs pandas, which is not installed: pip install 'rookery[cli]'") from None


@dataclass(frozen=True)
class Dialect:
    """How a text file is written; what is None is found out. `header` may list the names, or be False where there are none."""

    delimiter: str | None = None
    encoding: str | None = None
    header: bool | tuple[str, ...] | None = None
    comment: str | None = None


ANY = Dialect()


@dataclass(frozen=True, eq=False)
class Sheet:
    """Columns with texts without the blanks and quotes around them, or of numbers where the source had these; and where each row is from.

    >>> sheet = from_frame({"age": [40, 50], "sex": ["f", "m"]})
    >>> list(sheet.names), len(sheet), sheet.where(1)
    (['age', 'sex'], 2, 'row 2')
    """

    frame: pd.DataFrame
    file: str
    files: tuple[str, ...] = ()  # where there are several
    origin: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # each row's file, then
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # each row's number in its file, from 0
    lines: tuple[Callable[[], NDArray[np.int64]] | None, ...] = (None,)  # for each file, the line on which each of its rows begins
    dialect: Dialect = ANY
    notes: tuple[str, ...] = ()  # what was done in reading that its owner should know

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self.frame.columns]

    def __len__(self) -> int:
        return len(self.frame)

    def where(self, row: int) -> str:
        """The place of a row in its file: its line, or its number where there are no lines."""
        which = int(self.origin[row]) if len(self.files) > 1 else 0
        lines, number = self.lines[which], int(self.rows[row])
        place = f"row {number + 1}" if lines is None else f"line {lines()[number]}"
        return f"{place} of {self.files[which]}" if len(self.files) > 1 else place

    def take(self, rows: NDArray[Any] | Sequence[int]) -> Sheet:
        """Some rows, by number or by a mask."""
        at = np.asarray(rows)
        at = np.flatnonzero(at) if at.dtype == bool else at.astype(np.int64)
        origin = self.origin[at] if len(self.origin) else self.origin
        return replace(self, frame=self.frame.iloc[at].reset_index(drop=True), origin=origin, rows=self.rows[at])

    def is_numeric(self, name: str) -> bool:
        """Whether the source had numbers here rather than texts."""
        return self.frame[name].dtype.kind in "iuf"

    def texts(self, name: str) -> pd.Series[str]:
        """A column as texts: whole numbers without a point, a missing value as nothing."""
        column = self.frame[name]
        if column.dtype.kind in "iu":
            return column.astype(str)
        if column.dtype.kind == "f":
            values = column.to_numpy(dtype=np.float64)
            whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
            found = np.where(whole, np.where(whole, values, 0).astype(np.int64).astype(str), values.astype(str))
            return pandas().Series(np.where(np.isnan(values), "", found), dtype="str")
        return column

    def with_column(self, name: str, values: Any) -> Sheet:
        """The same rows with one more column, or another one of that name."""
        return replace(self, frame=self.frame.assign(**{name: values}))


def from_frame(frame: Any, name: str = "the table") -> Sheet:
    """The rows of a pandas or polars data frame, or of a mapping from names to columns."""
    pd = pandas()
    keys = frame.keys() if isinstance(frame, Mapping) else frame.columns
    names = [str(column) for column in keys]
    if len({*names}) < len(names):
        raise DataError(f"the columns of {name} must have different names, but {max(names, key=names.count)!r} stands twice; rename one")
    whole = isinstance(frame, pd.DataFrame)
    columns = {column: _plain(pd.Series(frame[key].reset_index(drop=True) if whole else np.asarray(frame[key])))
               for column, key in zip(names, keys, strict=True)}
    made = pd.DataFrame(columns)
    return Sheet(made, name, (name,), rows=np.arange(len(made)))


def _plain(column: Any) -> Any:
    """Numbers as numbers, everything else as texts."""
    pd = pandas()
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.map({True: "True", False: "False"}).fillna("").astype("str")  # as pandas writes them into a CSV file
    if pd.api.types.is_numeric_dtype(column.dtype):
        if str(column.dtype).lower() in ("float32", "float16"):  # the number that it was written as: 0.1, not 0.10000000149
            return pd.to_numeric(column.astype(str), errors="coerce").astype(np.float64)
        if column.dtype.kind == "u" and len(column) and int(column.max()) > np.iinfo(np.int64).max:
            return column.astype(str).astype("str")  # a name
        return column.astype(np.float64) if column.isna().any() or column.dtype.kind == "f" else column.astype(np.int64)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        whole = column.dropna()
        form = "%Y-%m-%d" if bool((whole == whole.dt.normalize()).all()) else "%Y-%m-%dT%H:%M:%S"
        return column.dt.strftime(form).fillna("").astype("str")
    return column.map(lambda value: "" if value is None or value != value else str(value).strip(QUOTES)).astype("str")
