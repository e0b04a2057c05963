"""The ledger and its phases: what is booked where, and that evaluation does not shift the draws of training."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from verbs import engines, federation, ones, work

from rookery import Federation
from rookery.federation import Ledger


@engines
def test_evaluation_does_not_shift_the_draws_of_training(engine: str) -> None:
    def table(fed: Federation) -> list[Any]:
        drawn: list[Any] = fed.sum(fed.map(work.drawn, np.arange(4))).tolist()
        return drawn

    plain, other = federation(engine, clients_per_round=2), federation(engine, clients_per_round=2)
    tables, evaluations, cohorts = [], [], []
    for _ in range(3):
        tables.append((table(plain), table(other)))
        cohorts.append((plain.cohort().names, other.cohort().names))
        with other.phase("evaluation"):
            evaluations.append(table(other))
            other.cohort()
            other.integer(9)
    assert all(a == b for a, b in tables)
    assert all(a == b for a, b in cohorts)
    everything = [str(a) for a, _ in tables] + [str(e) for e in evaluations]
    assert len(set(everything)) == 6
    assert (other.ledger["train"].exchanges, other.ledger["evaluation"].exchanges) == (3, 3)
    assert (other.ledger["train"].samples, other.ledger["evaluation"].samples) == (36, 36)
    assert plain.ledger["train"] == other.ledger["train"]
    assert plain.integer(1000) == other.integer(1000)


@engines
def test_work_is_booked_under_the_phase_that_asked_for_it(engine: str) -> None:
    """Also where it runs only with an exchange of another phase."""
    fed = federation(engine)
    trained = fed.map(work.descend, fed.broadcast(ones()), 0.1)
    with fed.phase("evaluation"):
        fed.mean(fed.map(work.level, fed.broadcast(ones())))
    fed.mean(trained)
    assert (fed.ledger["train"].samples, fed.ledger["evaluation"].samples) == (8, 4)
    assert (fed.ledger["train"].calls["gradient"], fed.ledger["evaluation"].calls["gradient"]) == (4, 0)


def test_a_phase_ends_with_its_block() -> None:
    fed = federation()
    with pytest.raises(ZeroDivisionError), fed.phase("evaluation"):
        raise ZeroDivisionError
    fed.mean(fed.broadcast(ones()))
    assert (fed.ledger["train"].exchanges, fed.ledger["evaluation"].exchanges) == (1, 0)


@engines
def test_the_ledger_counts_the_calls_that_were_made(engine: str) -> None:
    fed = federation(engine)
    fed.mean(fed.map(work.several, fed.broadcast(ones()), 2))
    assert fed.ledger["train"].calls == {"gradient": 8}
    fed.mean(fed.map(work.several, fed.broadcast(ones()), 5))
    assert fed.ledger["train"].calls == {"gradient": 28}
    assert fed.ledger["train"].samples == 16


def test_the_ledger_survives_json() -> None:
    fed = federation()
    with fed.phase("setup"):
        fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    fed.mean(fed.map(work.descend, fed.broadcast(ones()), 0.1))
    saved = json.loads(json.dumps(fed.ledger.to_json()))
    assert saved["train"]["calls"] == {"gradient": 4}
    again = Ledger()
    assert again != fed.ledger
    again.load(saved)
    assert again == fed.ledger
