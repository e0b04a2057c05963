"""Clients in shards: what the loop gives, however they are cut, also where an exchange fails at one shard or passes another by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import CASES
from torch import Tensor
from verbs import federation, ones, work

from rookery import SCAFFOLD, Data, FedDRO, Federation, Minimization, Program
from rookery.engines import Shards
from rookery.errors import EngineError, NonFinite, UploadError
from rookery.federation import Client
from rookery.federation.engine import ENGINES
from rookery.federation.reducer import Reducer
from rookery.problems import testproblems as known
from rookery.testing import Case, laws
from rookery.training.checkpoint import load, save

HELD = pytest.mark.parametrize("case", [case for case in CASES if case.name in (
    "FedAvg", "SCAFFOLD", "FedDRO", "FedNest/conjugate", "FCSG-M")], ids=lambda case: case.name)
COHORTS = pytest.mark.parametrize("clients_per_round", [None, 2], ids=["all", "cohort"])
CUTS = pytest.mark.parametrize("cut", [lambda: Shards(2, "loop"), lambda: Shards(3)], ids=["loop", "auto"])


class Two(Shards):
    """Two shards by name, for laws that make their own federations."""

    def __init__(self) -> None:
        super().__init__(2, "loop")


@dataclass(frozen=True)
class Own(Program):
    """Client functions whose values are the client's own."""

    def rows(self, c: Client, x: Tensor) -> Tensor:
        """As many numbers as the client has rows."""
        return c.rows().u[:, 0] * x[0]

    def total(self, c: Client, rows: Tensor) -> Tensor:
        return rows.sum()

    def fail(self, c: Client, x: Tensor) -> Tensor:
        raise KeyboardInterrupt if c.size == 7 else ValueError  # the last client of four


@HELD
@COHORTS
@pytest.mark.parametrize("batch", [None, 2], ids=["full", "batch"])
def test_shards_end_where_the_loop_ends_with_its_ledger(case: Case, clients_per_round: int | None, batch: int | None) -> None:
    def run(engine: Any) -> tuple[Federation, Any]:
        return case.advance(case.solved(), case.lr, laws.STEPS, batch, 4, engine=engine, clients_per_round=clients_per_round,
                            weights="samples", seed=7)

    loop, expected = run("loop")
    fed, state = run(Shards(1, "loop"))
    assert torch.equal(state.x, expected.x)
    assert fed.ledger == loop.ledger
    traced = [Shards(2)] if batch is not None and case.name != "FedNest/conjugate" else []  # tracing its graphs takes seconds
    for engine in (Shards(2, "loop"), *traced):
        fed, state = run(engine)
        torch.testing.assert_close(state.x, expected.x, rtol=1e-12, atol=1e-13)
        assert fed.ledger == loop.ledger


@HELD
@COHORTS
def test_a_resumed_run_ends_bit_for_bit_the_same(case: Case, clients_per_round: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, "shards", f"{__name__}:Two")
    laws.resumed_run_ends_bit_for_bit_the_same(case, "shards", clients_per_round)


@pytest.mark.parametrize("saved", ["loop", "shards"])
def test_a_run_goes_on_with_other_shards(saved: str, tmp_path: Path) -> None:
    k, algorithm = known.minimization(), SCAFFOLD(0.1, 2, 2)

    def fed(engine: Any) -> Federation:
        return Federation(k.problem, k.data, engine=engine, clients_per_round=2, seed=3)

    first = fed(Shards(2, "loop") if saved == "shards" else "loop")
    state = algorithm.round(first, algorithm.init(first, k.x0))
    save(tmp_path / "state", algorithm, first, state)
    ends = []
    for engine in (Shards(4, "loop"), Shards(1, "loop"), "loop"):
        second = fed(engine)
        end = load(tmp_path / "state", algorithm, second)
        for _ in range(4):
            end = algorithm.round(second, end)
        ends.append(end.x)
    torch.testing.assert_close(ends[0], ends[2], rtol=1e-12, atol=1e-13)
    assert torch.equal(ends[1], ends[2])


