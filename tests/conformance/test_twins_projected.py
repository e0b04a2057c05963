"""The twins under a constraint, checked without the package: with one local step the constrained optimum is where they stop.

Three clients pull a scalar to both sides of x <= 0.2 and their mean wants more than 0.2. A mean of projected points stops short of it,
as the clients that the bound holds back are outvoted by the one that moves inwards."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import twins
import twins_baselines
import twins_bilevel
import twins_compositional
import twins_minimax

BOUND, Y_BOUND, ROUNDS = 0.2, 0.1, 250
FAR = [0.9]  # infeasible, as a user's first point may be


def clip(x: Any) -> Any:
    return np.minimum(x, BOUND)


def clip_y(y: Any) -> Any:
    return np.minimum(y, Y_BOUND)


def checked(oracle: Any, y_bound: float = np.inf) -> Any:
    """The oracle, refusing infeasible points: (x), (x, y) or (x, y, v)."""
    def at(x: Any, *rest: Any) -> Any:
        assert np.all(x <= BOUND)
        assert not rest or np.all(rest[0] <= y_bound)
        return oracle(x, *rest)
    return at


GRADS = [checked(lambda x, h=h, t=t: h * (x - t)) for h, t in ((1.0, -1.0), (2.0, 0.5), (4.0, 1.0))]
# composition: mean g = x - 1, f = y²/2, which wants x = 1, and case I wants 4/7
G = [checked(lambda x, a=a, b=b: a * x - b) for a, b in ((4.0, 3.0), (-2.0, 0.0), (1.0, 0.0))]
JAC = [checked(lambda x, a=a: np.array([[a]])) for a in (4.0, -2.0, 1.0)]
ZERO = [lambda x: 0 * x] * 3
COMPOSITION: tuple[Any, ...] = (G, JAC, lambda y: y, ZERO, FAR)
LOCAL: tuple[Any, ...] = (G, JAC, [lambda y: y] * 3, ZERO, FAR)
# minimax: at (0.2, 0.1) both means point outwards, and one client of each inwards
FX = [checked(lambda x, y, h=h, c=c: h(x) + c * y, Y_BOUND) for h, c in zip(GRADS, (2.0, -1.0, 2.0), strict=True)]
FY = [checked(lambda x, y, c=c, k=k, s=s: c * x - k * (y - s), Y_BOUND)
      for c, k, s in ((2.0, 1.0, -1.0), (-1.0, 2.0, 1.0), (2.0, 1.0, 2.0))]
SADDLE: tuple[Any, ...] = (FX, FY, FAR, [0.7])


def quadratic_bilevel(fx: Any, k: Any, a: Any, s: Any) -> dict[str, Any]:
    """g_i = k_i/2 (y - a_i x)², so that y*(x) = x·sum k a / sum k, and f_i = (y - s_i)²/2 + a function of x with derivative fx_i."""
    n = range(3)
    return {"fx": [lambda x, y, i=i: fx[i](x) for i in n], "fy": [lambda x, y, i=i: y - s[i] for i in n],
            "gy": [lambda x, y, i=i: k[i] * (y - a[i] * x) for i in n], "gyy": [lambda x, y, v, i=i: k[i] * v for i in n],
            "gxy": [lambda x, y, v, i=i: -k[i] * a[i] * v for i in n]}


def bilevel(y_bound: float) -> dict[str, Any]:
    """y*(x) = x, and a hypergradient that wants more than 0.2."""
    oracles = quadratic_bilevel(GRADS, (1.0, 2.0, 1.0), (1.0, 0.5, 2.0), (1.0, -0.5, 1.0))
    return {**{key: [checked(o, y_bound) for o in group] for key, group in oracles.items()}, "x0": FAR, "y0": [0.7]}


def nested(name: str, y_bound: float, steps: Any, **o: Any) -> Any:
    rest: dict[str, Any] = {**bilevel(y_bound), "rounds": ROUNDS, "project_x": clip, "project_y": lambda y: np.minimum(y, y_bound), **o}
    if name == "simfbo":
        return twins_bilevel.simfbo(**rest, gamma=(0.1, 0.3, 0.3), eta=(0.1, 0.3, 0.3), tau=steps)
    if name == "fedbioacc":
        return twins_bilevel.fedbioacc(**rest, eta=0.1, gamma=0.3, tau=0.3, delta=1.5, u_0=3.0, c=0.8, I=max(steps))
    module = twins if name == "fednest" else twins_bilevel
    return getattr(module, name)(**rest, alpha=0.1, beta=0.3, tau=steps, T=2, N=3, ell=2.0)


def single(steps: int) -> dict[str, Any]:
    tau = [steps] * 3

    def opt(server: str) -> Any:
        return lambda **o: twins_baselines.fedopt(GRADS, FAR, 0.1, steps, ROUNDS, server, 0.1, 0.5, 0.9, 0.01, **o)
    return {
        "fedavg": lambda **o: twins.fedavg(GRADS, FAR, 0.1, steps, ROUNDS, **o),
        "scaffold": lambda **o: twins.scaffold(GRADS, FAR, 0.05, steps, ROUNDS, **o),
        "scaffold, server rate": lambda **o: twins.scaffold(GRADS, FAR, 0.05, steps, ROUNDS, 0.7, **o),
        "fcsg": lambda **o: twins.fcsg(GRADS, FAR, 0.1, steps, ROUNDS, **o),
        "fcsg_m": lambda **o: twins.fcsg_m(GRADS, FAR, 0.1, 0.5, steps, ROUNDS, **o),
        "acc_fcsg_m": lambda **o: twins.acc_fcsg_m(GRADS, FAR, 0.1, 0.5, steps, ROUNDS, **o),
        "fedprox": lambda **o: twins_baselines.fedprox(GRADS, FAR, 0.1, steps, ROUNDS, 0.7, **o),
        "fednova": lambda **o: twins_baselines.fednova(GRADS, FAR, 0.1, tau, ROUNDS, **o),
        "fednova, momentum": lambda **o: twins_baselines.fednova(GRADS, FAR, 0.1, tau, ROUNDS, 0.5, **o),
        "fedlin": lambda **o: twins_baselines.fedlin(GRADS, FAR, 0.2, tau, ROUNDS, **o),
        "fedsvrg": lambda **o: twins_baselines.fedsvrg(GRADS, FAR, 0.2, tau, ROUNDS, **o),
        "local_sgdm": lambda **o: twins_baselines.local_sgdm(GRADS, FAR, 0.1, steps, ROUNDS, 0.5, **o),
        **{f"fedopt, {server}": opt(server) for server in ("momentum", "adagrad", "adam", "yogi")},
        "comfedl": lambda **o: twins_compositional.local_sgd(GRADS, FAR, 0.1, steps, ROUNDS, **o),
        "fed_dro": lambda **o: [x for x, _ in twins.fed_dro(*COMPOSITION, 0.05, 0.3, steps, ROUNDS, **o)],
        **{f"fedavg_co, {case}": lambda case=case, **o: twins_compositional.fedavg_co(*COMPOSITION, 0.05, steps, ROUNDS, case, **o)
           for case in ("I", "II", "modified")},
        "local_scgd": lambda **o: twins_compositional.local_scgd(*LOCAL, 0.05, 0.1, steps, ROUNDS, **o),
        "local_scgdm": lambda **o: twins_compositional.local_scgdm(*LOCAL, 0.05, 0.1, 0.5, steps, ROUNDS, **o),
    }


EXACT = {"scaffold", "scaffold, server rate", "fedlin", "fedsvrg"}  # no client drift: their limit stands for several local steps, too


@pytest.mark.parametrize("name", single(1))
def test_one_local_step_ends_at_the_bound(name: str) -> None:
    np.testing.assert_allclose(single(1)[name](project=clip)[-1], BOUND, rtol=0, atol=1e-12)
    first = single(1)[name](project=clip, project_first=True)[-1]
    assert name in EXACT or first < BOUND - 1e-3


@pytest.mark.parametrize("name", single(3))
def test_several_local_steps_ask_for_feasible_points_only(name: str) -> None:
    points = single(3)[name](project=clip)  # the oracles refuse others
    assert np.max(points) <= BOUND
    assert name not in EXACT or abs(points[-1] - BOUND) < 1e-12


@pytest.mark.parametrize("order", ["simultaneous", "y first"])
def test_local_sgda_ends_at_both_bounds(order: str) -> None:
    run: Any = lambda steps, **o: twins_minimax.local_sgda(  # noqa: E731
        *SADDLE, 0.1, 0.2, [steps] * 3, ROUNDS, order, project_x=clip, project_y=clip_y, **o)
    np.testing.assert_allclose(np.ravel(run(1)[-1]), [BOUND, Y_BOUND], rtol=0, atol=1e-12)
    assert np.all(np.ravel(run(1, project_first=True)[-1]) < [BOUND - 1e-3, Y_BOUND - 1e-3])
    assert np.all(np.ravel(run(3)[-1]) <= [BOUND, Y_BOUND])


def test_fedgda_gt_ends_at_both_bounds_for_any_number_of_local_steps() -> None:
    for steps in (1, 3):
        points = twins_minimax.fedgda_gt(*SADDLE, 0.1, steps, ROUNDS, project_x=clip, project_y=clip_y)
        np.testing.assert_allclose(np.ravel(points[-1]), [BOUND, Y_BOUND], rtol=0, atol=1e-12)


@pytest.mark.parametrize("y_bound", [np.inf, 0.1])
@pytest.mark.parametrize("name", ["fednest", "lfednest", "fednest_sgd", "simfbo", "fedbioacc"])
def test_nested_methods_end_at_the_bound(name: str, y_bound: float) -> None:
    """y ends at y*(0.2) = 0.2, or at its own bound below that. FedNest has no drift and may take several local steps."""
    x, y = nested(name, y_bound, [3, 1, 2] if name == "fednest" else [1] * 3)[-1][:2]
    np.testing.assert_allclose([x[0], y[0]], [BOUND, min(0.2, y_bound)], rtol=0, atol=1e-12)
    nested(name, y_bound, [3, 1, 2])  # the oracles refuse infeasible points
    if name == "lfednest":
        assert nested(name, y_bound, [1] * 3, project_first=True)[-1][0] < BOUND - 1e-3
    if name == "fedbioacc":  # its momenta are nearly common after an exchange: only the way there shows the difference
        right, first = (nested(name, y_bound, [3] * 3, project_first=wrong, rounds=5) for wrong in (False, True))
        assert np.max(np.abs(np.array(right) - first)) > 1e-4


def test_two_local_steps_by_hand() -> None:
    """Rate ½ from 0 towards 1 and −1: 0.5 becomes 0.2 before its gradient, then 0.2 + 0.4 = 0.6 is sent; the other sends −0.75."""
    pair = [lambda x: x - 1, lambda x: x + 1]
    np.testing.assert_allclose(twins.fedavg(pair, [0.0], 0.5, 2, 1, project=clip)[0], (0.6 - 0.75) / 2)
    np.testing.assert_allclose(twins.fedavg(pair, [0.0], 0.5, 2, 1, project=clip, project_first=True)[0], (0.2 - 0.75) / 2)
    np.testing.assert_allclose(twins.fedavg(pair, [0.0], 0.5, 2, 1)[0], 0.0, atol=1e-15)


START = [0.9, -0.4]


def quadratics(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(3, 2, 2))
    H, t = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(2), rng.normal(size=(3, 2))
    return H, t, [lambda x, i=i: H[i] @ (x - t[i]) for i in range(3)]


def test_one_local_step_is_a_projected_step_on_the_mean_objective() -> None:
    H, t, grads = quadratics(4)
    x, steps = clip(np.array(START)), []
    for _ in range(10):
        x = clip(x - 0.1 * (H.mean(0) @ x - (H @ t[:, :, None]).mean(0)[:, 0]))
        steps.append(x)
    assert any(np.any(x == BOUND) and np.any(x < BOUND) for x in steps)
    for name, twin in {
        "fedavg": lambda: twins.fedavg(grads, START, 0.1, 1, 10, project=clip),
        "fcsg": lambda: twins.fcsg(grads, START, 0.1, 1, 10, project=clip),
        "scaffold": lambda: twins.scaffold(grads, START, 0.1, 1, 10, project=clip),
        "fedprox": lambda: twins_baselines.fedprox(grads, START, 0.1, 1, 10, 0.7, project=clip),
        "fednova": lambda: twins_baselines.fednova(grads, START, 0.1, [1] * 3, 10, project=clip),
        "fedlin": lambda: twins_baselines.fedlin(grads, START, 0.1, [1] * 3, 10, project=clip),
        "fedsvrg": lambda: twins_baselines.fedsvrg(grads, START, 0.1, [1] * 3, 10, project=clip),
    }.items():
        np.testing.assert_allclose(twin(), steps, rtol=0, atol=1e-13, err_msg=name)


def test_tracked_methods_differ_from_a_mean_of_projected_points() -> None:
    """In one dimension all clients are held back together; in two they part."""
    *_, grads = quadratics(4)
    for twin in (twins_baselines.fedlin, twins_baselines.fedsvrg):
        right, first = (twin(grads, START, 0.5, [3, 1, 2], 10, project=clip, project_first=wrong) for wrong in (False, True))
        assert np.max(np.abs(np.array(right) - first)) > 1e-4


def test_fednova_with_equal_numbers_of_steps_is_fedavg() -> None:
    *_, grads = quadratics(4)
    average = twins.fedavg(grads, START, 0.1, 3, 10, project=clip)
    sent, summed = (twins_baselines.fednova(grads, START, 0.1, [3] * 3, 10, project=clip, summed=other) for other in (False, True))
    np.testing.assert_allclose(sent, average, rtol=0, atol=1e-13)
    assert np.max(np.abs(np.array(summed) - average)) > 1e-4


def test_fedbioacc_reaches_the_optimum_with_each_clients_own_previous_point() -> None:
    """y*(x) = 5/4 x, so that the optimum is (mean h t + 5/4 mean s)/(mean h + 25/16)."""
    h, t, s = (np.array(z) for z in ((1.0, 2.0, 4.0), (-1.0, 0.5, 1.0), (1.0, -0.5, 1.0)))
    oracles = quadratic_bilevel([lambda x, i=i: h[i] * (x - t[i]) for i in range(3)], (1.0, 2.0, 5.0), (1.0, -0.5, 2.0), s)
    rest: dict[str, Any] = {**oracles, "x0": [0.0], "y0": [0.0], "eta": 0.1, "gamma": 0.2, "tau": 0.2}
    rest |= {"delta": 0.3, "u_0": 3.0, "c": 0.8, "I": 4, "rounds": 500}
    optimum = ((h * t).mean() + 1.25 * s.mean()) / (h.mean() + 1.25**2)
    assert abs(twins_bilevel.fedbioacc(**rest)[-1][0][0] - optimum) < 1e-5
    assert abs(twins_bilevel.broken_fedbioacc_averaged_last(**rest)[-1][0][0] - optimum) > 1e-3


def test_simfbo_and_shrofbo_are_unbiased_over_cohorts() -> None:
    p = np.array([0.5, 0.3, 0.2])
    rates = (0.1, 0.3, 0.3)
    rest: dict[str, Any] = {**bilevel(np.inf), "x0": [-0.5], "gamma": rates, "eta": rates, "tau": [3, 1, 2], "rounds": 1}
    for normalised in (False, True):
        rest["normalised"] = normalised
        full = twins_bilevel.simfbo(**rest, weights=10 * p)[0]
        for wrong in (False, True):
            pairs = [twins_bilevel.simfbo(**rest, weights=p, cohorts=[c], renormalised=wrong)[0] for c in combinations(range(3), 2)]
            assert np.allclose(np.mean(pairs, axis=0), full, rtol=0, atol=1e-14) is not wrong
