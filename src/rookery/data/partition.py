"""Ways to spread the rows of one table over sites: each returns the site of every row, for `Data.by_site`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError

Column = Sequence[Any] | NDArray[Any] | Tensor


def column(values: Column, what: str = "labels") -> NDArray[Any]:
    """One value per row as an array; at least one, and none missing."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    if array.ndim != 1 or len(array) == 0:
        raise DataError(f"{what} must be one value per row, at least one; got an array of shape {array.shape}")
    missing = np.isnan(array) if array.dtype.kind == "f" else np.asarray([value is None or value != value for value in array])
    if missing.any():
        raise DataError(f"every row needs a value in {what}, but row {int(missing.argmax())} has none; drop these rows or fill them in")
    return array


def dirichlet(labels: Column, sites: int, alpha: float, seed: int = 0, least: int = 2) -> NDArray[np.str_]:
    """The site of each row, with each class spread over the sites by a Dirichlet(alpha) draw: small alpha, heterogeneous sites.

    Drawn again until every site has at least `least` rows.

    >>> sites = dirichlet([0, 1] * 50, sites=4, alpha=0.5)
    >>> sorted(set(sites.tolist()))
    ['site-0', 'site-1', 'site-2', 'site-3']
    """
    labels = column(labels)
    if not alpha > 0 or sites < 1 or least * sites > len(labels):
        raise DataError(f"alpha must be positive and {sites} sites of at least {least} rows must fit into {len(labels)} rows; "
                        f"alpha is {alpha}")
    r = np.random.default_rng(seed)
    for _ in range(1000):
        site = np.empty(len(labels), dtype=np.int64)
        for value in np.unique(labels):
            rows = np.flatnonzero(labels == value)
            site[rows] = r.choice(sites, len(rows), p=r.dirichlet(np.full(sites, alpha)))
        if np.bincount(site, minlength=sites).min() >= least:
            return _names(site, sites)
    raise DataError(f"no draw gave each of {sites} sites {least} rows; take a larger alpha, fewer sites or a smaller least")


def iid(rows: int, sites: int, seed: int = 0) -> NDArray[np.str_]:
    """The site of each row, shuffled: sizes differ by at most one.

    >>> np.unique(iid(10, 4), return_counts=True)[1].tolist()
    [3, 3, 2, 2]
    """
    _enough(rows, sites)
    return _names(np.random.default_rng(seed).permutation(np.arange(rows) % sites), sites)


def label_shards(labels: Column, sites: int, per_site: int = 2, seed: int = 0) -> NDArray[np.str_]:
    """The site of each row when each site gets `per_site` shards of one class each (McMahan et al., 2017).

    A class has shards in proportion to its rows, at least one, and is cut evenly into them. The paper cuts the sorted rows into
    equal shards, some of which straddle two classes; here a site has at most `per_site` labels.

    >>> labels = np.repeat([0, 1, 2], [40, 40, 20])
    >>> sites = label_shards(labels, sites=5, per_site=2)
    >>> max(len(set(labels[sites == s])) for s in sites)
    2
    """
    labels = column(labels)
    classes, rows = np.unique(labels, return_counts=True)
    total = sites * per_site
    if sites < 1 or per_site < 1 or not len(classes) <= total <= len(labels):
        raise DataError(f"{sites} sites of {per_site} shards must give every class a shard and every shard a row; there are "
                        f"{len(classes)} classes and {len(labels)} rows: change sites or per_site")
    shards = np.maximum(apportion(total, rows / rows.sum()), 1)
    while shards.sum() > total:  # a rare class was given its one shard: another gives one up, where shards are smallest
        shards[np.argmin(np.where(shards > 1, rows / shards, np.inf))] -= 1
    r = np.random.default_rng(seed)
    owner = r.permutation(np.repeat(np.arange(sites), per_site))
    site, shard = np.empty(len(labels), dtype=np.int64), 0
    for value, number in zip(classes, shards, strict=True):
        for part in np.array_split(r.permutation(np.flatnonzero(labels == value)), number):
            site[part], shard = owner[shard], shard + 1
    return _names(site, sites)


