"""FedNest: its exchanges and cohorts, local steps by client, and what FedInn does."""

from __future__ import annotations

from typing import Any

import nested_problems as nested
import numpy as np
import pytest
import torch
import twins_bilevel as twins
from bilevel_runs import ALPHA, BETA, ELL, TAU, X0, Y0, curved, primes, run, same

from rookery import Data, Epochs, Federation, FedNest, FedNestSGD, LFedNest, Minimax
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known
from rookery.studies import describe, parse


@pytest.mark.parametrize(("kind", "series", "exchanges"), [
    (FedNest, "neumann", lambda T, N: 2 * T + N + 3), (FedNestSGD, "neumann", lambda T, N: T + N + 3),
    (LFedNest, "neumann", lambda T, N: T + 1), (LFedNest, "random neumann", lambda T, N: T + 1)])
def test_exchanges_of_an_outer_round(kind: Any, series: str, exchanges: Any) -> None:
    k = known.bilevel()
    for T, N in ((1, 3), (4, 6)):
        fed = Federation(k.problem, k.data)
        algorithm = kind(0.1, inner_rounds=T, terms=N, smoothness=2.5, inverse_solver=series)
        algorithm.round(fed, algorithm.init(fed, k.x0, k.y0))
        assert fed.ledger["train"].exchanges == exchanges(T, N)


@pytest.mark.parametrize(("kind", "fixed"), [(FedNest, 2 * 2), (FedNestSGD, 2)])
def test_random_series_exchanges_are_exact_in_n_prime(kind: Any, fixed: int) -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data)
    algorithm = kind(0.1, inner_rounds=2, terms=7, smoothness=2.5)
    state, chosen = algorithm.init(fed, k.x0, k.y0), primes(fed)
    for _ in range(6):
        before = fed.ledger["train"].exchanges
        state = algorithm.round(fed, state)
        assert fed.ledger["train"].exchanges - before == fixed + chosen[-1] + 3
    assert len(set(chosen)) > 2


def test_a_cohort_of_its_own_for_every_term_gets_only_what_it_lacks() -> None:
    """FedIHGP with 2 of 12 clients for a term: the cohorts differ, and each new client receives x, y and p."""
    k = known.bilevel(sizes=(3,) * 12)
    fed = Federation(k.problem, k.data, clients_per_round=2)
    seen: list[tuple[int, ...]] = []
    cohort = fed.cohort
    fed.cohort = lambda size=None: (c := cohort(size), seen.append(tuple(c.index)))[0]  # type: ignore[func-returns-value,method-assign]
    FedNest(0.1, terms=8, smoothness=2.5, inverse_solver="neumann").fed_ihgp(fed, *fed.broadcast(k.x0, k.y0))
    assert len(seen) == 1 + 8
    assert len(set(seen)) > 5
    d, dy = len(k.x0), len(k.y0)  # type: ignore[arg-type]
    newcomers = len({i for pair in seen for i in pair})
    assert fed.ledger["train"].floats_down == newcomers * (d + dy) + 8 * 2 * dy


def test_local_steps_by_client_follow_the_clients_into_a_cohort() -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data, clients_per_round=2)
    for _ in range(5):
        S = fed.cohort()
        assert list(S.steps(TAU, None)) == [TAU[i] for i in S.index]  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [(1, 2, 3), (1, 2, 3, 0), (1, 2, 3, 1.5)])
def test_local_steps_by_client_are_checked(steps: Any) -> None:
    k = known.bilevel()
    with pytest.raises(AlgorithmError, match="one whole number of at least 1 for each of the 4 clients"):
        Federation(k.problem, k.data).steps(steps, None)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_local_steps_by_client_on_every_engine(engine: str) -> None:
    problem, data, o = curved()
    states = run(FedNestSGD(ALPHA, BETA, 1, TAU, 2, ELL, "neumann"), Federation(problem, data, engine=engine), 3)
    same(states, twins.fednest_sgd(**o, x0=X0, y0=Y0, alpha=ALPHA, beta=BETA, tau=TAU, T=1, N=2, ell=ELL, rounds=3))


