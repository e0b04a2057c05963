"""Sums over the rows of a split, such as scores: at one point for all clients, they are one pass over the rows of many clients."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.store import Data
from ..federation.client import Setting
from ..federation.operations import Flush, Index, Map, Ref
from ..federation.program import RowSum
from ..federation.reducer import Reducer, Work

ROWS = 16384  # in one pass, unless one client has more


def row_sums(setting: Setting, flush: Flush, reducer: Reducer) -> bool:
    """Whether the flush is nothing but such a sum, at values that the server has sent; it has then been carried out."""
    op = flush.ops[0] if len(flush.ops) == 1 else None
    if not isinstance(op, Map) or not isinstance(op.fn.__self__, RowSum) or op.fn.__func__ is not RowSum.total:
        return False
    given = all(a.id in flush.values if isinstance(a, Ref) else isinstance(a, float | int | str) for a in op.arguments)
    rows = setting.data.split(op.fn.__self__.split)
    wanted = flush.wants == list(op.out) and not flush.keep.intersection(op.out)
    if not given or not wanted or op.times != 1 or (rows is not None and not rows.in_memory):
        return False
    values = [flush.values[a.id] if isinstance(a, Ref) else a for a in op.arguments]
    own, sizes = _places(setting, rows, flush.cohort)
    ends, begun = np.cumsum(sizes), 0
    while begun < len(own):
        until = max(begun + 1, int(np.searchsorted(ends, ends[begun] - sizes[begun] + ROWS, side="right")))
        owner = torch.from_numpy(np.repeat(np.arange(until - begun), sizes[begun:until])).to(setting.data.device)
        b = Batch(_fields(setting, rows, own[begun:until], sizes[begun:until]), owner)
        # one sum over all rows does, unless clients' values are wanted, or one of them has to be named because it is not finite
        total = op.fn.__self__.by_owner(setting.problem, b, torch.zeros_like(owner), 1, *values) if reducer.plain else None
        if total is not None and bool(torch.isfinite(total.sum())):
            reducer.add_sum([total[0]])
        else:
            reducer.add_stack([op.fn.__self__.by_owner(setting.problem, b, owner, until - begun, *values)], begun)
        begun = until
    reducer.work(op, Work(Counter(), int(sizes.sum()), 0))
    return True


def _places(setting: Setting, rows: Data | None, cohort: Index) -> tuple[Index, Index]:
    """The places of a cohort's clients in the split, and how many rows each shows: none where they are fewer than `min_batch`."""
    if rows is None:
        return np.full(len(cohort), -1), np.zeros(len(cohort), dtype=np.int64)
    place = {name: k for k, name in enumerate(rows.names)}
    own = np.asarray([place.get(setting.data.names[k], -1) for k in cohort])
    sizes = np.where(own >= 0, rows.sizes[own], 0)
    return own, np.where(sizes < setting.min_batch, 0, sizes)


def _fields(setting: Setting, rows: Data | None, own: Index, sizes: Index) -> dict[str, Tensor]:
    """The rows of some clients, one after the other; not copied where they stand so."""
    if rows is None or not sizes.any():
        return {name: column[:0] for name, column in (rows or setting.data).views(0).items()}
    own, sizes = own[sizes > 0], sizes[sizes > 0]
    starts = rows.offsets[own]
    ends = starts + sizes
    if bool((starts[1:] == ends[:-1]).all()):
        return {name: column[int(starts[0]) : int(ends[-1])] for name, column in rows.fields.items()}
    numbers = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    found: dict[str, Any] = rows.take(torch.from_numpy(numbers))
    return found
