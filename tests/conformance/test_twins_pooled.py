"""The twin of FastDRO, checked without the package: its worst-case weights against duality and against a general solver."""

from typing import Any

import numpy as np
import pytest
import twins_pooled as twins

FORMS = [("cvar", 0.3), ("cvar", 0.75), ("cvar", 1.0), ("chi2", 0.2), ("chi2", 1.5), ("chi2 ball", 0.0), ("chi2 ball", 0.1),
         ("chi2 ball", 0.8), ("chi2 ball", 50.0), ("kl", 0.2), ("kl", 2.0)]


def batch(seed: int, ties: bool = False) -> Any:
    """Losses of two clients of 3 and 5 rows with weights 0.7 and 0.3, and the base probabilities of their rows."""
    v = np.random.default_rng(seed).normal(size=8)
    return np.round(v) if ties else v, np.array([0.7 / 3] * 3 + [0.3 / 5] * 5)


def penalty(p: Any, q: Any, form: str, size: float) -> float:
    if form == "chi2":
        return size / 2 * np.sum(q * (p / q - 1) ** 2)
    return size * np.sum(p * np.log(np.maximum(p, 1e-300) / q)) if form == "kl" else 0.0


def dual(v: Any, q: Any, form: str, size: float) -> float:
    """A bound on every feasible p's value, by Lagrange: the least over a threshold e, on a grid that shrinks around its best point."""
    if form == "kl":
        return float(size * np.log(np.sum(q * np.exp(v / size))))
    bound = {"cvar": lambda e: e + np.sum(q * np.maximum(v - e, 0)) / size,
             "chi2": lambda e: e + size / 2 + np.sum(q * np.maximum(v - e, 0) ** 2) / (2 * size),
             "chi2 ball": lambda e: e + np.sqrt((1 + 2 * size) * np.sum(q * np.maximum(v - e, 0) ** 2))}[form]
    if form == "cvar":
        return min(bound(e) for e in v)  # piecewise linear
    centre, width = v.mean(), 1e4 if size == 0 else 50.0
    while width > 1e-11:
        grid = np.linspace(centre - width, centre + width, 41)
        centre, width = grid[np.argmin([bound(e) for e in grid])], width / 10
    return float(bound(centre))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("form", "size"), FORMS)
def test_weights_are_feasible_and_reach_the_dual_bound(form: str, size: float, ties: bool) -> None:
    for seed in range(10):
        v, q = batch(seed, ties)
        p = twins.worst_weights(v, q, form, size)
        assert np.all(p >= 0)
        assert abs(p.sum() - 1) < 1e-14
        if form == "cvar":
            assert np.all(p <= q / size + 1e-15)
        if form == "chi2 ball":
            assert np.sum(q * (p / q - 1) ** 2) / 2 <= size + 1e-12
        slack = 1e-3 if (form, size) == ("chi2 ball", 0.0) else 1e-10  # of a ball of radius 0 the threshold is at minus infinity
        assert abs(p @ v - penalty(p, q, form, size) - dual(v, q, form, size)) < slack


@pytest.mark.parametrize(("form", "size"), [f for f in FORMS if f != ("chi2 ball", 0.0)])
def test_weights_are_those_of_a_general_solver(form: str, size: float) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    for seed in range(3):
        v, q = batch(seed)
        constraints = [{"type": "eq", "fun": lambda p: p.sum() - 1}]
        if form == "chi2 ball":
            constraints.append({"type": "ineq", "fun": lambda p, q=q: size - np.sum(q * (p / q - 1) ** 2) / 2})
        top = q / size if form == "cvar" else np.ones(8)
        found = optimize.minimize(lambda p, v=v, q=q: penalty(p, q, form, size) - p @ v, q, method="SLSQP", constraints=constraints,
                                  bounds=[(0, u) for u in top], options={"ftol": 1e-14, "maxiter": 1000})
        np.testing.assert_allclose(twins.worst_weights(v, q, form, size), found.x, atol=2e-5)


