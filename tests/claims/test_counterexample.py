"""The counterexample to FedAvg on compositions, what FedDRO does about it and saves, and what local inner maps are needed for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import known_compositional as problems
import numpy as np
import pytest
import torch
import twins_compositional as twins
from known_compositional import local_functions, run, same, shared_functions, states
from torch import Tensor

from rookery import Compositional, FedAvgCaseI, FedAvgCaseII, FedDRO, Federation, LocalSCGD, LocalSCGDM, ModifiedFedAvg, grad
from rookery.errors import ProblemError
from rookery.problems import testproblems as known
from rookery.problems import value_and_jacobian
from rookery.problems.autodiff import functional
from rookery.problems.testproblems import TestProblem

LR, Q, ROUNDS = 0.1, 3, 10


# the closed forms

CASES = {"I": FedAvgCaseI, "II": FedAvgCaseII, "modified": ModifiedFedAvg}


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


@pytest.mark.parametrize("I", [1, 2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_sharing_the_inner_value_at_every_step_solves_the_counterexample(I: int) -> None:
    k, e = known.counterexample(), 0.02
    ends = run(ModifiedFedAvg(e, I), Federation(k.problem, k.data, engine="loop"), k.x0, 30)
    factor = 1 - (1 - (1 - 10 * e) ** I) / 10  # of one round
    np.testing.assert_allclose(np.ravel(ends), factor ** np.arange(1, 31), rtol=1e-9)
    end = run(FedDRO(0.05, 0.3, I), Federation(k.problem, k.data, engine="loop"), k.x0, 280 if I == 1 else 190)[-1]
    assert abs(end[0]) < 1e-6


@pytest.mark.slow
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


def tracked_limit(k: TestProblem, oracles: Any, c: float) -> np.ndarray:
    """With full batches and one local step: mean_k [J_kᵀ∇f_k(h_k) + ∇h_k] = 0 at h_k = (1−c)·mean_j g_j + c·g_k, a linear system."""
    g, jac, f, h = oracles(k)

    def direction(x: np.ndarray) -> np.ndarray:
        values = [e(x) for e in g]
        return twins.mean([jac[i](x).T @ f[i]((1 - c) * twins.mean(values) + c * values[i]) + h[i](x) for i in range(4)])

    zero = direction(np.zeros(3))
    return -np.linalg.solve(np.stack([direction(e) - zero for e in np.eye(3)], 1), zero)


@pytest.mark.slow
@pytest.mark.parametrize("make", [LocalSCGD, LocalSCGDM])
def test_local_scgd_is_biased_on_a_shared_map_in_proportion_to_its_tracking_at_any_step_size(make: Any) -> None:
    k = known.compositional()
    for c, lr in ((0.5, 0.2), (0.1, 0.2), (0.1, 0.1)):
        end = run(make(lr, 1, tracking=c), Federation(k.problem, k.data, engine="loop"), k.x_star, int(40 / lr))[-1]
        np.testing.assert_allclose(end, tracked_limit(k, shared_functions, c), atol=1e-5)
    offset = [np.linalg.norm(tracked_limit(k, shared_functions, c) - k.x_star.numpy()) for c in (0.5, 0.1, 0.002, 0.001)]
    assert offset[0] > offset[1] > 0.1
    assert offset[2] / offset[3] == pytest.approx(2, rel=0.02)  # only c → 0 mends it


@pytest.mark.slow
@pytest.mark.parametrize("make", [LocalSCGD, LocalSCGDM])
def test_local_scgd_is_biased_on_local_maps_in_proportion_to_what_it_keeps_of_the_average(make: Any) -> None:
    k = problems.local()
    for c in (0.5, 1.0):
        end = run(make(0.2, 1, tracking=c), Federation(k.problem, k.data, engine="loop"), k.x_star, 150)[-1]
        np.testing.assert_allclose(end, tracked_limit(k, local_functions, c), atol=1e-5)
    offset = [np.linalg.norm(tracked_limit(k, local_functions, c) - k.x_star.numpy()) for c in (0.5, 0.99, 0.995, 1.0)]
    assert offset[0] > 0.1
    assert offset[1] / offset[2] == pytest.approx(2, rel=0.02)
    assert offset[3] < 1e-12


# FedDRO with one inner value


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("plain", [0.5, 0.0])
def test_a_scalar_inner_value_costs_a_forward_pass_less_and_changes_no_iterate(engine: str, plain: float) -> None:
    """Beside g a constant second value that f ignores: d_g = 2 takes the general way, on the same samples."""
    k = known.compositional(dg=1, plain=plain)
    p = k.problem
    assert isinstance(p, Compositional)
    general = Compositional(lambda z: p.f(z[:1]), lambda x, b: torch.cat([p.g(x, b), torch.ones(1, dtype=x.dtype)]), p.h)
    feds = [Federation(q, k.data, engine=engine, clients_per_round=3, weights="samples") for q in (p, general)]
    ends = [states(FedDRO(LR, 0.3, Q, 2), fed, k.x0) for fed in feds]
    same([s.x.numpy() for s in ends[0]], [s.x.numpy() for s in ends[1]])
    same([s.y.numpy() for s in ends[0]], [s.y[:1].numpy() for s in ends[1]])
    calls = [fed.ledger["train"].calls for fed in feds]
    steps = 3 * Q * ROUNDS
    assert calls[0] == {"g": 3 + steps, "g_and_jacobian": steps, "f_gradient": steps, **({"h_gradient": steps} if plain else {})}
    assert calls[1] == {"g": 3 + 2 * steps, "g_vjp": steps, "f_gradient": steps, **({"h_gradient": steps} if plain else {})}
    assert feds[0].ledger["train"].samples == feds[1].ledger["train"].samples


def test_a_wrong_hand_written_pair_is_refused() -> None:
    k = known.compositional(dg=1)
    p = k.problem
    assert isinstance(p, Compositional)
    for oracle, fine in ((p.g_and_jacobian, True), (lambda x, b: (p.g(x, b), torch.ones(1, 3, dtype=x.dtype)), False)):
        fed = Federation(replace(p, oracles={"g_and_jacobian": oracle}), k.data, engine="loop")
        if fine:
            same(run(FedDRO(LR), fed, k.x0), run(FedDRO(LR), Federation(p, k.data, engine="loop"), k.x0))
        else:
            with pytest.raises(ProblemError, match="g_and_jacobian"):
                run(FedDRO(LR), fed, k.x0)


@pytest.mark.parametrize("dg", [1, 3])
def test_value_and_jacobian_in_both_evaluations_and_inside_another_derivative(dg: int) -> None:
    W = torch.randn(dg, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.tensor([0.1, -0.4, 0.3, 0.8], dtype=torch.float64)

    def fn(z: Tensor) -> Tensor:
        return torch.tanh(W @ z)

    def inside(z: Tensor) -> Tensor:
        value, J = value_and_jacobian(fn, z)
        return (value.square().sum() + J.square().sum()).reshape(())

    expected = torch.autograd.functional.jacobian(fn, x)
    second = torch.autograd.functional.jacobian(lambda z: fn(z).square().sum()
                                                + torch.autograd.functional.jacobian(fn, z, create_graph=True).square().sum(), x)
    for context in (nullcontext(), functional()):
        with context:
            value, J = value_and_jacobian(fn, x)
            torch.testing.assert_close(value, fn(x))
            torch.testing.assert_close(J, expected)
            torch.testing.assert_close(grad(inside, x), second)
            assert not value_and_jacobian(lambda z: torch.ones(dg, dtype=z.dtype), x)[1].any()
