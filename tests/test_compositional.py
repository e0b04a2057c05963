"""Algorithms on compositions and on worst cases: twins, identities, the counterexample to FedAvg, what each cannot do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import known_compositional as problems
import numpy as np
import pytest
import test_conformance as laws
import torch
import twins_compositional as twins
from cases import ONE_MACHINE_COMPOSITIONS, Case
from scipy.optimize import minimize
from torch import Tensor

from rookery import (
    FCSG,
    GCIVR,
    MBSGD,
    NASA,
    PDSGD,
    SCGD,
    Batch,
    ComFedL,
    Compositional,
    Conditional,
    Data,
    FastDRO,
    FedAvg,
    FedAvgCaseI,
    FedAvgCaseII,
    FedDRO,
    Federation,
    LocalSCGD,
    LocalSCGDM,
    ModifiedFedAvg,
    PDSGDWeights,
    Unconstrained,
    box,
    conditional_as_compositional,
)
from rookery import testproblems as known
from rookery.data import Replacement, Stored
from rookery.errors import AlgorithmError, ProblemError
from rookery.objectives import fast_dro, group_dro, group_weights
from rookery.objectives.fastdro import worst_weights
from rookery.testproblems import Known

LR, Q, ROUNDS = 0.1, 3, 10


def parts(k: Known) -> list[dict[str, np.ndarray]]:
    return [{name: field.numpy() for name, field in k.data.views(i).items()} for i in range(len(k.data.names))]


def shared(k: Known) -> tuple[Any, ...]:
    """g, J, ∇f and ∇h of each client of `testproblems.compositional`, full batches."""
    p = parts(k)
    return ([lambda x, p=p: p["A"].mean(0) @ x - p["b"].mean(0) for p in p], [lambda x, p=p: p["A"].mean(0) for p in p],
            [lambda y: y - 1 for _ in p], [lambda x, p=p: 0.5 * (x - p["e"].mean(0)) for p in p])


def local(k: Known) -> tuple[Any, ...]:
    p = parts(k)
    return ([lambda x, p=p: p["A"].mean(0) @ x - p["b"].mean(0) for p in p], [lambda x, p=p: p["A"].mean(0) for p in p],
            [lambda y, p=p: y - p["t"].mean(0) for p in p], [lambda x: 0.5 * x for _ in p])


def states(algorithm: Any, fed: Federation, x: Tensor, rounds: int = ROUNDS, *more: Tensor) -> list[Any]:
    state, out = algorithm.init(fed, x, *more), []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        out.append(state)
    return out


def run(algorithm: Any, fed: Federation, x: Tensor, rounds: int = ROUNDS) -> list[Any]:
    return [s.x.numpy() for s in states(algorithm, fed, x, rounds)]


def same(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 1
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-9, atol=1e-11)


def different(ours: list[Any], theirs: list[Any]) -> None:
    assert np.abs(np.asarray(ours) - np.asarray(theirs)).max() > 1e-3


# twins

CASES = {"I": FedAvgCaseI, "II": FedAvgCaseII, "modified": ModifiedFedAvg}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [1, 4])
def test_fedavg_co(case: str, steps: int) -> None:
    k = known.compositional()
    g, jac, f, h = shared(k)
    ours = run(CASES[case](LR, steps), Federation(k.problem, k.data), k.x0)
    twin = {name: twins.fedavg_co(g, jac, f[0], h, k.x0.numpy(), LR, steps, ROUNDS, name) for name in CASES}
    same(ours, twin[case])
    for other in set(CASES) - {case}:
        if steps == 1 and {case, other} == {"II", "modified"}:
            same(ours, twin[other])
        else:
            different(ours, twin[other])


@pytest.mark.parametrize(("make", "oracles"), [(known.compositional, shared), (problems.local, local)], ids=["shared", "local"])
@pytest.mark.parametrize("steps", [1, Q])
def test_local_scgd_and_its_momentum(make: Any, oracles: Any, steps: int) -> None:
    k = make()
    x0, functions = k.x0.numpy(), oracles(k)
    plain = run(LocalSCGD(LR, steps, tracking=0.3), Federation(k.problem, k.data), k.x0)
    same(plain, twins.local_scgd(*functions, x0, LR, 0.3, steps, ROUNDS))
    different(plain, twins.broken_local_scgd(*functions, x0, LR, 0.3, steps, ROUNDS))
    momentum = run(LocalSCGDM(LR, steps, tracking=0.3, beta=0.4), Federation(k.problem, k.data), k.x0)
    same(momentum, twins.local_scgdm(*functions, x0, LR, 0.3, 0.4, steps, ROUNDS))
    different(momentum, twins.broken_local_scgdm(*functions, x0, LR, 0.3, 0.4, steps, ROUNDS))


def test_comfedl_and_mbsgd_on_local_maps() -> None:
    k = problems.local()
    g, jac, f, h = local(k)
    gradients = [lambda x, i=i: jac[i](x).T @ f[i](g[i](x)) + h[i](x) for i in range(4)]
    ours = run(ComFedL(LR, Q), Federation(k.problem, k.data), k.x0)
    same(ours, twins.local_sgd(gradients, k.x0.numpy(), LR, Q, ROUNDS))
    one = run(MBSGD(LR), Federation(k.problem, k.data), k.x0)
    same(one, twins.local_sgd(gradients, k.x0.numpy(), LR, 1, ROUNDS))
    different(ours, one)


class Recording(Replacement):
    """Rows with replacement, and the batches that were drawn."""

    def fetch(self, data: Data, selection: dict[str, Tensor]) -> Batch:
        batch = super().fetch(data, selection)
        self.__dict__.setdefault("drawn", []).append({name: field.numpy() for name, field in batch.fields.items()})
        return batch


ON_BATCHES = (lambda x, b: b["A"].mean(0) @ x - b["b"].mean(0), lambda x, b: b["A"].mean(0), lambda y: y - 1,
              lambda x, b: 0.5 * (x - b["e"].mean(0)))


def recorded(k: Known, **options: Any) -> tuple[Federation, Recording]:
    sampling = Recording()
    return Federation(replace(k.problem, sampling=sampling, **options), k.data, engine="loop"), sampling


@pytest.mark.parametrize("projected", [False, True])
def test_one_machine_twins_on_the_samples_that_were_drawn(projected: bool) -> None:
    k = problems.one_client()
    low, high = (-0.2, 0.4) if projected else (-1e9, 1e9)
    clip: dict[str, Any] = {"project": lambda x: np.clip(x, low, high)} if projected else {}
    g, jac, f, h = ON_BATCHES
    fed, sampling = recorded(k, project_x=box(low, high))
    ours = run(SCGD(LR, 0.3, 1, 3), fed, k.x0)
    first, *rest = sampling.__dict__["drawn"]
    arguments = (*ON_BATCHES, list(zip(rest[::2], rest[1::2], strict=True)), k.x0.numpy(), g(k.x0.numpy(), first), LR, 0.3)
    same(ours, twins.scgd(*arguments, **clip))
    if not projected:
        different(ours, twins.broken_scgd(*arguments))

    fed, sampling = recorded(k, project_x=box(low, high))
    ours = run(NASA(0.5, 0.4, 1.2, 0.8, 1, 3), fed, k.x0)
    first, second, *rest = sampling.__dict__["drawn"]
    u = g(k.x0.numpy(), first)
    z = jac(k.x0.numpy(), first).T @ f(u) + h(k.x0.numpy(), second)
    arguments = (*ON_BATCHES, list(zip(rest[::2], rest[1::2], strict=True)), k.x0.numpy(), z, u, 1 / 0.5, 0.4, 1.2, 0.8)
    same(ours, twins.nasa(*arguments, **clip))
    if not projected:
        different(ours, twins.broken_nasa(*arguments))


def test_gcivr_on_the_samples_that_were_drawn() -> None:
    k = known.compositional()
    fed, sampling = recorded(k)
    ours = run(GCIVR(LR, Q, 2, 5), fed, k.x0)
    drawn = sampling.__dict__["drawn"]
    assert len(drawn) == 4 * Q * ROUNDS
    arguments = (*ON_BATCHES, [drawn[i::4] for i in range(4)], k.x0.numpy(), LR, Q, ROUNDS)
    same(ours, twins.gcivr(*arguments))
    different(ours, twins.broken_gcivr(*arguments))


def test_pdsgd_with_several_constraints() -> None:
    k = known.compositional(dg=3)
    g, jac, _, h = shared(k)
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


@pytest.mark.parametrize("lam", [8.0, 0.3])
def test_fastdro(lam: float) -> None:
    k = problems.robust(lam=lam)
    losses = [lambda x, p=p: p["a"] @ x + 0.5 * ((x - p["e"]) ** 2).sum(1) for p in parts(k)]
    jacobians = [lambda x, p=p: p["a"] + x - p["e"] for p in parts(k)]
    ours = run(FastDRO(LR), Federation(k.problem, k.data), k.x0)
    same(ours, twins.robust_sgd(losses, jacobians, k.x0.numpy(), LR, ROUNDS, lambda v: twins.chi2_weights(v, lam)))
    different(ours, twins.robust_sgd(losses, jacobians, k.x0.numpy(), LR, ROUNDS, lambda v: np.full(len(v), 1 / len(v))))


# identities


@pytest.mark.parametrize("participate", [None, 2])
def test_at_one_local_step_case_ii_the_modified_one_and_feddro_are_one_and_case_i_is_mbsgd(participate: int | None) -> None:
    k = known.compositional(d=2, dg=2, plain=0.0)  # without h, which FedDRO gives a batch of its own
    options: dict[str, Any] = {"participate": participate, "seed": 4}
    ends = {a.title: [] for a in (FedAvgCaseII(LR), FedAvgCaseI(LR), ModifiedFedAvg(LR), FedDRO(LR), MBSGD(LR))}
    for algorithm in (FedAvgCaseII(LR, 1, 2), ModifiedFedAvg(LR, 1, 2), FedDRO(LR, 1.0, 1, 2), FedAvgCaseI(LR, 1, 2), MBSGD(LR, 2)):
        fed = Federation(k.problem, k.data, **options)
        state = algorithm.init(fed, k.x0)
        for t in range(ROUNDS):
            fed.counters.update({"train": 10 * t, "server:train": t})  # the same samples and cohorts for all, whatever their calls
            state = algorithm.round(fed, state)
            ends[algorithm.title].append(state.x.numpy())
    same(ends["Vanilla FedAvg-CO (Case II)"], ends["FedDRO"])
    same(ends["Modified FedAvg-CO"], ends["FedDRO"])
    same(ends["Vanilla FedAvg-CO (Case I)"], ends["MBSGD"])
    different(ends["MBSGD"], ends["FedDRO"])


@pytest.mark.parametrize("steps", [1, Q])
def test_feddro_with_beta_one_is_the_modified_fedavg(steps: int) -> None:
    k = known.compositional()
    same(run(FedDRO(LR, 1.0, steps), Federation(k.problem, k.data), k.x0),
         run(ModifiedFedAvg(LR, steps), Federation(k.problem, k.data), k.x0))


@pytest.mark.parametrize("full", [True, False])
def test_scgd_with_beta_one_is_sgd_on_the_composition(full: bool) -> None:
    k = problems.one_client()
    p = k.problem
    assert isinstance(p, Compositional)
    k = replace(k, problem=Compositional(p.f, p.g))  # without h: one draw a step
    batch = None if full else 3
    fed = Federation(k.problem, k.data)
    algorithm, sgd = MBSGD(LR, batch), []
    state = algorithm.init(fed, k.x0)
    for t in range(ROUNDS):
        fed.counters["train"] = t + 1  # SCGD's first call starts y
        state = algorithm.round(fed, state)
        sgd.append(state.x.numpy())
    same(run(SCGD(LR, 1.0, 1, batch), Federation(k.problem, k.data), k.x0), sgd)
    different(run(SCGD(LR, 0.3, 1, batch), Federation(k.problem, k.data), k.x0), sgd)


def test_local_scgd_of_one_client_is_scgd_and_without_momentum_so_is_local_scgdm() -> None:
    k = problems.one_client()
    theirs = run(SCGD(LR, 0.3, Q, 2), Federation(k.problem, k.data), k.x0)
    same(run(LocalSCGD(LR, Q, 2, tracking=0.3), Federation(k.problem, k.data), k.x0), theirs)
    same(run(LocalSCGDM(LR, Q, 2, tracking=0.3, beta=1.0), Federation(k.problem, k.data), k.x0), theirs)


def test_nasa_with_full_weights_is_gradient_descent_along_the_last_gradient() -> None:
    """At tau = a = b = 1 with full batches: x_{k+1} = x_k − lr·z_k, z_k = J(x_k)ᵀ∇f(g(x_{k−1})) + ∇h(x_k)."""
    k = problems.one_client()
    g, jac, f, h = (functions[0] for functions in shared(k))
    x = before = k.x0.numpy()
    theirs = []
    for _ in range(ROUNDS):
        before, x = x, x - LR * (jac(x).T @ f(g(before)) + h(x))
        theirs.append(x)
    same(run(NASA(LR, 1.0), Federation(k.problem, k.data), k.x0), theirs)


def test_gcivr_with_period_one_is_the_large_batch_method_and_with_full_batches_gradient_descent() -> None:
    k = known.compositional()
    fed, sampling = recorded(k)
    ours = run(GCIVR(LR, 1, 2, 4), fed, k.x0)
    g, jac, f, h = ON_BATCHES
    x, theirs, drawn = k.x0.numpy(), [], sampling.__dict__["drawn"]
    for t in range(ROUNDS):
        y, J, w = (twins.mean([e(x, b) for b in drawn[4 * t:4 * t + 4]]) for e in (g, jac, h))
        x = x - LR * (J.T @ f(y) + w)
        theirs.append(x)
    same(ours, theirs)
    z, descent = k.x0, []
    for _ in range(Q * ROUNDS):
        z = z - LR * k.gradient(z)
        descent.append(z.numpy())
    same(run(GCIVR(LR, Q), Federation(k.problem, k.data), k.x0), descent[Q - 1::Q])


def test_gcivr_estimates_better_than_the_small_batches_it_corrects_with() -> None:
    k = known.compositional(sizes=(12,) * 4)
    spread = {large: torch.stack([torch.from_numpy(run(GCIVR(0.02, 6, 2, large), Federation(k.problem, k.data, seed=s), k.x0, 1)[0])
                                  for s in range(25)]).std(0).norm() for large in (2, None)}
    assert spread[None] < 0.3 * spread[2]  # full anchors: only the differences are noisy


def test_comfedl_is_fcsg_where_the_inner_samples_do_not_depend_on_the_outer_ones() -> None:
    """One outer sample with m inner ones: f(mean_j g_j) of the same batch; sample for sample."""
    k = known.conditional()
    p = k.problem
    assert isinstance(p, Conditional)
    reduced = conditional_as_compositional(Conditional(p.f, p.g, p.h, sampling=Stored("eta")))
    fed = Federation(reduced, k.data, seed=3)
    algorithm, ours = ComFedL(LR, 1, 1, inner=2), []
    state = algorithm.init(fed, k.x0)
    for t in range(ROUNDS):
        fed.counters["train"] = 3 * t  # FCSG has three calls in a round, and its first one draws
        state = algorithm.round(fed, state)
        ours.append(state.x.numpy())
    same(ours, run(FCSG(LR, 1, 1, 2), Federation(p, k.data, seed=3), k.x0))
    different(ours, run(FCSG(LR, 1, 1, 1), Federation(p, k.data, seed=3), k.x0))


def test_fastdro_is_fedavg_with_one_local_step() -> None:
    k = problems.robust()
    same(run(FastDRO(LR, 2), Federation(k.problem, k.data), k.x0), run(FedAvg(LR, 1, 2), Federation(k.problem, k.data), k.x0))


def test_unconstrained_is_the_composition_without_its_composition() -> None:
    k = known.compositional()
    p = k.problem
    assert isinstance(p, Compositional)
    flat = Compositional(lambda z: 0.0 * z.sum(), p.g, p.h)
    ours = run(Unconstrained(LR, 2), Federation(p, k.data), k.x0)
    same(ours, run(MBSGD(LR, 2), Federation(flat, k.data), k.x0))
    different(ours, run(MBSGD(LR, 2), Federation(p, k.data), k.x0))


# FedDRO with one inner value


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("plain", [0.5, 0.0])
def test_a_scalar_inner_value_costs_a_forward_pass_less_and_changes_no_iterate(engine: str, plain: float) -> None:
    """Beside g a constant second value that f ignores: d_g = 2 takes the general way, on the same samples."""
    k = known.compositional(dg=1, plain=plain)
    p = k.problem
    assert isinstance(p, Compositional)
    general = Compositional(lambda z: p.f(z[:1]), lambda x, b: torch.cat([p.g(x, b), torch.ones(1, dtype=x.dtype)]), p.h)
    feds = [Federation(q, k.data, engine=engine, participate=3, weights="samples") for q in (p, general)]
    ends = [states(FedDRO(LR, 0.3, Q, 2), fed, k.x0) for fed in feds]
    same([s.x.numpy() for s in ends[0]], [s.x.numpy() for s in ends[1]])
    same([s.y.numpy() for s in ends[0]], [s.y[:1].numpy() for s in ends[1]])
    calls = [fed.ledger["train"].calls for fed in feds]
    steps = 3 * Q * ROUNDS
    assert calls[0] == {"g": 3 + steps, "g_and_jacobian": steps, "f_gradient": steps, **({"h_gradient": steps} if plain else {})}
    assert calls[1] == {"g": 3 + 2 * steps, "g_vjp": steps, "f_gradient": steps, **({"h_gradient": steps} if plain else {})}
    assert feds[0].ledger["train"].samples == feds[1].ledger["train"].samples


# the counterexample


def wrong_point(case: str, e: float, I: int) -> float:
    """The limits with f = y²/2 in closed form: both clients' steps are linear, with factors r_1 = 1 − 16e and r_2 = 1 − 4e."""
    r1, r2 = 1 - 16 * e, 1 - 4 * e
    if case == "I":  # the mean of moves towards 1 and 2
        return ((1 - r1**I) + 2 * (1 - r2**I)) / ((1 - r1**I) + (1 - r2**I))
    A = 0.5 * (r1 ** (I - 1) * (1 - 4 * e) + r2 ** (I - 1) * (1 + 2 * e))
    B = 0.5 * ((1 - r1 ** (I - 1)) + 2 * (1 - r2 ** (I - 1)))
    return B / (1 - A)


