"""What may be wrong with a table, in sentences: rows that come twice, sites that differ, columns that tell the label."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from .cells import is_missing
from .encoder import values_of
from .kinds import Found, Site, demand_values, spellings
from .schema import INPUTS, Schema
from .sheet import Sheet, pandas

SAMPLE = 50_000  # rows that leaks are looked for in
LEAK = 0.97  # the AUC of a single column that is likely a leak
SHIFT = 5.0  # how many times larger or smaller a site's median may be


def left_out(columns: dict[str, Found]) -> list[str]:
    """Which columns are not used, and why."""
    found = []
    for kind, what in (("id", "look like ids and are left out"), ("text", "are free text and are left out"),
                       ("constant", "say nothing and are left out")):
        names = [repr(name) for name, column in columns.items() if column.column.kind == kind]
        if names:
            found.append(f"{len(names)} column(s) {what}: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}")
    return found


def repeated_rows(sheet: Sheet, site: str | None) -> list[str]:
    """Rows that are there several times."""
    names = [name for name in sheet.names if name != site] if len(sheet.files) > 1 else sheet.names
    again = np.asarray(sheet.frame[names].duplicated(), dtype=bool)
    if not again.any():
        return []
    row = int(np.flatnonzero(again)[0])
    where = " (at several sites, perhaps)" if len(sheet.files) > 1 else ""
    return [f"{int(again.sum())} rows repeat an earlier row in all columns{where}, the first in {sheet.where(row)}: if they were exported "
            "twice, take the duplicates out, or they will be in both training and test"]


def about_sites(sheet: Sheet, schema: Schema, sites: list[Site]) -> list[str]:
    """Sites that are spelt alike, small or of one class, and columns that mean something else at one of them."""
    if not sites:
        return []
    spelt = spellings(str(schema.site), [site.name for site in sites])
    found = [spelt] if spelt else []
    if len(sites) == 1:
        found.append(f"all rows have one site, {sites[0].name!r}: there is nobody to federate with")
    if len(sites) > len(sheet) / 2:
        found.append(f"the site column {schema.site!r} has {len(sites)} different values in {len(sheet)} rows: it looks like an id, not a "
                     "site")
        return found
    tiny = [site.name for site in sites if site.rows < 10]
    if tiny:
        found.append(f"{len(tiny)} of {len(sites)} sites have fewer than 10 rows, such as {tiny[0]!r}: write least in [sites] to leave "
                     "small ones out")
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
                found.append(f"column {name!r} has other values at site {odd[0]!r} ({', '.join(own)}) than at all other sites: is it coded "
                             "otherwise there?")
    return found


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
            found.append(f"column {name!r} has the median {middle[site]:g} at site {str(site)!r} and {usual:g} elsewhere: other units, or "
                         "another meaning? Bring them to one before you train")
    if lacking:
        shown = ", ".join(f"{name!r} at {len(sites)} (such as {sites[0]!r})" for name, sites in list(lacking.items())[:4])
        found.append(f"columns that are empty at some sites of 20 rows or more: {shown}{' …' if len(lacking) > 4 else ''}")
    return found


def about_groups(sheet: Sheet, schema: Schema) -> list[str]:
    """Groups of one row each, and groups that have rows at several sites."""
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
            found.append(f"{several} of {number} values of {schema.group!r} are at several sites: each of them is on one side of every "
                         "split, at all sites")
    return found


def leaks(sheet: Sheet, schema: Schema, positive: NDArray[np.bool_]) -> list[str]:
    """Columns that tell the label nearly by themselves, by their value or by whether they are filled in."""
    found = []
    if not 10 <= positive.sum() <= len(positive) - 10:
        return []
    if len(sheet) > SAMPLE:  # a share of the rows tells as much
        some = np.linspace(0, len(sheet) - 1, SAMPLE).astype(np.int64)
        sheet, positive = sheet.take(some), positive[some]
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
            known = values is not None and bool(np.isfinite(values).any())
            by_value = 0.5 if values is None or not known else _auc(np.where(np.isfinite(values), values, np.nanmedian(values)), positive)
        by_gap = 1 - by_gap  # of being filled in
        if max(by_gap, 1 - by_gap) > 0.95:
            side = "negative" if by_gap < 0.5 else "positive"
            found.append(f"likely leak: column {name!r} is filled in nearly only where the label is {side}, so that it may be known after "
                         "the outcome only; leave it out (kind = \"drop\") if so")
        elif max(by_value, 1 - by_value) > LEAK:
            found.append(f"likely leak: column {name!r} alone tells the label (AUC {max(by_value, 1 - by_value):.3f}), and may be the "
                         "outcome under another name; leave it out (kind = \"drop\") if so")
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
