"""The bilevel family: twins, identities, exchanges, curvature, and the laws for methods of one machine."""

from __future__ import annotations

from typing import Any

import nested_problems as nested
import numpy as np
import pytest
import torch
import twins_bilevel as twins
from torch import Tensor

from rookery import (
    ALSET,
    BSA,
    TTSA,
    Batch,
    Bilevel,
    Data,
    FedBiOAcc,
    Federation,
    FedNest,
    FedNestSGD,
    LFedNest,
    ShroFBO,
    SimFBO,
    StocBiO,
    as_bilevel,
    estimate_smoothness,
)
from rookery.algorithms.bilevel.curvature import conjugate
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known

ROUNDS, ALPHA, BETA, ELL = 8, 0.05, 0.1, 6.0
X0, Y0 = np.array([1.0, -0.5, 0.7]), np.array([0.3, -0.4])
TAU = (3, 1, 2, 4)


def curved(clients: int = 4) -> tuple[Bilevel, Data, dict[str, list[Any]]]:
    """Bilevel with ∇²yy g, ∇²xy g and ∇y f that depend on x, and its oracles by hand in NumPy."""
    data = known.bilevel(sizes=(5, 3, 4, 7)[:clients]).data
    m = [{n: f.mean(0).numpy() for n, f in data.views(i).items()} for i in range(clients)]

    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * ((b.H @ y) @ y).mean() + 0.5 * (x[:2] * y).square().sum() - ((b.C @ x + b.e) @ y).mean()

    def f(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * (y - b.t).square().sum(1).mean() + 0.5 * (x - b.r).square().sum(1).mean() + 0.5 * x[0] * y[0]

    def pad(v: np.ndarray) -> np.ndarray:
        return np.array([v[0], v[1], 0.0])

    first, second = np.array([0.5, 0.0, 0.0]), np.array([0.5, 0.0])
    return Bilevel(f, g), data, {
        "fx": [lambda x, y, p=p: x - p["r"] + first * y[0] for p in m],
        "fy": [lambda x, y, p=p: y - p["t"] + second * x[0] for p in m],
        "gy": [lambda x, y, p=p: p["H"] @ y + x[:2] ** 2 * y - p["C"] @ x - p["e"] for p in m],
        "gyy": [lambda x, y, v, p=p: p["H"] @ v + x[:2] ** 2 * v for p in m],
        "gxy": [lambda x, y, v, p=p: pad(2 * x[:2] * y * v) - p["C"].T @ v for p in m]}


def run(algorithm: Any, fed: Federation, rounds: int = ROUNDS, **start: Any) -> list[Any]:
    state = algorithm.init(fed, torch.from_numpy(X0), torch.from_numpy(Y0), **start)
    states = []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        states.append(state)
    return states


def primes(fed: Federation) -> list[int]:
    """The numbers that `fed.integer` will give are written down here."""
    chosen: list[int] = []
    draw = fed.integer
    fed.integer = lambda bound: chosen.append(draw(bound)) or chosen[-1]  # type: ignore[func-returns-value,method-assign]
    return chosen


def same(states: list[Any], theirs: list[Any], names: str = "xy") -> None:
    assert len(states) == len(theirs)
    for j, name in enumerate(names):
        np.testing.assert_allclose(torch.stack([getattr(s, name) for s in states]).numpy(), np.asarray([row[j] for row in theirs]),
                                   rtol=1e-9, atol=1e-11)


def different(states: list[Any], theirs: list[Any]) -> None:
    assert np.abs(torch.stack([s.x for s in states]).numpy() - np.asarray([row[0] for row in theirs])).max() > 1e-4


# twins


@pytest.mark.parametrize("series", ["random neumann", "neumann"])
def test_lfednest(series: str) -> None:
    problem, data, o = curved()
    fed = Federation(problem, data)
    chosen = primes(fed)
    states = run(LFedNest(ALPHA, BETA, 2, TAU, 4, ELL, series), fed)  # type: ignore[arg-type]

    def twin(**options: Any) -> list[Any]:
        return twins.lfednest(**o, x0=X0, y0=Y0, alpha=ALPHA, beta=BETA, tau=TAU, T=2, N=4, ell=ELL, rounds=ROUNDS,
                              n_primes=chosen or None, **options)
    same(states, twin())
    different(states, twin(stale=True))
    assert len(set(chosen)) > 1 or series == "neumann"


@pytest.mark.parametrize("series", ["neumann", "cg"])
def test_fednest_sgd(series: str) -> None:
    problem, data, o = curved()
    N = 4 if series == "neumann" else 2
    states = run(FedNestSGD(ALPHA, BETA, 2, TAU, N, ELL, series), Federation(problem, data))  # type: ignore[arg-type]

    def twin(**options: Any) -> list[Any]:
        return twins.fednest_sgd(**o, x0=X0, y0=Y0, alpha=ALPHA, beta=BETA, tau=TAU, T=2, N=N, ell=ELL, rounds=ROUNDS,
                                 conjugate=series == "cg", **options)
    same(states, twin())
    different(states, twin(inn=lambda gy, x, y, beta, tau: twins.inner_sgd(gy, x, y, beta, [1] * 4)))


@pytest.mark.parametrize(("kind", "name"), [(FedNestSGD, "fednest_sgd"), (LFedNest, "lfednest")])
def test_local_steps_on_x_may_be_others_than_on_y(kind: Any, name: str) -> None:
    problem, data, o = curved()
    states = run(kind(ALPHA, BETA, 2, TAU, 4, ELL, "neumann", outer_steps=(1, 2, 5, 1)), Federation(problem, data))

    def twin(outer: tuple[int, ...]) -> list[Any]:
        return getattr(twins, name)(**o, x0=X0, y0=Y0, alpha=ALPHA, beta=BETA, tau=TAU, T=2, N=4, ell=ELL, rounds=ROUNDS, outer=outer)
    same(states, twin((1, 2, 5, 1)))
    different(states, twin(TAU))


@pytest.mark.parametrize(("kind", "beta"), [(FedNest, BETA), (LFedNest, 1e-30)])
def test_full_takes_all_rows_for_what_is_averaged_before_local_steps(kind: Any, beta: float) -> None:
    """With one local step g_i(y_i) − g_i(y) vanishes and q alone moves y, p and h alone x; LFedNest's y has no q, and rests here."""
    problem, data, _ = curved()
    few, full, all_rows = (run(kind(ALPHA, beta, 2, 1, 4, ELL, "neumann", **options), Federation(problem, data, engine="loop"))
                           for options in ({"batch": 2}, {"batch": 2, "full_anchors": True}, {}))
    same(full, [(s.x.numpy(), s.y.numpy()) for s in all_rows])
    different(few, [(s.x.numpy(), s.y.numpy()) for s in all_rows])


@pytest.mark.parametrize(("kind", "normalised"), [(SimFBO, False), (ShroFBO, True)])
def test_simfbo_and_shrofbo(kind: Any, normalised: bool) -> None:
    problem, data, o = curved()
    states = run(kind(ALPHA, BETA, 0.15, TAU, local=0.6, radius=0.3), Federation(problem, data))

    def twin(**options: Any) -> list[Any]:
        return twins.simfbo(**o, x0=X0, y0=Y0, gamma=(ALPHA, BETA, 0.15), eta=(0.6 * ALPHA, 0.6 * BETA, 0.6 * 0.15), tau=TAU, rounds=ROUNDS,
                            **{"radius": 0.3, "normalised": normalised, **options})
    same(states, twin(), "xyv")
    for broken in ({"alternating": True}, {"normalised": not normalised}, {"radius": np.inf}):
        different(states, twin(**broken))


def test_fedbioacc() -> None:
    problem, data, o = curved()
    # from momenta away from the gradients: from those, with full batches, decay would not show
    algorithm = FedBiOAcc(ALPHA, BETA, 0.15, 3, scale=1.5, delay=3.0, decay=0.8, radius=0.5)
    fed = Federation(problem, data)
    state = algorithm.init(fed, torch.from_numpy(X0), torch.from_numpy(Y0))
    away = (np.array([0.2, 0.1]), np.array([0.5, -0.3, 0.2]), np.array([-0.4, 0.3]))
    for start in (None, away):
        s = state if start is None else state._replace(omega=torch.from_numpy(away[0]), nu=torch.from_numpy(away[1]),
                                                       q=torch.from_numpy(away[2]))
        states = []
        for _ in range(ROUNDS):
            s = algorithm.round(fed, s)
            states.append(s)

        def twin(method: Any = twins.fedbioacc, start: Any = start, **options: Any) -> list[Any]:
            return method(**o, x0=X0, y0=Y0, eta=ALPHA, gamma=BETA, tau=0.15, delta=1.5, u_0=3.0, I=3, rounds=ROUNDS, start=start,
                          **{"c": 0.8, "radius": 0.5, **options})
        same(states, twin(), "xyu")
        different(states, twin(stale=True))
        different(states, twin(radius=np.inf))
        different(states, twin(twins.broken_fedbioacc_averaged_last))
        if start is not None:
            different(states, twin(c=0.1))


def test_fedbioacc_finds_the_solution_of_unequal_clients_with_eight_local_steps() -> None:
    """A correction at the averaged previous point would end more than 0.01 away."""
    k = known.bilevel(sizes=(4, 4, 4, 4))
    states = run(FedBiOAcc(0.05, 0.05, 0.05, 8, decay=0.01), Federation(k.problem, k.data), rounds=200)
    assert (states[-1].x - k.x_star).norm() < 3e-3


@pytest.mark.parametrize("name", ["alset", "bsa", "ttsa", "stocbio"])
def test_bilevel_on_one_machine(name: str) -> None:
    problem, data, oracles = curved(1)
    o = {key: value[0] for key, value in oracles.items()}
    fed = Federation(problem, data)
    chosen = primes(fed)
    common: dict[str, Any] = {**o, "x0": X0, "y0": Y0, "alpha": ALPHA, "beta": BETA}
    if name == "stocbio":
        states = run(StocBiO(ALPHA, BETA, 4, ELL, inner_steps=3), fed)
        same(states, twins.stocbio(**common, D=3, Q=4, eta=1 / ELL, rounds=ROUNDS))
        different(states, twins.stocbio(**common, D=3, Q=3, eta=1 / ELL, rounds=ROUNDS))
        return
    kind: Any = {"alset": ALSET, "bsa": BSA, "ttsa": TTSA}[name]
    options = {} if name == "ttsa" else {"inner_steps": 2}
    states = run(kind(ALPHA, BETA, 4, ELL, **options), fed)
    hia: dict[str, Any] = {**common, "N": 4, "ell": ELL, "n_primes": chosen}
    assert len(set(chosen)) > 1
    if name == "ttsa":
        same(states, twins.ttsa(**hia))
        different(states, twins.ttsa(**hia, swapped=True))
    elif name == "bsa":
        same(states, twins.bsa(**hia, T=2))
        different(states, twins.bsa(**hia, T=2, warm=True))
    else:
        same(states, twins.alset(**hia, T=2))
        different(states, twins.alset(**{**hia, "n_primes": chosen[::-1]}, T=2))


# identities


@pytest.mark.parametrize("series", ["random neumann", "neumann"])
def test_lfednest_and_fednest_sgd_of_one_client_and_one_step_are_alset_and_stocbio(series: str) -> None:
    problem, data, _ = curved(1)
    common: dict[str, Any] = {"lr": ALPHA, "inner_lr": BETA, "terms": 4, "smoothness": ELL}
    alone = ALSET(**common, inner_steps=3) if series == "random neumann" else StocBiO(**common, inner_steps=3)
    expected = run(alone, Federation(problem, data, seed=3))
    for kind in (LFedNest, FedNestSGD, FedNest):
        found = run(kind(**common, inner_rounds=3, inverse_solver=series), Federation(problem, data, seed=3))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a.x, b.x)
            torch.testing.assert_close(a.y, b.y)