@pytest.mark.parametrize("I", [1, 2, 4, 8])
def test_the_counterexample_leads_fedavg_to_the_wrong_points_of_the_closed_form(I: int) -> None:
    k = known.counterexample()
    for case in ("I", "II"):
        for e in (0.05, 0.02) if I > 1 else (0.05,):
            rounds = int(25 / e) if (case, I) == ("II", 1) else 40 + 100 // I
            end = run(CASES[case](e, I), Federation(k.problem, k.data, engine="loop"), k.x0, rounds)[-1]
            assert end[0] == pytest.approx(wrong_point(case, e, I), abs=1e-9)
    assert wrong_point("I", 1e-7, I) == pytest.approx(6 / 5, abs=1e-4)  # however small the step
    assert wrong_point("II", 1e-7, I) == pytest.approx(12 * (I - 1) / (10 * (I - 1) + 1), abs=1e-4)


@pytest.mark.parametrize("I", [1, 2, 4, 8])
def test_sharing_the_inner_value_at_every_step_solves_the_counterexample(I: int) -> None:
    k, e = known.counterexample(), 0.02
    ends = run(ModifiedFedAvg(e, I), Federation(k.problem, k.data, engine="loop"), k.x0, 30)
    factor = 1 - (1 - (1 - 10 * e) ** I) / 10  # of one round
    np.testing.assert_allclose(np.ravel(ends), factor ** np.arange(1, 31), rtol=1e-9)
    end = run(FedDRO(0.05, 0.3, I), Federation(k.problem, k.data, engine="loop"), k.x0, 280 if I == 1 else 190)[-1]
    assert abs(end[0]) < 1e-6


