"""Tables as they come: CSV of any dialect, Parquet, data frames, one file or one for each site, with the places of their cells in the files.

pandas does the reading. It has the dialects that publishers and spreadsheets write (blanks after delimiters, any encoding, quotes over
several lines), says on which line a file is broken, and is what users have their rows in; its text columns lie in Arrow's memory, so that
a million rows cost what they weigh.
"""

from __future__ import annotations

import csv
import importlib
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = ",;\t|"
QUOTES = " \t\r\n'\"\ufeff"  # around a cell they are not part of it
HEAD = 1 << 16


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
    dialect: Dialect = Dialect()
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
        return Sheet(self.frame.iloc[at].reset_index(drop=True), self.file, self.files, self.origin[at] if len(self.origin) else self.origin,
                     self.rows[at], self.lines, self.dialect, self.notes)

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


def read_sheet(path: Path, dialect: Dialect = Dialect()) -> Sheet:
    """The rows of one file: Parquet, or CSV of a dialect that is given or found out."""
    if path.is_dir():
        raise DataError(f"{path} must be a table, a CSV or Parquet file, but is a folder; name the file")
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if head.startswith(b"PAR1"):
        return from_frame(_parquet(path), path.name)
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise DataError(f"{path.name} must be a CSV or Parquet file, but is an Excel workbook or an archive, whatever its name says; open it "
                        "and save the sheet as CSV")
    if head.lstrip(b"\xef\xbb\xbf \r\n\t")[:100].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise DataError(f"{path.name} must be a CSV or Parquet file, but is a web page (HTML or XML), perhaps one that asks to log in; download the "
                        "table itself")
    if not head:
        raise DataError(f"{path.name} must have rows of data, and has none: it is empty, with no bytes in it")
    sheet = _csv(path, dialect.encoding or _encoding(path, head), dialect)
    if path.suffix.lower() in (".parquet", ".pq"):
        sheet = replace(sheet, notes=(*sheet.notes, f"{path.name} is no Parquet file, whatever its name says, and is read as CSV"))
    return sheet


