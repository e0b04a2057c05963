"""Ways to make classes rare: each returns a mask of the rows to keep, for `Table.take`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .partition import Column, column


def drop_positives(labels: Column, keep: float | None = None, share: float | None = None, seed: int = 0) -> NDArray[np.bool_]:
    """All negatives, and a share `keep` of the positives; or as many positives as make up `share` of the rows kept.

    >>> labels = np.repeat([0, 1], [90, 90])
    >>> labels[drop_positives(labels, keep=0.2)].sum().item(), labels[drop_positives(labels, share=0.1)].mean().item()
    (18, 0.1)
    """
    labels = column(labels)
    found = np.unique(labels).tolist()
    if found not in ([0, 1], [False, True]):
        raise DataError(f"labels must be 0 and 1, both of them, but are {found[:5]}{' …' if len(found) > 5 else ''}; "
                        "make them so with Table.binary(positive=...), or in a description with [data] positive = [...]")
    if (keep is None) == (share is None):
        raise DataError(f"say either which share of the positives to keep or their share of the rows, not keep={keep} and share={share}")
    positives = int((labels == 1).sum())
    if share is not None:
        if not 0 < share < 1 or share > positives / len(labels):
            raise DataError(f"positives can only be dropped: their share must lie between 0 and {positives / len(labels):.4g}, not {share}")
        keep = share / (1 - share) * (len(labels) - positives) / positives
    assert keep is not None
    return _thinned(labels, {1: keep}, seed)


def long_tail(labels: Column, factor: float, seed: int = 0) -> NDArray[np.bool_]:
    """Class i of C (in sorted order) keeps a share factor^{i/(C−1)} of its rows, at least one row.

    >>> labels = np.repeat(np.arange(3), 100)
    >>> np.bincount(labels[long_tail(labels, 0.01)]).tolist()
    [100, 10, 1]
    """
    labels = column(labels)
    classes = np.unique(labels)
    if len(classes) < 2 or not 0 < factor <= 1:
        raise DataError(f"a long tail needs at least two classes and a factor above 0 and at most 1; there are {len(classes)} classes, "
                        f"and the factor is {factor}")
    return _thinned(labels, {value: factor ** (i / (len(classes) - 1)) for i, value in enumerate(classes.tolist())}, seed)


def step(labels: Column, minority: Iterable[Any], keep: float, seed: int = 0) -> NDArray[np.bool_]:
    """The `minority` classes keep a share `keep` of their rows, at least one row each; the others keep all.

    >>> labels = np.repeat(np.arange(4), 50)
    >>> np.bincount(labels[step(labels, [2, 3], 0.1)]).tolist()
    [50, 50, 5, 5]
    """
    return _thinned(column(labels), dict.fromkeys(minority, keep), seed)


def _thinned(labels: NDArray[Any], keep: Mapping[Any, float], seed: int) -> NDArray[np.bool_]:
    mask, r = np.ones(len(labels), dtype=bool), np.random.default_rng(seed)
    for value, share in keep.items():
        rows = np.flatnonzero(labels == value)
        if not 0 < share <= 1:
            raise DataError(f"the share of rows to keep must be above 0 and at most 1, not {share}")
        if len(rows) == 0:
            raise DataError(f"no row has the label {value!r}; the labels are {np.unique(labels).tolist()[:10]}")
        mask[r.permutation(rows)[max(1, round(share * len(rows))):]] = False
    return mask