def test_the_counterexample_with_a_bounded_slope() -> None:
    """f = √(1 + y²), Lipschitz as Theorem 4.1 assumes. In Case I at I = 1 the limit solves Σ_k a_k g_k/√(1 + g_k²) = 0, at any step."""
    k = known.counterexample("root")
    low, high = 1.0, 2.0
    for _ in range(100):
        x = (low + high) / 2
        slope = sum(a * (a * x + b) / np.sqrt(1 + (a * x + b) ** 2) for a, b in ((4, -4), (-2, 4)))
        low, high = (x, high) if slope < 0 else (low, x)
    for e in (0.05, 0.02):
        assert run(FedAvgCaseI(e), Federation(k.problem, k.data, engine="loop"), k.x0, int(3.4 / e))[-1][0] == pytest.approx(x, abs=1e-9)
    for algorithm in (FedAvgCaseII(0.02, 4), FedAvgCaseI(0.02, 4)):
        assert run(algorithm, Federation(k.problem, k.data, engine="loop"), k.x0, 40)[-1][0] > 0.5
    for algorithm in (ModifiedFedAvg(0.05, 4), FedDRO(0.05, 0.3, 4)):  # type: ignore[assignment]
        assert abs(run(algorithm, Federation(k.problem, k.data, engine="loop"), k.x0, 180)[-1][0]) < 1e-6


