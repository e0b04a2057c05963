"""What kind of column a column is, which class is the positive one, and whose the rows are, from the cells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from .cells import MISSING, Writing, date_format, how_written, in_words, is_missing, parse_dates, parse_numbers
from .encoder import odd_cells
from .schema import LARGEST_SHARE, ColumnSchema, demand_column
from .sheet import Sheet

if TYPE_CHECKING:
    import pandas as pd

MANY = 1000  # more different texts than this are names, not categories
ID = re.compile(r"(^|[^a-z])(id|ids|nr|key|uuid|guid|mrn|ssn|index|idx|rowid|rownum|recordnumber|patient|subject|person|record|case)"
                r"([^a-z]|$)|Id$|ID$|^Unnamed", re.IGNORECASE)
YES = ("1", "yes", "y", "true", "t", "positive", "pos", "+", "+1", "died", "dead", "death", "deceased", "event", "case", "cases", "disease",
       "diseased", "ill", "sick", "bad", "default", "defaulted", "chgoff", "charged off", "churn", "churned", "fraud", "malignant",
       "abnormal", "present", "readmitted", "failed", "failure", "relapse", "recurrence", "infected", "cancelled", "canceled", "spam",
       ">50k", "high")
NO = ("0", "no", "n", "false", "f", "negative", "neg", "-", "-1", "survived", "alive", "survivor", "none", "control", "controls", "healthy",
      "well", "good", "paid", "p i f", "retained", "benign", "normal", "absent", "ok", "success", "<=50k", "low")


class Found(NamedTuple):
    """A column's kind, how it is read, how many cells are missing, and what there is to say about it."""

    column: ColumnSchema
    missing: int
    detail: str
    warning: str = ""


@dataclass(frozen=True)
class Site:
    """A site's rows, those of the positive class where there are two, and the rows of every class."""

    name: str
    rows: int
    classes: dict[str, int]


def find_kind(sheet: Sheet, name: str, tokens: Sequence[str] = MISSING) -> Found:
    """The kind that a column seems to be of: what nearly all of its cells can be read as."""
    cells = sheet.texts(name)
    gone = is_missing(cells, (), tokens)
    known = cells[~gone].reset_index(drop=True)
    missing, rows = int(gone.sum()), len(cells)
    if not len(known):
        return Found(ColumnSchema("constant"), missing, "empty")
    different = int(known.nunique())
    if different == 1:
        return Found(ColumnSchema("constant"), missing, f"always {known.iloc[0][:40]!r}" + (" where it is there" if missing else ""))
    writing = how_written(known)
    numbers = parse_numbers(known, writing)
    readable = float(np.isfinite(numbers).mean())
    if readable >= 0.5 and not _coded(known):
        as_date = _date(sheet, gone, known, name, missing, only=("%Y%m%d",)) if re.search("date|datum|day", name, re.IGNORECASE) else None
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers near the largest
            return as_date or _number(sheet, name, gone, numbers, writing, different, rows, missing)
    as_date = _date(sheet, gone, known, name, missing)
    if as_date is not None:
        return as_date
    wordy = float(known.str.count(" ").mean()) >= 2
    if ID.search(name) and different > max(20, 0.3 * len(known)) and not wordy:
        return Found(ColumnSchema("id"), missing, f"{different} different values in {rows} rows", _repeats(name, different, len(known)))
    if wordy and different > 20:
        return Found(ColumnSchema("text"), missing, f"{different} different values, such as {known.iloc[0][:40]!r}")
    if different > 20 and (different == rows or (different > 0.9 * len(known) and (
            ID.search(name) or not bool(known.str.contains(" ", regex=False).mean() > 0.5)))):
        return Found(ColumnSchema("id"), missing, f"{different} different values in {rows} rows")
    if float(known.str.len().mean()) > 40 or different > MANY or (different > max(50, 0.2 * len(known)) and different > 100):
        kind = "id" if ID.search(name) else "text"
        return Found(ColumnSchema(kind), missing, f"{different} different values, such as {known.iloc[0][:40]!r}")
    often = known.value_counts()
    shown = ", ".join(f"{value[:20]} {count}" for value, count in often.iloc[:4].items())
    rare = int((often < 10).sum())
    return Found(ColumnSchema("category"), missing, f"{different} values: {shown}" + (" …" if different > 4 else "")
                 + (f"; {rare} with fewer than 10 rows" if rare else ""), spellings(name, often.index))


