"""What a reader with fresh eyes found in the compositional, bilevel and minimax parts, and in the graphs behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import (
    ALSET,
    GCIVR,
    AccFCSGM,
    Batch,
    Bilevel,
    Compositional,
    Conditional,
    Data,
    Epochs,
    FedAvg,
    FedBiOAcc,
    FedDRO,
    Federation,
    FedNest,
    LocalSGDA,
    Minimization,
    PDSGDWeights,
    Program,
    SimFBO,
    estimate_smoothness,
)
from rookery.algorithms.bilevel.curvature import conjugate
from rookery.data import Normal
from rookery.errors import AlgorithmError, DataError, ProblemError
from rookery.objectives import cvar, fair, fast_dro, group_dro, group_weights, kl_dro, mean_variance
from rookery.problems import testproblems as known
from rookery.studies.description import describe, parse
from rookery.training.schedules import Decay

X = torch.tensor([0.3, -0.2, 0.1])


def rows(clients: int = 3, dtype: torch.dtype = torch.float32) -> Data:
    r = np.random.default_rng(0)
    return Data.from_parts({f"c{k}": {"inputs": torch.tensor(r.standard_normal((6 + k, 3)), dtype=dtype),
                                      "labels": torch.arange(6 + k) % 2, "group": torch.arange(6 + k) % 3 % 2} for k in range(clients)})


def each(x: Tensor, b: Batch) -> Tensor:
    return (b.inputs @ x - b.labels).square()


# shapes


@pytest.mark.parametrize("make", [kl_dro, lambda losses: kl_dro(losses, shift=0.0), lambda losses: mean_variance(losses, 1.0),
                                  lambda losses: cvar(losses, 0.5), lambda losses: group_dro(losses, 2),
                                  lambda losses: fast_dro(losses, "chi2", 1.0)])
@pytest.mark.parametrize(("losses", "what"), [(lambda x, b: each(x[:3], b).mean(), "leave out the mean over rows"),
                                              (lambda x, b: each(x[:3], b)[:, None], r"write losses\[:, 0\]")])
def test_a_robust_objective_wants_one_loss_a_row(make: Any, losses: Any, what: str) -> None:
    fed, x = Federation(make(losses), rows()), torch.zeros(4)
    algorithm: Any = FedAvg(0.1) if isinstance(fed.problem, Minimization) else FedDRO(0.1)

    def begin() -> None:
        fed.prepare(x)
        algorithm.round(fed, algorithm.init(fed, x))

    with pytest.raises(ProblemError, match=what):
        begin()


def test_scores_in_a_column_do_not_switch_a_fairness_penalty_off() -> None:
    fed = Federation(fair(each, lambda x, b: torch.sigmoid(b.inputs @ x)[:, None], 2), rows())
    fed.prepare(X)
    with pytest.raises(ProblemError, match=r"scores must return one number .* write scores\[:, 0\]"):
        FedDRO(0.1).init(fed, X)


@pytest.mark.parametrize("algorithm", [FedDRO(0.1), GCIVR(0.1)])
def test_an_inner_value_that_is_no_vector_is_refused(algorithm: Any) -> None:
    fed = Federation(Compositional(lambda z: z.sum(), lambda x, b: each(x, b).mean()), rows())
    with pytest.raises(ProblemError, match="g returns one flat vector"):
        algorithm.round(fed, algorithm.init(fed, X))


def test_weights_that_underflow_leave_the_entropy_finite() -> None:
    problem = group_weights(Compositional(lambda z: z.sum(), lambda x, b: x[:2] * b.inputs.mean()), lam=0.1)
    b = Batch({"inputs": torch.ones(2, 3)})
    for p in ([1.0, 0.0], [1.0, 1e-45]):
        assert torch.isfinite(problem.f_y(X, torch.tensor(p), b)).all()
    assert float(problem.f(X, torch.tensor([1.0, 0.0]), b)) == pytest.approx(0.3 - 0.1 * np.log(2))
    with pytest.raises(ProblemError, match="one weight for each of the 2 groups is needed; got 3"):
        problem.f(X, torch.full((3,), 1 / 3), b)


def test_a_wrong_number_of_weights_is_told() -> None:
    fed = Federation(group_weights(group_dro(each, 2)), rows())
    fed.prepare(X)
    with pytest.raises(ProblemError, match="one weight for each of the 2 groups"):
        PDSGDWeights(0.1, 3).round(fed, PDSGDWeights(0.1, 3).init(fed, X))


# hyper-parameters and starting points


@pytest.mark.parametrize(("algorithm", "text"), [
    (FedDRO(0.1, local_steps=2.5), "local_steps of FedDRO is a whole number; got 2.5"),  # type: ignore[arg-type]
    (FedDRO(0.1, batch=1.5), "batch of FedDRO is a whole number, or None; got 1.5"),  # type: ignore[arg-type]
    (FedDRO(0.1, local_steps=Epochs(1)), "local_steps of FedDRO is a whole number; got Epochs"),  # type: ignore[arg-type]
    (FedDRO("0.1"), "lr of FedDRO is a number or a schedule; got '0.1'"),  # type: ignore[arg-type]
    (GCIVR(0.1, period=1.5), "period of GCIVR is a whole number"),  # type: ignore[arg-type]
    (FedNest(0.1, terms=2.5), "terms of FedNest is a whole number"),  # type: ignore[arg-type]
    (FedNest(0.1, full_anchors="no"), "full_anchors of FedNest is True or False; got 'no'"),  # type: ignore[arg-type]
    (FedBiOAcc(Decay(0.1)), "lr of FedBiOAcc is a number; got Decay")])  # type: ignore[arg-type]
def test_hyper_parameters_of_another_type_get_a_sentence(algorithm: Any, text: str) -> None:
    k = known.bilevel() if isinstance(algorithm, FedNest | FedBiOAcc) else known.compositional()
    with pytest.raises(AlgorithmError, match=text):
        algorithm.init(Federation(k.problem, k.data), k.x0)


def test_what_starts_beside_x_must_fit_it() -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data)
    with pytest.raises(AlgorithmError, match=r"x and y start with one dtype; got torch.float64 and torch.float32: write y.to\(x.dtype\)"):
        FedNest(0.1).init(fed, k.x0, k.y0.float())
    for algorithm, name in ((SimFBO(0.1), "v"), (FedBiOAcc(0.1), "u")):
        with pytest.raises(AlgorithmError, match=f"{name} starts as a vector like y"):
            algorithm.init(fed, k.x0, k.y0, torch.zeros(5, dtype=torch.float64))


def test_outer_steps_say_their_own_name_and_may_be_epochs_in_a_file() -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data)
    algorithm = FedNest(0.1, outer_steps=(1, 2))
    with pytest.raises(AlgorithmError, match="outer_steps as a tuple holds"):
        algorithm.round(fed, algorithm.init(fed, k.x0, k.y0))
    tree = {"data": {"name": "digits"}, "algorithm": {"name": "FedNest", "lr": 0.1, "epochs": 2.0, "outer_steps": {"epochs": 1.0}}}
    found = parse(tree)
    assert found.algorithm.local_steps == Epochs(2)  # type: ignore[attr-defined]
    assert found.algorithm.outer_steps == Epochs(1)  # type: ignore[attr-defined]
    assert describe(found)["algorithm"] == tree["algorithm"]


def test_full_leaves_batches_to_the_local_steps() -> None:
    """Two clients, 3 local steps on y and x, T = 1: q, v, N products and both parts of h of all rows, the steps of 2 (h has two draws)."""
    k = known.bilevel(sizes=(5, 3))
    fed = Federation(k.problem, k.data)
    algorithm = FedNest(0.1, local_steps=3, terms=4, inverse_solver="neumann", batch=2, full_anchors=True)
    algorithm.round(fed, algorithm.init(fed, k.x0, k.y0))
    assert fed.ledger["train"].samples == (1 + 1 + 4 + 2) * (5 + 3) + 2 * 3 * 2 + 2 * 3 * 2 * 2


def test_every_inner_round_has_a_cohort_of_its_own() -> None:
    k = known.bilevel(sizes=(3,) * 8)
    fed = Federation(k.problem, k.data, clients_per_round=2)
    drawn, cohort = [], fed.cohort
    fed.cohort = lambda *a: drawn.append(cohort(*a)) or drawn[-1]  # type: ignore[func-returns-value,method-assign]
    algorithm = FedNest(0.1, inner_rounds=3, terms=2, inverse_solver="neumann")
    algorithm.round(fed, algorithm.init(fed, k.x0, k.y0))
    assert len(drawn) == 3 + 1 + 2 + 1
    assert len({tuple(S.names) for S in drawn}) > 3


# curvature that is not positive


def test_conjugate_gradients_and_the_smoothness_refuse_a_saddle() -> None:
    H = torch.diag(torch.tensor([1.0, -1.0]))
    with pytest.raises(AlgorithmError, match="a direction of curvature 0, and need ∇²yy g to be positive definite"):
        conjugate(lambda v: H @ v, torch.ones(2), 5)
    data = Data.from_parts({"a": {"u": torch.ones(2)}})
    saddle = Bilevel(lambda x, y, b: y.sum(), lambda x, y, b: 0.5 * y[0] ** 2 - y[1] ** 2)
    with pytest.raises(AlgorithmError, match="not convex in y"):
        estimate_smoothness(Federation(saddle, data), torch.zeros(1), torch.zeros(2), 30)


def test_one_machine_methods_check_their_inner_steps() -> None:
    k = known.bilevel(sizes=(4,))
    with pytest.raises(AlgorithmError, match="inner_steps of ALSET is a whole number"):
        ALSET(0.1, inner_steps=1.5).init(Federation(k.problem, k.data), k.x0, k.y0)  # type: ignore[arg-type]


# graphs


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


def test_the_second_variable_of_a_saddle_has_its_firsts_dtype() -> None:
    k = known.minimax()
    with pytest.raises(AlgorithmError, match="one dtype"):
        LocalSGDA(0.1).init(Federation(k.problem, k.data), k.x0, torch.zeros(2))
