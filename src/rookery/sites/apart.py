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


class Apart:
    """Which columns tell rows apart: those of one number a row, besides labels and sites, with many values of fewer than `least` rows.

    A column is looked at when it is first named, in all splits together.
    """

    def __init__(self, data: Data, least: int) -> None:
        self.parts = [part for name in ("train", *data.splits) if (part := data.split(name)) is not None]
        named = {name for part in self.parts for name, form in part.forms().items() if not form.shape} - {"labels", "site"}
        self.least, self.names, self.known = least, frozenset(named if least > 1 else ()), dict[str, bool]()

    def among(self, value: Any) -> list[str]:
        """Those that a program or other hyper-parameters name."""
        return [name for name in sorted(self.names & texts(value)) if self._apart(name)] if self.names else []

    def _apart(self, name: str) -> bool:
        if name not in self.known:
            columns = [part.column(name) for part in self.parts if name in part.forms()]
            column = torch.cat([own.double() if own.is_floating_point() else own for own in columns])
            self.known[name] = many(len(np.unique(column.cpu().numpy())), len(column), self.least)
        return self.known[name]


def texts(value: Any) -> set[str]:
    """All texts among a program's hyper-parameters, and in those of programs among them, but for names of splits."""
    if isinstance(value, Program):
        return set().union(*(texts(own) for name, own in vars(value).items() if name != "split"))
    if isinstance(value, tuple | list):
        return set().union(*map(texts, value))
    return {value} if isinstance(value, str) else set()
