"""Columns that tell single rows apart, by which nothing is computed: what is told of such a group would be told of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..data.store import Data
from ..federation.program import Program


def many(values: int, rows: int, least: int) -> bool:
    """Whether there are so many values that they have fewer than `least` rows on average, and more than `least` of them.

    >>> many(5, 5, 5), many(6, 25, 5), many(6, 30, 5)
    (False, True, False)
    """
    return values > max(least, rows / least)


def single_rows(data: Data, least: int) -> frozenset[str]:
    """The columns of one number a row, besides labels and sites, with many values of fewer than `least` rows, in all splits together."""
    parts = [part for name in ("train", *data.splits) if (part := data.split(name)) is not None]
    names = {name for part in parts for name, form in part.forms().items() if not form.shape} - {"labels", "site"}
    columns = {name: torch.cat([part.column(name) for part in parts if name in part.forms()]) for name in sorted(names)}
    return frozenset(name for name, column in columns.items() if many(len(np.unique(column.cpu().numpy())), len(column), least))


def texts(value: Any) -> set[str]:
    """All texts among a program's hyper-parameters, and in those of programs among them, but for names of splits."""
    if isinstance(value, Program):
        return set().union(*(texts(own) for name, own in vars(value).items() if name != "split"))
    if isinstance(value, tuple | list):
        return set().union(*map(texts, value))
    return {value} if isinstance(value, str) else set()
