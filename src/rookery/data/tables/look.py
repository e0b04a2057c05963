"""A look at a table before anything is trained: what is in it, what will be done with it, and what may be wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import DataError
from .cells import MISSING, is_missing, parse_numbers
from .doubts import about_groups, about_sites, leaks, left_out, repeated_rows
from .kinds import Found, Site, find_classes, find_kind, find_positive, find_sites, order, whole_texts
from .schema import INPUTS, KINDS, ColumnSchema, Schema, demand_column
from .sheet import Sheet


@dataclass(frozen=True)
class Look:
    """What a look at a table found: a schema to train by, and in sentences what its owner should know."""

    file: str
    rows: int
    schema: Schema
    columns: dict[str, Found]
    classes: dict[str, int]
    guessed: bool  # the positive class
    sites: list[Site]
    warnings: list[str]

    @property
    def certain(self) -> Schema:
        """The schema without a positive class that is a guess, which training then asks for."""
        if not self.guessed:
            return self.schema
        return replace(self.schema, positive=(), classes=tuple(sorted(self.classes, key=order)))

    def to_toml(self) -> str:
        """The schema with what was found as comments."""
        notes = {name: " ".join(f"{found.detail}{f'; {found.missing} missing' if found.missing else ''}".split())
                 for name, found in self.columns.items()}
        head = (f"What rookery look found in {self.file}: {self.rows} rows. Correct what is wrong, and train by it: [data] schema = …\n"
                f"Kinds: {', '.join(f'{kind} ({what})' for kind, what in KINDS.items())}.")
        if self.guessed:
            head += f"\nWhich class is the positive one? Write positive = [\"{self.schema.positive[0]}\"] below, or the other one."
        return self.certain.to_toml(notes, head)


def look(sheet: Sheet, label: str, *, site: str | None = None, group: str | None = None, positive: Sequence[str | int] = (),
         keep: Collection[str] = (), drop: Collection[str] = (), text: Collection[str] = (), given: Schema | None = None) -> Look:
    """Find the kind of every column, the classes and the sites, and what may be wrong.

    positive: the classes that become label 1; of two classes one is found by its name, or else guessed
    keep, drop, text: columns to keep as fields as well, to leave out, and to take for categories whatever they hold
    given:    a schema that has been written already, whose columns are not looked for again
    """
    special = {"label": label, "site": site, "group": group}
    for wanted in (*special.values(), *keep, *drop, *text):
        if wanted is not None:
            demand_column(sheet, wanted)
    roles = [name for name in special.values() if name is not None]
    twice = next((name for name in roles if roles.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"label, site and group are different columns, but {twice!r} was named for two of them")
    tokens = MISSING if given is None else given.missing
    _refuse_units(sheet, roles)
    classes = find_classes(sheet, label, tokens)
    chosen, guessed = _positive(classes, positive, label)
    columns = dict[str, Found]()
    for name in sheet.names:
        if name in roles:
            continue
        if name in drop:
            columns[name] = Found(ColumnSchema("drop"), 0, "left out, as was asked")
        elif name in text:
            columns[name] = find_kind(sheet, name, tokens)._replace(column=ColumnSchema("category"), warning="")
        elif given is not None and name in given.columns:
            gone = is_missing(sheet.texts(name), given.columns[name].missing, tokens)
            columns[name] = Found(given.columns[name], int(gone.sum()), "as the schema says")
        elif given is not None:
            columns[name] = Found(ColumnSchema("drop"), 0, "not in the schema", f"column {name!r} is not in the schema, and is left out")
        else:
            columns[name] = find_kind(sheet, name, tokens)
    if len(classes) == 2 and chosen:
        classes = {name: classes[name] for name in sorted(classes, key=lambda name: name in chosen)}
    schema = Schema(label, tuple(classes), {name: found.column for name, found in columns.items()}, chosen, site, group, tuple(keep),
                    tokens, sheet.dialect.delimiter, sheet.dialect.encoding, sheet.dialect.header)
    if given is not None:
        for name, column in given.columns.items():
            if name not in columns and name not in roles and column.kind in INPUTS:
                demand_column(sheet, name)
    labels = np.asarray(whole_texts(sheet, label))
    is_positive = np.isin(labels, chosen) if chosen else None
    sites = find_sites(sheet, site, labels, classes, tokens)
    columns |= _sites_in_disguise(sheet, columns, site)
    schema = replace(schema, columns={name: found.column for name, found in columns.items()})
    warnings = [*sheet.notes, *(found.warning for found in columns.values() if found.warning), *repeated_rows(sheet, site)]
    if guessed:
        warnings.append(f"which class of {label!r} is the positive one is a guess: {chosen[0]!r}, the rarer one; say so with positive = "
                        f"[\"{chosen[0]}\"]")
    warnings += left_out(columns) + about_sites(sheet, schema, sites) + about_groups(sheet, schema)
    if is_positive is not None:
        warnings += leaks(sheet, schema, is_positive)
    return Look(sheet.file, len(sheet), schema, columns, classes, guessed, sites, warnings)


def _positive(classes: dict[str, int], said: Sequence[str | int], label: str) -> tuple[tuple[str, ...], bool]:
    """The positive classes, by their names or else by their places, and whether they are a guess."""
    positive = []
    for one in said:
        by_place = isinstance(one, int) and str(one) not in classes and 0 <= one < len(classes)
        positive.append(list(classes)[int(one)] if by_place else str(one))
        if positive[-1] not in classes:
            raise DataError(f"{one!r} is not a class of {label!r}; the classes are {', '.join(classes)}")
    if positive and len({*positive}) == len(classes):
        raise DataError(f"some classes must be positive and some not, but all {len(classes)} of {label!r} were named")
    if positive or len(classes) != 2:
        return tuple(positive), False
    name, guess = find_positive(classes)
    return (name,), guess


def _refuse_units(sheet: Sheet, roles: Sequence[str]) -> None:
    """Refuse a first row that holds units: texts where all other rows have numbers, in two columns or more."""
    if len(sheet) < 10:
        return
    texts = dict[str, str]()
    for name in sheet.names:
        if not sheet.is_numeric(name) and name not in roles:
            head = sheet.texts(name).iloc[:50]
            first, rest = head.iloc[:1], head.iloc[1:]
            if first.iloc[0] and np.isnan(parse_numbers(first)).all() and np.isfinite(parse_numbers(rest)).mean() > 0.8:
                texts[name] = str(first.iloc[0])
    if len(texts) > 1:
        shown = ", ".join(f"{text!r} in {name!r}" for name, text in list(texts.items())[:3])
        raise DataError(f"every line of {sheet.file} below the header must be a row, but {sheet.where(0)} has texts where all others have "
                        f"numbers ({shown}), perhaps units; delete it")


def _sites_in_disguise(sheet: Sheet, columns: dict[str, Found], site: str | None) -> dict[str, Found]:
    """Where each site has a file: columns that have one value in each of them, another one in every file, which are the site once more."""
    found = dict[str, Found]()
    if site is None or len(sheet.files) < 2:
        return found
    for name, column in columns.items():
        if column.column.kind == "category":
            pairs = set(zip(sheet.origin.tolist(), sheet.texts(name), strict=True))
            if len(pairs) == len(sheet.files) == len({value for _, value in pairs}):
                said = (f"column {name!r} has one value in each file: it is the site under another name, and is left out; name it with "
                        f"--site {name} to have sites called by it")
                found[name] = column._replace(column=ColumnSchema("drop"), warning=said)
    return found
