"""Algorithms on compositions: twins, identities, refusals."""

from __future__ import annotations

from typing import Any

import known_compositional as problems
import pytest
import torch
import twins_compositional as twins
from known_compositional import ON_BATCHES, different, local_functions, recorded, run, same, shared_functions

from rookery import (
    FCSG,
    GCIVR,
    MBSGD,
    NASA,
    SCGD,
    ComFedL,
    Compositional,
    Conditional,
    FedAvgCaseI,
    FedAvgCaseII,
    FedDRO,
    Federation,
    LocalSCGD,
    LocalSCGDM,
    ModifiedFedAvg,
    PDSGDWeights,
    Unconstrained,
    conditional_as_compositional,
)
from rookery.data import Stored
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem

LR, Q, ROUNDS = 0.1, 3, 10


# twins

CASES = {"I": FedAvgCaseI, "II": FedAvgCaseII, "modified": ModifiedFedAvg}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [1, 4])
def test_fedavg_co(case: str, steps: int) -> None:
    k = known.compositional()
    g, jac, f, h = shared_functions(k)
    ours = run(CASES[case](LR, steps), Federation(k.problem, k.data), k.x0)
    twin = {name: twins.fedavg_co(g, jac, f[0], h, k.x0.numpy(), LR, steps, ROUNDS, name) for name in CASES}
    same(ours, twin[case])
    for other in set(CASES) - {case}:
        if steps == 1 and {case, other} == {"II", "modified"}:
            same(ours, twin[other])
        else:
            different(ours, twin[other])


@pytest.mark.parametrize(("make", "oracles"), [(known.compositional, shared_functions), (problems.local, local_functions)],
                         ids=["shared", "local"])
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
    g, jac, f, h = local_functions(k)
    gradients = [lambda x, i=i: jac[i](x).T @ f[i](g[i](x)) + h[i](x) for i in range(4)]
    ours = run(ComFedL(LR, Q), Federation(k.problem, k.data), k.x0)
    same(ours, twins.local_sgd(gradients, k.x0.numpy(), LR, Q, ROUNDS))
    one = run(MBSGD(LR), Federation(k.problem, k.data), k.x0)
    same(one, twins.local_sgd(gradients, k.x0.numpy(), LR, 1, ROUNDS))
    different(ours, one)


def test_gcivr_on_the_samples_that_were_drawn() -> None:
    k = known.compositional()
    fed, sampling = recorded(k)
    ours = run(GCIVR(LR, Q, 2, 5), fed, k.x0)
    drawn = sampling.__dict__["drawn"]
    assert len(drawn) == 4 * Q * ROUNDS
    arguments = (*ON_BATCHES, [drawn[i::4] for i in range(4)], k.x0.numpy(), LR, Q, ROUNDS)
    same(ours, twins.gcivr(*arguments))
    different(ours, twins.broken_gcivr(*arguments))


# identities


@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_at_one_local_step_case_ii_the_modified_one_and_feddro_are_one_and_case_i_is_mbsgd(clients_per_round: int | None) -> None:
    k = known.compositional(d=2, dg=2, plain=0.0)  # without h, which FedDRO gives a batch of its own
    options: dict[str, Any] = {"clients_per_round": clients_per_round, "seed": 4}
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


def test_local_scgd_that_tracks_nothing_but_the_batch_is_comfedl_on_a_reduced_conditional_problem() -> None:
    k = known.conditional()
    reduced = conditional_as_compositional(k.problem)  # type: ignore[arg-type]
    ours = run(LocalSCGD(LR, Q, tracking=1.0), Federation(reduced, k.data), k.x0)
    same(ours, run(ComFedL(LR, Q), Federation(reduced, k.data), k.x0))
    different(ours, run(LocalSCGD(LR, Q, tracking=1.0, inner=2), Federation(reduced, k.data), k.x0))


def test_unconstrained_is_the_composition_without_its_composition() -> None:
    k = known.compositional()
    p = k.problem
    assert isinstance(p, Compositional)
    flat = Compositional(lambda z: 0.0 * z.sum(), p.g, p.h)
    ours = run(Unconstrained(LR, 2), Federation(p, k.data), k.x0)
    same(ours, run(MBSGD(LR, 2), Federation(flat, k.data), k.x0))
    different(ours, run(MBSGD(LR, 2), Federation(p, k.data), k.x0))


# refusals


def test_refusals() -> None:
    four, one = known.compositional(), problems.one_client()
    own, bare = problems.local(), known.compositional(d=2, plain=0.0)

    def start(algorithm: Any, k: TestProblem) -> None:
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
