"""The column that numbers groups of rows, looked at before anything is counted by it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..data.batch import Batch
from ..errors import DataError


def large_groups(group: Tensor, least: int) -> Tensor:
    """Which rows are of a group that has `least` rows or more.

    >>> large_groups(torch.tensor([0, 1, 1]), 2)
    tensor([False,  True,  True])
    """
    _, place, rows = np.unique(group.cpu().numpy(), return_inverse=True, return_counts=True)
    return torch.from_numpy(rows >= least)[torch.from_numpy(place)].to(group.device)


def group_of(b: Batch, field: str | None, groups: int) -> Tensor:
    """Each row's group, from 0 to groups − 1; without a field all rows are of one.

    >>> rows = Batch({"labels": torch.tensor([0, 1]), "sex": torch.tensor([1, 0])})
    >>> group_of(rows, "sex", 2), group_of(rows, None, 1)
    (tensor([1, 0]), tensor([0, 0]))
    """
    if field is None:
        return torch.zeros_like(b.labels)
    if field not in b.fields:
        raise DataError(f"the field of the groups must be one of the rows' fields {sorted(b.fields)}; got {field!r}")
    group = b.fields[field]
    if group.dtype != torch.int64 or group.ndim != 1 or bool(((group < 0) | (group >= groups)).any()):
        # which numbers it holds is not said: the sentence may go to a server
        raise DataError(f"the field {field!r} must hold a whole number (int64) from 0 to {groups - 1} for each row; got {group.dtype} of "
                        f"shape {tuple(group.shape)} with others: number the groups from 0, and give rows of which it is not known a "
                        "number too")
    return group
