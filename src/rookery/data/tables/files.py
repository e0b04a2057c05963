"""Files of tables: CSV of any dialect and Parquet, one file or one for each site.

pandas does the reading. It has the dialects that publishers and spreadsheets write (blanks after delimiters, any encoding, quotes over
several lines), says on which line a file is broken, and is what users have their rows in; its text columns lie in Arrow's memory, so that
a million rows cost what they weigh.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, DataError
from .cells import is_number
from .sheet import ANY, QUOTES, Dialect, Sheet, from_frame, pandas

DELIMITERS = ",;\t|"
HEAD = 1 << 16


def read_sheet(path: Path, dialect: Dialect = ANY) -> Sheet:
    """The rows of one file: Parquet, or CSV of a dialect that is given or found out."""
    if path.is_dir():
        raise DataError(f"{path} must be a table, a CSV or Parquet file, but is a folder; name the file")
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if head.startswith(b"PAR1"):
        return from_frame(_parquet(path), path.name)
    if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise DataError(f"{path.name} must be a CSV or Parquet file, but is an Excel workbook or an archive, whatever its name says; open "
                        "it and save the sheet as CSV")
    if head.lstrip(b"\xef\xbb\xbf \r\n\t")[:100].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise DataError(f"{path.name} must be a CSV or Parquet file, but is a web page (HTML or XML), perhaps one that asks to log in; "
                        "download the table itself")
    if not head:
        raise DataError(f"{path.name} must have rows of data, and has none: it is empty, with no bytes in it")
    sheet = _csv(path, dialect.encoding or _encoding(path, head), dialect)
    if path.suffix.lower() in (".parquet", ".pq"):
        sheet = replace(sheet, notes=(*sheet.notes, f"{path.name} is no Parquet file, whatever its name says, and is read as CSV"))
    return sheet


def read_sheets(paths: Sequence[Path], dialect: Dialect = ANY, site: str = "site") -> Sheet:
    """Files of one site each, under one another by the names of their columns; the column `site` has each row's file, by its name."""
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
                raise DataError(f"every site's file must have the same columns, but {other.file} has no {lacking[0]!r}, which {one.file} "
                                f"has; {other.file} has {other.names}: rename it there, add it empty, or drop it from all")
    frames = [sheet.frame[first.names] for sheet in sheets]
    notes = [f"{sheet.file} has {sheet.dialect.delimiter!r} between values, and {first.file} {first.dialect.delimiter!r}: each file is "
             "read by its own delimiter" for sheet in sheets[1:] if sheet.dialect.delimiter != first.dialect.delimiter]
    notes += [note for sheet in sheets for note in sheet.notes]
    for name in first.names:  # numbers in one file and texts in another: texts
        if len({frame[name].dtype.kind in "iuf" for frame in frames}) > 1:
            frames = [frame.assign(**{name: sheet.texts(name)}) for frame, sheet in zip(frames, sheets, strict=True)]
    frame = pandas().concat(frames, ignore_index=True)
    origin = np.repeat(np.arange(len(sheets)), [len(sheet) for sheet in sheets])
    if site not in frame.columns:
        frame[site] = np.asarray(stems, dtype=object)[origin]
    return Sheet(frame, " and ".join(sheet.file for sheet in sheets) if len(sheets) < 4 else f"{len(sheets)} files",
                 tuple(sheet.file for sheet in sheets), origin, np.concatenate([sheet.rows for sheet in sheets]),
                 tuple(sheet.lines[0] for sheet in sheets), first.dialect, tuple(notes))


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
        raise DataError(f"{path.name} must be text, CSV, but has zero bytes (NUL) in it, so that it is damaged or no text; save it as CSV "
                        "in UTF-8")
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
    names = [cell.strip(QUOTES) for cell in first[0]] if header is True else [*header] if header else [str(i) for i in range(len(first[0]))]
    if len(first) == 1 and header is True:
        raise DataError(f"{path.name} must have rows of data, and has none below its header line")
    _check_names(path, names, first, header is True, delimiter, dialect.delimiter is not None)
    frame, trimmed = _frame(path, encoding, found, names, header is True)
    notes = [f"blanks around the names of columns of {path.name} were taken off, such as those of {padded[0]!r}"] if padded else []
    where = ", ".join(f"{name!r} ({count} cells)" for name, count in list(trimmed.items())[:5])
    notes += [f"blanks or quotes around cells were taken off in {where}"] if trimmed else []
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
            frame = pd.read_csv(source, sep=r"\s+" if dialect.delimiter == " " else dialect.delimiter, names=names,
                                header=0 if header else None, index_col=False, dtype=str, keep_default_na=False, na_filter=False,
                                skipinitialspace=True, encoding=encoding, skip_blank_lines=True)
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
    if len(names) > 1:
        blank = np.logical_and.reduce([(frame[name] == "").to_numpy() for name in names])
        frame = frame[~blank].reset_index(drop=True) if blank.any() else frame
    return frame, trimmed


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


def _check_names(path: Path, names: list[str], rows: Sequence[Sequence[str]], header: bool, delimiter: str, given: bool) -> None:
    if given and header and len(names) == 1 and (other := next((mark for mark in ";\t|," if mark in names[0]), None)):
        raise DataError(f"the values of {path.name} must be separated by {delimiter!r}, but its first line has none and is full of "
                        f"{other!r}; leave the delimiter out, or write {other!r}")
    numbers = [len(row) for row in rows[1:]]
    usual = max(set(numbers), key=numbers.count, default=len(names))
    if header and len(names) < usual and len(names) <= 2 and numbers.count(usual) > len(numbers) / 2:
        raise DataError(f"the first line of {path.name} must name its {usual} columns, but has {len(names)} value(s), {names[0]!r}; delete "
                        "the lines above the header")
    for place, name in enumerate(names):
        if not name:
            names[place] = f"Unnamed: {place}"  # as pandas calls it, which wrote it in most cases
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise DataError(f"the columns of {path.name} must have different names, but {twice[0]!r} stands twice; rename one")
