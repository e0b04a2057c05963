"""A schema: what each column of a table is, what is predicted, and whose the rows are. It is found by `look`, and edited by its owner."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...errors import DataError
from .cells import MISSING, Writing
from .sheet import Dialect, Sheet

KINDS = {"number": "standardised", "category": "a column for each value", "date": "days since 1970, standardised", "id": "left out",
         "text": "left out", "constant": "left out", "drop": "left out"}
INPUTS = ("number", "category", "date")
LARGEST_SHARE = 0.05  # of unreadable cells in a column of numbers or dates


@dataclass(frozen=True)
class ColumnSchema:
    """One column: its kind, and how its cells are to be read.

    missing:    texts that stand for no value here, besides those of the table
    categories: declared values of a category; where there are none, those that a site has ten rows of
    odd:        the share of unreadable cells that is taken for missing values; more are refused
    """

    kind: str
    format: str = ""
    decimal: str = "."
    thousands: str = ""
    symbol: str = ""
    missing: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    odd: float = LARGEST_SHARE

    @property
    def writing(self) -> Writing:
        return Writing(self.decimal, self.thousands, self.symbol)


@dataclass(frozen=True)
class Schema:
    """What is in a table: the label and its classes, in their order, the columns of site and group, and the kind of every other column.

    positive: the classes that become label 1; the first of two classes is then the other one

    >>> schema = Schema("outcome", ("well", "ill"), {"age": ColumnSchema("number"), "name": ColumnSchema("id")}, positive=("ill",))
    >>> parse(schema.to_toml()) == schema == from_tree(schema.to_json()), schema.inputs
    (True, ['age'])
    """

    label: str
    classes: tuple[str, ...]
    columns: Mapping[str, ColumnSchema]
    positive: tuple[str, ...] = ()
    site: str | None = None
    group: str | None = None
    keep: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING
    delimiter: str | None = None
    encoding: str | None = None
    header: bool | tuple[str, ...] | None = None

    @property
    def inputs(self) -> list[str]:
        return [name for name, column in self.columns.items() if column.kind in INPUTS]

    @property
    def declared(self) -> dict[str, tuple[str, ...]]:
        """The values of kept columns, of those that declare them: a row's number is its value's place among these, wherever it is."""
        return {name: self.columns[name].categories for name in self.keep if name in self.columns and self.columns[name].categories}

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.delimiter, self.encoding, self.header)

    def to_toml(self, notes: Mapping[str, str] | None = None, head: str = "") -> str:
        """The schema as a file to be edited; `notes` are comments on columns, `head` one above all."""
        lines = [f"# {line}" for line in head.splitlines()]
        for name in ("label", "classes", "positive", "site", "group", "keep", "missing", "delimiter", "encoding", "header"):
            value = getattr(self, name)
            if value is not None and value != () and not (name == "missing" and value == MISSING):
                lines.append(f"{name} = {_toml(value)}")
        for name, column in self.columns.items():
            note = f"  # {notes[name]}" if notes and notes.get(name) else ""
            lines += ["", f"[columns.{_toml(name)}]", f"kind = {_toml(column.kind)}{note}"]
            lines += [f"{f.name} = {_toml(getattr(column, f.name))}" for f in fields(column)
                      if f.name != "kind" and getattr(column, f.name) != f.default]
        return "\n".join([*lines, ""])

    def to_json(self) -> dict[str, Any]:
        """The same as tables, which cross a network as JSON and which `from_tree` reads."""
        return tomllib.loads(self.to_toml())

    def fit(self, sheet: Sheet, labelled: bool = True) -> None:
        """Refuse a sheet that lacks a column of the schema."""
        wanted = [*self.inputs, *([self.label] if labelled else []), *(c for c in (self.site, self.group) if c and labelled)]
        for name in wanted:
            demand_column(sheet, name)


def demand_column(sheet: Sheet, wanted: str) -> None:
    """Refuse a sheet that lacks a column."""
    if wanted not in sheet.frame.columns:
        near = difflib.get_close_matches(wanted, sheet.names, 1)
        known = f"did you mean {near[0]!r}?" if near else f"it has {sheet.names}"
        nameless = "" if sheet.dialect.header is not False else (
            ": its first line holds values and no names of columns; write a header line above it, or name the columns as header")
        raise DataError(f"{sheet.file} has no column {wanted!r}; {known}{nameless}")


def read_schema(path: str | Path) -> Schema:
    """The schema in a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        where = "" if Path(path).is_absolute() else f", in {Path.cwd()}"
        raise DataError(f"there is no schema {str(path)!r} that can be read{where} ({error.strerror}); write one with rookery "
                        "look") from None
    return parse(text, Path(path).name)