def test_state_of_unequal_lengths_is_saved_and_loaded_across_shards() -> None:
    def written(engine: Any) -> tuple[Federation, Any]:
        fed = federation(engine)
        return fed, fed.put(None, fed, fed.map(Own().rows, fed.broadcast(ones())))

    def totals(fed: Federation, state: Any) -> list[float]:
        return fed.collect(fed.map(Own().total, fed.take(state, fed.broadcast(ones())))).tolist()

    loop, state = written("loop")
    expected = totals(loop, state)
    assert expected == [4.0, 50.0, 600.0, 7000.0]
    fed, kept = written(Shards(3, "loop"))
    fed.pending.finish()
    tensors = fed.engine.save("tag", [kept.id])
    assert kept.id == state.id
    assert {name: value.tolist() for name, value in loop.engine.save("tag", [state.id]).items()} == {
        name: value.tolist() for name, value in tensors.items()}
    again = federation(Shards(2, "loop"))
    number = again.pending.number()
    again.engine.load("tag", {kept.id: number}, tensors)
    assert totals(again, again.pending.handle(again, number, pool=True)) == expected


def test_sums_of_shards_are_those_of_their_reducers() -> None:
    """In float32, where the order of the sums and their precision show."""
    values = torch.from_numpy(np.random.default_rng(0).standard_normal((11, 50)).astype(np.float32)) * 1e4
    weights = np.random.default_rng(1).random(11)
    data = Data({"u": values}, tuple(f"c{k}" for k in range(11)), np.ones(11, dtype=np.int64))
    fed = Federation(Minimization(lambda x, b: x.sum()), data, engine=Shards(3, "loop"), weights=weights.tolist())
    found = fed.mean(fed.map(Row().row, fed.broadcast(torch.ones(()))))
    total = torch.zeros(50, dtype=torch.float64)
    for first, end in ((0, 3), (3, 7), (7, 11)):
        reducer = Reducer(data.names[first:end], fed.mean_weights[first:end], True)
        for k in range(end - first):
            reducer.add(k, [values[first + k]])
        total += reducer.totals[0]
    assert found.dtype == torch.float32
    assert torch.equal(found, total.float())


@dataclass(frozen=True)
class Row(Program):
    def row(self, c: Client, x: Tensor) -> Tensor:
        return c.rows().u[0] * x


@CUTS
def test_whole_numbers_are_summed_and_rows_collected_in_the_clients_order(cut: Callable[[], Shards]) -> None:
    fed = federation(cut(), clients_per_round=3)
    total = fed.sum(fed.map(work.whole, fed.broadcast(ones())))
    assert (total.dtype, total.tolist()) == (torch.int64, [1111, 1111])
    cohort = fed.cohort()
    found, sizes = cohort.collect(cohort.map(work.level, cohort.broadcast(ones())), cohort.broadcast(torch.ones(1)))
    assert found[:, 0].tolist() == [10.0**k for k in cohort.index]
    assert sizes.shape == (3, 1)


@CUTS
def test_cohorts_that_pass_a_shard_by(cut: Callable[[], Shards]) -> None:
    """State that a shard has never seen has the default there, and what nobody holds any more leaves it with the next exchange."""
    fed = federation(cut(), clients_per_round=1)
    x, state = fed.broadcast(ones()), None
    seen: set[int] = set()
    for _ in range(6):
        S = fed.cohort()
        value = S.map(work.level, S.broadcast(ones()))
        if state is not None:
            before = fed.collect(fed.take(state, x))[:, 0].tolist()
            assert before == [10.0**k if k in seen else 1.0 for k in range(4)]
        state = fed.put(state, S, value)
        seen.add(int(S.index[0]))
        kept = S.map(work.increment, value)
        del value, S
    assert len(seen) > 1
    fed.pending.finish()
    del state, kept, x
    for _ in range(2):
        fed.mean(fed.broadcast(ones()))
    for shard in fed.engine.shards:  # type: ignore[attr-defined]
        shard._settle(fed.engine.exchanges)  # type: ignore[attr-defined]
        assert not shard.engine.store
        assert not shard.engine.pools
        assert not shard.values


def test_a_value_goes_to_a_shard_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = federation(Shards(2, "loop"))
    sent: list[int] = []
    ask = fed.engine.ask  # type: ignore[attr-defined]
    monkeypatch.setattr(fed.engine, "ask", lambda method, tasks: sent.extend(
        len(values) + len(part.programs) for part, values in tasks.values()) or ask(method, tasks))
    x = fed.broadcast(ones())
    for _ in range(3):
        fed.mean(fed.map(work.increment, x))
    assert sent == [2, 2, 0, 0, 0, 0]


@pytest.mark.parametrize(("algorithm", "make"), [(SCAFFOLD(0.1, 2, 2), known.minimization), (FedDRO(0.1, 0.3, 2, 2), known.compositional)],
                         ids=["SCAFFOLD", "FedDRO"])
