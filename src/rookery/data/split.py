"""Rows for training, validation and test: split the table before it is spread over sites, or hold rows out at each client."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..federation import rng
from .partition import Column, column
from .store import Data


class Parts(NamedTuple):
    """The row numbers of the training, validation and test rows, each in ascending order."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    test: NDArray[np.int64]


def split(labels: Column, test: float = 0.2, validation: float = 0.0, seed: int = 0, groups: Column | None = None) -> Parts:
    """Row numbers of the three parts, with the classes in each as in the whole, to within two rows of a class.

    With `groups` (one value a row, such as the patient) all rows of a group go to one part, and the shares of rows and classes are
    met as nearly as the groups allow.

    >>> parts = split([0, 1] * 50, test=0.2, validation=0.1)
    >>> [len(part) for part in parts]
    [70, 10, 20]
    """
    labels = column(labels)
    shares = np.asarray([1 - test - validation, validation, test])
    if not (test >= 0 and validation >= 0 and shares[0] > 1e-9):
        raise DataError(f"the shares of test and validation must not be negative and must leave rows to train on; "
                        f"test is {test}, validation {validation}")
    r = np.random.default_rng(seed)
    part = _by_row(labels, shares, r) if groups is None else _by_group(labels, column(groups, "groups"), shares, r)
    parts = Parts(*(np.flatnonzero(part == k) for k in range(3)))
    for name, rows, share in zip(Parts._fields, parts, shares, strict=True):
        if share > 0 and len(rows) == 0:
            raise DataError(f"the {name} part came out empty: {len(labels)} rows are too few for a share of {share:g}; take a larger share")
    return parts


def _by_row(labels: NDArray[Any], shares: NDArray[np.float64], r: np.random.Generator) -> NDArray[np.int64]:
    """Rows class after class, shuffled within, of which every so many-th is taken."""
    rank = r.permutation(len(np.unique(labels)))[np.unique(labels, return_inverse=True)[1]]
    order = np.lexsort((r.random(len(labels)), rank))
    part = np.zeros(len(labels), dtype=np.int64)
    left = 1.0
    for k in (2, 1):
        places = np.floor(np.arange(len(order) + 1) * (shares[k] / left) + 0.5)
        taken = np.diff(places) > 0
        part[order[taken]] = k
        order, left = order[~taken], left - shares[k]
    return part


def _by_group(labels: NDArray[Any], groups: NDArray[Any], shares: NDArray[np.float64], r: np.random.Generator) -> NDArray[np.int64]:
    """Largest groups first, each to the part that lacks its classes most."""
    if len(groups) != len(labels):
        raise DataError(f"one group per row is needed: {len(groups)} groups, {len(labels)} labels")
    group, member = np.unique(groups, return_inverse=True)
    classes, label = np.unique(labels, return_inverse=True)
    wanted = np.flatnonzero(shares > 0)
    if len(group) < len(wanted):
        raise DataError(f"{len(wanted)} parts need at least as many groups, but there are {len(group)}; split by row, or leave a part out")
    counts = np.zeros((len(group), len(classes)))
    np.add.at(counts, (member, label), 1)
    total = counts.sum(0)
    lacking = shares[:, None] * total
    order = r.permutation(len(group))
    order = order[np.argsort(-counts[order].sum(1), kind="stable")]
    chosen, used = np.empty(len(group), dtype=np.int64), np.zeros(3, dtype=bool)
    for place, g in enumerate(order):
        empty = [k for k in wanted if not used[k]]
        open_parts = np.asarray(empty) if len(empty) == len(order) - place else wanted
        k = open_parts[np.argmax((lacking[open_parts] / total * counts[g]).sum(1))]
        chosen[g], used[k] = k, True
        lacking[k] -= counts[g]
    return chosen[member]


