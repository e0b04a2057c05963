"""Robust objectives against brute force over the weights p of all rows, and the report of what is clamped."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from rookery import Batch, Compositional, Data, FedAvg, FedDRO, Federation
from rookery.errors import ProblemError
from rookery.objectives import ClampWarning, chi2_dro, constrained_dro, cvar, dro_report, kl_dro, mean_variance

ENGINES = ["loop", "vectorised", "wire"]
ELL = np.asarray([0.3, 1.9, 0.7, 2.4, 1.1, 0.2])  # losses of six rows
ROWS = Batch({"a": torch.tensor(ELL)})


def stored(x: Tensor, b: Batch) -> Tensor:
    return b.a


def squares(x: Tensor, b: Batch) -> Tensor:
    return (b.inputs @ x - b.target).square()


def worst(value: Any, constraint: Any = None) -> float:
    """max value(p) over the simplex, from several starts, by a general solver."""
    constraints = [{"type": "eq", "fun": lambda p: p.sum() - 1}] + ([] if constraint is None else [{"type": "ineq", "fun": constraint}])
    best = -np.inf
    for seed in range(4):
        start = np.random.default_rng(seed).dirichlet(np.full(6, 20.0))
        found = minimize(lambda p: -value(p), start, bounds=[(1e-12, 1)] * 6, constraints=constraints,
                         options={"ftol": 1e-13, "maxiter": 500})
        if found.success:
            best = max(best, -found.fun)
    return best


def least(fn: Any, low: float = -20.0, high: float = 20.0) -> float:
    """min over one number of a convex function, by golden section."""
    ratio = (np.sqrt(5) - 1) / 2
    for _ in range(200):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, b) if fn(a) < fn(b) else (a, high)
    return float(fn((low + high) / 2))


def composed(p: Compositional, x: Tensor, b: Batch) -> float:
    return float(p.f(p.g(x, b)) + p.h_value(x, b))


def at(problem: Any, e: float) -> float:
    return float(problem.f(torch.tensor([e], dtype=torch.float64), ROWS))


def chi2(p: np.ndarray) -> float:
    return float(3 * ((p - 1 / 6) ** 2).sum())  # (m/2) Σ (p − 1/m)²


@pytest.mark.parametrize("lam", [0.2, 0.6, 1.3, 5.0])
def test_chi2_dro_is_the_worst_case_over_the_weights(lam: float) -> None:
    exact = worst(lambda p: p @ ELL - lam * chi2(p))
    dual = least(lambda e: at(chi2_dro(stored, lam, form="dual"), e))
    variance = composed(chi2_dro(stored, lam), torch.zeros(1, dtype=torch.float64), ROWS)
    assert dual == pytest.approx(exact, abs=1e-5)
    assert variance == pytest.approx(ELL.mean() + ELL.var() / (2 * lam))
    if ELL.min() - ELL.mean() >= -lam:
        assert variance == pytest.approx(exact, abs=1e-5)
    else:  # outside its range the variance form is too large
        assert variance > exact + 1e-2


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.5, 0.75, 1.0])
def test_cvar_is_the_mean_of_the_worst_rows(share: float) -> None:
    exact = worst(lambda p: p @ ELL, lambda p: 1 / (6 * share) - p)
    sharp = least(lambda e: at(cvar(stored, share, 1e-6), e))
    smooth = least(lambda e: at(cvar(stored, share, 0.2), e))
    assert sharp == pytest.approx(exact, abs=1e-4)
    assert sharp - 1e-6 <= smooth <= sharp + 0.2 * np.log(2) / share


@pytest.mark.parametrize("rho", [0.05, 0.3, 0.8])
def test_constrained_dro_is_the_worst_mean_in_a_ball(rho: float) -> None:
    exact = worst(lambda p: p @ ELL, lambda p: rho - (p * np.log(6 * p)).sum())
    for centre in (0.0, 1.1):  # the centre changes nothing but the range
        problem = constrained_dro(stored, rho, 0.05, centre)
        assert least(lambda e, p=problem: composed(p, torch.tensor([e], dtype=torch.float64), ROWS)) == pytest.approx(exact, abs=1e-5)
    bounded = constrained_dro(stored, rho, 8.0, 0.0)
    assert least(lambda e: composed(bounded, torch.tensor([e], dtype=torch.float64), ROWS)) > exact + 1e-2


@pytest.mark.parametrize("lam", [0.2, 1.0, 5.0])
def test_kl_dro_is_the_worst_case_over_the_weights(lam: float) -> None:
    exact = worst(lambda p: p @ ELL - lam * (p * np.log(6 * p)).sum())
    assert composed(kl_dro(stored, lam, 0.7), torch.zeros(1, dtype=torch.float64), ROWS) == pytest.approx(exact, abs=1e-5)


# over clients

def sites() -> Data:
    r = torch.Generator().manual_seed(0)
    return Data.from_parts({f"c{k}": {"inputs": torch.randn(n, 2, generator=r, dtype=torch.float64) + 0.3 * k,
                                      "target": torch.randn(n, generator=r, dtype=torch.float64)} for k, n in enumerate((5, 3, 3, 6))})


def pooled(data: Data, x: Tensor) -> np.ndarray:
    return ((data.fields["inputs"] @ x - data.fields["target"]) ** 2).numpy()


@pytest.mark.parametrize("engine", ENGINES)
def test_mean_variance_is_that_of_all_rows_together(engine: str) -> None:
    data, x = sites(), torch.tensor([0.4, -0.1], dtype=torch.float64)
    fed = Federation(mean_variance(squares, 0.8), data, weights="samples", engine=engine)
    step = FedDRO(lr=1e-3, beta=1.0)
    moved = (x - step.round(fed, step.init(fed, x)).x) / 1e-3
    difference = []
    for i in range(2):
        up, down = x.clone(), x.clone()
        up[i] += 1e-6
        down[i] -= 1e-6
        above, below = (pooled(data, z).mean() + 0.8 * pooled(data, z).var() for z in (up, down))
        difference.append((above - below) / 2e-6)
    torch.testing.assert_close(moved, torch.tensor(difference, dtype=torch.float64), rtol=1e-5, atol=1e-5)


def descended(gradient: Any, lr: float, steps: int) -> Tensor:
    """Gradient descent over all rows as one batch."""
    x, rows = torch.zeros(3, dtype=torch.float64), Batch(sites().fields)
    for _ in range(steps):
        x = x - lr * gradient(x, rows)
    return x


def test_trained_duals_satisfy_their_own_optimality() -> None:
    x = descended(chi2_dro(squares, 2.0, form="dual").gradient, 0.08, 500)
    assert np.maximum(pooled(sites(), x[:-1]) - float(x[-1]), 0).mean() == pytest.approx(2.0, abs=1e-6)
    x = descended(cvar(squares, 0.4, 0.3).gradient, 0.08, 500)
    assert (1 / (1 + np.exp(-(pooled(sites(), x[:-1]) - float(x[-1])) / 0.3))).mean() == pytest.approx(0.4, abs=1e-6)
    # at the best λ the weights exp(ℓ/λ) lie on the ball's border
    x = descended(constrained_dro(squares, 0.2, 0.05, 1.0).plug_in_gradient, 0.2, 750)
    lam = 0.05 + np.log1p(np.exp(float(x[-1])))
    p = np.exp(pooled(sites(), x[:-1]) / lam)
    p /= p.sum()
    assert (p * np.log(len(p) * p)).sum() == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize(("make", "algorithm"), [
    (lambda: chi2_dro(squares, 2.0, form="dual"), FedAvg(0.02, 2, 3)), (lambda: cvar(squares, 0.4, 0.1), FedAvg(0.02, 2, 3)),
    (lambda: constrained_dro(squares, 0.2, 1.0), FedDRO(0.02, 0.5, 2, 3)), (lambda: chi2_dro(squares, 2.0), FedDRO(0.02, 0.5, 2, 3)),
], ids=["chi2 dual", "cvar", "constrained", "chi2 variance"])
def test_engines_agree(make: Any, algorithm: Any) -> None:
    ends = []
    for engine in ENGINES:
        fed = Federation(make(), sites(), engine=engine)
        x = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)[: 2 if isinstance(algorithm, FedDRO) and fed.problem.h is not None else 3]
        fed.prepare(x)
        state = algorithm.init(fed, x)
        for _ in range(3):
            state = algorithm.round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert torch.equal(ends[0], ends[2])
    assert (ends[0] != x).all()


# the report

@pytest.mark.parametrize("engine", ENGINES)
def test_the_report_counts_what_is_clamped_and_warns(engine: str) -> None:
    data = Data.from_parts({"a": {"l": torch.tensor([1.0, 2.0, 80.0])}, "b": {"l": torch.tensor([70.0, 61.5])}})
    fed = Federation(kl_dro(lambda x, b: b.l * x[0], 1.0, 0.0), data, engine=engine)
    x = torch.ones(1)
    with pytest.warns(ClampWarning, match="3 of 5 rows lie beyond"):
        report = dro_report(fed, x)
    assert report == {"clamped": 3.0, "floored": 0.0}
    with pytest.warns(ClampWarning, match="below 1, the least"):
        assert dro_report(fed, x / 80, torch.tensor([0.5])) == {"clamped": 0.0, "floored": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dro_report(fed, x / 80, torch.tensor([1.5])) == {"clamped": 0.0, "floored": 0.0}
    assert fed.ledger["train"].exchanges == 0
    assert fed.ledger["evaluation"].exchanges == 3
    assert fed.ledger["evaluation"].floats_up == 3 * 2 * 2


def test_prepare_at_the_point_takes_the_rows_back_into_range() -> None:
    data = Data.from_parts({"a": {"l": torch.tensor([60.0, 65.0, 80.0])}})
    fed = Federation(kl_dro(lambda x, b: b.l * x[0], 1.0), data)
    fed.prepare(torch.ones(1))
    assert dro_report(fed, torch.ones(1))["clamped"] == 0


def test_the_report_reads_constrained_dro_and_refuses_the_rest() -> None:
    data = Data.from_parts({"a": {"l": torch.tensor([1.0, 9.0])}})
    fed = Federation(constrained_dro(lambda x, b: b.l, 0.5, 0.1, 0.0), data)
    with pytest.warns(ClampWarning, match="1 of 2 rows"):  # exponents 9/(0.1 + softplus(−20)) = 90 and 10
        assert dro_report(fed, torch.tensor([-20.0]))["clamped"] == 1
    other = Federation(chi2_dro(lambda x, b: b.l), data)
    with pytest.raises(ProblemError, match="leave the report out"):
        dro_report(other, torch.ones(1))


def test_beyond_the_edge_and_below_the_floor_both_forms_stay_finite_with_a_pull() -> None:
    problem = constrained_dro(lambda x, b: b.a * x[0], 0.5, 0.1, 0.0)
    x, rows = torch.tensor([100.0, -5.0]), Batch({"a": torch.tensor([1.0, 2.0])})
    assert torch.isfinite(problem.plug_in_gradient(x, rows)).all()
    assert float(problem.plug_in_gradient(x, rows)[0]) > 0
    for z0 in (-1.0, 0.0, 1e-30):
        assert torch.isfinite(problem.f_gradient(torch.tensor([z0, 0.5]))).all()


def test_wrong_parameters_are_refused() -> None:
    for make in (lambda: chi2_dro(stored, 0.0), lambda: chi2_dro(stored, 1.0, form="other"), lambda: cvar(stored, 0.0),  # type: ignore[call-overload]
                 lambda: cvar(stored, 1.1), lambda: cvar(stored, 0.5, 0.0), lambda: constrained_dro(stored, 0.0),
                 lambda: constrained_dro(stored, 1.0, 0.0), lambda: mean_variance(stored, -1.0), lambda: kl_dro(stored, 0.0)):
        with pytest.raises(ProblemError):
            make()
    fed = Federation(constrained_dro(lambda x, b: -b.inputs.square().sum(1), 0.2), sites())
    with pytest.raises(ProblemError, match=r"17 losses lie below least=0\.0, the smallest that constrained_dro"):
        fed.prepare(torch.zeros(1, dtype=torch.float64))
    fed = Federation(constrained_dro(lambda x, b: b.l, 0.2, 0.1), Data.from_parts({"a": {"l": torch.tensor([1.0, 5.9, 6.1])}}))
    with pytest.raises(ProblemError, match=r"1 losses lie more than 60·least_lam above least=0\.0"):
        fed.prepare(torch.zeros(1))