def _number(sheet: Sheet, name: str, gone: NDArray[np.bool_], numbers: NDArray[np.float64], writing: Writing, different: int,
            rows: int, missing: int) -> Found:
    finite = numbers[np.isfinite(numbers)]
    whole = bool((finite == np.floor(finite)).all())
    steps = whole and different == len(finite) == rows and float(finite.max() - finite.min()) == rows - 1  # in any order
    if whole and different > 20 and float(np.abs(finite).max()) >= 2**53:
        return Found(ColumnSchema("id"), missing, f"{different} different numbers of more than 15 digits, which are names")
    if whole and ID.search(name) and different > 20 and 0.3 * len(finite) < different <= 0.95 * len(finite):
        return Found(ColumnSchema("id"), missing, f"{different} different whole numbers in {rows} rows",
                     _repeats(name, different, len(finite)))
    if whole and different > 20 and (steps or (different > 0.95 * len(finite) and ID.search(name) is not None)):
        return Found(ColumnSchema("id"), missing, "counts the rows" if steps else f"{different} different whole numbers in {rows} rows")
    odd = np.zeros(rows, dtype=bool)
    odd[np.flatnonzero(~gone)[~np.isfinite(numbers)]] = True
    low, middle, high = finite.min(), np.median(finite), finite.max()
    detail = f"{low:g} to {high:g}, median {middle:g}"
    detail += f" ({in_words(writing)})" if in_words(writing) else ""
    column = ColumnSchema("number", "", *writing)
    if odd.any():
        warning = odd_cells(sheet, name, column, odd, int((~gone).sum()))
        share = odd.sum() / (~gone).sum()
        warning += "; taken for missing" if share <= LARGEST_SHARE else (
            f". These are {share:.0%}, too many to be taken for missing: training will refuse the column until they are corrected, or the "
            "schema says kind = \"category\", or lists them under missing")
    else:
        warning = _sentinels(name, finite)
    return Found(column, missing, detail, warning)


def _sentinels(name: str, values: NDArray[np.float64]) -> str:
    """Values such as −999 that stand far away from all others and come several times."""
    for code in (-9.0, -99.0, -999.0, -9999.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0):
        at = values == code
        rest = values[~at]
        if at.sum() < 2 or not len(rest) or at.mean() > 0.5:
            continue
        low, high = float(rest.min()), float(rest.max())
        gap = min(abs(code - low), abs(code - high))
        if not low <= code <= high and gap > 3 * float(rest.std() or 1) and np.abs(code) >= 9:
            return (f"column {name!r} has {code:g} in {int(at.sum())} rows, far from all other values ({low:g} to {high:g}): if that "
                    f"stands for a missing value, write missing = [\"{code:g}\"] in its section of the schema")
    return ""


def _coded(known: pd.Series[str]) -> bool:
    """Whether digits are names: they begin with 0 and have one length, as postcodes have."""
    lengths, zero = known.str.len(), known.str.match(r"^0\d")
    return bool(lengths.nunique() == 1 and zero.any() and int(lengths.iloc[0]) > 1)


def _repeats(name: str, different: int, known: int) -> str:
    """What to say of an id that comes several times."""
    if different > 0.95 * known:
        return ""
    return (f"column {name!r} looks like an id, and has {different} values in {known} rows: if its rows belong together, as those of a "
            f"patient, name it as the group (--group {name}), or they will be in both training and test")


def _date(sheet: Sheet, gone: NDArray[np.bool_], known: pd.Series[str], name: str, missing: int,
          only: tuple[str, ...] = ()) -> Found | None:
    form = date_format(known, 1 - LARGEST_SHARE)
    if form is None or (only and form[0] not in only):
        return None
    days = parse_dates(known, form[0])
    odd = np.zeros(len(gone), dtype=bool)
    odd[np.flatnonzero(~gone)[~np.isfinite(days)]] = True
    days = days[np.isfinite(days)]
    first, last = (str(np.datetime64("1970-01-01") + np.timedelta64(int(day), "D")) for day in (days.min(), days.max()))
    warning = "" if form[1] is None else (
        f"column {name!r} has dates that may have the day first or the month first; they are read as {form[0]!r}: write "
        f"format = {form[1]!r} in the schema if that is wrong")
    column = ColumnSchema("date", form[0])
    if odd.any():
        said = f"{odd_cells(sheet, name, column, odd, int((~gone).sum()))}, as {form[0]!r} writes them; taken for missing"
        warning = f"{said}. {warning}" if warning else said
    return Found(column, missing, f"{first} to {last}", warning)


