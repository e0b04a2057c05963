"""The bilevel family and its twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import twins_bilevel as twins
from bilevel_runs import ALPHA, BETA, ELL, ROUNDS, TAU, X0, Y0, curved, different, primes, run, same

from rookery import ALSET, BSA, TTSA, FedBiOAcc, Federation, FedNest, FedNestSGD, LFedNest, ShroFBO, SimFBO, StocBiO
from rookery.problems import testproblems as known


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


@pytest.mark.slow
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
