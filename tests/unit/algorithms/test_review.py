"""Faults that were found once: each must stay mended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import SCAFFOLD, AccFCSGM, Data, FedAvg, FedDRO, Federation, FedNest, Minimization, Model, Program, as_bilevel, grad
from rookery.data import Stratified
from rookery.engines import Wire
from rookery.errors import AlgorithmError, CheckpointError, PlacementError, ProblemError
from rookery.objectives import kl_dro
from rookery.problems import testproblems as known
from rookery.training.checkpoint import load, save

ENGINES = pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])


def rounds(algorithm: Any, fed: Federation, state: Any, n: int) -> Any:
    for _ in range(n):
        state = algorithm.round(fed, state)
    return state


def test_scaffold_with_unequal_weights_and_cohorts_finds_the_weighted_solution() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, weights="samples", clients_per_round=2)
    w = torch.tensor(fed.weights / fed.weights.sum())
    parts = [k.data.views(i) for i in range(4)]
    H = sum(w[i] * p["a"].T @ p["a"] / len(p["b"]) for i, p in enumerate(parts)) + 0.5 * torch.eye(3, dtype=torch.float64)
    r = sum(w[i] * p["a"].T @ p["b"] / len(p["b"]) for i, p in enumerate(parts))
    algorithm = SCAFFOLD(0.1, 4)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 400)
    torch.testing.assert_close(state.x, torch.linalg.solve(H, r), atol=1e-8, rtol=0)


@ENGINES
def test_a_derivative_in_the_data_inside_a_loss_keeps_its_dependence_on_x(engine: str) -> None:
    torch.manual_seed(0)
    data = Data.from_parts({f"c{k}": {"a": torch.randn(5, 3, dtype=torch.float64)} for k in range(3)})
    penalty = Minimization(lambda x, b: grad(lambda a: torch.tanh(a @ x).sum(), b.a).square().sum())
    by_hand = Minimization(lambda x, b: ((1 - torch.tanh(b.a @ x) ** 2)[:, None] * x).square().sum())
    ends = []
    for problem in (penalty, by_hand):
        fed = Federation(problem, data, engine=engine)
        algorithm = FedAvg(0.05, 2)
        ends.append(rounds(algorithm, fed, algorithm.init(fed, torch.ones(3, dtype=torch.float64)), 3).x)
    torch.testing.assert_close(*ends)
    assert (ends[0] - 1).norm() > 0.1


def test_kl_dro_keeps_the_pull_of_rows_beyond_the_range_of_the_exponential() -> None:
    data = Data.from_parts({"c": {"l": torch.tensor([0.1] * 19 + [5.0])}})
    fed = Federation(kl_dro(lambda x, b: b.l * x, lam=0.05), data)
    fed.prepare(torch.ones(1))
    algorithm = FedDRO(1e-3, 1.0)
    state = algorithm.round(fed, algorithm.init(fed, torch.ones(1)))
    assert 0.1 < float((1 - state.x) / 1e-3) <= 5.0  # exactly it would be 5; beyond the range the pull is weaker, but there


def test_kl_dro_says_when_it_was_not_prepared_and_when_losses_are_below_the_least() -> None:
    data = Data.from_parts({"c": {"l": torch.tensor([-3.0, 2.0])}})
    fed = Federation(kl_dro(lambda x, b: b.l * x), data)
    with pytest.raises(AlgorithmError, match="prepare"):
        FedDRO(0.1).init(fed, torch.ones(1))
    with pytest.raises(ProblemError, match=r"1 losses lie below least=0\.0"):
        fed.prepare(torch.ones(1))
    small = Federation(kl_dro(lambda x, b: b.l * x, lam=0.001, least=-5.0), data)
    small.prepare(torch.ones(1))
    assert torch.isfinite(rounds(FedDRO(1e-4), small, FedDRO(1e-4).init(small, torch.ones(1)), 2).x).all()


def test_a_reduced_problem_keeps_its_set_up_sums() -> None:
    k = known.compositional()
    fed = Federation(as_bilevel(kl_dro(lambda x, b: (b.A @ x).square().sum(1))), k.data)
    fed.prepare(k.x0)
    assert fed.ledger["setup"].exchanges == 1
    assert fed.problem.statistics is None
    with pytest.raises(AlgorithmError, match="inner variable"):
        FedNest(0.1).init(fed, k.x0)


@dataclass(frozen=True)
class Small(Program):
    """Client functions for single faults."""

    def own(self, c: Any, x: Tensor, number: float) -> Tensor:
        return x + number

    def scaled(self, c: Any, x: Tensor, number: float) -> Tensor:
        return x.sum() * number

    def long(self, c: Any, x: Tensor) -> Tensor:
        return x.long()


@ENGINES
def test_one_value_in_two_pools(engine: str) -> None:
    import numpy as np
    k = known.minimization()
    fed = Federation(k.problem, k.data, engine=engine)
    V = fed.map(Small().own, fed.broadcast(torch.zeros(3)), np.arange(4.0))
    a = fed.put(None, fed, V)
    b = fed.put(None, fed, V)
    zero = fed.broadcast(torch.zeros(3))
    assert fed.sum(fed.take(a, zero), fed.take(b, zero))[1].tolist() == [6.0, 6.0, 6.0]


@ENGINES
def test_results_have_one_dtype_on_every_engine(engine: str) -> None:
    import numpy as np
    k = known.minimization(sizes=(4, 4, 4, 4))
    fed = Federation(k.problem, k.data, engine=engine)
    x = fed.broadcast(torch.ones(3, dtype=torch.float32))
    one = fed.map(Small().scaled, x, 0.5)
    many = fed.map(Small().scaled, x, np.asarray([1.0, 2.0, 3.0, 4.0]))
    assert [v.dtype for v in fed.mean(one, many)] == [torch.float32, torch.float32]
    assert fed.ledger["train"].bytes_up == 2 * 4 * 4


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


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_the_mean_of_equal_float32_values_is_that_value(engine: str) -> None:
    data = Data({"a": torch.zeros(2000)}, tuple(f"c{i}" for i in range(2000)), torch.ones(2000, dtype=torch.int64).numpy())
    fed = Federation(Minimization(lambda x, b: 0 * x.sum() * b.a.sum()), data, engine=engine)
    x = rounds(FedAvg(0.1), fed, FedAvg(0.1).init(fed, torch.full((2,), 1.1)), 5).x
    assert (x - 1.1).abs().max() < 3e-7


def test_counts_are_summed_without_overflow() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data)
    assert fed.sum(fed.map(Small().long, fed.broadcast(torch.full((2,), 2.0**62)))).dtype == torch.int64


def test_randomness_that_nobody_announced_is_refused() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.linear(x), 0.5)

    model = Model(Noisy())
    data = Data.from_parts({"a": {"inputs": torch.randn(4, 3)}})
    algorithm = FedAvg(0.1)
    for stochastic in (None, True):
        problem = Minimization(lambda x, b: model(x, b.inputs).square().mean(), model=model, stochastic=stochastic)
        fed = Federation(problem, data)
        state = algorithm.init(fed, model.vector())
        if stochastic is None:
            with pytest.raises(ProblemError, match="stochastic=True"):
                algorithm.round(fed, state)
        else:
            algorithm.round(fed, state)


@pytest.mark.parametrize(("loss", "words"), [(lambda x, b: b.a @ x, r"one number as a tensor; it returned shape \(5,\)"),
                                             (lambda x, b: 3.0, "returned float")])
def test_a_loss_that_is_no_number(loss: Any, words: str) -> None:
    k = known.minimization()
    fed = Federation(Minimization(loss), Data.from_parts({"a": k.data.views(0)}))
    with pytest.raises(ProblemError, match=words):
        FedAvg(0.1).round(fed, FedAvg(0.1).init(fed, k.x0))


@pytest.mark.parametrize("x", [torch.ones(3, 1), torch.ones(3, dtype=torch.int64), [1.0, 2.0]])
def test_a_starting_point_that_is_no_vector(x: Any) -> None:
    k = known.minimization()
    with pytest.raises(AlgorithmError, match="flat vector"):
        FedAvg(0.1).init(Federation(k.problem, k.data), x)


def test_values_inside_a_tuple_are_refused() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data)
    with pytest.raises(PlacementError, match="one by one"):
        fed.map(Small().own, fed.broadcast(k.x0), (fed.broadcast(k.x0),))


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


@ENGINES
@pytest.mark.parametrize("clients_per_round", [None, 3])
@pytest.mark.parametrize(("algorithm", "make"), [(SCAFFOLD(0.1, 2, 2), known.minimization), (FedDRO(0.1, 0.3, 2, 2), known.compositional),
                                                 (AccFCSGM(0.1, 2, 2, 2), known.conditional)], ids=["SCAFFOLD", "FedDRO", "Acc-FCSG-M"])
def test_going_back_in_a_federation_in_use(engine: str, clients_per_round: int | None, algorithm: Any, make: Any, tmp_path: Path) -> None:
    """Save, go on, load, load again, exchange something else, and go on: as if nothing had happened after the save."""
    k = make()
    fed = Federation(k.problem, k.data, engine=Wire(tmp_path / "sites") if engine == "wire" else engine,
                     clients_per_round=clients_per_round)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 2)
    save(tmp_path / "ckpt", algorithm, fed, state)
    expected = rounds(algorithm, fed, state, 3)
    again = load(tmp_path / "ckpt", algorithm, fed)
    again = load(tmp_path / "ckpt", algorithm, fed)
    del state
    with fed.phase("evaluation"):
        fed.mean(fed.map(Small().own, fed.broadcast(again.x), 0.0))
    assert torch.equal(rounds(algorithm, fed, again, 3).x, expected.x)


def test_checkpoints_of_other_data_another_sampler_or_other_constants_are_refused(tmp_path: Path) -> None:
    k = known.minimization()
    algorithm = FedAvg(0.1)
    fed = Federation(k.problem, k.data)
    save(tmp_path / "ckpt", algorithm, fed, algorithm.init(fed, k.x0))
    moved = Data({n: f + 1 for n, f in k.data.fields.items()}, k.data.names, k.data.sizes)
    other = Minimization(k.problem.f, sampling=Stratified("b", 1))  # type: ignore[attr-defined]
    for elsewhere in (Federation(k.problem, moved), Federation(other, k.data)):
        with pytest.raises(CheckpointError, match="another run"):
            load(tmp_path / "ckpt", algorithm, elsewhere)
    c, dro = known.compositional(), FedDRO(0.1)
    feds = [Federation(kl_dro(lambda x, b: (b.A @ x).square().sum(1)), c.data) for _ in range(3)]
    feds[0].prepare(c.x0)
    feds[1].prepare(2 * c.x0)
    save(tmp_path / "dro", dro, feds[0], dro.init(feds[0], c.x0))
    with pytest.raises(CheckpointError, match="constants"):
        load(tmp_path / "dro", dro, feds[1])
    assert torch.equal(load(tmp_path / "dro", dro, feds[2]).x, c.x0)
    scaffold, old = SCAFFOLD(0.1), Federation(k.problem, k.data)
    first = rounds(scaffold, old, scaffold.init(old, k.x0), 1)
    scaffold.round(old, first)
    with pytest.raises(CheckpointError, match="save the newest state"):
        save(tmp_path / "old", scaffold, old, first)


def test_deleted_problems_do_not_stay() -> None:
    import gc
    import weakref
    k = known.compositional(sizes=(4, 4, 4, 4))
    problem = kl_dro(lambda x, b: (b.A @ x).square().sum(1))
    fed = Federation(problem, k.data, engine="vectorised")
    fed.prepare(k.x0)
    gone = weakref.ref(problem)
    del problem, fed
    gc.collect()
    assert gone() is None


def test_a_function_that_does_not_vectorise_leaves_the_others_as_they_are() -> None:
    k = known.minimization(sizes=(4, 4, 4, 4))

    @dataclass(frozen=True)
    class Odd(Program):
        def branch(self, c: Any, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    fed = Federation(k.problem, k.data)
    algorithm = FedAvg(0.1)
    state = algorithm.round(fed, algorithm.init(fed, k.x0))
    assert fed.engine.name == "auto:vectorised"
    fed.mean(fed.map(Odd().branch, fed.broadcast(state.x)))
    assert fed.engine.name == "auto:loop"
    algorithm.round(fed, state)
    assert fed.engine.name == "auto:vectorised"
