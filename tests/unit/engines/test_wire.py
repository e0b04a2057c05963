"""Faults on the way: a damaged reply is asked for again, and a round that failed can be run again from the state before it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rookery import SCAFFOLD, AccFCSGM, FedDRO, Federation, RookeryError
from rookery.engines import Wire
from rookery.errors import PlacementError, UploadError
from rookery.problems import testproblems as known

RUNS = pytest.mark.parametrize(("algorithm", "make"), [
    (SCAFFOLD(0.1, 2, 2), known.minimization), (FedDRO(0.1, 0.3, 2, 2), known.compositional), (AccFCSGM(0.1, 2, 2, 2), known.conditional),
], ids=["SCAFFOLD", "FedDRO", "Acc-FCSG-M"])


@RUNS
@pytest.mark.parametrize("lost", ["frame", "reply"])
def test_a_damaged_reply_is_asked_for_again(algorithm: Any, make: Any, lost: str) -> None:
    k = make()
    wire = Wire()
    fed, other = Federation(k.problem, k.data, engine=wire), Federation(k.problem, k.data, engine="loop")
    state, expected = algorithm.init(fed, k.x0), algorithm.init(other, k.x0)
    for t in range(4):
        site, genuine, faults = wire.sites[t], wire.sites[t].answer, [2]

        def faulty(frame: bytes, genuine: Any = genuine, faults: list[int] = faults) -> bytes:
            faults[0] -= 1
            if faults[0] >= 0:
                return b"" if lost == "frame" else genuine(frame)[:-1]
            return bytes(genuine(frame))

        site.answer = faulty  # type: ignore[method-assign]
        state, expected = algorithm.round(fed, state), algorithm.round(other, expected)
        site.answer = genuine  # type: ignore[method-assign]
        assert torch.equal(state.x, expected.x)
        assert faults[0] < 0
    assert fed.ledger == other.ledger


@RUNS
@pytest.mark.parametrize("engine", ["wire", "loop", "vectorised"])
@pytest.mark.parametrize("clients_per_round", [None, 3])
def test_a_round_that_failed_is_run_again_from_the_state_before_it(algorithm: Any, make: Any, engine: str,
                                                                        clients_per_round: int | None) -> None:
    k = make()
    fed, other = (Federation(k.problem, k.data, engine=e, clients_per_round=clients_per_round) for e in (engine, "loop"))
    state, expected = algorithm.init(fed, k.x0), algorithm.init(other, k.x0)
    for t in range(5):
        if t in (1, 3):
            calls, flush = dict(fed.counters), fed.engine.flush

            def failing(work: Any, reducer: Any, flush: Any = flush) -> None:
                if len(work.cohort) != 0 and work.wants:
                    add = reducer._check_form
                    reducer._check_form = lambda position, values: add(position, values) if position != 2 else _fail()
                flush(work, reducer)

            fed.engine.flush = failing  # type: ignore[method-assign]
            with pytest.raises(UploadError, match="on purpose"):
                algorithm.round(fed, state) if engine != "vectorised" else _vectorised(fed, algorithm, state)
            fed.engine.flush = flush  # type: ignore[method-assign]
            fed.counters = calls  # the round begins anew, with the same draws
        state, expected = algorithm.round(fed, state), algorithm.round(other, expected)
        torch.testing.assert_close(state.x, expected.x, rtol=1e-10, atol=1e-12)
        if engine == "wire":
            assert torch.equal(state.x, expected.x)


def _fail() -> None:
    raise UploadError("site-2", "on purpose")


def _vectorised(fed: Federation, algorithm: Any, state: Any) -> None:
    """This engine checks only suspects: make the upload itself bad."""
    flush = fed.engine.flush

    def failing(work: Any, reducer: Any) -> None:
        reducer.add_stack = lambda stacks: _fail()
        flush(work, reducer)

    fed.engine.flush = failing  # type: ignore[method-assign]
    algorithm.round(fed, state)


def test_what_a_failed_exchange_would_have_made_is_lost_by_name() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, engine="loop")
    algorithm = SCAFFOLD(0.1)
    x = fed.broadcast(torch.full((3,), 1e200, dtype=torch.float64))
    bad, other = fed.map(algorithm.step, x, x, x, 1e200), fed.map(algorithm.zero, x)
    with pytest.raises(UploadError, match="non-finite"):
        fed.mean(bad)
    with pytest.raises(PlacementError, match="lost with an exchange that failed"):
        fed.mean(other)


def test_a_site_that_stays_silent_is_named() -> None:
    k = known.minimization()
    wire = Wire()
    fed = Federation(k.problem, k.data, engine=wire)
    wire.sites[1].answer = lambda frame: b""  # type: ignore[method-assign]
    algorithm = SCAFFOLD(0.1)
    with pytest.raises(RookeryError, match=r"site-1.*3 times"):
        algorithm.round(fed, algorithm.init(fed, k.x0))
