"""Every algorithm joins the conformance suite with one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import known_compositional as compositional
import nested_problems as nested

from rookery import (
    ALSET,
    BSA,
    BSGD,
    CODASCA,
    FCSG,
    FCSGM,
    FESSGDA,
    GCIVR,
    MBSGD,
    NASA,
    PDSGD,
    SCAFFOLD,
    SCGD,
    SGDA,
    SMD,
    SOAP,
    TTSA,
    AccFCSGM,
    Algorithm,
    BSpiderBoost,
    CoDA,
    CODAPlus,
    ComFedL,
    FastDRO,
    FedAvg,
    FedAvgCaseI,
    FedAvgCaseII,
    FedAvgS,
    FedBiOAcc,
    FedDRO,
    FedGDAGT,
    FedLin,
    FedNest,
    FedNestSGD,
    FedNova,
    FedOpt,
    FedProx,
    FedSVRG,
    FeDXL1,
    FeDXL2,
    LFedNest,
    LocalSCGD,
    LocalSCGDAM,
    LocalSCGDM,
    LocalSGDA,
    LocalSGDAM,
    LocalSGDM,
    ModifiedFedAvg,
    PDSGDWeights,
    ShroFBO,
    SimFBO,
    StocBiO,
    Unconstrained,
)
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem
from rookery.testing import Case


def nest(**fixed: Any) -> Callable[..., Algorithm]:
    return lambda lr, steps, batch: FedNest(lr=lr, local_steps=steps, batch=batch, **{"inner_lr": 0.4, "inner_rounds": 2, **fixed})


def opt(server: str, **fixed: Any) -> Callable[..., Algorithm]:
    return lambda lr, steps, batch: FedOpt(lr, steps, batch, server, **{"server_lr": 0.3, "beta1": 0.5, "tau": 0.1, **fixed})


def inner(kind: type[Algorithm], factor: float = 1.5, **fixed: Any) -> Callable[..., Algorithm]:
    """Inner step sizes in proportion to lr, so that the drift of both levels halves with it."""
    return lambda lr, q, b: kind(**{"lr": lr, "inner_lr": factor * lr, "local_steps": q, "batch": b, **fixed})


def tracking(kind: type[Algorithm], **fixed: Any) -> Callable[..., Algorithm]:
    return lambda lr, q, b: kind(**{"lr": lr, "inner_lr": 1.5 * lr, "solve_lr": 1.5 * lr, "local_steps": q, "batch": b, **fixed})


def alone(kind: type[Algorithm], **fixed: Any) -> Callable[..., Algorithm]:
    return lambda lr, q, b: kind(**{"lr": lr, "inner_lr": 0.4, "terms": 4, "smoothness": 2.5, "batch": b, **fixed})


def pooled(sizes: tuple[int, ...]) -> TestProblem:
    return known.conditional(sizes=(sum(sizes),))


def evenly(sizes: tuple[int, ...]) -> TestProblem:
    """As many rows at every client, as one graph over values for each row needs."""
    return known.conditional(sizes=(max(sizes),) * len(sizes))


CONSTRAINT = "a_constraint_is_met_where_projected_gradient_descent_meets_it"
OWN_COHORTS = {"ledger_is_the_papers_formula-cohort": "every inner round draws a cohort of its own, to which x goes anew"}
OWN_MOMENTA = {"one_local_step_leaves_the_solution_in_place": "its first momenta are each client's own; it comes back from where they lead"}
OWN_POOL = {"ledger_is_the_papers_formula-cohort": "the pool has the scores of a cohort only"}
STAGES: dict[str, Any] = {"stage": 6, "growth": 1, "prox": 2.0}
CASES = [
    Case("FedAvg", lambda lr, q, b: FedAvg(lr, q, b), known.minimization, lambda d, _, q: (1, d, d)),
    Case("SCAFFOLD", lambda lr, q, b: SCAFFOLD(lr, q, b), known.minimization, lambda d, _, q: (1, 2 * d, 2 * d), memory=True),
    Case("FedProx", lambda lr, q, b: FedProx(lr, q, b, mu=0.1), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedNova", lambda lr, q, b: FedNova(lr, q, b, rho=0.3), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedLin", lambda lr, q, b: FedLin(lr, q, b), known.minimization, lambda d, _, q: (2, 2 * d, 2 * d)),
    Case("FedSVRG", lambda lr, q, b: FedSVRG(lr, q, b), known.minimization, lambda d, _, q: (2, 2 * d, 2 * d)),
    Case("LocalSGDM", lambda lr, q, b: LocalSGDM(lr, q, b, momentum=0.5), known.minimization, lambda d, _, q: (1, 2 * d, 2 * d)),
    Case("FedOpt/momentum", opt("momentum", server_lr=0.7), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedOpt/adagrad", opt("adagrad"), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedOpt/adam", opt("adam"), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedOpt/yogi", opt("yogi"), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FCSG", lambda lr, q, b: FCSG(lr, q, b, b), known.conditional, lambda d, _, q: (1, d, d), biased_batches=True),
    Case("FCSG-M", lambda lr, q, b: FCSGM(lr, q, b, b, beta=0.3), known.conditional, lambda d, _, q: (1, 2 * d, 2 * d),
         biased_batches=True),
    Case("Acc-FCSG-M", lambda lr, q, b: AccFCSGM(lr, q, b, b, beta=0.3), known.conditional, lambda d, _, q: (1, 2 * d, 2 * d),
         biased_batches=True),
    Case("SOAP", lambda lr, q, b: SOAP(lr, q, b, b, gamma=0.7), evenly, lambda d, _, q: (1, d, d), biased_batches=True),
    Case("SOAP/averaged", lambda lr, q, b: SOAP(lr, q, b, b, gamma=0.7, beta=0.4), evenly, lambda d, _, q: (1, 2 * d, 2 * d),
         biased_batches=True),
    Case("FedDRO", lambda lr, q, b: FedDRO(lr, 0.3, q, b), known.compositional, lambda d, dy, q: (q + 1, q * dy + d, d + (q + 1) * dy)),
    Case("FedDRO/scalar", lambda lr, q, b: FedDRO(lr, 0.3, q, b), compositional.scalar,
         lambda d, dy, q: (q + 1, q * dy + d, d + (q + 1) * dy)),
    Case("FedAvg-CO/I", lambda lr, q, b: FedAvgCaseI(lr, q, b), known.compositional, lambda d, _, q: (1, d, d), biased_limit=1,
         biased_batches=True),
    Case("FedAvg-CO/II", lambda lr, q, b: FedAvgCaseII(lr, q, b), known.compositional, lambda d, dy, q: (2, dy + d, d + dy), biased_limit=2,
         biased_batches=True),
    Case("FedAvg-CO/modified", lambda lr, q, b: ModifiedFedAvg(lr, q, b), known.compositional,
         lambda d, dy, q: (q + 1, q * dy + d, d + q * dy), biased_batches=True),
    Case("MBSGD", lambda lr, q, b: MBSGD(lr, b), known.compositional, lambda d, _, q: (1, d, d), biased_limit=1, biased_batches=True),
    Case("Unconstrained", lambda lr, q, b: Unconstrained(lr, b), compositional.only_h, lambda d, _, q: (1, d, d)),
    Case("FastDRO", lambda lr, q, b: FastDRO(lr, b), compositional.robust,
         lambda d, _, q: (11 + 2, 2 + 11 * 2 * 30 + d + 1, d + 11 * 2 + 4), rounds=100, biased_batches=True),
    Case("ComFedL", lambda lr, q, b: ComFedL(lr, q, b), compositional.local, lambda d, _, q: (1, d, d), biased_batches=True),
    Case("Local-SCGD/shared", lambda lr, q, b: LocalSCGD(lr, q, b, tracking=0.5), known.compositional,
         lambda d, dy, q: (1, d + dy, d + dy), biased_limit=1, biased_batches=True),
    Case("Local-SCGD/local", lambda lr, q, b: LocalSCGD(lr, q, b, tracking=0.5), compositional.local,
         lambda d, _, q: (1, d + 2, d + 2), biased_limit=1, biased_batches=True),
    Case("Local-SCGDM/shared", lambda lr, q, b: LocalSCGDM(lr, q, b, tracking=0.5, beta=0.5), known.compositional,
         lambda d, dy, q: (1, 2 * d + dy, 2 * d + dy), biased_limit=1, biased_batches=True),
    Case("Local-SCGDM/local", lambda lr, q, b: LocalSCGDM(lr, q, b, tracking=1.0, beta=0.5), compositional.local,
         lambda d, _, q: (1, 2 * d + 2, 2 * d + 2), biased_batches=True),
    Case("GCIVR", lambda lr, q, b: GCIVR(lr, q, b, b), known.compositional,
         lambda d, dy, q: (q, q * (dy + dy * d + d), q * d), biased_batches=True),
    Case("PDSGD", lambda lr, q, b: PDSGD(lr, 0.3, 0.5, b), compositional.constrained, lambda d, dy, q: (3, 2 * dy + d, 2 * d + dy),
         third=lambda k: k.y_star,
         exempt={CONSTRAINT: "its multiplier is another one over a smaller set"}),
    Case("PDSGD (DRO)", lambda lr, q, b: PDSGDWeights(lr, 2, 0.3, b), compositional.weights, lambda d, dy, q: (1, d + dy, d + dy),
         third=lambda k: k.y_star),
    Case("FedNest/bilevel",  # 2⁻⁴¹ is left out of its series where a law is exact, 2⁻¹³ where batches are noisy
         lambda lr, q, b: nest(terms=40 if b is None else 12, smoothness=2.0, inverse_solver="neumann")(lr, q, b), known.bilevel,
         lambda d, dy, q: (2 * 2 + 40 + 3, (4 + 41) * dy + 2 * d, 2 * d + (4 + 1 + 40 + 1) * dy), lr=0.3, rounds=50, exempt=OWN_COHORTS),
    Case("FedNest/minimax", nest(), known.minimax, lambda d, dy, q: (2 * 2 + 2, 4 * dy + 2 * d, 2 * d + (4 + 1) * dy), rounds=100,
         embed=True, exempt=OWN_COHORTS),
    Case("FedNest/compositional", nest(), known.compositional,
         lambda d, dy, q: (2 * 2 + 3, (4 + 1) * dy + 2 * d, 2 * d + (4 + 1 + 1) * dy), embed=True, exempt=OWN_COHORTS),
    Case("FedNest/minimization", nest(), known.minimization, lambda d, _, q: (2, 2 * d, 2 * d), rounds=140, embed=True),
    Case("FedNest/conjugate", nest(terms=2, inverse_solver="cg"), known.bilevel,
         lambda d, dy, q: (2 * 2 + 2 + 3, (4 + 3) * dy + 2 * d, 2 * d + (4 + 1 + 2 + 1) * dy), lr=0.3, rounds=50, biased_batches=True,
         exempt=OWN_COHORTS),
    Case("FedNest-SGD", inner(FedNestSGD, inner_rounds=2, terms=2, inverse_solver="cg"), known.bilevel,
         lambda d, dy, q: (2 + 2 + 3, (2 + 3) * dy + 2 * d, 2 * d + (2 + 1 + 2 + 1) * dy), lr=0.3, rounds=50, biased_batches=True,
         exempt=OWN_COHORTS),
    Case("LFedNest", inner(LFedNest, inner_rounds=2, terms=3, smoothness=2.5, inverse_solver="neumann"), nested.own_hypergradients,
         lambda d, dy, q: (2 + 1, 2 * dy + d, d + (2 + 1) * dy), lr=0.3, rounds=50, exempt=OWN_COHORTS),
    Case("SGDA", lambda lr, q, b: SGDA(lr, 2 * lr, b), known.minimax, lambda d, dy, q: (1, d + dy, d + dy), rounds=100),
    Case("LocalSGDA", inner(LocalSGDA), known.minimax, lambda d, dy, q: (1, d + dy, d + dy), rounds=100),
    Case("FedAvg-S", inner(FedAvgS, 1.0), known.minimax, lambda d, dy, q: (1, d + dy, d + dy), rounds=110),
    Case("FedGDA-GT", lambda lr, q, b: FedGDAGT(lr, q, b), known.minimax, lambda d, dy, q: (2, 2 * (d + dy), 2 * (d + dy)), rounds=110),
    Case("LocalSGDAM", inner(LocalSGDAM, beta=0.5), known.minimax, lambda d, dy, q: (1, 2 * (d + dy), 2 * (d + dy)), exempt=OWN_MOMENTA),
    Case("FESS-GDA", inner(FESSGDA, smoothing=1.0, server_lr=0.9, inner_server_lr=0.8), known.minimax,
         lambda d, dy, q: (1, d + dy, d + dy)),
    Case("CoDA", lambda lr, q, b: CoDA(lr, q, b, **STAGES), known.minimax, lambda d, dy, q: (1, d + dy, 2 * d + dy), rounds=200),
    Case("CODA+", lambda lr, q, b: CODAPlus(lr, q, b, **STAGES), known.minimax, lambda d, dy, q: (1, d + dy, 2 * d + dy), rounds=200),
    Case("CODASCA", lambda lr, q, b: CODASCA(lr, q, b, **STAGES, server_lr=0.9), known.minimax,
         lambda d, dy, q: (1, 2 * (d + dy), 3 * d + 2 * dy), rounds=200, memory=True),
    Case("LocalSCGDAM", inner(LocalSCGDAM), known.compositional_minimax, lambda d, dy, q: (1, 3 * d + 2 * dy, 3 * d + 2 * dy),
         biased_limit=1, biased_batches=True),
    Case("LocalSCGDAM/alike", inner(LocalSCGDAM), nested.alike_inside, lambda d, dy, q: (1, 3 * d + 2 * dy, 3 * d + 2 * dy),
         exempt={"several_local_steps_move_the_solution_as_declared": "clients that are alike inside drift by what cancels in the mean"}),
    Case("FeDXL1", lambda lr, q, b: FeDXL1(lr, q, b), known.pairwise,  # 14 rows at each of four clients
         lambda d, _, q: (2, d + 3 * q * 14, d + 3 * q * 14 * 4), lr=0.25, biased_batches=True, exempt=OWN_POOL),
    Case("FeDXL2", lambda lr, q, b: FeDXL2(lr, q, b, gamma=0.7, beta=0.5), known.pairwise,
         lambda d, _, q: (2, 2 * d + 4 * q * 14, 2 * d + 4 * q * 14 * 4), lr=0.25, biased_batches=True, exempt=OWN_POOL),
    Case("SimFBO", tracking(SimFBO), known.bilevel, lambda d, dy, q: (1, d + 2 * dy, d + 2 * dy), lr=0.3, rounds=100,
         third=nested.inverse_gradient),
    Case("ShroFBO", tracking(ShroFBO, local=0.7), known.bilevel, lambda d, dy, q: (1, d + 2 * dy, d + 2 * dy), lr=0.3, rounds=100,
         third=nested.inverse_gradient),
    Case("FedBiOAcc", tracking(FedBiOAcc, scale=10.0, delay=1000.0, decay=0.5), known.bilevel,
         lambda d, dy, q: (1, 2 * d + 4 * dy, 2 * d + 4 * dy), lr=0.3, rounds=100, third=nested.inverse_gradient),
]

# laws on where runs end, which take the most rounds, and further variants of an algorithm: held against them by `make slow`
LIMITS = ("several_local_steps_move_the_solution_as_declared", "converges_to_the_closed_form", CONSTRAINT,
          "noise_of_small_batches_does_not_bias_the_mean_direction")
VARIANTS = ("FedNest/bilevel", "FedNest/minimax", "FedNest/compositional", "FedDRO/scalar", "SOAP/averaged", "FedOpt/adam", "FedOpt/yogi",
            "Local-SCGD/shared", "Local-SCGDM/shared")

# methods of one machine refuse a second client, and are held against the laws that say nothing of other clients
CUT = {CONSTRAINT: "its few Neumann factors are exact where ∇y f vanishes, which is not so at the solution under a constraint"}
ONE_MACHINE = [
    Case("BSGD", lambda lr, q, b: BSGD(lr, q, b, b), pooled, lambda d, _, q: (1, d, d), biased_batches=True, one_machine=True),
    Case("BSpiderBoost", lambda lr, q, b: BSpiderBoost(lr, q, b, b, 2 * b if b else None), pooled, lambda d, _, q: (1, d, d),
         biased_batches=True, one_machine=True),
    Case("ALSET", lambda lr, q, b: alone(ALSET, inner_steps=q)(lr, q, b), nested.agreeing, lambda d, dy, q: (1, d + dy, d + dy),
         one_machine=True, exempt=CUT),
    Case("stocBiO", lambda lr, q, b: alone(StocBiO, inner_steps=q, terms=40, smoothness=2.0)(lr, q, b), nested.pooled_bilevel,
         lambda d, dy, q: (1, d + dy, d + dy), lr=0.3, rounds=100, one_machine=True),
    Case("BSA", lambda lr, q, b: alone(BSA, inner_steps=2 * q)(lr, q, b), nested.agreeing, lambda d, dy, q: (1, d + dy, d + dy),
         rounds=200, one_machine=True, exempt=CUT),
    Case("TTSA", alone(TTSA), nested.agreeing, lambda d, dy, q: (1, d + dy, d + dy), lr=0.5, rounds=800, one_machine=True,
         exempt=CUT),
    Case("SMD", inner(SMD, 1.0, prox=10.0), nested.pooled_minimax, lambda d, dy, q: (1, d + dy, d + dy), rounds=24, one_machine=True,
         exempt={"noise_of_small_batches_does_not_bias_the_mean_direction": "its first stage is one step and ends where it started"}),
    Case("SCGD", lambda lr, q, b: SCGD(lr, 0.5, q, b), compositional.one_client, lambda d, dy, q: (1, d + dy, d + dy), one_machine=True),
    Case("NASA", lambda lr, q, b: NASA(lr, 0.5, 1.5, 1.5, q, b), compositional.one_client,
         lambda d, dy, q: (1, 2 * d + dy, 2 * d + dy), lr=0.1, rounds=900, one_machine=True),
]
