"""The population's state: what put writes and take reads, across cohorts."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from verbs import ENGINES, LEVEL, NAMES, engines, federation, ones, outcome, work

from rookery import SCAFFOLD, Federation
from rookery.errors import PlacementError
from rookery.problems import testproblems as known


@engines
def test_values_persist_per_client_across_cohorts(engine: str) -> None:
    """Each cohort adds its round's number to its members' values; the others keep theirs, and the unseen have the default."""
    fed = federation(engine, clients_per_round=2, seed=4)
    expected: dict[str, float] = {}
    state = None
    for t in range(6):
        S = fed.cohort()
        zero = S.broadcast(ones(-5.0))
        old = zero if state is None else S.take(state, zero)
        new = S.map(work.add, old, float(10**t))
        state = fed.put(state, S, new)
        for name in S.names:
            expected[name] = expected.get(name, -5.0) + 10**t
        total = S.sum(S.map(work.increment, new))
        assert total.tolist() == [sum(expected[name] + 1 for name in S.names)] * 2
        if t == 0:
            everyone = fed.sum(fed.take(state, fed.broadcast(ones(-70.0))))
            assert everyone.tolist() == [sum(expected.get(name, -70.0) for name in NAMES)] * 2
            assert len(expected) == 2
    assert set(expected) == set(NAMES)
    everyone = fed.take(state, fed.broadcast(ones(-70.0)))
    each = fed.sum(*(fed.map(work.multiply, everyone, np.eye(4)[k]) for k in range(4)))
    assert [value.tolist() for value in each] == [[expected[name]] * 2 for name in NAMES]


@engines
@pytest.mark.parametrize("pool", [True, False], ids=["population", "cohort"])
def test_each_client_takes_its_own_value(engine: str, pool: bool) -> None:
    fed = federation(engine, seed=6)
    S = fed.cohort(3)
    value = S.map(work.level, S.broadcast(ones()))
    state = fed.put(None, S, value) if pool else value
    taken = fed.take(state, fed.broadcast(ones(-1.0)))
    each = fed.sum(*(fed.map(work.multiply, taken, np.eye(4)[k]) for k in range(4)))
    assert [value.tolist() for value in each] == [[LEVEL[k] if name in S.names else -1.0] * 2 for k, name in enumerate(NAMES)]


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_state_without_a_handle_is_freed(engine: str) -> None:
    fed = federation(engine, clients_per_round=2)
    algorithm = SCAFFOLD(lr=0.1, local_steps=2, batch=2)
    state = algorithm.init(fed, ones())
    held: Any = fed.engine
    for _ in range(20):
        state = algorithm.round(fed, state)
        assert len(held.pools) == 1
        assert len(held.store) <= 6
    del state
    gc.collect()
    for _ in range(2):
        fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    assert held.pools == {}
    assert held.store == {}


@engines
def test_the_old_handle_is_spent_after_put(engine: str) -> None:
    fed = federation(engine, clients_per_round=2)
    S = fed.cohort()
    first = fed.put(None, S, S.map(work.level, S.broadcast(ones())))
    second = fed.put(first, S, S.map(work.increment, S.broadcast(ones())))
    for use in (lambda f: S.take(f, S.broadcast(ones())), lambda f: fed.put(f, S, S.broadcast(ones())),
                lambda f: fed.map(work.increment, f), fed.mean):
        with pytest.raises(PlacementError, match="was replaced by put, which returned the new handle"):
            use(first)
    first = None
    gc.collect()
    assert S.sum(S.take(second, S.broadcast(ones()))).tolist() == [4.0, 4.0]


def test_put_writes_into_population_state_only() -> None:
    fed = federation(clients_per_round=2)
    S = fed.cohort()
    value = S.map(work.increment, S.broadcast(ones()))
    with pytest.raises(PlacementError, match=r"put writes into population state, made by put\(None, cohort, value\)"):
        fed.put(value, S, S.map(work.increment, S.broadcast(ones())))


@engines
def test_put_takes_a_value_of_that_cohort(engine: str) -> None:
    fed = federation(engine)
    S, T = fed.cohort(2), fed.cohort(3)
    with pytest.raises(PlacementError):
        T.sum(T.take(fed.put(None, S, T.map(work.increment, T.broadcast(ones()))), T.broadcast(ones())))


@engines
def test_take_of_another_cohort_s_value(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(2), fed.cohort(3)
    common = set(S.names) & set(T.names)
    assert 0 < len(common) < 3
    value = S.map(work.level, S.broadcast(ones()))
    got = T.sum(T.take(value, T.broadcast(ones(-1.0))))
    assert got.tolist() == [sum(LEVEL[NAMES.index(n)] for n in common) - (3 - len(common))] * 2
    assert S.take(value, S.broadcast(ones())) is value
    assert S.sum(value).tolist() == [sum(LEVEL[NAMES.index(n)] for n in S.names)] * 2


def test_take_of_another_cohort_s_broadcast_value_is_alike_on_every_engine() -> None:
    seen = []
    for engine in ENGINES:
        fed = federation(engine, seed=2)
        S, T = fed.cohort(2), fed.cohort(3)
        value = S.broadcast(ones(7.0))
        assert S.sum(S.map(work.increment, value)).tolist() == [16.0, 16.0]
        seen.append(outcome(lambda T=T, value=value: T.sum(T.take(value, T.broadcast(ones(-1.0))))))
    assert seen == [seen[0]] * 3


@engines
def test_a_take_reads_what_was_there_before_a_later_put(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(2), fed.cohort(3)
    common = len(set(S.names) & set(T.names))
    state = fed.put(None, S, S.map(work.increment, S.broadcast(ones(0.0))))
    before = T.take(state, T.broadcast(ones(0.0)))
    state = fed.put(state, S, S.map(work.increment, S.broadcast(ones(99.0))))
    S.mean(S.map(work.increment, S.broadcast(ones())))
    assert common > 0
    assert T.sum(before).tolist() == [common] * 2
    assert T.sum(T.take(state, T.broadcast(ones(0.0)))).tolist() == [100.0 * common] * 2


@engines
def test_the_later_put_wins_whichever_cohort_is_reached_first(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(3), fed.cohort(3)
    state = fed.put(None, S, S.map(work.increment, S.broadcast(ones(0.0))))
    state = fed.put(state, T, T.map(work.increment, T.broadcast(ones(99.0))))
    T.mean(T.map(work.increment, T.broadcast(ones())))
    only = len(set(S.names) - set(T.names))
    assert fed.sum(fed.take(state, fed.broadcast(ones(0.0)))).tolist() == [300.0 + only] * 2


@engines
def test_cohorts_that_stay_unread_do_not_disturb_each_other(engine: str) -> None:
    fed = federation(engine, seed=2)
    S, T = fed.cohort(2), fed.cohort(3)
    first = S.map(work.level, S.broadcast(ones()))
    second = T.map(work.add, T.map(work.level, T.broadcast(ones())), 1.0)
    assert T.sum(second).tolist() == [sum(LEVEL[NAMES.index(n)] + 1 for n in T.names)] * 2
    assert S.sum(first).tolist() == [sum(LEVEL[NAMES.index(n)] for n in S.names)] * 2


@engines
def test_one_value_in_two_pools(engine: str) -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, engine=engine)
    V = fed.map(work.add, fed.broadcast(torch.zeros(3)), np.arange(4.0))
    a = fed.put(None, fed, V)
    b = fed.put(None, fed, V)
    zero = fed.broadcast(torch.zeros(3))
    assert fed.sum(fed.take(a, zero), fed.take(b, zero))[1].tolist() == [6.0, 6.0, 6.0]
