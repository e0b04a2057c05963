"""The verbs: what an exchange is, what it costs, how a mean is weighted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verbs import ENGINES, LEVEL, NAMES, engines, federation, ones, outcome, work

from rookery import Placed


@engines
def test_several_values_in_one_mean_are_one_exchange(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    first, second = fed.map(work.both, x)
    third = fed.map(work.increment, fed.broadcast(torch.zeros(3)))
    got = fed.mean(first, second, third)
    assert [value.tolist() for value in got] == [[2.0, 2.0], [3.0, 3.0], [1.0, 1.0, 1.0]]
    account = fed.ledger["train"]
    assert account.exchanges == 1
    assert account.floats_up == 4 * (2 + 2 + 3)
    assert account.bytes_up == 4 * (2 * 8 + 2 * 8 + 3 * 4)
    assert account.floats_down == 4 * (2 + 3)
    assert account.bytes_down == 4 * (2 * 8 + 3 * 4)
    assert fed.ledger["evaluation"].exchanges == 0


@engines
def test_a_broadcast_value_used_twice_costs_once(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    fed.mean(fed.map(work.increment, x), fed.map(work.add, x, x))
    assert fed.ledger["train"].floats_down == 8
    fed.mean(fed.map(work.add, x, 3.0))
    assert fed.ledger["train"].floats_down == 8
    fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    assert fed.ledger["train"].floats_down == 16


@engines
def test_a_broadcast_value_that_is_never_used_costs_nothing(engine: str) -> None:
    fed = federation(engine)
    unused = fed.broadcast(ones())
    fed.mean(fed.map(work.increment, fed.broadcast(torch.zeros(3))))
    assert fed.ledger["train"].floats_down == 12
    assert isinstance(unused, Placed)


@engines
def test_a_new_member_of_a_cohort_pays(engine: str) -> None:
    fed = federation(engine, clients_per_round=2, seed=1)
    x = fed.broadcast(ones())
    reached: set[str] = set()
    for _ in range(6):
        S = fed.cohort()
        reached |= set(S.names)
        assert S.mean(S.map(work.increment, x)).tolist() == [2.0, 2.0]
        assert fed.ledger["train"].floats_down == 2 * len(reached)
    assert reached == set(NAMES)


@engines
def test_a_broadcast_value_is_what_it_was_when_it_was_broadcast(engine: str) -> None:
    fed = federation(engine)
    x = ones()
    y = fed.map(work.increment, fed.broadcast(x))
    x += 5
    assert fed.mean(y).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_client_function_that_works_in_place_changes_nobody_else(engine: str) -> None:
    fed = federation(engine)
    x = ones()
    assert outcome(lambda: fed.mean(fed.map(work.in_place, fed.broadcast(x)))) == "PlacementError"
    assert x.tolist() == [1.0, 1.0]


@engines
@pytest.mark.parametrize(("weights", "numbers"), [("equal", [1, 1, 1, 1]), ("samples", [4, 5, 6, 7]), ([0.1, 0, 7, 0.2],) * 2], ids=str)
def test_weights_are_renormalised_in_a_cohort(engine: str, weights: Any, numbers: list[float]) -> None:
    fed = federation(engine, weights=weights, seed=3)
    seen = set()
    for size in (4, 3, 3, 2, 2, 4):
        S = fed.cohort(size)
        members = [NAMES.index(name) for name in S.names]
        assert len(members) == size
        seen.add(tuple(members))
        total = sum(numbers[k] for k in members)
        expected = sum(numbers[k] * LEVEL[k] for k in members) / total
        got = S.mean(S.map(work.level, S.broadcast(ones())))
        assert got.tolist() == pytest.approx([expected, expected], rel=1e-12)
    assert len(seen) >= 3


@engines
def test_a_sum_is_unweighted(engine: str) -> None:
    fed = federation(engine, weights=[0.1, 0, 7, 0.2])
    assert fed.sum(fed.map(work.level, fed.broadcast(ones()))).tolist() == [1111.0, 1111.0]
    S = fed.cohort(2)
    expected = sum(LEVEL[NAMES.index(name)] for name in S.names)
    assert S.sum(S.map(work.level, S.broadcast(ones()))).tolist() == [expected, expected]


@engines
def test_a_mean_keeps_the_dtype(engine: str) -> None:
    fed = federation(engine, weights="samples")
    for dtype in (torch.float32, torch.float64):
        assert fed.mean(fed.map(work.increment, fed.broadcast(torch.ones(3, dtype=dtype)))).dtype == dtype


@engines
def test_a_value_may_be_a_number(engine: str) -> None:
    fed = federation(engine)
    got = fed.mean(fed.map(work.add, fed.broadcast(torch.tensor(1.0)), np.asarray([1.0, 2.0, 3.0, 6.0])))
    assert got.shape == ()
    assert float(got) == 4.0


def test_the_same_value_twice_in_a_mean_is_alike_on_every_engine() -> None:
    seen = []
    for engine in ENGINES:
        fed = federation(engine)
        y = fed.map(work.increment, fed.broadcast(ones()))
        seen.append(outcome(lambda fed=fed, y=y: fed.mean(y, y)))
        assert fed.mean(fed.map(work.increment, fed.broadcast(ones()))).tolist() == [2.0, 2.0], engine
    assert seen[0] in ("PlacementError", [("torch.float64", [2.0, 2.0])] * 2)
    assert seen == [seen[0]] * 3
