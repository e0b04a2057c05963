"""The minimax family: twins, identities, the rates of the theorems, and what local steps cost."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import twins_bilevel as twins

from rookery import SGDA, SMD, FedAvgS, Federation, FedGDAGT, FedNest, LFedNest, LocalSGDA, Minimax, as_bilevel, box, theory
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem

ROUNDS, TAU = 10, (3, 1, 2, 4)


def oracles(k: TestProblem) -> tuple[list[Any], list[Any]]:
    m = [{name: field.mean(0).numpy() for name, field in k.data.views(i).items()} for i in range(len(k.data.names))]
    return ([lambda x, y, p=p: x + p["e"] + p["A"].T @ y for p in m], [lambda x, y, p=p: p["A"] @ x - y - p["b"] for p in m])


def run(algorithm: Any, fed: Federation, k: TestProblem, rounds: int = ROUNDS) -> list[Any]:
    state, states = algorithm.init(fed, k.x0, k.y0), []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        states.append(state)
    return states


def same(states: list[Any], theirs: list[Any]) -> None:
    for j, name in enumerate("xy"):
        np.testing.assert_allclose(torch.stack([getattr(s, name) for s in states]).numpy(), np.asarray([row[j] for row in theirs]),
                                   rtol=1e-9, atol=1e-11)


def different(states: list[Any], theirs: list[Any]) -> None:
    assert np.abs(torch.stack([s.x for s in states]).numpy() - np.asarray([row[0] for row in theirs])).max() > 1e-4


# twins


@pytest.mark.parametrize(("algorithm", "order"), [(LocalSGDA(0.1, 0.2, TAU), "simultaneous"), (FedAvgS(0.1, 0.2, TAU), "simultaneous"),
                                                  (FedAvgS(0.1, 0.2, TAU, order="y first"), "y first")])
def test_local_sgda_and_fedavg_s(algorithm: Any, order: str) -> None:
    k = known.minimax()
    states = run(algorithm, Federation(k.problem, k.data), k)
    same(states, twins.local_sgda(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 0.2, TAU, ROUNDS, order))
    other = "y first" if order == "simultaneous" else "simultaneous"
    different(states, twins.local_sgda(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 0.2, TAU, ROUNDS, other))


def test_local_sgda_under_active_constraints() -> None:
    k = known.minimax()
    f = k.problem.f  # type: ignore[attr-defined]
    fed = Federation(Minimax(f, project_x=box(0.1, 0.6), project_y=box(-0.2, 0.1)), k.data)
    states = run(LocalSGDA(0.1, 0.2, 3), fed, k)
    twin = twins.local_sgda(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 0.2, [3] * 4, ROUNDS,
                            project_x=lambda x: np.clip(x, 0.1, 0.6), project_y=lambda y: np.clip(y, -0.2, 0.1))
    same(states, twin)
    different(states, twins.local_sgda(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 0.2, [3] * 4, ROUNDS))


def test_sgda() -> None:
    k = known.minimax()
    states = run(SGDA(0.1, 0.2), Federation(k.problem, k.data), k)
    same(states, twins.sgda(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 0.2, ROUNDS))
    different(states, twins.sgda(*oracles(k), k.x0.numpy(), np.zeros(2), 0.2, 0.1, ROUNDS))


def test_fedgda_gt() -> None:
    k = known.minimax()
    states = run(FedGDAGT(0.1, 3), Federation(k.problem, k.data), k)
    same(states, twins.fedgda_gt(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 3, ROUNDS))
    different(states, twins.fedgda_gt(*oracles(k), k.x0.numpy(), np.zeros(2), 0.1, 3, ROUNDS, tracking=False))


def test_smd() -> None:
    k = known.minimax(sizes=(6,))
    fx, fy = (o[0] for o in oracles(k))
    states = run(SMD(0.1, 0.2, 2, prox=0.7), Federation(k.problem, k.data), k, 5)
    same(states, twins.smd(fx, fy, k.x0.numpy(), np.zeros(2), 0.1, 0.2, 0.7, 2, 5))
    different(states, twins.smd(fx, fy, k.x0.numpy(), np.zeros(2), 0.1, 0.2, 0.7, 2, 5, prox=False))


# identities


def test_local_sgda_with_one_step_is_sgda() -> None:
    """x − lr·mean ∂x f is the mean of x − lr·∂x f_i: sample for sample, as both draw one batch in the first call of a round."""
    k = known.minimax()
    a = run(LocalSGDA(0.1, 0.2, 1, 2), Federation(k.problem, k.data, seed=4), k)
    b = run(SGDA(0.1, 0.2, 2), Federation(k.problem, k.data, seed=4), k)
    for s, t in zip(a, b, strict=True):
        torch.testing.assert_close(s.x, t.x)
        torch.testing.assert_close(s.y, t.y)


def test_fedavg_s_at_once_is_local_sgda() -> None:
    k = known.minimax()
    a, b = (run(kind(0.1, 0.2, 3, 2), Federation(k.problem, k.data, seed=4), k) for kind in (LocalSGDA, FedAvgS))
    torch.testing.assert_close(a[-1].x, b[-1].x)


def test_fedgda_gt_with_one_local_step_is_descent_ascent() -> None:
    k = known.minimax()
    a, b = run(FedGDAGT(0.1), Federation(k.problem, k.data), k), run(SGDA(0.1, 0.1), Federation(k.problem, k.data), k)
    for s, t in zip(a, b, strict=True):
        torch.testing.assert_close(s.x, t.x)
        torch.testing.assert_close(s.y, t.y)


def test_smd_with_one_step_stays_and_a_far_prox_is_averaged_descent_ascent() -> None:
    """j_0 = 1 averages the starting point alone; without the guide, iterates are those of descent ascent, and x their mean."""
    k = known.minimax(sizes=(6,))
    fed = Federation(k.problem, k.data)
    torch.testing.assert_close(run(SMD(0.1, 0.2), fed, k, 1)[0].x, k.x0)
    steps = run(SGDA(0.1, 0.2), fed, k, 6)
    expected = torch.stack([k.x0, *(s.x for s in steps)]).mean(0)
    torch.testing.assert_close(run(SMD(0.1, 0.2, 7, prox=1e30), fed, k, 1)[0].x, expected)


def test_y_first_drifts_at_one_local_step_and_at_once_does_not() -> None:
    k = known.minimax()
    for order, stays in (("simultaneous", True), ("y first", False)):
        fed = Federation(k.problem, k.data)
        algorithm = FedAvgS(0.1, 0.1, order=order)  # type: ignore[arg-type]
        moved = float((algorithm.round(fed, algorithm.init(fed, k.x_star, k.y_star)).x - k.x_star).norm())
        assert (moved < 1e-12) is stays
        assert stays or moved > 1e-3


def test_lfednest_on_a_minimax_problem_is_local_sgd_on_y_and_then_on_x() -> None:
    k = known.minimax()
    fx, fy = oracles(k)
    states = run(LFedNest(0.1, 0.2, 2, 3), Federation(as_bilevel(k.problem), k.data), k)
    x, y = k.x0.numpy(), np.zeros(2)
    for s in states:
        for _ in range(2):
            y = twins.inner_sgd([lambda x, y, g=g: -g(x, y) for g in fy], x, y, 0.2, [3] * 4)
        x = twins.inner_sgd([lambda y, x, g=g: g(x, y) for g in fx], y, x, 0.1, [3] * 4)
        np.testing.assert_allclose(s.x.numpy(), x, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(s.y.numpy(), y, rtol=1e-9, atol=1e-11)


# rates


def test_sgda_of_the_theorem_contracts_and_its_rule_is_the_papers() -> None:
    """η_y = 1/ℓ, η_x = 1/(κ²ℓ): on the quadratic with known ℓ and µ it converges to the closed form."""
    assert theory.sgda(l=4.0, mu=1.0) == {"lr": 1 / 64, "inner_lr": 0.25}
    k = known.minimax(sizes=(4,) * 4)
    A = known.client_means(k.data, lambda p: p["A"].mean(0))
    l = 1 + float(torch.linalg.matrix_norm(A, 2))
    final = run(SGDA(**theory.sgda(l=l, mu=1.0)), Federation(k.problem, k.data), k, 600)[-1]
    torch.testing.assert_close(final.x, k.x_star, rtol=0, atol=1e-6)


def test_gradient_tracking_converges_linearly_where_local_sgda_stalls() -> None:
    """log‖x − x*‖ of FedGDA-GT falls on a line to rounding; LocalSGDA with the same steps stops at its drift."""
    k = known.minimax(sizes=(4,) * 4)
    errors = {}
    for name, algorithm in (("tracking", FedGDAGT(0.1, 4)), ("plain", LocalSGDA(0.1, 0.1, 4))):
        states = run(algorithm, Federation(k.problem, k.data), k, 90)
        errors[name] = np.array([float((s.x - k.x_star).norm()) for s in states])
    assert errors["tracking"][-1] ** 2 < 1e-20
    assert errors["plain"][-1] > 1e-3
    logs = np.log(errors["tracking"][10:60])
    fit = np.polyfit(np.arange(50), logs, 1)
    assert fit[0] < -0.2
    assert np.abs(logs - np.polyval(fit, np.arange(50))).max() < 2.0  # complex eigenvalues: it turns while it falls


def test_fednest_reaches_the_saddle_of_the_paper_and_fedavg_s_does_not() -> None:
    """f_i = −[½‖y‖² − b_i·y + t_i y·x] + (λ/2)‖x‖² with the paper's spreads: x* = t̄b̄/(λ + t̄²), y* = b̄ − t̄x*."""
    for lam, s in ((10.0, 1.0), (10.0, 10.0), (0.1, 1.0)):
        k = known.quadratic_saddle(clients=20, lam=lam, s=s)
        fed = Federation(as_bilevel(k.problem), k.data)
        state = run(FedNest(0.5 / lam, 0.5, 1, 4), fed, k, 120)[-1]
        assert float((state.x - k.x_star).square().sum()) < 1e-20
        assert k.y_star is not None
        assert float((state.y - k.y_star).square().sum()) < 1e-20
    plain = run(FedAvgS(0.5 / 0.1 / 4, 0.5 / 4, 4), Federation(k.problem, k.data), k, 120)[-1]
    assert float((plain.x - k.x_star).square().sum()) > 1e6 * 1e-20