@pytest.mark.parametrize(("what", "slope"), [("beta", 2.0), ("tau", 0.0)])
def test_the_drift_of_fedinn(what: str, slope: float) -> None:
    """max_i ‖y_i − y‖² after the local steps of one FedInn: the square of β, as the paper's O(τ_i β²) says, and with steps of β/τ_i
    it does not grow with τ_i, which the bound would allow."""
    k = known.bilevel()
    m = nested.means(k)
    y, x = torch.tensor([1.0, -1.0], dtype=torch.float64), k.x0
    q = torch.stack([p["H"] @ y - p["C"] @ x - p["e"] for p in m]).mean(0)
    grid = [0.01, 0.02, 0.04, 0.08] if what == "beta" else [2, 4, 8, 16]
    drift = []
    for value in grid:
        beta, tau = (value, 4) if what == "beta" else (0.02, int(value))
        ends = []
        for p in m:
            alone = Federation(k.problem, Data.from_parts({"one": {n: f.unsqueeze(0) for n, f in p.items()}}))
            algorithm = FedNest(0.1, local_steps=tau)
            X, Y, Q = alone.broadcast(x, y, q)
            ends.append(float((alone.mean(alone.iterate(algorithm.inner_step, Y, X, Y, Q, beta, steps=tau)) - y).square().sum()))
        drift.append(max(ends))
    assert np.polyfit(np.log(grid), np.log(drift), 1)[0] == pytest.approx(slope, abs=0.1)


def test_fedinn_comes_to_the_inner_solution_and_local_sgd_stops_short_by_its_step() -> None:
    """‖y − y*(x)‖²: linear to rounding for FedInn; with SGD inside, the offset is O(β) in y."""
    k = known.bilevel(sizes=(4,) * 4)
    y_star = torch.linalg.solve(nested.averaged(k, "H"), nested.averaged(k, "C") @ k.x0 + nested.averaged(k, "e"))

    def left(kind: Any, beta: float) -> float:
        fed, y = Federation(k.problem, k.data), k.y0
        algorithm, X = kind(0.1, local_steps=4), fed.broadcast(k.x0)
        for _ in range(int((30 if kind is FedNest else 10) / beta)):
            y = algorithm.fed_inn(fed, X, y, beta)
        return float((y - y_star).norm())
    assert left(FedNest, 0.4) ** 2 < 1e-20
    offsets = [left(FedNestSGD, beta) for beta in (0.2, 0.1)]
    assert offsets[1] > 1e-4
    assert offsets[0] / offsets[1] == pytest.approx(2, abs=0.3)


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


def test_projection_of_y_and_of_x_in_fednest() -> None:
    """With a box that binds, the projected method ends at the projected gradient's fixed point."""
    from rookery import as_bilevel, box
    k = known.minimax(sizes=(4,) * 4)
    p = k.problem
    assert isinstance(p, Minimax)
    problem = Minimax(p.f, project_x=box(-0.1, 0.1), project_y=box(-0.2, 0.2))
    fed = Federation(as_bilevel(problem), k.data)
    algorithm = FedNest(0.2, inner_lr=0.4, inner_rounds=3, local_steps=1)
    assert k.y0 is not None
    state = algorithm.init(fed, k.x0, k.y0)
    for _ in range(80):
        state = algorithm.round(fed, state)
    A, b, e = (known.client_means(k.data, lambda q, n=n: q[n].mean(0)) for n in ("A", "b", "e"))  # type: ignore[misc]
    x, y = k.x0, k.y0
    for _ in range(4000):
        y = (y + 0.1 * (A @ x - y - b)).clamp(-0.2, 0.2)
        x = (x - 0.02 * (x + e + A.T @ y)).clamp(-0.1, 0.1)
    torch.testing.assert_close(state.x, x, atol=1e-5, rtol=0)
    torch.testing.assert_close(state.y, y, atol=1e-4, rtol=0)
    assert float(state.x.abs().max()) == pytest.approx(0.1)
