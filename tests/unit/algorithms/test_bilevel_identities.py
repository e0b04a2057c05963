"""The bilevel family: which method is which other one, and where those settle that are not exact."""

from __future__ import annotations

from typing import Any

import nested_problems as nested
import numpy as np
import pytest
import torch
from bilevel_runs import ALPHA, BETA, ELL, TAU, X0, Y0, curved, run
from torch import Tensor

from rookery import ALSET, BSA, FedBiOAcc, Federation, FedNest, FedNestSGD, LFedNest, ShroFBO, SimFBO, StocBiO
from rookery.problems import testproblems as known


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