def test_bsa_that_starts_where_it_ended_is_alset() -> None:
    """From y_0 = the last y, with t_k = T, the two are one step of the same method."""
    problem, data, _ = curved(1)
    feds = [Federation(problem, data, seed=5) for _ in range(2)]
    a, b = BSA(ALPHA, BETA, 4, ELL, inner_steps=2), ALSET(ALPHA, BETA, 4, ELL, inner_steps=2)
    torch.testing.assert_close(run(a, feds[0], 1)[0].x, run(b, feds[1], 1)[0].x)


def test_simfbo_with_equal_rates_averages_the_clients_points() -> None:
    """One exchange of sums, with local=1, is the mean of the points at which each client ends."""
    problem, data, o = curved()
    state = run(SimFBO(ALPHA, BETA, 0.15, TAU), Federation(problem, data), 1)[0]
    ends = []
    for i in range(4):
        x, y, v = X0, Y0, np.zeros(2)
        for _ in range(TAU[i]):
            x, y, v = (x - ALPHA * (o["fx"][i](x, y) - o["gxy"][i](x, y, v)), y - BETA * o["gy"][i](x, y),
                       v - 0.15 * (o["gyy"][i](x, y, v) - o["fy"][i](x, y)))
        ends.append((x, y, v))
    for j, name in enumerate("xyv"):
        np.testing.assert_allclose(getattr(state, name).numpy(), np.mean([end[j] for end in ends], 0), rtol=1e-12)


