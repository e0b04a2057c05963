"""Worst cases over weights: FastDRO and PDSGD against twins, their objectives against brute force."""

from __future__ import annotations

from typing import Any

import known_compositional as problems
import numpy as np
import pytest
import torch
import twins_compositional as twins
import twins_pooled as pooled
from known_compositional import different, parts, run, same, shared_functions, states
from scipy.optimize import minimize

from rookery import PDSGD, Batch, Data, FastDRO, FedAvg, Federation, ModifiedFedAvg, PDSGDWeights
from rookery.errors import AlgorithmError, ProblemError
from rookery.objectives import fast_dro, group_dro, group_weights
from rookery.objectives.fastdro import worst_weights
from rookery.problems import testproblems as known
from rookery.training import Decay

LR, Q, ROUNDS = 0.1, 3, 10


def test_pdsgd_with_several_constraints() -> None:
    k = known.compositional(dg=3)
    g, jac, _, h = shared_functions(k)
    fed, chosen = Federation(k.problem, k.data), []
    draw = fed.integer
    fed.integer = lambda bound: chosen.append(draw(bound)) or chosen[-1]  # type: ignore[func-returns-value,method-assign]
    ours = states(PDSGD(LR, 0.5, 0.7), fed, k.x0, 30)
    pairs = list(zip(chosen[::2], chosen[1::2], strict=True))
    assert len(set(pairs)) > 5
    arguments = (lambda x: twins.mean([e(x) for e in h]), lambda x: twins.mean([e(x) for e in g]),
                 lambda x: twins.mean([e(x) for e in jac]), k.x0.numpy(), LR, 0.7, 0.5, pairs)
    theirs = twins.pdsgd(*arguments)
    same([s.x.numpy() for s in ours], [x for x, _ in theirs])
    same([s.z.numpy() for s in ours], [z for _, z in theirs])
    assert ours[-1].z.min() >= 0
    assert ours[-1].z.max() > 0.1
    different([s.x.numpy() for s in ours], [x for x, _ in twins.broken_pdsgd(*arguments)])


def test_pdsgd_refuses_dual_steps_that_could_make_a_multiplier_negative() -> None:
    with pytest.raises(AlgorithmError, match=r"dual_lr must not exceed penalty.*got 0.6 and 0.5"):
        PDSGD(LR, 0.6, 0.5)


def test_pdsgd_of_weights() -> None:
    k = problems.weights()
    A, b = (twins.mean([p[n].mean(0) for p in parts(k)]) for n in ("A", "b"))
    ours = states(PDSGDWeights(LR, 2, 0.4), Federation(k.problem, k.data), k.x0)

    def ascent(x: np.ndarray, p: np.ndarray) -> np.ndarray:
        return A @ x + b - 4 * p

    theirs = twins.exponentiated(lambda x, p: x + A.T @ p, ascent, k.x0.numpy(), [0.5, 0.5], LR, 0.4, ROUNDS)
    same([s.x.numpy() for s in ours], [x for x, _ in theirs])
    same([s.p.numpy() for s in ours], [p for _, p in theirs])
    wrong = twins.exponentiated(lambda x, p: x + A.T @ p, lambda x, p: -ascent(x, p), k.x0.numpy(), [0.5, 0.5], LR, 0.4, ROUNDS)
    different([s.p.numpy() for s in ours], [p for _, p in wrong])


@pytest.mark.parametrize("weights", ["equal", "samples"])
@pytest.mark.parametrize(("form", "size"), [("cvar", 0.3), ("cvar", 1.0), ("chi2", 8.0), ("chi2", 0.3), ("chi2 ball", 0.5),
                                            ("chi2 ball", 50.0), ("kl", 0.4), ("kl", 1e-3)])