@pytest.mark.parametrize("clients_per_round", [None, 3])
@pytest.mark.parametrize("failing", [0, 1])
def test_a_round_that_failed_at_one_shard_is_run_again_from_the_state_before_it(algorithm: Any, make: Any, failing: int,
                                                                                clients_per_round: int | None) -> None:
    k, engine = make(), Shards(2, "loop")
    fed, other = (Federation(k.problem, k.data, engine=e, clients_per_round=clients_per_round) for e in (engine, Shards(2, "loop")))
    state, expected = algorithm.init(fed, k.x0), algorithm.init(other, k.x0)
    for t in range(5):
        if t in (1, 3):
            calls, shard = dict(fed.counters), engine.shards[failing]
            run = shard.run

            def fails(part: Any, values: Any, run: Any = run) -> None:
                run(part, values)
                raise UploadError("site-2", "on purpose")

            shard.run = fails  # type: ignore[method-assign]
            with pytest.raises(UploadError, match="on purpose"):
                algorithm.round(fed, state)
            shard.run = run  # type: ignore[method-assign]
            fed.counters = calls  # the round begins anew, with the same draws
        state, expected = algorithm.round(fed, state), algorithm.round(other, expected)
        assert torch.equal(state.x, expected.x)
    for shard, twin in zip(engine.shards, other.engine.shards, strict=True):  # type: ignore[attr-defined]
        assert len(shard.engine.store) == len(twin.engine.store)


@CUTS
def test_bad_uploads_are_refused_by_the_client_s_name_and_change_nothing(cut: Callable[[], Shards]) -> None:
    fed = federation(cut())
    x = fed.broadcast(ones())
    state = fed.put(None, fed, fed.map(work.level, x))
    with pytest.raises(NonFinite, match="client 'd'"):
        fed.mean(fed.map(work.divide, fed.take(state, x), np.asarray([1.0, 1.0, 1.0, 0.0])))
    with pytest.raises(UploadError, match=r"client 'c': its upload has shape \(3,\), the clients before it sent \(2,\)"):
        fed.mean(fed.map(work.ragged, x))
    with pytest.raises(UploadError, match=r"client 'c': its upload is torch.float32, the clients before it sent torch.float64"):
        fed.mean(fed.map(work.mixed, x))
    assert fed.collect(fed.take(state, x))[:, 0].tolist() == [1.0, 10.0, 100.0, 1000.0]


def test_an_interrupt_leaves_the_state_usable() -> None:
    fed = federation(Shards(4, "loop"))
    x = fed.broadcast(ones())
    kept = fed.map(work.level, x)
    fed.mean(fed.map(work.increment, kept))
    S = fed.cohort(1)
    while S.index[0] != 3:
        S = fed.cohort(1)
    with pytest.raises(KeyboardInterrupt):
        S.mean(S.map(Own().fail, S.broadcast(ones())))
    assert fed.mean(kept).tolist() == [277.75, 277.75]


def test_constants_that_were_agreed_on_reach_every_shard() -> None:
    def problem(total: float = 0.0) -> Minimization:
        return Minimization(lambda x, b: (x * total - b.u.mean()).square().sum(), statistics=lambda x, b: b.u.sum(0)[:1],
                            finish=lambda sums: problem(float(sums)))

    ends = []
    for engine in ("loop", Shards(3, "loop")):
        fed = Federation(problem(), federation().data, engine=engine)
        fed.prepare(ones())
        ends.append(fed.mean(fed.map(work.descend, fed.broadcast(ones()), 1e-9)))
    assert float((ends[0] - 1).abs().min()) > 1e-3
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-12, atol=0)


def test_rows_of_shards_are_not_copied() -> None:
    fed = federation(Shards(2))
    field = fed.data.fields["u"]
    starts = [shard.setting.data.fields["u"].data_ptr() for shard in fed.engine.shards]  # type: ignore[attr-defined]
    assert starts == [field.data_ptr(), field[9:].data_ptr()]


def test_there_are_no_more_shards_than_clients_and_bad_arguments_are_refused() -> None:
    assert len(federation(Shards(9)).engine.shards) == 4  # type: ignore[attr-defined]
    for number in (0, -1, True, 2.0):
        with pytest.raises(EngineError, match="at least one shard; got"):
            Shards(number)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="one of auto, loop, vectorised; got 'wire'"):
        Shards(2, "wire")
    engine = Shards(2)
    federation(engine)
    with pytest.raises(EngineError, match=r"belong to one federation; make another Shards\(…\)"):
        federation(engine)