# what methods for local inner maps do on a shared one


def tracked_limit(k: Known, oracles: Any, c: float) -> np.ndarray:
    """With full batches and one local step: mean_k [J_kᵀ∇f_k(h_k) + ∇h_k] = 0 at h_k = (1−c)·mean_j g_j + c·g_k, a linear system."""
    g, jac, f, h = oracles(k)

    def direction(x: np.ndarray) -> np.ndarray:
        values = [e(x) for e in g]
        return twins.mean([jac[i](x).T @ f[i]((1 - c) * twins.mean(values) + c * values[i]) + h[i](x) for i in range(4)])

    zero = direction(np.zeros(3))
    return -np.linalg.solve(np.stack([direction(e) - zero for e in np.eye(3)], 1), zero)


@pytest.mark.parametrize("make", [LocalSCGD, LocalSCGDM])
def test_local_scgd_is_biased_on_a_shared_map_in_proportion_to_its_tracking_at_any_step_size(make: Any) -> None:
    k = known.compositional()
    for c, lr in ((0.5, 0.2), (0.1, 0.2), (0.1, 0.1)):
        end = run(make(lr, 1, tracking=c), Federation(k.problem, k.data, engine="loop"), k.x, int(40 / lr))[-1]
        np.testing.assert_allclose(end, tracked_limit(k, shared, c), atol=1e-5)
    offset = [np.linalg.norm(tracked_limit(k, shared, c) - k.x.numpy()) for c in (0.5, 0.1, 0.002, 0.001)]
    assert offset[0] > offset[1] > 0.1
    assert offset[2] / offset[3] == pytest.approx(2, rel=0.02)  # only c → 0 mends it