def test_fastdro(form: str, size: float, weights: str) -> None:
    """Against the pooled method, whose threshold is found by sorting all clients' losses."""
    k = problems.robust()
    problem = fast_dro(lambda x, b: (b.a @ x).square() + (x - b.e).square().sum(1), form, size)  # type: ignore[arg-type]
    losses = [lambda x, p=p: (p["a"] @ x) ** 2 + ((x - p["e"]) ** 2).sum(1) for p in parts(k)]
    gradients = [lambda x, p=p: 2 * (p["a"] @ x)[:, None] * p["a"] + 2 * (x - p["e"]) for p in parts(k)]
    ours = run(FastDRO(LR / 4), Federation(problem, k.data, weights=weights), k.x0)
    options = {"weights": None if weights == "equal" else k.data.sizes}
    same(ours, pooled.fast_dro_pooled(losses, gradients, k.x0.numpy(), LR / 4, form, size, ROUNDS, **options))
    if size != 1.0:
        different(ours, pooled.broken_fast_dro_pooled(losses, gradients, k.x0.numpy(), LR / 4, form, size, ROUNDS, **options))


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_fastdro_weighs_the_rows_of_all_clients_against_each_other(engine: str) -> None:
    """Rows at 0, 0 and 4 at three clients: the worst third is the farther of the two places, so that x ends half-way. The mean of the
    clients' own worst thirds, which FedAvg minimises, has its optimum at the mean of the places."""
    data = Data.from_parts({name: {"t": torch.full((n,), place, dtype=torch.float64)} for name, place, n in
                            (("a", 0.0, 4), ("b", 0.0, 2), ("c", 4.0, 5))})
    problem = fast_dro(lambda x, b: 0.5 * (x - b.t).square(), "cvar", 1 / 3)
    start, steps = torch.ones(1, dtype=torch.float64), Decay(0.3, over=5.0)
    x = run(FastDRO(steps), Federation(problem, data, engine=engine), start, 120)[-1]
    assert float(x[0]) == pytest.approx(2, abs=0.05)
    assert float(run(FedAvg(0.3), Federation(problem, data, engine=engine), start, 50)[-1][0]) == pytest.approx(4 / 3, abs=1e-6)


@pytest.mark.parametrize(("form", "size"), [("cvar", 0.3), ("chi2", 0.3), ("chi2 ball", 0.5), ("kl", 0.1)])
def test_a_client_without_weight_has_no_say_in_the_worst_case(form: str, size: float) -> None:
    """Also where its losses are far above all others, and these far below 0; clients have unequal numbers of rows."""
    k = problems.robust()
    problem = fast_dro(lambda x, b: (b.a @ x).square() + (x - b.e).square().sum(1) - 500, form, size)  # type: ignore[arg-type]
    parts = {name: dict(k.data.views(i)) for i, name in enumerate(k.data.names)}
    others = run(FastDRO(LR / 4), Federation(problem, Data.from_parts(parts)), k.x0, 3)
    parts["mute"] = {name: 100 * field[:2] for name, field in parts["site-0"].items()}
    same(run(FastDRO(LR / 4), Federation(problem, Data.from_parts(parts), weights=[1, 1, 1, 1, 0]), k.x0, 3), others)


def test_fastdro_of_equal_losses_is_the_mean() -> None:
    k = known.minimization()
    for form, size in (("cvar", 0.5), ("chi2", 1.0), ("chi2 ball", 1.0), ("kl", 1.0)):
        problem = fast_dro(lambda x, b: 0.5 * x.square().sum().expand(len(b.b)), form, size)  # type: ignore[arg-type]
        np.testing.assert_allclose(run(FastDRO(LR), Federation(problem, k.data), k.x0, 2)[-1], 0.9**2 * k.x0.numpy(), rtol=1e-9)


# worst cases over a batch


def divergence(p: np.ndarray) -> float:
    return float(((len(p) * p - 1) ** 2).sum() / (2 * len(p)))


WORST: dict[str, tuple[float, Any, Any]] = {  # size, penalty, what p must satisfy beyond the simplex (≥ 0)
    "cvar": (0.3, lambda p: 0.0, lambda p: 1 / (0.3 * len(p)) - p),
    "chi2": (0.4, lambda p: 0.4 * divergence(p), None),
    "chi2 ball": (0.5, lambda p: 0.0, lambda p: np.array([0.5 - divergence(p)])),
    "kl": (0.4, lambda p: 0.4 * float((p * np.log(np.maximum(len(p) * p, 1e-300))).sum()), None)}