def parse(text: str, file: str = "the schema") -> Schema:
    """The schema in a text of TOML."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{file} must be TOML, but {error}; mend it, or write it again with rookery look") from None
    return from_tree(tree, file)


def from_tree(tree: Mapping[str, Any], file: str = "the schema") -> Schema:
    """The schema in the tables of a TOML file, or in JSON of the same form."""
    _known(tree, [f.name for f in fields(Schema)], file)
    for needed in ("label", "columns"):
        if needed not in tree:
            raise DataError(f"{file} needs {needed!r}; it has {', '.join(tree) or 'nothing'}")
    _typed(tree, file)
    if not isinstance(tree["columns"], Mapping):
        raise DataError(f"the columns of {file} are sections [columns.NAME]; got {tree['columns']!r}")
    columns = {}
    for name, entries in tree["columns"].items():
        where = f"[columns.{name}] of {file}"
        if not isinstance(entries, Mapping):
            raise DataError(f"{where} needs kind = one of {', '.join(KINDS)}")
        _known(entries, [f.name for f in fields(ColumnSchema)], where)
        if "kind" not in entries:
            raise DataError(f"{where} needs kind = one of {', '.join(KINDS)}")
        _typed(entries, where)
        if entries["kind"] not in KINDS:
            near = difflib.get_close_matches(entries["kind"], KINDS, 1)
            raise DataError(f"kind of {where} is one of {', '.join(KINDS)}; it was given {entries['kind']!r}"
                            + (f": did you mean {near[0]!r}?" if near else ""))
        if entries["kind"] == "date" and not entries.get("format"):
            raise DataError(f'{where} is a date and needs its format, as in format = "%d.%m.%Y"')
        columns[name] = ColumnSchema(**{key: _tuple(value) for key, value in entries.items()})
    rest = {key: _tuple(value) for key, value in tree.items() if key != "columns"}
    made = Schema(**{"classes": (), **rest}, columns=columns)
    for one in made.positive:
        if made.classes and one not in made.classes:
            raise DataError(f"positive of {file} names classes, {', '.join(made.classes)}; it was given {one!r}")
    return made


def _known(tree: Mapping[str, Any], own: Sequence[str], where: str) -> None:
    for key in tree:
        if key not in own:
            near = difflib.get_close_matches(key, own, 1)
            raise DataError(f"{where} has no entry {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(own)}"))


def _typed(tree: Mapping[str, Any], where: str) -> None:
    """Refuse values of another type than the entry's."""
    texts = {"label", "site", "group", "delimiter", "encoding", "kind", "format", "decimal", "thousands", "symbol"}
    lists = {"classes", "positive", "keep", "missing", "categories"}
    for key, value in tree.items():
        if key in texts and not isinstance(value, str):
            raise DataError(f"{key} of {where} is a text; it was given {value!r}: write it in quotes")
        if key in lists and not (isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)):
            raise DataError(f'{key} of {where} is a list of texts, as in ["a", "b"]; it was given {value!r}')
        if key == "header" and not (isinstance(value, bool) or (isinstance(value, list) and all(isinstance(one, str) for one in value))):
            raise DataError(f"header of {where} is true, false, or a list of the columns' names; it was given {value!r}")
        if key == "odd" and not (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1):
            raise DataError(f"odd of {where} is a share from 0 to 1; it was given {value!r}")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, str):  # JSON's texts are TOML's, but for a character that JSON leaves as it is
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