def test_shrofbo_with_equal_local_steps_is_simfbo() -> None:
    problem, data, _ = curved()
    a, b = (run(kind(ALPHA, BETA, 0.15, 3), Federation(problem, data)) for kind in (SimFBO, ShroFBO))
    for s, t in zip(a, b, strict=True):
        torch.testing.assert_close(s.x, t.x)


def test_unequal_local_steps_tilt_simfbo_and_not_shrofbo() -> None:
    """With tiny local rates nothing drifts: SimFBO weights client i by τ_i, ShroFBO does not."""
    k = known.bilevel()

    def end(kind: Any) -> Tensor:
        fed = Federation(k.problem, k.data)
        algorithm = kind(0.05, 0.1, 0.1, TAU, local=1e-9)
        state = algorithm.init(fed, k.x_star, k.y_star, nested.inverse_gradient(k))
        for _ in range(20):
            state = algorithm.round(fed, state)
        return state.x  # type: ignore[no-any-return]
    torch.testing.assert_close(end(ShroFBO), k.x_star, rtol=0, atol=1e-6)
    assert (end(SimFBO) - k.x_star).norm() > 0.01


def test_fedbioacc_with_full_batches_and_one_local_step_is_simfbo_with_its_decreasing_rates() -> None:
    """Exact gradients leave nothing to momentum: y, u, x step along ∇y g, Hu − ∇y f and ∂x f − ∇²xy g·u at the same point."""
    problem, data, o = curved()
    states = run(FedBiOAcc(ALPHA, BETA, 0.15, delay=2.0), Federation(problem, data))
    x, y, u = X0, Y0, np.zeros(2)
    for t, s in enumerate(states, 1):
        a = (2 + t) ** (-1 / 3)
        hx, hy, hu = (np.mean(part, 0) for part in zip(*[(o["fx"][i](x, y) - o["gxy"][i](x, y, u), o["gy"][i](x, y),
                                                          o["gyy"][i](x, y, u) - o["fy"][i](x, y)) for i in range(4)], strict=True))
        x, y, u = x - ALPHA * a * hx, y - BETA * a * hy, u - 0.15 * a * hu
        np.testing.assert_allclose(s.x.numpy(), x, rtol=1e-9, atol=1e-11)