def by_quantity(rows: int, sites: int | None = None, alpha: float | None = None,
                shares: Sequence[float] | Mapping[str, float] | None = None, seed: int = 0, least: int = 1) -> NDArray[np.str_]:
    """The site of each row, shuffled, with sizes by a Dirichlet(alpha) draw or by explicit shares (which may name the sites).

    >>> sites = by_quantity(10, shares={"large": 4, "small": 1})
    >>> sorted(sites.tolist()) == ["large"] * 8 + ["small"] * 2
    True
    """
    r = np.random.default_rng(seed)
    if (alpha is None) == (shares is None):
        raise DataError(f"sizes come from alpha or from shares: give one of them, not alpha={alpha} and shares={shares}")
    if shares is not None:
        values = np.asarray(list(shares.values() if isinstance(shares, Mapping) else shares), dtype=float)
        if len(values) == 0 or not np.isfinite(values).all() or (values <= 0).any() or sites not in (None, len(values)):
            raise DataError(f"shares must be positive, one for each of the {len(values) if sites is None else sites} sites; got {shares}")
        _enough(rows, len(values), least)
        sizes = apportion(rows, values / values.sum())
        if sizes.min() < least:
            raise DataError(f"every site needs at least {least} rows of {rows}, but shares {shares} give {sizes.tolist()}")
        site = r.permutation(np.repeat(np.arange(len(values)), sizes))
        return np.asarray(list(shares))[site] if isinstance(shares, Mapping) else _names(site, len(values))
    if sites is None or alpha is None or not alpha > 0:
        raise DataError(f"a draw of sizes needs the number of sites and a positive alpha; got sites={sites}, alpha={alpha}")
    _enough(rows, sites, least)
    for _ in range(1000):
        sizes = apportion(rows, r.dirichlet(np.full(sites, alpha)))
        if sizes.min() >= least:
            return _names(r.permutation(np.repeat(np.arange(sites), sizes)), sites)
    raise DataError(f"no draw gave each of {sites} sites {least} rows; take a larger alpha, fewer sites or a smaller least")


def by_column(values: Column) -> NDArray[np.str_]:
    """The site of each row from a column that says it: hospitals, writers, devices.

    >>> by_column([3, 1, 3]).tolist()
    ['3', '1', '3']
    """
    array = column(values, "the site column")
    if array.dtype.kind == "f" and (array == np.floor(array)).all():
        array = array.astype(np.int64)
    meant: dict[str, Any] = {}
    for value in dict.fromkeys(array.tolist()):
        name = str(value).strip()
        if not name:
            raise DataError("every row needs a site, but some site names are empty; drop these rows or name the site")
        if name in meant:
            raise DataError(f"site names must be distinct, but {meant[name]!r} and {value!r} are both called {name!r}; make them one site "
                            "or rename one")
        meant[name] = value
    return np.asarray([str(value).strip() for value in array.tolist()])


def spread_alike(labels: Column, site: Column, others: Column, seed: int = 0) -> NDArray[np.str_]:
    """The site of each of some `others`, rows of the same classes: a site gets of a class what it has among the rows already spread.

    >>> spread_alike([0, 0, 1], ["a", "b", "b"], [1, 1]).tolist()
    ['b', 'b']
    """
    known, sites, r = column(labels), column(site, "the site column"), np.random.default_rng(seed)
    wanted = column(others)
    found = np.empty(len(wanted), dtype=sites.dtype)
    for value in np.unique(wanted):
        rows = np.flatnonzero(wanted == value)
        names, counts = np.unique(sites[known == value] if (known == value).any() else sites, return_counts=True)
        found[rows] = r.permutation(np.repeat(names, apportion(len(rows), counts / counts.sum())))
    return found


def apportion(total: int, shares: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers that add up to `total`, each within one of its share of it (largest remainders)."""
    whole = np.floor(total * shares).astype(np.int64)
    rest = np.argsort(whole - total * shares, kind="stable")[: total - int(whole.sum())]
    whole[rest] += 1
    return whole


def _enough(rows: int, sites: int, least: int = 1) -> None:
    if sites < 1 or least < 1 or least * sites > rows:
        raise DataError(f"at least one site, and at least one row for each, is needed: {sites} sites of {max(least, 1)} rows or more "
                        f"do not fit into {rows} rows")


def _names(site: NDArray[np.int64], sites: int) -> NDArray[np.str_]:
    width = len(str(sites - 1))
    return np.asarray([f"site-{s:0{width}}" for s in site])
