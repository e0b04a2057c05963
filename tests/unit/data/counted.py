"""Rows in memory, the same rows in datasets that count what is read, and a loss on them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rookery import Data, Minimization

SIZES = {"north": 9, "south": 4, "east": 7, "west": 4}
LINEAR = Minimization(lambda x, b: (b.inputs @ x - b.labels).square().mean())


def parts(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    r = torch.Generator().manual_seed(seed)
    return {name: {"inputs": torch.randn(n, 3, generator=r), "labels": (torch.arange(n) % 3 == 0).long(),
                   "task": torch.arange(n) % 2, "many": torch.randn(n, 5, 2, generator=r)} for name, n in SIZES.items()}


class Counting(Dataset[dict[str, Any]]):
    """Rows by name, and how often each was read."""

    def __init__(self, fields: dict[str, Tensor]) -> None:
        self.fields = fields
        self.read: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def __getitem__(self, row: int) -> dict[str, Any]:
        assert type(row) is int
        self.read[row] += 1
        return {name: column[row] for name, column in self.fields.items()}


def lazy(data: Data) -> Data:
    return Data.from_datasets({name: Counting(data.views(k)) for k, name in enumerate(data.names)})


class Pictures(Dataset[tuple[Any, int]]):
    """In the manner of torchvision: bytes on request, a transform, classes known as `targets`."""

    def __init__(self, n: int, transform: Any) -> None:
        self.targets, self.transform = [i % 3 for i in range(n)], transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        return self.transform(np.full((2, 4), row, dtype=np.uint8)), self.targets[row]