def read_sheets(paths: Sequence[Path], dialect: Dialect = Dialect(), site: str = "site") -> Sheet:
    """Files of one site each, under one another by the names of their columns; the column `site` says whose a row is, by the file's name."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise DataError(f"every site has a file of its own, but {max(paths, key=paths.count).name} was given twice; name it once")
    sheets = [read_sheet(path, dialect) for path in paths]
    if len(sheets) == 1:
        return sheets[0]
    stems = [path.stem for path in paths]
    if len({*stems}) < len(stems):
        stems = [path.resolve().parent.name for path in paths]  # north/data.csv and south/data.csv
    if len({*stems}) < len(stems):
        raise DataError(f"files of sites are told apart by their names, but two are called {max(stems, key=stems.count)!r}; rename one")
    first = sheets[0]
    for sheet in sheets[1:]:
        for one, other in ((first, sheet), (sheet, first)):
            lacking = [name for name in one.names if name not in other.names]
            if lacking:
                raise DataError(f"every site's file must have the same columns, but {other.file} has no {lacking[0]!r}, which {one.file} has; "
                                f"{other.file} has {other.names}: rename it there, add it empty, or drop it from all")
    frames = [sheet.frame[first.names] for sheet in sheets]
    notes = [f"{sheet.file} has {sheet.dialect.delimiter!r} between values, and {first.file} {first.dialect.delimiter!r}: each file is read by its own "
             "delimiter" for sheet in sheets[1:] if sheet.dialect.delimiter != first.dialect.delimiter]
    for name in first.names:  # numbers in one file and texts in another: texts
        if len({frame[name].dtype.kind in "iuf" for frame in frames}) > 1:
            frames = [frame.assign(**{name: sheet.texts(name)}) for frame, sheet in zip(frames, sheets, strict=True)]
    frame = pandas().concat(frames, ignore_index=True)
    origin = np.repeat(np.arange(len(sheets)), [len(sheet) for sheet in sheets])
    if site not in frame.columns:
        frame[site] = np.asarray(stems, dtype=object)[origin]
    return Sheet(frame, " and ".join(sheet.file for sheet in sheets) if len(sheets) < 4 else f"{len(sheets)} files",
                 tuple(sheet.file for sheet in sheets), origin, np.concatenate([sheet.rows for sheet in sheets]),
                 tuple(sheet.lines[0] for sheet in sheets), first.dialect, tuple([*notes, *(note for sheet in sheets for note in sheet.notes)]))


def from_frame(frame: Any, name: str = "the table") -> Sheet:
    """The rows of a pandas or polars data frame, or of a mapping from names to columns."""
    pd = pandas()
    names = [str(column) for column in (frame.keys() if isinstance(frame, Mapping) else frame.columns)]
    if len({*names}) < len(names):
        raise DataError(f"the columns of {name} must have different names, but {max(names, key=names.count)!r} stands twice; rename one")
    columns = {column: _plain(pd.Series(np.asarray(frame[key]) if not isinstance(frame, pd.DataFrame) else frame[key].reset_index(drop=True)))
               for column, key in zip(names, frame.keys() if isinstance(frame, Mapping) else frame.columns, strict=True)}
    made = pd.DataFrame(columns)
    return Sheet(made, name, (name,), rows=np.arange(len(made)))


def _plain(column: Any) -> Any:
    """Numbers as numbers, everything else as texts."""
    pd = pandas()
    if pd.api.types.is_bool_dtype(column.dtype):
        return column.map({True: "true", False: "false"}).fillna("").astype("str")
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.astype(np.float64) if column.isna().any() or column.dtype.kind == "f" else column.astype(np.int64)
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        whole = column.dropna()
        form = "%Y-%m-%d" if bool((whole == whole.dt.normalize()).all()) else "%Y-%m-%dT%H:%M:%S"
        return column.dt.strftime(form).fillna("").astype("str")
    return column.map(lambda value: "" if value is None or value != value else str(value).strip(QUOTES)).astype("str")


def _parquet(path: Path) -> Any:
    try:
        return pandas().read_parquet(path)
    except ImportError:
        raise ConfigError("reading Parquet needs pyarrow, which is not installed: pip install 'rookery[cli]'") from None
    except Exception as error:  # Arrow has many of its own
        raise DataError(f"{path.name} must be a Parquet file, but {error}; write it again") from None


def _encoding(path: Path, head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\x00" in head:
        raise DataError(f"{path.name} must be text, CSV, but has zero bytes (NUL) in it, so that it is damaged or no text; save it as CSV in UTF-8")
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"  # what Windows programs write in western Europe
    return "utf-8-sig"


def _csv(path: Path, encoding: str, dialect: Dialect) -> Sheet:
    try:
        with path.open(encoding=encoding, newline="") as stream:
            text = stream.read(HEAD)
    except (UnicodeDecodeError, LookupError) as error:
        raise DataError(f"{path.name} must be text in {encoding}, but {error}; save it as CSV in UTF-8, or name its encoding") from None
    sample = [line for line in text.splitlines()[:200] if not (dialect.comment and line.startswith(dialect.comment))]
    delimiter = dialect.delimiter or _delimiter(sample)
    found = Dialect(delimiter, encoding, None, dialect.comment)
    first = [row for row in _reader(sample, delimiter) if any(row)][:100]
    if not first:
        raise DataError(f"{path.name} must have rows of data, and has none")
    header = _has_header(first) if dialect.header is None else dialect.header
    padded = [cell for cell in first[0] if cell != cell.strip()] if header is True else []
    names = [cell.strip(QUOTES) for cell in first[0]] if header is True else list(header) if header else [str(i) for i in range(len(first[0]))]
    if len(first) == 1 and header is True:
        raise DataError(f"{path.name} must have rows of data, and has none below its header line")
    _check_names(path, names, first, header is True, delimiter, dialect.delimiter is not None)
    frame, trimmed = _frame(path, encoding, found, names, header is True)
    notes = [f"blanks around the names of columns of {path.name} were taken off, such as those of {padded[0]!r}"] if padded else []
    notes += [f"blanks or quotes around cells were taken off in {', '.join(f'{n!r} ({count} cells)' for n, count in list(trimmed.items())[:5])}"] if trimmed else []
    rows = np.arange(len(frame))
    lines = lru_cache(maxsize=1)(lambda: _lines(path, found, header is True)[0])
    sheet = Sheet(frame, path.name, (path.name,), rows=rows, lines=(lines,), dialect=Dialect(delimiter, encoding, header, dialect.comment),
                  notes=tuple(notes))
    if len(frame) and bool((frame[names[-1]] == "").any()):  # perhaps a line with too few values, which pandas fills up
        starts, numbers = _lines(path, found, header is True)
        short = np.flatnonzero(numbers != len(names))
        if len(short):
            raise DataError(f"every line of {path.name} must have {len(names)} values, but line {starts[short[0]]} has {numbers[short[0]]}")
    return sheet


def _frame(path: Path, encoding: str, dialect: Dialect, names: list[str], header: bool) -> tuple[Any, dict[str, int]]:
    """The cells without what stands around them, and in how many cells of which columns something did."""
    pd = pandas()
    source: Any = path
    if dialect.comment:
        with path.open(encoding=encoding, newline="") as stream:
            source = io.StringIO("".join(line for line in stream if not line.startswith(dialect.comment)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # lines with a delimiter at their end
            frame = pd.read_csv(source, sep=r"\s+" if dialect.delimiter == " " else dialect.delimiter, names=names, header=0 if header else None,
                                index_col=False, dtype=str, keep_default_na=False, na_filter=False, skipinitialspace=True,
                                encoding=encoding, skip_blank_lines=True)
    except pd.errors.EmptyDataError:
        raise DataError(f"{path.name} must have rows of data, and has none") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError, csv.Error) as error:
        raise DataError(_broken(path, dialect, names, header, error)) from None
    trimmed = dict[str, int]()
    for name in names:
        bare = frame[name].str.strip(QUOTES)
        changed = int((bare != frame[name]).sum())
        if changed:
            trimmed[name], frame[name] = changed, bare
    blank = np.logical_and.reduce([(frame[name] == "").to_numpy() for name in names]) if len(names) > 1 else np.zeros(len(frame), dtype=bool)
    return (frame[~blank].reset_index(drop=True) if blank.any() else frame), trimmed


def _broken(path: Path, dialect: Dialect, names: list[str], header: bool, error: Exception) -> str:
    """What is wrong with a file that pandas refuses, with the line."""
    try:
        starts, numbers = _lines(path, dialect, header)
    except (csv.Error, UnicodeDecodeError):
        starts, numbers = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    wrong = np.flatnonzero(numbers != len(names))
    if found := re.search(r"EOF inside string starting at row (\d+)", str(error)):
        return f"{path.name} has a quote that is never closed, which begins in line {int(found[1]) + 1}; close it, or take it out"
    if len(wrong):
        return f"every line of {path.name} must have {len(names)} values, but line {starts[wrong[0]]} has {numbers[wrong[0]]}"
    return f"{path.name} must be a CSV file, but {error}; save it anew as one"


def _reader(lines: Any, delimiter: str) -> Any:
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return ([cell for cell in row if cell] for row in rows) if delimiter == " " else rows


def _lines(path: Path, dialect: Dialect, header: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The line on which each row begins, a text in quotes may go over several, and how many values it has."""
    csv.field_size_limit(1 << 24)
    starts, numbers, before = [], [], 0
    with path.open(encoding=dialect.encoding, newline="") as stream:
        lines = ("\n" if dialect.comment and line.startswith(dialect.comment) else line for line in stream)
        reader = csv.reader(lines, delimiter=dialect.delimiter or ",", skipinitialspace=True)
        for row in reader:
            own = [cell for cell in row if cell] if dialect.delimiter == " " else row
            if any(own):
                starts.append(before + 1)
                numbers.append(len(own))
            before = reader.line_num
    skip = 1 if header else 0
    return np.asarray(starts[skip:], dtype=np.int64), np.asarray(numbers[skip:], dtype=np.int64)