def test_weights_by_hand() -> None:
    q = np.array([0.4, 0.3, 0.2, 0.1])
    np.testing.assert_allclose(twins.worst_weights([1, 4, 3, 2], q, "cvar", 0.4), [0, 0.75, 0.25, 0], atol=1e-15)
    np.testing.assert_allclose(twins.worst_weights([3, 4, 3, 2], q, "cvar", 0.6), [1 / 3, 0.5, 1 / 6, 0], atol=1e-15)  # tied 2 to 1
    np.testing.assert_allclose(twins.worst_weights([0, 1], [0.5, 0.5], "chi2", 2.0), [0.375, 0.625])  # q (v − e)/λ, e = −1.5
    np.testing.assert_allclose(twins.worst_weights([0, 1], [0.5, 0.5], "chi2 ball", 0.02), [0.4, 0.6])
    np.testing.assert_allclose(twins.worst_weights([2, 2, 1], [0.3, 0.1, 0.6], "chi2 ball", 1.0), [0.75, 0.25, 0])
    np.testing.assert_allclose(twins.worst_weights([0, np.log(3)], [0.75, 0.25], "kl", 1.0), [0.5, 0.5])


def rows(split: Any) -> Any:
    """Ten rows of least squares, cut into clients."""
    rng = np.random.default_rng(5)
    parts = list(zip(np.split(rng.normal(size=(10, 2)), split), np.split(rng.normal(size=10), split), strict=True))
    return [lambda x, A=A, b=b: (A @ x - b) ** 2 / 2 for A, b in parts], [lambda x, A=A, b=b: (A @ x - b)[:, None] * A for A, b in parts]


@pytest.mark.parametrize(("form", "size"), FORMS)
def test_cutting_a_batch_into_clients_changes_nothing(form: str, size: float) -> None:
    one = twins.fast_dro_pooled(*rows([]), [0.5, 0.5], 0.05, form, size, 20)
    cut = twins.fast_dro_pooled(*rows([3, 4]), [0.5, 0.5], 0.05, form, size, 20, weights=[3, 1, 6])
    np.testing.assert_allclose(cut, one, rtol=0, atol=1e-13)
    wrong = twins.broken_fast_dro_pooled(*rows([3, 4]), [0.5, 0.5], 0.05, form, size, 20, weights=[3, 1, 6])
    assert np.allclose(wrong, one) is ((form, size) in (("cvar", 1.0), ("chi2 ball", 0.0)))  # both are the mean loss
    equal = twins.fast_dro_pooled(*rows([3, 4]), [0.5, 0.5], 0.05, form, size, 20)
    assert bool(np.max(np.abs(np.array(equal) - one)) > 1e-4) is (size < 50)  # the widest ball: all weight on one row


@pytest.mark.parametrize(("form", "size"), FORMS)
def test_steps_go_down_the_worst_case(form: str, size: float) -> None:
    """Danskin: p held fixed, the step follows the gradient of the worst-case value."""
    losses, gradients = rows([3, 4])
    w = np.array([0.2, 0.5, 0.3])

    def value(x: Any) -> float:
        v = [loss(x) for loss in losses]
        q = np.concatenate([np.full(len(v_k), w_k / len(v_k)) for v_k, w_k in zip(v, w, strict=True)])
        p = twins.worst_weights(np.concatenate(v), q, form, size)
        return float(p @ np.concatenate(v) - penalty(p, q, form, size))

    x0, h = np.array([0.5, 0.5]), 1e-6
    step = (x0 - twins.fast_dro_pooled(losses, gradients, x0, 0.1, form, size, 1, weights=w)[0]) / 0.1
    np.testing.assert_allclose(step, [(value(x0 + h * e) - value(x0 - h * e)) / (2 * h) for e in np.eye(2)], rtol=1e-6, atol=1e-7)
