"""Generated samples keep their promise, and every engine draws the same samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from draws import ENGINES, draw_of, labelled, one
from torch import Tensor

from rookery import Data, Federation, Minimization, Program
from rookery.data import Normal, PerTask, Replacement, Request, Shuffled, Stored, Stratified
from rookery.errors import DataError
from rookery.federation import Client

# Gaussians

def test_normal_has_shapes_mean_and_variance() -> None:
    data, sampler = Data.streams(["a", "b"]), Normal((2,), (3,), torch.float64)
    selection = sampler.select(draw_of(data, steps=20), Request(100, 5))
    assert selection["xi"].shape == (2, 20, 100, 2)
    assert selection["eta"].shape == (2, 20, 100, 5, 3)
    for value in selection.values():
        assert value.dtype == torch.float64
        for own in value:
            n = own.numel()
            assert abs(float(own.mean())) < 4.5 / math.sqrt(n)
            assert abs(float(own.var()) - 1) < 4.5 * math.sqrt(2 / n)
            assert abs(float((own**4).mean()) - 3) < 4.5 * math.sqrt(96 / n)
    xi, eta = selection["xi"].reshape(2, -1), selection["eta"].reshape(2, -1)
    n = xi.shape[1]
    for first, second in ((xi[0], xi[1]), (xi[0], eta[0, :n]), (xi[0, 1:], xi[0, :-1])):
        assert abs(float((first * second).mean())) < 4.5 / math.sqrt(len(first))
    batch = one(sampler, data, selection, 1, 3)
    assert batch.inner is not None
    assert batch.xi.tolist() == selection["xi"][1, 3].tolist()
    assert batch.inner.eta.tolist() == selection["eta"][1, 3].tolist()


def test_normal_without_inner_shape_has_no_inner_samples() -> None:
    data, sampler = Data.streams(["a"]), Normal(())
    batch = one(sampler, data, sampler.select(draw_of(data), Request(7)), 0, 0)
    assert batch.inner is None
    assert batch.xi.shape == (7,)
    assert batch.xi.dtype == torch.float32


@pytest.mark.parametrize("request_", [Request(), Request(None, 3), Request(3)])
def test_a_gaussian_source_has_no_end(request_: Request) -> None:
    with pytest.raises(DataError, match="has no end"):
        Normal((2,), (2,)).select(draw_of(Data.streams(["a"])), request_)


@pytest.mark.parametrize("sampler", [Replacement(), Shuffled()])
@pytest.mark.parametrize("engine", ENGINES)
def test_streams_have_no_rows_to_draw(sampler: Any, engine: str) -> None:
    fed = Federation(Minimization(lambda x, b: x.sum(), sampling=sampler), Data.streams(["a", "b"]), engine=engine)
    with pytest.raises(DataError, match="streams without rows"):
        fed.sum(fed.map(Look(2, 3).rows, fed.broadcast(torch.zeros(2, 3, dtype=torch.float64)), np.arange(2)))


# engines

@dataclass(frozen=True)
class Look(Program):
    """Adds up what a client sees over the repetitions, with other weights in each, a row of the total per client."""

    clients: int
    outer: int | None
    inner: int | None = None

    def mine(self, k: float) -> Tensor:
        return (torch.arange(self.clients) == k).double()[:, None]

    def rows(self, c: Client, total: Tensor, k: float) -> Tensor:
        return 3 * total + self.mine(k) * c.draw(self.outer).u

    def labels(self, c: Client, total: Tensor, k: float) -> Tensor:
        return 3 * total + self.mine(k) * c.draw(self.outer).label

    def tasks(self, c: Client, total: Tensor, k: float) -> Tensor:
        b = c.draw(self.outer, self.inner)
        return 3 * total + self.mine(k) * (b.row.sum(1) + 50 * b.inner.row.sum(1) + 1000 * c.draw(self.outer, self.inner).row.sum(1))

    def stored(self, c: Client, total: Tensor, k: float) -> Tensor:
        b = c.draw(self.outer, self.inner)
        return 3 * total + self.mine(k) * (b.row + 100 * b.inner.eta.sum(1))

    def everything(self, c: Client, total: Tensor, k: float) -> Tensor:
        return 3 * total + self.mine(k) * c.draw().u.sum()

    def normal(self, c: Client, total: Tensor, k: float) -> Tensor:
        b, other = c.draw(self.outer, self.inner), c.draw(self.outer, self.inner)
        return total / 2 + self.mine(k) * (b.xi.sum(1) + b.inner.eta.sum((1, 2)) - 3 * other.xi.sum(1))


def four(make: Any) -> Data:
    return Data.from_parts({name: make(n) for name, n in {"a": 12, "b": 9, "c": 9, "d": 20}.items()})


def mixed(n: int) -> dict[str, Tensor]:
    own = torch.Generator().manual_seed(n)
    return {"u": torch.arange(n, dtype=torch.float64) ** 2, "label": torch.arange(n) % 3, "row": torch.arange(n),
            "eta": torch.randint(0, 100, (n, 7), generator=own).double()}


def seen(engine: str, sampler: Any, data: Data, method: str, outer: int | None, inner: int | None, times: Any, seed: int = 4) -> Tensor:
    fed = Federation(Minimization(lambda x, b: x.sum(), sampling=sampler), data, engine=engine, seed=seed)
    program = Look(fed.population, outer, inner)
    total = fed.broadcast(torch.zeros(fed.population, outer or 1, dtype=torch.float64))
    result: Tensor = fed.sum(fed.iterate(getattr(program, method), total, np.arange(fed.population), steps=times))
    return result


@pytest.mark.parametrize("times", [5, np.asarray([1, 5, 5, 3])], ids=["same", "per client"])
@pytest.mark.parametrize(("sampler", "method", "outer", "inner"), [
    (Replacement(), "rows", 4, None), (Shuffled(), "rows", 5, None), (Stratified("label", 2), "labels", 4, None),
    (Replacement(), "everything", None, None), (PerTask("label", 1), "tasks", 3, 2), (Stored("eta"), "stored", 3, 2),
    (Stored("eta"), "stored", 3, None),
], ids=["replacement", "shuffled", "stratified", "everything", "tasks", "stored", "stored all"])
def test_every_engine_draws_the_same(sampler: Any, method: str, outer: int | None, inner: int | None, times: Any) -> None:
    """Whole numbers, so that the comparison is exact."""
    results = [seen(engine, sampler, four(mixed), method, outer, inner, times) for engine in ENGINES]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert (results[0] != 0).any(1).all()
    if method != "everything":
        assert not torch.equal(results[0], seen("loop", sampler, four(mixed), method, outer, inner, times, seed=5))


@pytest.mark.parametrize("times", [5, np.asarray([1, 5, 5, 3])], ids=["same", "per client"])
def test_gaussians_step_by_step_are_those_of_all_steps_at_once(times: Any) -> None:
    data, sampler = Data.streams(["a", "b", "c", "d"]), Normal((2,), (3,), torch.float64)
    results = [seen(engine, sampler, data, "normal", 4, 3, times) for engine in ENGINES]
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(results[0], results[2], rtol=0, atol=0)
    assert (results[0] != 0).all()
    assert not torch.equal(results[0], seen("loop", sampler, data, "normal", 4, 3, times, seed=5))


def test_gaussians_by_hand() -> None:
    """The engine's sum of two repetitions is that of the selection itself."""
    data, sampler = Data.streams(["a", "b"]), Normal((2,), (3,), torch.float64)
    first = sampler.select(draw_of(data, steps=2, seed=4), Request(4, 3))
    second = sampler.select(draw_of(data, steps=2, seed=4, position=1), Request(4, 3))
    each = first["xi"].sum(-1) + first["eta"].sum((-1, -2)) - 3 * second["xi"].sum(-1)
    torch.testing.assert_close(seen("loop", sampler, data, "normal", 4, 3, 2), each[:, 0] / 2 + each[:, 1], rtol=1e-12, atol=1e-12)


def test_samples_are_counted_by_what_was_drawn() -> None:
    cases = [("rows", 4, None, Replacement(), 3 * 4 * 4), ("stored", 3, 2, Stored("eta"), 3 * 4 * 3 * 2),
             ("everything", None, None, Replacement(), 3 * 50)]
    for engine in ENGINES:
        for method, outer, inner, sampler, expected in cases:
            fed = Federation(Minimization(lambda x, b: x.sum(), sampling=sampler), four(mixed), engine=engine)
            total = fed.broadcast(torch.zeros(4, outer or 1, dtype=torch.float64))
            fed.sum(fed.iterate(getattr(Look(4, outer, inner), method), total, np.arange(4), steps=3))
            assert fed.ledger["train"].samples == expected, (engine, method)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_one_class_client_is_named_on_every_engine(engine: str) -> None:
    problem = Minimization(lambda x, b: x.sum(), sampling=Stratified("label", 1))
    fed = Federation(problem, labelled(a=[0, 1], b=[1, 1], c=[0, 1]), engine=engine)
    with pytest.raises(DataError, match="'b' has 2 positive and 0 negative"):
        fed.sum(fed.map(Look(3, 4).labels, fed.broadcast(torch.zeros(3, 4)), np.arange(3)))