def hold_apart(labels: Column, owner: Column, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows are set aside where every owner chooses by itself: a stratified share of its own rows, by the seed and its name.

    An owner of one row keeps it to train on.

    >>> labels, owner = [0, 1] * 40, ["north"] * 40 + ["south"] * 40
    >>> both, one = hold_apart(labels, owner, 0.25), hold_apart(labels[:40], owner[:40], 0.25)
    >>> int(both.sum()), bool((both[:40] == one).all())
    (20, True)
    """
    if not 0 < share < 1:
        raise DataError(f"the share to hold out must lie between 0 and 1, not {share}")
    labels, owner = column(labels), column(owner, "the site column").astype(str)
    held = np.zeros(len(labels), dtype=bool)
    for name in np.unique(owner):
        own = np.flatnonzero(owner == name)
        if len(own) > 1:
            drawn = _by_row(labels[own], np.asarray([1 - share, 0.0, share]), np.random.default_rng([seed, rng.name_key(str(name))]))
            held[own] = drawn == 2
    return held


def by_hash(groups: NDArray[np.int64], share: float, seed: int, purpose: str) -> NDArray[np.bool_]:
    """Which rows are set aside where all rows of a group stay together: those whose group's hash falls below the share.

    A group's side depends on its number, the seed and what the rows are set aside for, and on nothing else: sites that have rows of the
    same patient put them on the same side without comparing lists. About a share of the groups is set aside.

    >>> first, second = by_hash(np.asarray([3, 5, 3]), 0.5, 0, "test"), by_hash(np.asarray([5]), 0.5, 0, "test")
    >>> bool(first[0] == first[2] and first[1] == second[0])
    True
    """
    keys = rng.combine(rng.as_keys(groups.astype(np.uint64)), seed, rng.name_key(purpose))
    return np.asarray(rng.uniform(keys, 1)[:, 0] < share)


def fingerprint(values: NDArray[Any]) -> NDArray[np.int64]:
    """A whole number for each text, by a hash: the same at every site that has the text."""
    names, place = np.unique(values.astype(str), return_inverse=True)
    keys = np.asarray([rng.name_key(str(name)) >> 1 for name in names], dtype=np.int64)
    return keys[place]


def hold_out(data: Data, share: float, seed: int = 0, groups: str | None = None) -> tuple[Data, Data]:
    """Each client's rows in two: those it trains on, and a share it holds out, at least one.

    A client of one row keeps it for training, and is not among the clients of the second part. Which rows a client holds out
    depends on the seed and its name, not on the other clients. With `groups`, a field of whole numbers such as the patient, all rows of a
    group go to one part, at all clients (see `by_hash`), so that a client may hold out none; one that would hold out all its rows, and
    train on none, is in neither part.

    >>> data = Data.from_parts({"a": {"u": np.arange(10.0)}, "b": {"u": np.arange(1.0)}})
    >>> train, held = hold_out(data, 0.2)
    >>> train.sizes.tolist(), held.names, held.sizes.tolist()
    ([8, 1], ('a',), [2])
    """
    if not 0 < share < 1:
        raise DataError(f"the share to hold out must lie between 0 and 1, not {share}")
    forms = data.forms()
    if not forms:
        raise DataError("these clients are streams without rows: there is nothing to hold out; draw validation samples instead")
    if groups is not None and groups not in forms:
        raise DataError(f"there is no field {groups!r} to keep whole; the clients have {sorted(forms)}")
    if groups is not None and forms[groups].shape:
        raise DataError(f"field {groups!r} names a row's group by one number; it has rows of shape {forms[groups].shape}")
    if int(data.sizes.max()) < 2:
        raise DataError("every client has a single row, which it keeps for training; there is nothing to hold out: merge clients first")
    if groups is not None:
        return _hold_groups_out(data, share, seed, groups)
    held = np.zeros(int(data.sizes.sum()), dtype=bool)
    number = np.clip(np.floor(share * data.sizes + 0.5).astype(np.int64), 1, None).clip(max=data.sizes - 1)
    for key, start, size, own in zip(data.client_keys, data.offsets, data.sizes, number, strict=True):
        held[start + np.random.default_rng([seed, int(key)]).permutation(size)[:own]] = True
    return data.only(np.flatnonzero(~held)), data.only(np.flatnonzero(held))


def hold_out_here(data: Data, share: float, seed: int = 0, groups: str | None = None) -> tuple[Data, Data | None]:
    """The same where these are some clients of several places, and may be too small to hold any rows out: None then."""
    if groups is None:
        return hold_out(data, share, seed) if int(data.sizes.max()) > 1 else (data, None)
    held, trains = _groups_held(data, share, seed, groups)
    if (held & trains).any():
        return hold_out(data, share, seed, groups)
    if held.all():
        raise DataError("all rows are of groups that are held out, and there are none to train on; merge clients, or take another share")
    return data.only(np.flatnonzero(~held)), None


def _hold_groups_out(data: Data, share: float, seed: int, groups: str) -> tuple[Data, Data]:
    held, trains = _groups_held(data, share, seed, groups)
    if not (held & trains).any():
        raise DataError("no client can hold rows out without splitting a group; hold out by row, merge clients, or take another share")
    return data.only(np.flatnonzero(~held)), data.only(np.flatnonzero(held & trains))


def _groups_held(data: Data, share: float, seed: int, groups: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows are of a group that is held out, and which are of clients that have others too."""
    held = by_hash(data.column(groups).cpu().numpy().astype(np.int64), share, seed, "validation")
    owner = np.repeat(np.arange(len(data.sizes)), data.sizes)
    return held, np.bincount(owner, ~held, len(data.sizes))[owner] > 0
