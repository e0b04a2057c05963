"""Numbers of the server as arguments of a client function: one for all, or one for each client."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from verbs import ENGINES, LEVEL, NAMES, engines, federation, ones, outcome, work

from rookery import Federation
from rookery.errors import PlacementError
from rookery.problems import testproblems as known


@engines
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
def test_an_array_gives_each_client_its_number(engine: str, dtype: Any) -> None:
    fed = federation(engine)
    numbers = np.asarray([1, 2, 3, 40], dtype=dtype)
    got = fed.sum(fed.map(work.multiply, fed.map(work.level, fed.broadcast(ones())), numbers))
    assert got.tolist() == [1 + 20 + 300 + 40_000.0] * 2
    assert got.dtype == torch.float64
    S = fed.cohort(2)
    members = [NAMES.index(name) for name in S.names]
    got = S.sum(S.map(work.multiply, S.map(work.level, S.broadcast(ones())), np.asarray([5, 7], dtype=dtype)))
    assert got.tolist() == [5 * LEVEL[members[0]] + 7 * LEVEL[members[1]]] * 2
    assert fed.ledger["train"].floats_down == 8 + 4  # numbers in headers are not counted


@engines
def test_an_array_repeats_with_its_client(engine: str) -> None:
    fed = federation(engine)
    got = fed.sum(fed.iterate(work.add, fed.broadcast(ones(0.0)), np.asarray([1.0, 2.0, 3.0, 4.0]), steps=np.asarray([1, 2, 2, 3])))
    assert got.tolist() == [1 + 4 + 6 + 12.0] * 2


@pytest.mark.parametrize("shape", [(3,), (5,), (4, 1), ()])
def test_an_array_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    fed = federation()
    words = rf"array passed to Work\.add holds one number for each of the 4 clients; got shape {re.escape(str(shape))}"
    with pytest.raises(PlacementError, match=words):
        fed.map(work.add, fed.broadcast(ones()), np.ones(shape))


@pytest.mark.parametrize("value", [2.5, 3, np.asarray([1, 2, 3, 4]), np.asarray([1.0, 2.0, 3.0, 4.0]), True, float("inf")], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_numbers_mean_the_same_on_every_engine(value: Any, dtype: torch.dtype) -> None:
    if dtype == torch.int64 and np.asarray(value).dtype == np.float64:
        pytest.skip("an integer tensor times a fraction is of the default dtype in a loop and float64 in a graph")
    seen = []
    for engine in ENGINES:
        fed = federation(engine)
        seen.append(outcome(lambda fed=fed: fed.sum(fed.map(work.multiply, fed.broadcast(torch.ones(2, dtype=dtype)), value))))
    assert seen == [seen[0]] * 3


@engines
@pytest.mark.parametrize("value", [(2.0, 3.0), [2.0, 3.0]], ids=str)
def test_a_row_of_numbers_is_an_argument(engine: str, value: Any) -> None:
    fed = federation(engine)
    assert fed.mean(fed.map(work.second, fed.broadcast(ones()), value)).tolist() == [3.0, 3.0]


def test_values_inside_a_tuple_are_refused() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data)
    with pytest.raises(PlacementError, match="one by one"):
        fed.map(work.add, fed.broadcast(k.x0), (fed.broadcast(k.x0),))
