"""Clients whose rows do not fit into memory train in little of it."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from rookery import Data, FedAvg, Federation, Minimization, Program
from rookery.data import Shuffled, Stratified
from rookery.errors import DataError
from rookery.federation import Client

MEGABYTE = 1 << 20
ROWS = 10_000


class Virtual(Dataset[tuple[Tensor, int]]):
    """So many rows of a megabyte each, made when they are read; notes the largest size of the process, and how often rows were read."""

    largest = 0

    def __init__(self, rows: int = ROWS, numbers: int = MEGABYTE // 4) -> None:
        self.rows, self.numbers, self.read = rows, numbers, 0

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        self.read += 1
        Virtual.largest = max(Virtual.largest, psutil.Process().memory_info().rss)
        return torch.full((self.numbers,), row / self.rows), row % 2


def mean_loss(x: Tensor, b: Any) -> Tensor:
    return (x - b.inputs[:, :2]).square().mean()


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("sampling", [Shuffled(), Stratified("labels", 1)], ids=["shuffled", "stratified"])
def test_small_batches_take_little_memory(engine: str, sampling: Any) -> None:
    """4 clients of 10 GB: a batch of 4 rows at all of them has 16 MB."""
    datasets = {f"client-{k}": Virtual() for k in range(4)}
    labels = {name: [row % 2 for row in range(ROWS)] for name in datasets}
    data = Data.from_datasets(datasets, columns={"labels": labels})
    fed = Federation(Minimization(mean_loss, sampling=sampling), data, engine=engine)
    algorithm = FedAvg(0.1, 5, 4)
    state = algorithm.init(fed, torch.zeros(2))
    gc.collect()
    Virtual.largest = before = psutil.Process().memory_info().rss
    for _ in range(3):
        state = algorithm.round(fed, state)
    assert Virtual.largest - before < 400 * MEGABYTE
    assert sum(dataset.read for dataset in datasets.values()) <= 4 * 3 * 5 * 4 + 10
    assert bool(torch.isfinite(state.x).all())


@dataclass(frozen=True)
class Whole(Program):
    def means(self, c: Client, x: Tensor) -> Tensor:
        return x + c.draw().inputs.mean()


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_full_batches_are_in_memory_one_client_at_a_time(engine: str) -> None:
    """12 clients of 64 MB: together more than is allowed, and twice one of them less."""
    fed = Federation(Minimization(mean_loss), Data.from_datasets({f"client-{k}": Virtual(64) for k in range(12)}), engine=engine)
    gc.collect()
    Virtual.largest = before = psutil.Process().memory_info().rss
    for _ in range(2):
        mean = fed.mean(fed.map(Whole().means, fed.broadcast(torch.zeros(2))))
    assert Virtual.largest - before < 400 * MEGABYTE
    torch.testing.assert_close(mean, torch.full((2,), 63 / 128))


def test_a_column_is_read_without_its_rows() -> None:
    data = Data.from_datasets({"a": Virtual(300)})
    gc.collect()
    Virtual.largest = before = psutil.Process().memory_info().rss
    assert data.groups("labels").size.tolist() == [150, 150]
    assert Virtual.largest - before < 150 * MEGABYTE


def test_a_full_batch_beyond_the_machine_is_refused_before_it_is_read() -> None:
    huge = Virtual(10**9)
    fed = Federation(Minimization(mean_loss), Data.from_datasets({"a": huge, "b": Virtual()}), engine="loop")
    with pytest.raises(DataError, match=r"1000000000 rows of client 'a' take 1\.05e\+06 GB, more than the memory of this machine"):
        fed.mean(fed.map(Whole().means, fed.broadcast(torch.zeros(2))))
    assert huge.read == 1