def _delimiter(sample: Sequence[str]) -> str:
    """What cuts most of the first lines into the same number of values, and into most of them."""
    best, score = ",", (0.0, 0)
    for mark in DELIMITERS:
        try:
            numbers = [len(row) for row in csv.reader(sample[:50], delimiter=mark, skipinitialspace=True) if row]
        except csv.Error:
            continue
        usual = max(set(numbers), key=numbers.count, default=1)
        if usual > 1 and (found := (numbers.count(usual) / len(numbers), usual)) > score:
            best, score = mark, found
    return best


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: no cell of it is a number where the rows below have numbers."""
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    for place, cell in enumerate(rows[0]):
        if is_number(cell.strip(QUOTES)):
            others = [row[place].strip(QUOTES) for row in below if row[place]]
            if not others or sum(map(is_number, others)) > len(others) / 2:
                return False
    return True


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_names(path: Path, names: list[str], rows: Sequence[Sequence[str]], header: bool, delimiter: str, given: bool) -> None:
    numbers = [len(row) for row in rows[1:]]
    usual = max(set(numbers), key=numbers.count, default=len(names))
    if header and len(names) < usual and len(names) <= 2 and numbers.count(usual) > len(numbers) / 2:
        raise DataError(f"the first line of {path.name} must name its {usual} columns, but has {len(names)} value(s), {names[0]!r}; delete "
                        "the lines above the header")
    if given and header and len(names) == 1 and (other := next((mark for mark in ";\t|," if mark in names[0]), None)):
        raise DataError(f"the values of {path.name} must be separated by {delimiter!r}, but its first line has none and is full of {other!r}; "
                        f"leave the delimiter out, or write {other!r}")
    for place, name in enumerate(names):
        if not name:
            names[place] = f"Unnamed: {place}"  # as pandas calls it, which wrote it in most cases
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise DataError(f"the columns of {path.name} must have different names, but {twice[0]!r} stands twice; rename one")
