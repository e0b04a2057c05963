"""Balanced draws: as many rows of each value in every batch, to within one, whatever a client has of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from draws import ENGINES, draw_of, labelled, one
from torch import Tensor

from rookery import Data, Federation, Minimization, Program
from rookery.data import Request
from rookery.data.sampling import Balanced
from rookery.errors import DataError
from rookery.federation import Client

LABELS = {"even": [0, 1] * 5, "rare": [0] * 30 + [1], "three": [5, 0, 7, 0, 0, 0], "one value": [2, 2, 2], "one row": [1]}


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9])
def test_every_batch_has_as_many_rows_of_each_value_to_within_one(size: int) -> None:
    data, sampler = labelled(**LABELS), Balanced("label")
    selection = sampler.select(draw_of(data, steps=12), Request(size))
    for client, own in enumerate(LABELS.values()):
        for step in range(12):
            batch = one(sampler, data, selection, client, step)
            assert batch.label.tolist() == [own[row] for row in batch.row.tolist()]
            counts = Counter(batch.label.tolist())
            each = [counts[value] for value in set(own)]
            assert sum(each) == size
            assert max(each) - min(each) <= 1


def test_the_one_row_more_goes_round_from_step_to_step() -> None:
    data, sampler = labelled(three=LABELS["three"], even=LABELS["even"]), Balanced("label")
    selection = sampler.select(draw_of(data, steps=6), Request(4))
    for client, number in ((0, 3), (1, 2)):
        drawn = Counter(value for step in range(6) for value in one(sampler, data, selection, client, step).label.tolist())
        assert set(drawn.values()) == {24 // number}


def test_within_a_value_every_row_comes_as_often_as_every_other() -> None:
    data, sampler = labelled(a=[0] * 7 + [1] * 3), Balanced("label")
    selection = sampler.select(draw_of(data, steps=4000), Request(6))
    counts = torch.bincount(selection["index"].flatten(), minlength=10).numpy()
    for rows, expected in ((slice(0, 7), 12000 / 7), (slice(7, 10), 12000 / 3)):
        chi_square = ((counts[rows] - expected) ** 2 / expected).sum()
        assert chi_square < 25  # six degrees of freedom at most: beyond it once in 3 000 draws


def test_a_full_batch_has_all_rows() -> None:
    data, sampler = labelled(a=LABELS["rare"]), Balanced("label")
    assert sampler.select(draw_of(data), Request())["rows"].flatten().tolist() == list(range(31))


def test_a_field_that_is_not_there_is_named() -> None:
    with pytest.raises(DataError, match="no field 'sex' to group by; the clients have"):
        Balanced("sex").select(draw_of(labelled(a=[0, 1])), Request(2))


@dataclass(frozen=True)
class Seen(Program):
    """Adds up the numbers of the rows that a client draws, with other weights in each repetition, a row of the total per client."""

    clients: int

    def rows(self, c: Client, total: Tensor, k: float) -> Tensor:
        return 3 * total + (torch.arange(self.clients) == k).double()[:, None] * c.draw(5).row


def test_every_engine_draws_the_same_rows() -> None:
    data = Data.from_parts({name: {"label": torch.tensor(own), "row": torch.arange(len(own), dtype=torch.float64)}
                            for name, own in LABELS.items()})
    found = []
    for engine in ENGINES:
        fed = Federation(Minimization(lambda x, b: x.sum(), sampling=Balanced("label")), data, engine=engine, seed=4)
        start = fed.broadcast(torch.zeros(5, 5, dtype=torch.float64))
        found.append(fed.sum(fed.iterate(Seen(5).rows, start, np.arange(5), steps=4)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert found[0][:3].unique().numel() > 3