@pytest.mark.parametrize("make", [LocalSCGD, LocalSCGDM])
def test_local_scgd_is_biased_on_local_maps_in_proportion_to_what_it_keeps_of_the_average(make: Any) -> None:
    k = problems.local()
    for c in (0.5, 1.0):
        end = run(make(0.2, 1, tracking=c), Federation(k.problem, k.data, engine="loop"), k.x, 150)[-1]
        np.testing.assert_allclose(end, tracked_limit(k, local, c), atol=1e-5)
    offset = [np.linalg.norm(tracked_limit(k, local, c) - k.x.numpy()) for c in (0.5, 0.99, 0.995, 1.0)]
    assert offset[0] > 0.1
    assert offset[1] / offset[2] == pytest.approx(2, rel=0.02)
    assert offset[3] < 1e-12


# one machine: the laws of the conformance suite that say nothing of other clients

alone = pytest.mark.parametrize("case", ONE_MACHINE_COMPOSITIONS, ids=lambda c: c.name)


@alone
def test_one_machine_solves_the_closed_form(case: Case) -> None:
    laws.test_one_local_step_leaves_the_solution_in_place(case)
    laws.test_several_local_steps_move_the_solution_as_declared(case)
    laws.test_converges_to_the_closed_form(case)
    for steps in (1, 4):
        laws.test_ledger_is_the_papers_formula(case, steps)


