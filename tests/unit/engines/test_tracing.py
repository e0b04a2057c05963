"""Graphs follow what changes around a loss, and no federation takes those of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from labelled import X, rows
from torch import Tensor

from rookery import AccFCSGM, Batch, Conditional, Data, FedAvg, Federation, Minimization, Program
from rookery.data import Normal
from rookery.errors import DataError, ProblemError
from rookery.problems import testproblems as known


def test_a_number_around_a_loss_may_change_between_rounds() -> None:
    k = known.minimization(sizes=(4, 4, 4, 4))
    ends = []
    for engine in ("loop", "vectorised"):
        strength = 1.0
        problem = Minimization(lambda x, b: strength * x.square().sum())  # noqa: B023
        fed = Federation(problem, k.data, engine=engine)
        algorithm = FedAvg(0.1)
        state = algorithm.round(fed, algorithm.init(fed, k.x0))
        strength = 0.0
        ends.append(algorithm.round(fed, state).x)
    torch.testing.assert_close(*ends)  # a graph of all clients may round another way than one client after the other
    torch.testing.assert_close(ends[0], 0.8 * k.x0)


@dataclass(frozen=True)
class Look(Program):
    def value(self, c: Any, x: Tensor) -> Tensor:
        return c.value(x, c.draw(4))

    def evaluated(self, c: Any, x: Tensor) -> Tensor:
        return c.evaluate(c.problem.f, x, c.draw(4))

    def inputs(self, c: Any, x: Tensor) -> Tensor:
        return c.draw(4).inputs.sum(0)


def seen(problem: Any, engine: str, data: Data, times: int = 2, fn: str = "value", **options: Any) -> list[float]:
    fed = Federation(problem, data, engine=engine, seed=1, **options)
    return [float(fed.mean(fed.map(getattr(Look(), fn), fed.broadcast(X.to(data.fields["inputs"].dtype)))).sum()) for _ in range(times)]


def test_a_loss_that_changes_its_batch_sees_it_once() -> None:
    """Tracing runs a function several times, on copies."""
    def shifting(x: Tensor, b: Batch) -> Tensor:
        return (b.inputs.sub_(1.0) @ x).square().mean()

    problem = Minimization(shifting)
    assert seen(problem, "vectorised", rows(), fn="evaluated") == pytest.approx(seen(problem, "loop", rows(), fn="evaluated"))
    for engine in ("loop", "vectorised"):  # as an oracle, which may be called on a batch again, it is refused
        with pytest.raises(ProblemError, match="changes its batch in place"):
            seen(problem, engine, rows())


FACTOR: Any = None
SCALE = {"a": 1.0}


@pytest.mark.parametrize("engine", ["loop", "auto"])
def test_values_around_a_loss_may_change_between_rounds(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(x: Tensor, b: Batch) -> Tensor:
        factor = 1.0 if FACTOR is None else FACTOR
        return factor * SCALE["a"] * (b.inputs @ x).square().mean()

    fed = Federation(Minimization(loss), rows(), engine=engine)
    X0 = fed.broadcast(X)

    def now() -> float:
        fed.counters["train"] = 7
        return float(fed.mean(fed.map(Look().value, X0)))

    first = now()
    for name, value, expected in (("FACTOR", 2.0, 2), ("FACTOR", torch.tensor(3.0), 3), ("SCALE", {"a": 5.0}, 15)):
        monkeypatch.setitem(globals(), name, value)
        assert now() == pytest.approx(expected * first)
    SCALE["a"] = 7.0
    assert now() == pytest.approx(21 * first)


def test_a_federation_does_not_inherit_another_ones_leave_or_dtype() -> None:
    problem = Minimization(lambda x, b: (b.inputs @ x).square().mean())
    assert seen(problem, "vectorised", rows(), fn="inputs") == pytest.approx(seen(problem, "loop", rows(), fn="inputs"))
    with pytest.raises(DataError, match="min_batch=5"):
        seen(problem, "auto", rows(), min_batch=5)
    double = rows(dtype=torch.float64)
    assert seen(problem, "vectorised", double, fn="inputs") == pytest.approx(seen(problem, "loop", double, fn="inputs"), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_values_for_all_and_values_of_each_share_a_graph(seed: int) -> None:
    """x^{t−1} is each client's own where a cohort overlaps the last one, and the server's, one for all, where it does not."""
    W = torch.tensor([[1.0, 0.5], [-0.3, 2.0]])
    problem = Conditional(lambda u, b: u.square().sum(1), lambda x, b, e: (x.reshape(2, 2) @ W).reshape(-1) + e.eta,
                          sampling=Normal((4,), (4,)))
    ends = []
    for engine in ("loop", "vectorised"):
        fed = Federation(problem, Data.streams(["a", "b", "c", "d"]), clients_per_round=2, engine=engine, seed=seed)
        algorithm = AccFCSGM(0.01, outer=2, inner=2)
        state = algorithm.init(fed, torch.ones(4))
        for _ in range(6):
            state = algorithm.round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(*ends)
