"""The oracles of every kind of problem against finite differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from differences import difference
from torch import Tensor

from rookery import (
    Batch,
    Bilevel,
    Compositional,
    CompositionalMinimax,
    Conditional,
    Data,
    FedDRO,
    Federation,
    Minimax,
    Minimization,
    conditional_as_compositional,
)
from rookery.errors import AlgorithmError, ProblemError
from rookery.problems.autodiff import functional


def curved(rows: int = 4) -> Batch:
    r = torch.Generator().manual_seed(3)
    a, b, eta = (torch.randn(shape, generator=r, dtype=torch.float64) for shape in ((rows, 3), (rows,), (rows, 5, 3)))
    return Batch({"a": a, "b": b}, None, Batch({"eta": eta}))


def plain(x: Tensor, b: Batch) -> Tensor:
    return torch.log(torch.cosh(b.a @ x - b.b)).mean()


def inner(x: Tensor, b: Batch) -> Tensor:
    return torch.stack([torch.sin(b.a @ x).mean(), (b.a @ x).square().mean()])


def pair(x: Tensor, y: Tensor, b: Batch) -> Tensor:
    return torch.log(torch.cosh(b.a @ x)).mean() * y[0] + (y[1] * x[0]).exp() - y.square().sum() + (b.b * y[0]).sin().mean()


B, X, Y, V = curved(), torch.tensor([0.3, -0.7, 0.2], dtype=torch.float64), torch.tensor([0.4, -0.3], dtype=torch.float64), \
    torch.tensor([1.3, -0.6], dtype=torch.float64)
MINIMIZATION, MINIMAX, BILEVEL = Minimization(plain), Minimax(pair), Bilevel(pair, pair)
CONDITIONAL = Conditional(lambda u, xi: torch.log(torch.cosh(u[:, 0] - xi.b)), lambda x, xi, eta: torch.tanh(eta.eta @ x)[..., None],
                          lambda x: x.pow(4).sum())
COMPOSITIONAL = Compositional(lambda z: torch.log(1 + z.square().sum()), inner, plain)
COMPOSITIONAL_MINIMAX = CompositionalMinimax(lambda z, y, b: (z * y).sin().sum() + (b.b * y[0]).mean() * z[1], inner)
ORACLES: dict[str, tuple[Tensor, Callable[[], Tensor]]] = {
    "Minimization.gradient": (MINIMIZATION.gradient(X, B), lambda: difference(lambda x: MINIMIZATION.value(x, B), X)),
    "Conditional.gradient": (CONDITIONAL.gradient(X, B), lambda: difference(lambda x: CONDITIONAL.value(x, B), X)),
    "Compositional.g_vjp": (COMPOSITIONAL.g_vjp(X, B, V), lambda: difference(lambda x: COMPOSITIONAL.g(x, B), X).T @ V),
    "Compositional.f_gradient": (COMPOSITIONAL.f_gradient(V), lambda: difference(COMPOSITIONAL.f_value, V)),
    "Compositional.h_gradient": (COMPOSITIONAL.h_gradient(X, B), lambda: difference(lambda x: COMPOSITIONAL.h_value(x, B), X)),
    "Minimax.f_x": (MINIMAX.f_x(X, Y, B), lambda: difference(lambda x: pair(x, Y, B), X)),
    "Minimax.f_y": (MINIMAX.f_y(X, Y, B), lambda: difference(lambda y: pair(X, y, B), Y)),
    "CompositionalMinimax.g_vjp": (COMPOSITIONAL_MINIMAX.g_vjp(X, B, V), lambda: difference(lambda x: inner(x, B), X).T @ V),
    "CompositionalMinimax.f_z": (COMPOSITIONAL_MINIMAX.f_z(V, Y, B), lambda: difference(lambda z: COMPOSITIONAL_MINIMAX.f(z, Y, B), V)),
    "CompositionalMinimax.f_y": (COMPOSITIONAL_MINIMAX.f_y(V, Y, B), lambda: difference(lambda y: COMPOSITIONAL_MINIMAX.f(V, y, B), Y)),
    "Bilevel.g_y": (BILEVEL.g_y(X, Y, B), lambda: difference(lambda y: pair(X, y, B), Y)),
    "Bilevel.f_x": (BILEVEL.f_x(X, Y, B), lambda: difference(lambda x: pair(x, Y, B), X)),
    "Bilevel.f_y": (BILEVEL.f_y(X, Y, B), lambda: difference(lambda y: pair(X, y, B), Y)),
    "Bilevel.g_yy": (BILEVEL.g_yy(X, Y, B, V), lambda: difference(lambda y: BILEVEL.g_y(X, y, B), Y) @ V),
    "Bilevel.g_xy": (BILEVEL.g_xy(X, Y, B, V), lambda: difference(lambda x: BILEVEL.g_y(x, Y, B), X).T @ V),
}


@pytest.mark.parametrize("name", ORACLES)
def test_oracles_are_the_finite_differences(name: str) -> None:
    oracle, expected = ORACLES[name]
    assert expected().norm() > 1e-2
    torch.testing.assert_close(oracle, expected(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["g_yy", "g_xy", "g_y", "f_x"])
def test_both_evaluations_of_a_derivative_agree(name: str) -> None:
    arguments = (X, Y, B, V) if name in ("g_yy", "g_xy") else (X, Y, B)
    eager = getattr(BILEVEL, name)(*arguments)
    with functional():
        torch.testing.assert_close(getattr(BILEVEL, name)(*arguments), eager)


def test_a_derivative_inside_a_loss_is_differentiated_again() -> None:
    """MAML's inner step: g(x) = x − λ∇L(x) has the Jacobian I − λ∇²L."""
    from rookery import grad
    problem = Compositional(lambda z: z.square().sum(), lambda x, b: x - 0.1 * grad(lambda w: plain(w, b), x))
    hessian = difference(lambda x: MINIMIZATION.gradient(x, B), X)
    v = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(problem.g_vjp(X, B, v), v - 0.1 * hessian @ v, rtol=1e-6, atol=1e-7)
    with functional():
        torch.testing.assert_close(problem.g_vjp(X, B, v), v - 0.1 * hessian @ v, rtol=1e-6, atol=1e-7)


def test_a_conditional_problem_whose_inner_value_ignores_xi_is_a_local_composition() -> None:
    p = Conditional(CONDITIONAL.f, lambda x, xi, eta: torch.tanh(eta.eta[:1] @ x).expand(4, 5)[..., None], CONDITIONAL.h)
    reduced = conditional_as_compositional(p)
    assert reduced.h is not None
    value = reduced.f_value(reduced.g(X, B), B) + reduced.h(X, B)
    torch.testing.assert_close(value, p.value(X, B))
    fed = Federation(reduced, Data.from_parts({"a": B.fields}))
    with pytest.raises(AlgorithmError, match="shared"):
        FedDRO(0.1).init(fed, X)


def test_g_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ProblemError, match="outer, inner, p"):
        Conditional(CONDITIONAL.f, lambda x, xi, eta: eta.eta @ x).value(X, B)
