"""Recorded work: it is computed once, when somebody reads it, and never if nobody does."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from rounds import rounds
from torch import Tensor
from verbs import CALLS, engines, federation, ones, work

from rookery import SCAFFOLD, Federation, Minimization
from rookery.errors import AlgorithmError
from rookery.federation import Ledger
from rookery.problems import testproblems as known


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_result_is_computed_once(engine: str) -> None:
    fed = federation(engine)
    del CALLS[:]
    y = fed.map(work.increment, fed.broadcast(ones()))
    z = fed.map(work.add, y, y)
    w = fed.map(work.add, y, z)
    assert fed.mean(z).tolist() == [4.0, 4.0]
    assert fed.mean(w).tolist() == [6.0, 6.0]
    assert fed.mean(y).tolist() == [2.0, 2.0]
    assert sorted(CALLS) == ["add"] * 8 + ["increment"] * 4


@engines
def test_map_is_lazy(engine: str) -> None:
    fed = federation(engine)
    del CALLS[:]
    y = fed.map(work.increment, fed.broadcast(ones()))
    both = fed.map(work.both, y)
    assert CALLS == []
    assert fed.ledger == Ledger()
    fed.mean(*both)
    assert set(CALLS) == {"increment", "both"}


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_what_nobody_reads_is_not_computed(engine: str) -> None:
    fed = federation(engine)
    del CALLS[:]
    x = fed.broadcast(ones())
    unread = fed.map(work.both, fed.map(work.increment, x))
    del unread
    gc.collect()
    fed.mean(fed.map(work.add, x, 1.0))
    assert CALLS == ["add"] * 4
    fed.mean(fed.map(work.add, x, 1.0))
    assert CALLS == ["add"] * 8


@engines
def test_what_nobody_reads_costs_nothing(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    fed.map(work.descend, fed.broadcast(ones()), 0.1)
    fed.mean(fed.map(work.increment, x))
    account = fed.ledger["train"]
    assert (account.samples, account.calls.total(), account.floats_down) == (0, 0, 8)


def test_unread_work_at_past_cohorts_does_not_pile_up() -> None:
    fed = federation(clients_per_round=2)
    for _ in range(30):
        S = fed.cohort()
        S.map(work.increment, S.broadcast(ones()))
        fed.mean(fed.broadcast(ones()))
    assert len(fed.pending.queue) <= 1
    assert len(fed.pending.values) <= 2


def test_an_interrupt_and_a_cohort_without_weight_leave_the_state_usable() -> None:
    k = known.minimization()
    armed = [False]

    def f(x: Tensor, b: Any) -> Tensor:
        if armed[0]:
            raise KeyboardInterrupt
        return (b.a @ x - b.b).square().mean()

    fed = Federation(Minimization(f), k.data, engine="loop")
    algorithm = SCAFFOLD(0.05)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 2)
    armed[0] = True
    with pytest.raises(KeyboardInterrupt):
        algorithm.round(fed, state)
    armed[0] = False
    rounds(algorithm, fed, state, 2)
    light = Federation(k.problem, k.data, weights=[1, 0, 0, 1], clients_per_round=1)
    rounds(algorithm, light, algorithm.init(light, k.x0), 5)
    with pytest.raises(AlgorithmError, match="positive weight"):
        light.cohort(3)