def test_lfednest_settles_beside_the_solution_where_its_closed_form_says() -> None:
    """Own inverse Hessians are not the inverse of the mean Hessian: LFedNest's limit is another point than FedNest's."""
    k, own = known.bilevel(sizes=(4,) * 4), nested.own_hypergradients((4,) * 4, terms=8, smoothness=2.0)
    assert (own.x_star - k.x_star).norm() > 0.05
    local, whole = LFedNest(0.5, 0.5, 3, 1, 8, 2.0, "neumann"), FedNest(0.5, 0.5, 3, 1, 2, inverse_solver="cg")
    for algorithm, goal in ((local, own.x_star), (whole, k.x_star)):
        fed = Federation(k.problem, k.data, engine="loop")
        state = algorithm.init(fed, k.x0, k.y0)
        for _ in range(40):
            state = algorithm.round(fed, state)
        torch.testing.assert_close(state.x, goal, rtol=0, atol=1e-6)


# exchanges


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


# local steps


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


# curvature


@pytest.mark.parametrize("seed", range(3))
def test_smoothness_by_power_iteration_is_the_largest_eigenvalue(seed: int) -> None:
    k = known.bilevel(seed=seed, dy=4)
    fed = Federation(k.problem, k.data, seed=seed)
    assert k.y_star is not None
    exact = float(torch.linalg.eigvalsh(nested.averaged(k, "H"))[-1])
    few, many = (estimate_smoothness(fed, k.x_star, k.y_star, iterations=n) for n in (3, 100))
    assert many == pytest.approx(exact, rel=1e-6)
    assert few <= exact * (1 + 1e-12)  # a Rayleigh quotient comes from below
    assert few < many
    assert fed.ledger["setup"].exchanges == 103
    assert fed.ledger["train"].exchanges == 0
    assert fed.ledger["setup"].floats_up == 103 * 4 * 4


