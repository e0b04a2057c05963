"""Under `min_batch` a batch has no row twice: for every sampler, on every engine, with the same law for every row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from draws import ENGINES
from torch import Tensor

from rookery import Batch, Data, Federation, Minimization, Program
from rookery.data import Balanced, Draw, Episodes, PerTask, Positives, Replacement, Request, Sampler, Shuffled, Stored, Stratified
from rookery.errors import DataError, FewRows
from rookery.federation import Client
from rookery.federation.client import ClientContext, Setting
from rookery.federation.drawing import Drawing
from rookery.objectives.trainval import TrainValSampler

STEPS = 70  # more than are selected at once


def rows(**sizes: int) -> Data:
    """A quarter of the rows are positives, two fifths validation rows; three kinds; stored samples that tell their row."""
    def own(n: int) -> dict[str, Any]:
        i = torch.arange(n)
        return {"labels": (i % 4 == 0).long(), "kind": i % 3, "validation": (i % 5 < 2).long(), "eta": 100.0 * i[:, None] + torch.arange(6)}

    return Data.from_parts({name: own(n) for name, n in (sizes or {"a": 24, "b": 61, "c": 24}).items()})


def setting(sampler: Sampler, data: Data, min_batch: int = 3) -> Setting:
    return Setting(Minimization(lambda x, b: x.sum(), sampling=sampler), data, 5, min_batch=min_batch)


def drawn(sampler: Sampler, data: Data, request: Request, client: int = 0, min_batch: int = 3, call: int = 1) -> list[Batch]:
    """The batches of one call, as a client function gets them."""
    made = setting(sampler, data, min_batch)
    drawing, out = Drawing(made, client, "train", call, STEPS), []
    for step in range(STEPS):
        drawing.step = step
        out.append(ClientContext(made, STEPS, drawing, client=client).draw(*request))
    return out


def repeats(index: Tensor) -> int:
    """How often the most frequent number comes."""
    return int(index.flatten().bincount().max())


def people(**kinds: list[int]) -> Data:
    return Data.from_parts({name: {"kind": torch.tensor(kind), "labels": torch.tensor(kind)} for name, kind in kinds.items()})


def test_groups_of_few_rows_are_drawn_as_one() -> None:
    """A batch that takes groups in turn would say, whatever the site's salt, whose row it has."""
    data = people(a=[*range(30), *[30] * 20, *[31] * 40], b=[0, 1, 1, 1, 1, 1])
    turns = [sorted(batch.kind.tolist()) for batch in drawn(Balanced("kind"), data, Request(9), min_batch=5)]
    assert all([sum(kind < 30 for kind in batch), batch.count(30), batch.count(31)] == [3, 3, 3] for batch in turns)
    assert len({tuple(batch[:3]) for batch in turns}) > 60  # of 70 draws of 3 in 30
    plain = [sorted(batch.kind.tolist()) for batch in drawn(Balanced("kind"), data, Request(9), min_batch=1)]
    assert plain[0] == [*range(9)]
    alone = [sorted(batch.kind.tolist()) for batch in drawn(Balanced("kind"), data, Request(5), client=1, min_batch=5)]
    assert {tuple(batch) for batch in alone} == {(0, 1, 1, 1, 1), (1, 1, 1, 1, 1)}  # all rows of the client are one group
    classes = [sorted(batch.labels.tolist()) for batch in drawn(Balanced("labels"), data, Request(6), client=1, min_batch=2)]
    assert all(batch.count(0) == 3 for batch in classes)  # a rare class is what batches are balanced for


@pytest.mark.parametrize(("sampler", "request_"), [(Stratified("kind", 3), Request(9)), (Positives("kind"), Request(5, 8))])
def test_nothing_is_drawn_by_a_side_of_few_rows(sampler: Sampler, request_: Request) -> None:
    data = people(a=[0, 0, 0, 0, *[1] * 40], b=[*[0] * 20, *[1] * 20])
    with pytest.raises(FewRows, match=r"fewer than min_batch=5 rows of a client are positive, or are not.*'kind' at client 'a'"):
        drawn(sampler, data, request_, min_batch=5)
    drawn(sampler, data, request_, client=1, min_batch=5)
    drawn(sampler, data, request_, min_batch=1)
    drawn(replace(sampler, label="labels"), data, request_, min_batch=5)  # type: ignore[type-var]


