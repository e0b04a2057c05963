"""Rows of two classes in double precision, linear scores, and problems whose clients have agreed on the share of positives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rookery import Batch

F64 = {"dtype": torch.float64}


def linear(x: Tensor, b: Batch) -> Tensor:
    return b.inputs @ x


def rows(n: int, positives: int, seed: int) -> dict[str, Tensor]:
    r = torch.Generator().manual_seed(seed)
    labels = torch.zeros(n, dtype=torch.int64)
    labels[torch.randperm(n, generator=r)[:positives]] = 1
    return {"inputs": torch.randn(n, 3, generator=r, **F64) + labels[:, None] * 0.7, "labels": labels}


def prepared(problem: Any, share: float) -> Any:
    return problem.finish(torch.tensor([share, 1.0], **F64))
