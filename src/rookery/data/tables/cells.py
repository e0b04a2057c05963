"""What cells of text mean: missing values, numbers as people write them, dates."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .sheet import pandas

if TYPE_CHECKING:
    import pandas as pd

MISSING = ("", "?", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "NaT")
FORMATS = ("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y%m%d", "%d-%m-%Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y",
           "%d %b %Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%b-%Y", "%Y-%m")
TIMES = ("", " %H:%M:%S", "T%H:%M:%S", " %H:%M", "T%H:%M", " %H:%M:%S.%f", "T%H:%M:%S.%f", "T%H:%M:%SZ", " %H:%M:%S UTC")
SYMBOLS = "$€£%"
BLANKS = (" ", "\u00a0", "\u202f", "'", "’")  # between thousands in French, Swiss and other tables
_THOUSANDS = {mark: re.compile(rf"^[+-]?\d{{1,3}}({re.escape(mark)}\d{{3}})+([{decimal}]\d+)?$")
              for mark, decimal in ((",", "."), (".", ","), *((blank, ".,") for blank in BLANKS))}


class Writing(NamedTuple):
    """How numbers are written: the decimal mark, the mark between thousands, and a symbol such as $ or % that goes with every number."""

    decimal: str = "."
    thousands: str = ""
    symbol: str = ""


PLAIN = Writing()


def is_missing(cells: pd.Series[str], more: Collection[str] = (), tokens: Collection[str] = MISSING) -> NDArray[np.bool_]:
    """Where a cell stands for no value."""
    return np.asarray(cells.isin([*tokens, *more]), dtype=bool)


def parse_numbers(cells: pd.Series[str], writing: Writing = PLAIN) -> NDArray[np.float64]:
    """The cells as numbers; NaN where one is none, or none that is finite.

    >>> import pandas as pd
    >>> parse_numbers(pd.Series(["1.5", "x", "inf"])).tolist(), parse_numbers(pd.Series(["1.234,5"]), Writing(",", ".")).tolist()
    ([1.5, nan, nan], [1234.5])
    """
    if writing.symbol:  # a share is another number than a percentage
        with_it = cells.str.startswith(writing.symbol) | cells.str.endswith(writing.symbol)
        cells = cells.str.strip(writing.symbol + " \u00a0\u202f")
        cells = cells.where(with_it, "no number") if writing.symbol == "%" else cells
    if writing.thousands:  # a mark that stands elsewhere than between thousands makes no number: 62.5 is not 625
        marked = cells.str.contains(writing.thousands, regex=False)
        cells = cells.where(~marked | cells.str.match(_THOUSANDS[writing.thousands]), "no number")
        cells = cells.str.replace(writing.thousands, "", regex=False)
    if writing.decimal != ".":
        cells = cells.where(~cells.str.contains(".", regex=False), "no number").str.replace(writing.decimal, ".", regex=False)
    found = _floats(cells)
    return np.where(np.isfinite(found), found, np.nan)


def _floats(cells: pd.Series[str]) -> NDArray[np.float64]:
    """The cells as numbers, NaN where one is none: by Arrow where all of them are numbers or empty, else each different text once."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        texts = arrow.array(cells.where(cells != "").array)
        return np.array(texts.cast(arrow.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except (ImportError, ValueError, TypeError, NotImplementedError):  # Arrow's errors derive from these
        codes, different = pandas().factorize(cells)
        found = np.asarray(pandas().to_numeric(pandas().Series(different), errors="coerce"), dtype=np.float64)
        return np.asarray(found[codes])


def how_written(cells: pd.Series[str]) -> Writing:
    """How the numbers among some cells are written: the way in which most of them can be read, plain ones first."""
    sample = cells.iloc[:2000]
    with_symbol = {mark: float((sample.str.startswith(mark) | sample.str.endswith(mark)).mean()) for mark in SYMBOLS}
    symbol = max(with_symbol, key=lambda mark: with_symbol[mark]) if len(sample) else ""
    symbol = symbol if symbol and with_symbol[symbol] > 0.5 else ""
    bare = sample.str.strip(symbol + " \u00a0\u202f") if symbol else sample
    grouped = {mark: sum(pattern.match(cell) is not None for cell in bare) for mark, pattern in _THOUSANDS.items()}
    ways = [Writing(".", "", symbol), Writing(",", "", symbol)]
    # 1,234 may be either: grouped digits in every cell with a comma speak for thousands
    commas, points = (int(bare.str.contains(mark, regex=False).sum()) for mark in ",.")
    if grouped[","] and grouped[","] >= commas:
        ways.insert(1, Writing(".", ",", symbol))
    if grouped["."] and commas and grouped["."] >= points:
        ways.append(Writing(",", ".", symbol))
    ways += [Writing(decimal, blank, symbol) for blank in BLANKS if grouped[blank] for decimal in ".,"]
    read = [int(np.isfinite(parse_numbers(sample, way)).sum()) for way in ways]
    return ways[int(np.argmax(read))]


def in_words(writing: Writing) -> str:
    """How numbers are written, for people; nothing where they are plain.

    >>> in_words(Writing(",", ".", "€"))
    "decimal comma, thousands '.', with €"
    """
    said = ["decimal comma"] * (writing.decimal == ",") + [f"thousands {writing.thousands!r}"] * bool(writing.thousands)
    return ", ".join(said + [f"with {writing.symbol}"] * bool(writing.symbol))


def parse_dates(cells: pd.Series[str], form: str) -> NDArray[np.float64]:
    """The cells as days since the beginning of 1970, with the time of day as a fraction; NaN where one does not follow the format.

    >>> import pandas as pd
    >>> parse_dates(pd.Series(["02.01.1970", "no date"]), "%d.%m.%Y").tolist()
    [1.0, nan]
    >>> parse_dates(pd.Series(["9999-12-31", "0001-01-01"]), "%Y-%m-%d").tolist()  # as some write "still open"
    [2932896.0, -719162.0]
    """
    pd = pandas()
    found = pd.to_datetime(cells, format=form, errors="coerce")
    if getattr(found.dtype, "tz", None) is not None:
        found = found.dt.tz_localize(None)
    microseconds = found.to_numpy(dtype="datetime64[us]").astype(np.int64)  # nanoseconds would begin again in 2262
    return np.where(np.asarray(found.isna()), np.nan, microseconds / 86_400e6)


def days_of(cells: pd.Series[str], form: str) -> NDArray[np.float64]:
    """The same, with cells as ISO 8601 writes them too, as those of a file that has dates as dates: they cannot mean anything else.

    >>> import pandas as pd
    >>> days_of(pd.Series(["02.01.1970", "1970-01-02", "1970-01-02T12:00:00"]), "%d.%m.%Y").tolist()
    [1.0, 1.0, 1.5]
    """
    found = parse_dates(cells, form)
    if not form.startswith("%Y-%d"):
        for pattern, iso in ((r"\d{4}-\d\d-\d\d", "%Y-%m-%d"), (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "%Y-%m-%dT%H:%M:%S")):
            if (left := np.isnan(found) & np.asarray(cells.str.fullmatch(pattern), dtype=bool)).any():
                found[left] = parse_dates(cells[left], iso)
    return found


def date_format(cells: pd.Series[str], share: float) -> tuple[str, str | None] | None:
    """The format that at least a share of the cells follows, and another one that would do as well: whether the day comes first."""
    sample = cells.iloc[:2000]
    if not len(sample) or float((sample.str.count(r"\d") >= 4).mean()) < share or float(sample.str.len().max()) > 40:
        return None
    fitting = []
    for form in FORMATS:
        for time in TIMES:
            if len(first := sample.iloc[:20]) and np.isfinite(parse_dates(first, form + time)).mean() < min(share, 0.5):
                continue
            if np.isfinite(parse_dates(sample, form + time)).mean() >= share:
                fitting.append(form + time)
                break
    if not fitting:
        return None
    if len(sample) < len(cells) and len(fitting) > 1:
        fitting = [form for form in fitting if np.isfinite(parse_dates(cells, form)).mean() >= share] or fitting[:1]
    best = max(fitting, key=lambda form: np.isfinite(parse_dates(cells, form)).mean())
    swapped = {"%d/%m": "%m/%d", "%m/%d": "%d/%m"}
    other = next((form for form in fitting if form != best and form.startswith(swapped.get(best[:5], "never"))), None)
    return best, other


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