@alone
@pytest.mark.parametrize("batch", [None, 2])
def test_one_machine_on_every_engine(case: Case, batch: int | None) -> None:
    laws.test_engines_agree(case, batch, None)


@alone
@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_one_machine_resumes(case: Case, engine: str, tmp_path: Any) -> None:
    laws.test_resumed_run_ends_bit_for_bit_the_same(case, engine, None, tmp_path)


# refusals


def test_refusals() -> None:
    four, one = known.compositional(), problems.one_client()
    own, bare = problems.local(), known.compositional(d=2, plain=0.0)

    def start(algorithm: Any, k: Known) -> None:
        algorithm.init(Federation(k.problem, k.data), k.x0)

    for algorithm, k, text in (
            (SCGD(LR), four, "SCGD runs on one machine, and this federation has 4 clients: pool"),
            (NASA(LR), four, "NASA runs on one machine"),
            (FedDRO(LR), own, r"FedDRO needs a shared inner map.*shared=False\): take ComFedL"),
            (FedAvgCaseI(LR), own, r"Vanilla FedAvg-CO \(Case I\) needs a shared inner map"),
            (ComFedL(LR), four, r"ComFedL needs local inner maps.*shared=True\): take FedDRO"),
            (Unconstrained(LR), bare, "Unconstrained minimises h alone, and this problem has none"),
            (SCGD(LR), known.minimization(sizes=(4,)), "SCGD solves Compositional problems, this is Minimization")):
        with pytest.raises(AlgorithmError, match=text):
            start(algorithm, k)
    with pytest.raises(AlgorithmError, match=r"a·tau and b·tau are weights of averages and must be at most 1; got 1\.5 and 0\.5"):
        NASA(LR, 0.5, 3.0, 1.0)
    with pytest.raises(AlgorithmError, match=r"tracking must lie in \(0, 1\]; got 1.5"):
        LocalSCGD(LR, tracking=1.5)
    weights = problems.weights()
    with pytest.raises(AlgorithmError, match=r"2 positive weights that sum to 1; got \[0\.5, 0\.6"):
        PDSGDWeights(LR, 2).init(Federation(weights.problem, weights.data), weights.x0, torch.tensor([0.5, 0.6]))
    start(SCGD(LR), one)


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
    prepared = [fed.problem.prepare(fed, x) for fed in feds]
    whole = Batch(data.fields)
    g = prepared[0].g(x, whole)  # type: ignore[attr-defined]
    p = torch.softmax(g / lam, 0)
    assert float(prepared[1].f(x, p, whole)) == pytest.approx(float(prepared[0].f(g)), abs=1e-12)  # type: ignore[attr-defined]
    uphill = prepared[1].f_y(x, p, whole)  # type: ignore[attr-defined]
    torch.testing.assert_close(uphill - uphill.mean(), torch.zeros(4, dtype=torch.float64))  # no way up along the simplex
    ends = [states(algorithm, fed, x, 600)[-1] for algorithm, fed in zip((ModifiedFedAvg(0.02), PDSGDWeights(0.02, 4, 0.3)), feds,
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