@pytest.mark.parametrize("form", WORST)
def test_fast_dro_is_the_maximum_over_the_weights_and_its_gradient_that_of_the_maximum(form: str) -> None:
    size, cost, limits = WORST[form]
    r = np.random.default_rng(0)
    a, b = r.normal(size=(9, 3)), r.normal(size=9)
    problem = fast_dro(lambda x, batch: (batch.a @ x - batch.b).square(), form, size)  # type: ignore[arg-type]
    batch, x = Batch({"a": torch.from_numpy(a), "b": torch.from_numpy(b)}), torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    v = (a @ x.numpy() - b) ** 2
    rules = [{"type": "eq", "fun": lambda p: p.sum() - 1}, *([] if limits is None else [{"type": "ineq", "fun": limits}])]
    brute = minimize(lambda p: cost(p) - p @ v, np.full(9, 1 / 9), bounds=[(0, 1)] * 9, constraints=rules, tol=1e-13,
                     options={"maxiter": 3000})
    p = worst_weights(torch.from_numpy(v), form, size).numpy()  # type: ignore[arg-type]
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert limits is None or limits(p).min() > -1e-9
    assert float(problem.value(x, batch)) == pytest.approx(-brute.fun, abs=1e-6)
    steps = 1e-5 * torch.eye(3, dtype=torch.float64)
    numeric = [float(problem.value(x + s, batch) - problem.value(x - s, batch)) / 2e-5 for s in steps]  # of the maximum itself
    np.testing.assert_allclose(problem.gradient(x, batch).numpy(), numeric, atol=1e-6)
    plain = worst_weights(torch.full((4,), 0.7, dtype=torch.float64), form, size)  # type: ignore[arg-type]
    if form == "cvar":
        assert float(plain.max()) <= 1 / (size * 4) + 1e-12  # with ties any choice is a maximiser
    else:
        np.testing.assert_allclose(plain.numpy(), 0.25)


@pytest.mark.parametrize("form", WORST)
def test_fast_dro_on_every_engine(form: str) -> None:
    k = problems.robust()
    problem = fast_dro(lambda x, b: (b.a @ x).square() + (x - b.e).square().sum(1), form, WORST[form][0])  # type: ignore[arg-type]
    loop, vectorised, wire = (run(FastDRO(LR, 3), Federation(problem, k.data, engine=e), k.x0, 3) for e in ("loop", "vectorised", "wire"))
    same(loop, wire)
    same(loop, vectorised)


def test_a_ball_larger_than_the_simplex_takes_the_worst_row() -> None:
    np.testing.assert_allclose(worst_weights(torch.tensor([1.0, 3.0, 2.0]), "chi2 ball", 50.0).numpy(), [0, 1, 0], atol=1e-6)


def test_group_weights_is_the_saddle_form_of_group_dro() -> None:
    """max_p of it is λ·log mean exp(g/λ), at p = softmax(g/λ), where PDSGD (DRO) and gradient descent on group_dro agree."""
    r, lam = torch.Generator().manual_seed(1), 0.7
    data = Data.from_parts({f"c{i}": {"a": torch.randn(8, 3, generator=r, dtype=torch.float64) + i, "labels": torch.arange(8) % 4}
                            for i in range(3)})
    smooth = group_dro(lambda x, b: (b.a @ x - 1).square(), 4, lam)
    x = torch.tensor([0.1, 0.2, -0.1], dtype=torch.float64)
    feds = [Federation(problem, data) for problem in (smooth, group_weights(smooth, lam))]
    prepared = [fed.prepare(x) for fed in feds]
    whole = Batch(data.fields)
    g = prepared[0].g(x, whole)  # type: ignore[attr-defined]
    p = torch.softmax(g / lam, 0)
    assert float(prepared[1].f(x, p, whole)) == pytest.approx(float(prepared[0].f(g)), abs=1e-12)  # type: ignore[attr-defined]
    uphill = prepared[1].f_y(x, p, whole)  # type: ignore[attr-defined]
    torch.testing.assert_close(uphill - uphill.mean(), torch.zeros(4, dtype=torch.float64))  # no way up along the simplex
    ends = [states(algorithm, fed, x, 150)[-1] for algorithm, fed in zip((ModifiedFedAvg(0.08), PDSGDWeights(0.08, 4, 0.5)), feds,
                                                                        strict=True)]
    torch.testing.assert_close(ends[0].x, ends[1].x, rtol=0, atol=1e-6)
    assert (ends[0].x - x).norm() > 0.1


@pytest.mark.parametrize(("make", "text"), [
    (lambda: fast_dro(lambda x, b: x, "wasserstein", 1.0), r'form is "cvar", "chi2", "chi2 ball" or "kl"'),  # type: ignore[arg-type]
    (lambda: fast_dro(lambda x, b: x, "cvar", 1.5), r"size must be a share in \(0, 1\]; got 1.5"),
    (lambda: fast_dro(lambda x, b: x, "kl", 0.0), "size must be positive; got 0.0"),
    (lambda: group_weights(known.minimization().problem), "takes a shared composition.*got Minimization"),  # type: ignore[arg-type]
    (lambda: group_weights(known.compositional().problem, -1.0), "lam must not be negative; got -1.0"),  # type: ignore[arg-type]
])
def test_objectives_refuse(make: Any, text: str) -> None:
    with pytest.raises(ProblemError, match=text):
        make()