def test_conjugate_gradients_solve_in_as_many_steps_as_there_are_dimensions_and_stop() -> None:
    r = np.random.default_rng(0)
    A = r.standard_normal((6, 6))
    H, v = A @ A.T + np.eye(6), r.standard_normal(6)
    calls: list[int] = []

    def product(s: Tensor) -> Tensor:
        calls.append(1)
        return torch.from_numpy(H) @ s
    p = conjugate(product, torch.from_numpy(v), 30)
    np.testing.assert_allclose(p.numpy(), np.linalg.solve(H, v), rtol=1e-9)
    assert len(calls) < 12
    assert torch.equal(conjugate(product, torch.zeros(6, dtype=torch.float64), 5), torch.zeros(6, dtype=torch.float64))
    early = conjugate(product, torch.from_numpy(v), 3)
    np.testing.assert_allclose(early.numpy(), twins.conjugate_gradient(lambda s: H @ s, v, 3), rtol=1e-9)


def test_conjugate_gradients_are_the_inverse_of_the_mean_hessian_in_d_y_exchanges() -> None:
    k = known.bilevel(dy=4)
    fed = Federation(k.problem, k.data)
    assert k.y_star is not None
    p = FedNest(0.1, terms=4, inverse_solver="cg").fed_ihgp(fed, *fed.broadcast(k.x_star, k.y_star))
    torch.testing.assert_close(p, nested.inverse_gradient(k))
    assert fed.ledger["train"].exchanges == 1 + 4


# FedInn


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


# refusals


@pytest.mark.parametrize("algorithm", [SimFBO(0.1), FedBiOAcc(0.1), ALSET(0.1)], ids=lambda a: a.title)
def test_an_embedded_problem_is_refused_where_there_is_no_hessian_to_invert(algorithm: Any) -> None:
    k = known.minimax(sizes=(4,))
    with pytest.raises(AlgorithmError, match=r"inverts ∇²yy g, and this Bilevel problem has inverse='none': run FedNest on it"):
        algorithm.init(Federation(as_bilevel(k.problem), k.data), k.x0, k.y0)


def test_smoothness_of_a_problem_without_an_inner_hessian_is_refused() -> None:
    k = known.minimax()
    for problem, name in ((k.problem, "Minimax"), (as_bilevel(k.problem), r"Bilevel\(inverse='none'\)")):
        with pytest.raises(AlgorithmError, match=f"this is {name}"):
            estimate_smoothness(Federation(problem, k.data), k.x0, k.y0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("make", "text"), [
    (lambda: FedNest(0.1, inverse_solver="conjugate"), 'inverse_solver is "random neumann", "neumann" or "cg"; got \'conjugate\''),
    (lambda: LFedNest(0.1, inverse_solver="cg"), "LFedNest sums a Neumann series at each client"),
    (lambda: FedBiOAcc(0.1, decay=9.0), "decay·α_1² must be at most 1"),
    (lambda: SimFBO(0.1, radius=0.0), "radius must be positive"),
    (lambda: ALSET(0.1, inner_steps=0), "inner_steps must be positive")])
def test_numbers_out_of_range(make: Any, text: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize(("y", "text"), [(None, "give its starting point, init"), (torch.ones(2, 2), "one flat vector"),
                                         ([1.0], "got list")])
def test_the_second_starting_point_is_checked(y: Any, text: str) -> None:
    k = known.bilevel()
    for algorithm in (FedNest(0.1), SimFBO(0.1), FedBiOAcc(0.1)):
        with pytest.raises(AlgorithmError, match=text):
            algorithm.init(Federation(k.problem, k.data), k.x0, y)
