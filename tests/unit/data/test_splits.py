"""Rows beside those to train on: they stay with their clients, follow them, and are reached by client functions."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from rookery import Data, Federation, Minimization, Program
from rookery.errors import DataError
from rookery.federation import Client


def rows(**parts: list[float]) -> Data:
    return Data.from_parts({name: {"u": torch.tensor(u, dtype=torch.float64)} for name, u in parts.items()})


TRAIN = rows(a=[1.0, 2.0], b=[3.0], c=[4.0, 5.0, 6.0])
HELD = rows(c=[40.0], a=[10.0, 20.0])


@dataclass(frozen=True)
class Ask(Program):
    split: str

    def sums(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        b = c.rows(self.split)
        return b.u.sum() * x, x.new_tensor(len(b.u))


def test_a_split_belongs_to_clients_that_train() -> None:
    with pytest.raises(DataError, match=r"'validation' has rows of client 'z', who has none to train on"):
        TRAIN.with_splits(validation=rows(z=[1.0]))
    with pytest.raises(DataError, match=r"no rows called 'test'; they have train, validation"):
        TRAIN.with_splits(validation=HELD).split("test")
    assert TRAIN.with_splits(validation=HELD).split("train").names == ("a", "b", "c")  # type: ignore[union-attr]


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire", "auto"])
def test_client_functions_see_their_own_rows_of_a_split(engine: str) -> None:
    fed = Federation(Minimization(lambda x, b: (x * b.u.mean()).sum()), TRAIN.with_splits(validation=HELD), engine=engine)
    sums, counts = fed.collect(*fed.map(Ask("validation").sums, fed.broadcast(torch.ones(1, dtype=torch.float64))))
    assert sums[:, 0].tolist() == [30.0, 0.0, 40.0]
    assert counts.tolist() == [2, 0, 1]
    assert fed.ledger["train"].samples == 3
    sums, counts = fed.collect(*fed.map(Ask("train").sums, fed.broadcast(torch.ones(1, dtype=torch.float64))))
    assert sums[:, 0].tolist() == [3.0, 3.0, 15.0]


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_fewer_rows_than_min_batch_count_as_none(engine: str) -> None:
    fed = Federation(Minimization(lambda x, b: x.sum()), TRAIN.with_splits(validation=HELD), engine=engine, min_batch=2)
    sums, counts = fed.collect(*fed.map(Ask("validation").sums, fed.broadcast(torch.ones(1, dtype=torch.float64))))
    assert (sums[:, 0].tolist(), counts.tolist()) == ([30.0, 0.0, 0.0], [2, 0, 0])


def test_splits_follow_clients() -> None:
    data = TRAIN.with_splits(validation=HELD)
    assert data.part(1, 2).split("validation").names == ("c",)  # type: ignore[union-attr]
    assert data.part(1).split("validation") is None
    assert data.part(1).split_rows("validation", 0)["u"].shape == (0,)
    assert data.to("cpu").split_rows("validation", 2)["u"].tolist() == [40.0]
    assert data.with_splits(test=HELD).splits.keys() == {"validation", "test"}


def test_datasets_have_splits_too() -> None:
    def of(*numbers: float) -> TensorDataset:
        return TensorDataset(torch.tensor(numbers, dtype=torch.float64))

    train = Data.from_datasets({"a": of(1.0, 2.0), "b": of(3.0)}, fields=["u"])
    held = Data.from_datasets({"b": of(7.0, 8.0)}, fields=["u"])
    for engine in ("loop", "wire"):
        fed = Federation(Minimization(lambda x, b: x.sum()), train.with_splits(validation=held), engine=engine)
        sums, counts = fed.collect(*fed.map(Ask("validation").sums, fed.broadcast(torch.ones(1, dtype=torch.float64))))
        assert (sums[:, 0].tolist(), counts.tolist()) == ([0.0, 15.0], [0, 2])
    assert train.with_splits(validation=held).part(0).split("validation") is None