ALL: list[tuple[Any, Request]] = [
    (Replacement(), Request(9)), (Shuffled(), Request(9)), (Stratified("labels", 3), Request(9)),
    (Stratified("labels", share=0.3, importance=True), Request(16)), (TrainValSampler("validation", 4), Request(9)),
    (Balanced("kind"), Request(10)), (Positives(), Request(5, 8)), (Positives(enrich=4), Request(5, 12)),
    (Positives(enrich=4, among=True), Request(3, 12)), (Positives(inner="negatives"), Request(5, 12)), (Stored("eta"), Request(7, 4)),
    (PerTask("kind", query=3), Request(3, 3)), (PerTask(query=3), Request(4, 3)), (Episodes(2, 2, "kind"), Request(1, 2))]
NAMES = [f"{type(sampler).__name__} {k}" for k, (sampler, _) in enumerate(ALL)]


@pytest.mark.parametrize(("sampler", "request_"), ALL, ids=NAMES)
def test_no_batch_has_a_row_twice_and_repetitions_differ(sampler: Any, request_: Request) -> None:
    data = rows()
    for client in range(2):
        batches = drawn(sampler, data, request_, client)
        for batch in batches:
            assert batch.index is not None
            assert repeats(batch.index) == 1
            for own in batch.inner.index if batch.inner is not None and batch.inner.index is not None else ():
                assert repeats(own) == 1
            if isinstance(sampler, Stored):
                assert batch.inner is not None
                assert all(repeats(own.long()) == 1 for own in batch.inner.eta)
        assert len({tuple(batch.index.flatten().tolist()) for batch in batches if batch.index is not None}) > STEPS / 2


@pytest.mark.parametrize(("sampler", "request_"), ALL, ids=NAMES)
def test_without_it_rows_come_twice(sampler: Any, request_: Request) -> None:
    """What the test above finds is not there by itself; the rows of one episode differ anyway."""
    found = [repeats(batch.index) for batch in drawn(sampler, rows(), request_, min_batch=1) if batch.index is not None]
    assert max(found) > 1 or isinstance(sampler, Episodes)


@dataclass(frozen=True)
class Look(Program):
    """Adds up the row numbers that a client draws, with other weights in each repetition; a row of the total for each client."""

    clients: int
    outer: int | None
    inner: int | None

    def see(self, c: Client, total: Tensor, k: float) -> Tensor:
        b = c.draw(self.outer, self.inner)
        seen = [b.index.flatten(), *([] if b.inner is None else [(b.inner.eta if b.inner.index is None else b.inner.index).flatten()])]
        return 3 * total + (torch.arange(self.clients) == k).double()[:, None] * torch.cat(seen)


@pytest.mark.parametrize(("sampler", "request_"), [*ALL, (Replacement(), Request(30)), (Stratified("labels", 8), Request(30))],
                         ids=[*NAMES, "more than there are", "more positives than there are"])
def test_every_engine_draws_the_same(sampler: Any, request_: Request) -> None:
    """Whole numbers, so that the comparison is exact."""
    data = rows()
    batch = drawn(sampler, data, request_)[0]
    inner = batch.inner and (batch.inner.eta if batch.inner.index is None else batch.inner.index)
    assert batch.index is not None
    width = batch.index.numel() + (0 if inner is None else inner.numel())
    totals = []
    for engine in ENGINES:
        fed = Federation(Minimization(lambda x, b: x.sum(), sampling=sampler), data, engine=engine, seed=5, min_batch=3)
        total = fed.broadcast(torch.zeros(3, width, dtype=torch.float64))
        totals.append(fed.sum(fed.iterate(Look(3, *request_).see, total, np.arange(3), steps=np.asarray([5, 5, 3]))))
    assert torch.equal(totals[0], totals[1])
    assert torch.equal(totals[0], totals[2])
    assert (totals[0] != 0).any(1).all()


def test_more_rows_than_there_are_come_each_once_before_any_comes_twice() -> None:
    data = rows(a=8)
    for batch in drawn(Replacement(), data, Request(21)):
        assert batch.index is not None
        assert sorted(batch.index.bincount().tolist()) == [2, 2, 2, 3, 3, 3, 3, 3]
    for batch in drawn(Shuffled(), data, Request(21)):
        assert batch.index is not None
        assert sorted(batch.index.bincount().tolist()) == [2, 2, 2, 3, 3, 3, 3, 3]
    for batch in drawn(Stratified("labels", 5), data, Request(9)):  # two positives, six others
        assert batch.index is not None
        assert sorted(batch.index[:5].bincount().tolist())[-2:] == [2, 3]
        assert repeats(batch.index[5:]) == 1


def test_a_shuffled_batch_lies_in_one_epoch() -> None:
    """Of ten rows a batch of four leaves two out in every epoch, which are others every time."""
    index = torch.stack([leaf for batch in drawn(Shuffled(), rows(a=10), Request(4)) if (leaf := batch.index) is not None])
    epochs = index.reshape(-1, 8)
    assert all(repeats(epoch) == 1 for epoch in epochs)
    assert len({tuple(sorted(epoch.tolist())) for epoch in epochs}) > 5


