"""Clients of unequal numbers of labelled rows in two groups, and one loss a row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rookery import Batch, Data

X = torch.tensor([0.3, -0.2, 0.1])


def rows(clients: int = 3, dtype: torch.dtype = torch.float32) -> Data:
    r = np.random.default_rng(0)
    return Data.from_parts({f"c{k}": {"inputs": torch.tensor(r.standard_normal((6 + k, 3)), dtype=dtype),
                                      "labels": torch.arange(6 + k) % 2, "group": torch.arange(6 + k) % 3 % 2} for k in range(clients)})


def each(x: Tensor, b: Batch) -> Tensor:
    return (b.inputs @ x - b.labels).square()
