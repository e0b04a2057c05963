"""How many rows there are of each class and group, and a column that numbers what rows have of both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..data import Data
from ..errors import ConfigError, DataError

CELLS = "class and group"  # the column that numbers them
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tally:
    """How many rows there are.

    train: of every group and class among the training rows, (groups, classes)
    held:  of every site and class among the validation rows, (sites, classes); in one line where sites tell sums alone
    """

    train: Counts
    held: Counts

    @property
    def cells(self) -> tuple[int, ...]:
        """The numbers group · classes + class of what some training row has, in order."""
        return tuple(np.flatnonzero(self.train).tolist())

    @property
    def rarest(self) -> int:
        """The rows of the class, or of the class and group, that has the fewest of them, among training or among validation rows."""
        return int(min(self.train.sum(0).min(), self.held.sum(0).min(), self.train[self.train > 0].min(initial=2**62)))


def tally(data: Data, classes: int, sensitive: str | None = None, groups: int = 1) -> Tally:
    """Those of rows that are here."""
    held = data.split("validation")
    own = np.zeros((0, classes), dtype=np.int64)
    if held is not None:
        site = np.repeat(np.arange(len(held.names)), held.sizes)
        own = np.bincount(site * classes + held.column("labels").cpu().numpy(), minlength=len(held.names) * classes).reshape(-1, classes)
    return Tally(np.bincount(_cell(data, sensitive, classes), minlength=groups * classes).reshape(-1, classes), own)


def _cell(data: Data, sensitive: str | None, classes: int) -> Counts:
    labels = data.column("labels").cpu().numpy()
    return np.asarray(labels if sensitive is None else data.column(sensitive).cpu().numpy() * classes + labels)


def number_cells(data: Data, sensitive: str, classes: int, cells: Sequence[int] | None = None) -> Data:
    """The rows with a column that numbers what they have of class and group together.

    cells: what there is anywhere, as `Tally` has it; where it is left out, what these rows have
    """
    if CELLS in data.fields:
        raise ConfigError(f"a fit has a column {CELLS!r} of its own; rename yours")
    if sensitive not in data.fields:
        raise DataError(f"the sensitive column must be one that is kept of the rows; {sensitive!r} is none of {sorted(data.fields)}: name "
                        "it under keep")
    cell = _cell(data, sensitive, classes)
    known = np.unique(cell) if cells is None else np.asarray(cells, dtype=np.int64)
    if not np.isin(cell, known).all():
        raise DataError(f"all classes and groups of training rows must be among those that the sites agreed on; some of {sensitive!r} here "
                        "are none: begin another run")
    place = torch.from_numpy(np.searchsorted(known, cell))
    return Data(data.fields | {CELLS: place}, data.names, data.sizes, dict(data.splits))