def test_a_task_that_comes_again_has_other_rows_while_there_are_some() -> None:
    for batch in drawn(PerTask("kind", query=2), rows(a=24), Request(3, 2), min_batch=2):  # three tasks of eight rows
        assert batch.index is not None
        assert {tuple((own % 3).tolist()) for own in batch.index} == {(0, 0), (1, 1), (2, 2)}
    for batch in drawn(PerTask(query=4), rows(a=10), Request(2, 3), min_batch=3):
        assert batch.index is not None
        assert batch.inner is not None
        assert batch.inner.index is not None
        for query, support in zip(batch.index.tolist(), batch.inner.index.tolist(), strict=True):
            assert len({*query, *support}) == 7
        assert len(set(batch.index.flatten().tolist())) >= 5


@pytest.mark.parametrize(("sampler", "request_"), ALL, ids=NAMES)
def test_other_clients_change_no_draw(sampler: Any, request_: Request) -> None:
    alone, among = drawn(sampler, rows(b=61), request_), drawn(sampler, rows(), request_, client=1)
    clients = np.arange(3)
    made = setting(sampler, rows())
    draw = made.draw(request_, clients, made.keys(clients, "train", 1), 0, np.arange(STEPS), lambda *_: np.random.default_rng(0))
    together = sampler.select(draw, request_)["index"][1]
    for step, (one, other) in enumerate(zip(alone, among, strict=True)):
        assert one.index is not None
        assert other.index is not None
        assert one.index.tolist() == other.index.tolist() == together[step].tolist()


def test_a_batch_is_no_part_of_a_larger_one_of_the_same_call() -> None:
    """The difference of two sums would be one row's."""
    small, large = (drawn(Replacement(), rows(b=61), Request(size)) for size in (9, 10))
    nested = [set(a.index.tolist()) <= set(b.index.tolist()) for a, b in zip(small, large, strict=True)
              if a.index is not None and b.index is not None]
    assert not any(nested)
    inner, wider = (drawn(PerTask(query=3), rows(b=61), Request(1, size)) for size in (6, 7))
    assert not any(set(a.inner.index.flatten().tolist()) <= set(b.inner.index.flatten().tolist()) for a, b in zip(inner, wider, strict=True)
                   if a.inner is not None and b.inner is not None and a.inner.index is not None and b.inner.index is not None)


# what is counted

@dataclass(frozen=True)
class Twice:
    """A sampler that takes the first rows, each of them twice."""

    def select(self, draw: Draw, request: Request) -> dict[str, Tensor]:
        own = torch.arange((request.outer or 2) // 2).repeat(2).expand(len(draw.clients), len(draw.steps), -1)
        return {"rows": own + torch.from_numpy(draw.column(draw.data.offsets)), "index": own}

    def fetch(self, data: Data, selection: dict[str, Tensor]) -> Batch:
        return Batch(data.take(selection["rows"]), selection["index"])

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise NotImplementedError


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("sampler", "request_", "least", "found"), [
    (Replacement(), Request(9), 9, 8), (Stratified("labels", 4), Request(12), 9, 8), (Twice(), Request(8), 5, 4),
    (TrainValSampler("validation", 6), Request(12), 5, 4), (Positives(), Request(6, 4), 3, 2), (Positives(), Request(2, 9), 3, 2),
    (PerTask(query=4), Request(2, 3), 4, 3)], ids=lambda v: type(v).__name__ if hasattr(v, "select") else None)
def test_different_rows_count_on_every_engine(engine: str, sampler: Any, request_: Request, least: int, found: int) -> None:
    """The first client has plenty and passes; the second has eight rows: two positives, four validation rows, three or two of a kind."""
    data = rows(plenty=61, few=8)
    problem = Minimization(lambda x, b: x.sum(), sampling=sampler)
    for min_batch in (least, least - 1):
        fed = Federation(problem, data, engine=engine, min_batch=min_batch)
        value = fed.map(Total(*request_).see, fed.broadcast(torch.zeros(1)))
        if min_batch == least:
            who = ".*at client 'few'" if not isinstance(sampler, Twice | PerTask) and request_ != Request(2, 9) else ""
            with pytest.raises(DataError, match=f"fewer than min_batch={least} samples.*a batch of {found} was drawn{who}"):
                fed.sum(value)
        else:
            fed.sum(value)


@dataclass(frozen=True)
class Total(Program):
    outer: int | None
    inner: int | None

    def see(self, c: Client, x: Tensor) -> Tensor:
        b = c.draw(self.outer, self.inner)
        return x + b.labels.sum()