def test_the_quadratic_saddle_is_where_both_gradients_vanish() -> None:
    k = known.quadratic_saddle(clients=7, d=4, lam=0.3, s=2.0, seed=3)
    fields = k.data.fields
    assert k.y_star is not None
    gx = 0.3 * k.x_star - (fields["t"][:, None] * k.y_star).mean(0)
    gy = -k.y_star + fields["b"].mean(0) - (fields["t"][:, None] * k.x_star).mean(0)
    assert gx.abs().max() < 1e-14
    assert gy.abs().max() < 1e-14
    assert float(k.gradient(k.x_star).norm()) < 1e-13
    assert k.x_star.abs().max() > 1e-3  # b is kept: without it the saddle point would be 0


def test_the_gan_of_the_example_rests_where_the_moments_agree() -> None:
    """A = L_u L_z⁻¹ with the Cholesky factors of the two covariances gives the points' moments: the critic has nothing to say there."""
    path = Path(__file__).resolve().parents[3] / "examples" / "gan.py"
    spec = spec_from_file_location("gan", path)
    assert spec is not None
    assert spec.loader is not None
    gan = module_from_spec(spec)
    spec.loader.exec_module(gan)
    data = gan.ring(0)
    u, z = data.fields["points"], data.fields["noise"]
    low_u, low_z = (torch.linalg.cholesky(torch.cov(v.T, correction=0)) for v in (u, z))
    x = torch.cat([(low_u @ torch.linalg.inv(low_z)).flatten(), u.mean(0)])
    assert gan.distance(x, data) < 1e-12
    fed, zero = Federation(Minimax(gan.loss), data), torch.zeros(6, dtype=torch.float64)
    for algorithm, stays in ((FedGDAGT(0.04, 5), True), (LocalSGDA(0.04, 0.04, 5), False)):
        moved = float((algorithm.round(fed, algorithm.init(fed, x, zero)).x - x).norm())
        assert (moved < 1e-12) is stays
    far, _ = gan.train(FedGDAGT(0.04, 5), data, 60)
    assert far[-1] < 0.5 * far[0]


# refusals


def test_an_order_that_is_not_there() -> None:
    with pytest.raises(AlgorithmError, match='order is "simultaneous" or "y first"; got \'x first\''):
        FedAvgS(0.1, order="x first")  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [SGDA(0.1), LocalSGDA(0.1), FedAvgS(0.1), FedGDAGT(0.1)], ids=lambda a: a.title)
def test_a_minimax_method_wants_both_starting_points(algorithm: Any) -> None:
    k = known.minimax()
    with pytest.raises(AlgorithmError, match=r"init\(fed, x, y\)"):
        algorithm.init(Federation(k.problem, k.data), k.x0)