def spellings(name: str, values: Sequence[str]) -> str:
    """Values that differ in case or blanks only."""
    by_lower = dict[str, list[str]]()
    for value in values:
        by_lower.setdefault(" ".join(unicodedata.normalize("NFKC", str(value)).lower().split()), []).append(str(value))
    twice = [" and ".join(map(repr, spelt[:3])) for spelt in by_lower.values() if len(spelt) > 1]
    if not twice:
        return ""
    return (f"column {name!r} has {'; '.join(twice[:3])}, which differ in case or blanks only and are taken for different values: write "
            "them alike if they are the same")


def demand_values(sheet: Sheet, column: str, field: str, tokens: Sequence[str] = MISSING) -> NDArray[Any]:
    """The texts of a column that cannot miss any."""
    demand_column(sheet, column)
    cells = sheet.texts(column)
    gone = is_missing(cells, (), tokens)
    if gone.any():
        row = int(np.flatnonzero(gone)[0])
        found = str(cells.iloc[row])
        what = f"has {found!r}, which stands for a missing one" if found else "has no value there"
        more = f", nor do {int(gone.sum()) - 1} more rows ({int(gone.sum())} rows in all)" if gone.sum() > 1 else ""
        raise DataError(f"every row of {sheet.file} needs a value in the {field} column {column!r}, but {sheet.where(row)} {what}{more}; "
                        "drop these rows or fill them in")
    return np.asarray(cells, dtype=object)


def find_classes(sheet: Sheet, label: str, tokens: Sequence[str] = MISSING) -> dict[str, int]:
    """The classes of the label column with their rows; missing and unlikely labels are refused."""
    demand_values(sheet, label, "label", tokens)
    cells = whole_texts(sheet, label)
    counts = cells.value_counts()
    if len(counts) < 2:
        raise DataError(f"there must be two classes at least; all rows of {sheet.file} have {counts.index[0]!r} in the label column "
                        f"{label!r}: name another column, or add rows of another class")
    if len(counts) > max(20, len(cells) / 5):
        raise DataError(f"a label is one of some classes, but {label!r} has {len(counts)} different values in {len(cells)} rows: bin them, "
                        "or name another column")
    spelt = spellings(label, counts.index)
    if spelt:
        raise DataError(f"classes must differ in more than case: {spelt}")
    return {str(name): int(counts[name]) for name in sorted(counts.index, key=order)}


def whole_texts(sheet: Sheet, name: str) -> pd.Series[str]:
    """Labels as they are meant: where all are whole numbers, 1.0 is 1, as a column with gaps is written by some programs."""
    cells = sheet.texts(name)
    different = [str(value) for value in cells.unique()]
    try:
        numbers = {text: float(text) for text in different}
    except ValueError:
        return cells
    if any(not number.is_integer() for number in numbers.values()):
        return cells
    plain = {text: text if text.lstrip("+-").isdigit() else str(int(number)) for text, number in numbers.items()}
    return cells if all(text == plain[text] for text in different) else cells.map(plain)


def find_sites(sheet: Sheet, site: str | None, labels: NDArray[Any], classes: dict[str, int], tokens: Sequence[str]) -> list[Site]:
    """The sites of a site column, sorted, with the rows that each of them has of every class."""
    if site is None:
        return []
    owners = demand_values(sheet, site, "site", tokens)
    names, place = np.unique(owners, return_inverse=True)
    codes = {name: i for i, name in enumerate(classes)}
    table = np.zeros((len(names), len(classes)), dtype=np.int64)
    np.add.at(table, (place, np.asarray([codes[label] for label in labels])), 1)
    return [Site(str(name), int(row.sum()), dict(zip(classes, row.tolist(), strict=True))) for name, row in zip(names, table, strict=True)]


def find_positive(classes: Mapping[str, int]) -> tuple[str, bool]:
    """The positive one of two classes, and whether that is a guess: by its name, or else the rarer one.

    >>> find_positive({"died": 10, "survived": 90}), find_positive({"A": 10, "B": 90})
    (('died', False), ('A', True))
    """
    first, second = classes
    for one, other in ((first, second), (second, first)):
        yes, no = one.lower() in YES, other.lower() in NO
        if (yes and no) or ((yes or no) and not (one.lstrip("+-").isdigit() and other.lstrip("+-").isdigit()) and not (
                other.lower() in YES or one.lower() in NO)):
            return one, False
    return (first if classes[first] <= classes[second] else second), True


def order(value: str) -> tuple[float, str]:
    """By which names are sorted: as numbers where they are some."""
    try:
        return (float(value), value)
    except ValueError:
        return (float("inf"), value)
