"""Rows of a client with so many positives, for objectives over positives."""

from __future__ import annotations

import torch
from torch import Tensor


def rows(n: int, positives: int, seed: int) -> dict[str, Tensor]:
    r = torch.Generator().manual_seed(seed)
    labels = torch.zeros(n, dtype=torch.int64)
    labels[torch.randperm(n, generator=r)[:positives]] = 1
    return {"inputs": torch.randn(n, 3, generator=r, dtype=torch.float64) + labels[:, None] * 0.7, "labels": labels}
