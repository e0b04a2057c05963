"""Curvature of the inner problem: its smoothness by power iteration, its inverse by conjugate gradients."""

from __future__ import annotations

import nested_problems as nested
import numpy as np
import pytest
import torch
import twins_bilevel as twins
from torch import Tensor

from rookery import Bilevel, Data, Federation, FedNest, as_bilevel, estimate_smoothness
from rookery.algorithms.bilevel.curvature import conjugate
from rookery.errors import AlgorithmError
from rookery.problems import testproblems as known


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


def test_smoothness_of_a_problem_without_an_inner_hessian_is_refused() -> None:
    k = known.minimax()
    for problem, name in ((k.problem, "Minimax"), (as_bilevel(k.problem), r"Bilevel\(inverse='none'\)")):
        with pytest.raises(AlgorithmError, match=f"this is {name}"):
            estimate_smoothness(Federation(problem, k.data), k.x0, k.y0)  # type: ignore[arg-type]


def test_conjugate_gradients_and_the_smoothness_refuse_a_saddle() -> None:
    H = torch.diag(torch.tensor([1.0, -1.0]))
    with pytest.raises(AlgorithmError, match="a direction of curvature 0, and need ∇²yy g to be positive definite"):
        conjugate(lambda v: H @ v, torch.ones(2), 5)
    data = Data.from_parts({"a": {"u": torch.ones(2)}})
    saddle = Bilevel(lambda x, y, b: y.sum(), lambda x, y, b: 0.5 * y[0] ** 2 - y[1] ** 2)
    with pytest.raises(AlgorithmError, match="not convex in y"):
        estimate_smoothness(Federation(saddle, data), torch.zeros(1), torch.zeros(2), 30)
