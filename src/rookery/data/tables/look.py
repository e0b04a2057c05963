"""A look at a table before anything is trained: what is in it, what will be done with it, and what may be wrong with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from .cells import MISSING, is_missing, parse_numbers
from .encoder import values_of
from .kinds import Found, demand_values, find_classes, find_kind, find_positive, spellings, whole_texts
from .schema import INPUTS, KINDS, ColumnSchema, Schema, demand_column
from .sheet import Sheet, pandas

LEAK = 0.97  # the AUC of a single column that is likely a leak
SHIFT = 5.0  # how many times larger or smaller a site's median may be


@dataclass(frozen=True)
class Site:
    """A site's rows, those of the positive class where there are two, and the rows of every class."""

    name: str
    rows: int
    classes: dict[str, int]


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

    def to_toml(self) -> str:
        """The schema with what was found as comments."""
        notes = {name: found.detail + (f"; {found.missing} missing" if found.missing else "") for name, found in self.columns.items()}
        head = (f"What rookery look found in {self.file}: {self.rows} rows. Correct what is wrong, and train by it: [data] schema = …\n"
                f"Kinds: {', '.join(f'{kind} ({what})' for kind, what in KINDS.items())}.")
        return self.schema.to_toml(notes, head)


def look(sheet: Sheet, label: str, *, site: str | None = None, group: str | None = None, positive: Sequence[str] = (),
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
        if given is not None and name in given.columns:
            gone = is_missing(sheet.texts(name), given.columns[name].missing, tokens)
            columns[name] = Found(given.columns[name], int(gone.sum()), "as the schema says")
        elif given is not None:
            columns[name] = Found(ColumnSchema("drop"), 0, "not in the schema", f"column {name!r} is not in the schema, and is left out")
        elif name in drop:
            columns[name] = Found(ColumnSchema("drop"), 0, "left out, as was asked")
        else:
            found = find_kind(sheet, name, tokens)
            columns[name] = found._replace(column=ColumnSchema("category"), warning="") if name in text else found
    if len(classes) == 2 and chosen:
        classes = {name: classes[name] for name in sorted(classes, key=lambda name: name in chosen)}
    schema = Schema(label, tuple(classes), {name: found.column for name, found in columns.items()}, chosen, site, group, tuple(keep),
                    tokens, sheet.dialect.delimiter, sheet.dialect.encoding, sheet.dialect.header)
    if given is not None:
        gone = [name for name in given.columns if name not in columns and name not in roles]
        for name in gone:
            if given.columns[name].kind in INPUTS:
                demand_column(sheet, name)
    labels = np.asarray(whole_texts(sheet, label))
    is_positive = np.isin(labels, chosen) if chosen else None
    sites = _sites(sheet, site, labels, classes, tokens)
    columns |= _sites_in_disguise(sheet, columns, site)
    schema = replace(schema, columns={name: found.column for name, found in columns.items()})
    warnings = [*sheet.notes, *(found.warning for found in columns.values() if found.warning), *_twice(sheet, site)]
    if guessed:
        warnings.append(f"which class of {label!r} is the positive one is a guess: {chosen[0]!r}, the rarer one; say so with positive = "
                        f"[\"{chosen[0]}\"]")
    warnings += _left_out(columns) + _site_warnings(sheet, schema, sites) + _group_warnings(sheet, schema)
    if is_positive is not None:
        warnings += _leaks(sheet, schema, is_positive)
    return Look(sheet.file, len(sheet), schema, columns, classes, guessed, sites, warnings)


def _positive(classes: dict[str, int], positive: Sequence[str], label: str) -> tuple[tuple[str, ...], bool]:
    for one in positive:
        if one not in classes:
            raise DataError(f"{one!r} is not a class of {label!r}; the classes are {', '.join(classes)}")
    if positive and len({*positive}) == len(classes):
        raise DataError(f"some classes must be positive and some not, but all {len(classes)} of {label!r} were named")
    if positive or len(classes) != 2:
        return tuple(positive), False
    name, guess = find_positive(classes)
    return (name,), guess


def _left_out(columns: dict[str, Found]) -> list[str]:
    """Which columns are not used, and why."""
    found = []
    for kind, what in (("id", "look like ids and are left out"), ("text", "are free text and are left out"), ("constant", "say nothing and are left out")):
        names = [repr(name) for name, column in columns.items() if column.column.kind == kind]
        if names:
            found.append(f"{len(names)} column(s) {what}: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}")
    return found


def _sites(sheet: Sheet, site: str | None, labels: NDArray[Any], classes: dict[str, int], tokens: Sequence[str]) -> list[Site]:
    if site is None:
        return []
    owners = demand_values(sheet, site, "site", tokens)
    names, place = np.unique(owners, return_inverse=True)
    codes = {name: i for i, name in enumerate(classes)}
    table = np.zeros((len(names), len(classes)), dtype=np.int64)
    np.add.at(table, (place, np.asarray([codes[label] for label in labels])), 1)
    return [Site(str(name), int(row.sum()), dict(zip(classes, row.tolist(), strict=True))) for name, row in zip(names, table, strict=True)]


def _site_warnings(sheet: Sheet, schema: Schema, sites: list[Site]) -> list[str]:
    if not sites:
        return []
    spelt = spellings(str(schema.site), [site.name for site in sites])
    found = [spelt] if spelt else []
    if len(sites) == 1:
        found.append(f"all rows have one site, {sites[0].name!r}: there is nobody to federate with")
    if len(sites) > len(sheet) / 2:
        found.append(f"the site column {schema.site!r} has {len(sites)} different values in {len(sheet)} rows: it looks like an id, not a site")
        return found
    tiny = [site.name for site in sites if site.rows < 10]
    if tiny:
        found.append(f"{len(tiny)} of {len(sites)} sites have fewer than 10 rows, such as {tiny[0]!r}: write least in [sites] to leave small ones out")
    if len(schema.classes) == 2:
        one = [site.name for site in sites if min(site.classes.values()) == 0]
        if one:
            found.append(f"{len(one)} of {len(sites)} sites have rows of one class only, such as {one[0]!r}: they have no AUC of their own")
    return found + _coded_by_site(sheet, schema, sites) + _shifted(sheet, schema)


def _coded_by_site(sheet: Sheet, schema: Schema, sites: list[Site]) -> list[str]:
    """Categories whose values at one site are none of those elsewhere: another code."""
    assert schema.site is not None
    owners, found = sheet.texts(schema.site), list[str]()
    large = [site.name for site in sites if site.rows >= 20]
    for name in schema.inputs if 1 < len(large) <= 200 else ():
        if schema.columns[name].kind == "category":
            pairs = pandas().DataFrame({"site": np.asarray(owners, dtype=object), "value": np.asarray(sheet.texts(name), dtype=object)})
            pairs = pairs[~is_missing(pairs["value"], schema.columns[name].missing, schema.missing)].drop_duplicates()
            at = pairs.groupby("value")["site"].nunique()
            alone = pairs.assign(alone=pairs["value"].map(at) == 1).groupby("site")["alone"].all()
            odd = [site for site in large if bool(alone.get(site, False))]
            if odd and len(odd) < len(large):
                own = sorted(pairs["value"][pairs["site"] == odd[0]])[:4]
                found.append(f"column {name!r} has other values at site {odd[0]!r} ({', '.join(own)}) than at all other sites: is it coded otherwise "
                             "there?")
    return found


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
        raise DataError(f"every line of {sheet.file} below the header must be a row, but {sheet.where(0)} has texts where all others have numbers "
                        f"({shown}), perhaps units; delete it")


def _sites_in_disguise(sheet: Sheet, columns: dict[str, Found], site: str | None) -> dict[str, Found]:
    """Where each site has a file: columns that have one value in each of them, another one in every file, which are the site once more."""
    found = dict[str, Found]()
    if site is None or len(sheet.files) < 2:
        return found
    for name, column in columns.items():
        if column.column.kind == "category":
            pairs = set(zip(sheet.origin.tolist(), sheet.texts(name), strict=True))
            if len(pairs) == len(sheet.files) == len({value for _, value in pairs}):
                found[name] = column._replace(column=ColumnSchema("drop"), warning=f"column {name!r} has one value in each file: it is the site "
                                              f"under another name, and is left out; name it with --site {name} to have sites called by it")
    return found


def _twice(sheet: Sheet, site: str | None) -> list[str]:
    """Rows that are there several times."""
    names = [name for name in sheet.names if name != site] if len(sheet.files) > 1 else sheet.names
    again = np.asarray(sheet.frame[names].duplicated(), dtype=bool)
    if not again.any():
        return []
    row = int(np.flatnonzero(again)[0])
    where = " (at several sites, perhaps)" if len(sheet.files) > 1 else ""
    return [f"{int(again.sum())} rows repeat an earlier row in all columns{where}, the first in {sheet.where(row)}: if they were exported twice, take "
            "the duplicates out, or they will be in both training and test"]


def _shifted(sheet: Sheet, schema: Schema) -> list[str]:
    """Numbers that are of another size at one site, as in other units, or that some sites do not have."""
    assert schema.site is not None
    pd = pandas()
    owners = sheet.texts(schema.site)
    sizes = owners.value_counts()
    large = sizes.index[sizes >= 20]
    found, lacking = list[str](), dict[str, list[str]]()
    for name in schema.inputs if len(large) > 1 else ():
        values = _quietly(sheet, name, schema) if schema.columns[name].kind == "number" else None
        if values is None or len(np.unique(values[:10_000][np.isfinite(values[:10_000])])) <= 5:
            continue
        own = pd.Series(values).groupby(np.asarray(owners, dtype=object))
        low, middle, high = (own.quantile(q).reindex(large).dropna() for q in (0.25, 0.5, 0.75))
        gone = [str(site) for site in large if site not in middle.index]
        if gone:
            lacking[name] = gone
        spread = float((high - low).median()) or float(np.nanstd(values)) or 1.0
        usual = float(middle.median())
        ratio = (middle / usual).where(middle / usual > 0, np.inf) if usual else middle * np.inf
        far = ((middle - usual).abs() > 2 * spread) & ((ratio > SHIFT) | (ratio < 1 / SHIFT) | ((middle - usual).abs() > 6 * spread))
        if far.any():
            site = far.index[int(np.argmax(np.asarray((middle - usual).abs() * far)))]
            found.append(f"column {name!r} has the median {middle[site]:g} at site {str(site)!r} and {usual:g} elsewhere: other units, or another "
                         "meaning? Bring them to one before you train")
    if lacking:
        shown = ", ".join(f"{name!r} at {len(sites)} (such as {sites[0]!r})" for name, sites in list(lacking.items())[:4])
        found.append(f"columns that are empty at some sites of 20 rows or more: {shown}{' …' if len(lacking) > 4 else ''}")
    return found


def _group_warnings(sheet: Sheet, schema: Schema) -> list[str]:
    if schema.group is None:
        return []
    owners = demand_values(sheet, schema.group, "group", schema.missing)
    found, number = [], len(np.unique(owners))
    if number == len(sheet):
        found.append(f"every row has another {schema.group!r}: naming it keeps nothing together")
    if schema.site is not None:
        pairs = np.unique(np.stack([owners.astype(str), np.asarray(sheet.texts(schema.site)).astype(str)], 1), axis=0)
        several = int((np.unique(pairs[:, 0], return_counts=True)[1] > 1).sum())
        if several:
            found.append(f"{several} of {number} values of {schema.group!r} are at several sites: each of them is on one side of every split, at "
                         "all sites")
    return found


def _leaks(sheet: Sheet, schema: Schema, positive: NDArray[np.bool_]) -> list[str]:
    """Columns that tell the label nearly by themselves, by their value or by whether they are filled in."""
    found = []
    if not 10 <= positive.sum() <= len(positive) - 10:
        return []
    for name, column in schema.columns.items():
        if column.kind not in INPUTS:
            continue
        gone = is_missing(sheet.texts(name), column.missing, schema.missing) if not sheet.is_numeric(name) else np.isnan(
            sheet.frame[name].to_numpy(dtype=np.float64))
        by_gap = _auc(gone.astype(float), positive)
        if column.kind == "category":
            by_value = _auc(_shares(np.asarray(sheet.texts(name), dtype=object), positive), positive)
        else:
            values = _quietly(sheet, name, schema)
            by_value = 0.5 if values is None else _auc(np.where(np.isfinite(values), values, np.nanmedian(values)), positive)
        by_gap = 1 - by_gap  # of being filled in
        if max(by_gap, 1 - by_gap) > 0.95:
            found.append(f"likely leak: column {name!r} is filled in nearly only where the label is {'negative' if by_gap < 0.5 else 'positive'}, so "
                         "that it may be known after the outcome only; leave it out (kind = \"drop\") if so")
        elif max(by_value, 1 - by_value) > LEAK:
            found.append(f"likely leak: column {name!r} alone tells the label (AUC {max(by_value, 1 - by_value):.3f}), and may be the outcome under another "
                         "name; leave it out (kind = \"drop\") if so")
    return found


def _quietly(sheet: Sheet, name: str, schema: Schema) -> NDArray[np.float64] | None:
    try:
        return values_of(sheet, name, schema)
    except DataError:  # too many odd cells, which stands among the warnings already
        return None


def _shares(values: NDArray[Any], positive: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each row the share of positives among those rows of its value that are in the other half."""
    names, place = np.unique(values.astype(str), return_inverse=True)
    found, half = np.empty(len(values)), np.arange(len(values)) % 2
    for own in (0, 1):
        other, overall = half != own, positive.mean()
        rows, ones = (np.bincount(place[other], weight, len(names)) for weight in (None, positive[other]))
        found[half == own] = ((ones + overall) / (rows + 1))[place[half == own]]
    return found


def _auc(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, score))
