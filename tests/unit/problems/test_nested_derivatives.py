"""Derivatives inside derivatives: the plain evaluation, the one over all clients, and finite differences say the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds import rounds
from torch import Tensor
from verbs import engines

from rookery import Data, FedAvg, Federation, Minimization, grad, hvp, vjp
from rookery.problems import value_and_jacobian
from rookery.problems.autodiff import functional

Gradient = Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]
UNARY: list[Callable[[Tensor], Tensor]] = [torch.sin, torch.tanh, torch.square, lambda x: 0.5 * x, lambda x: torch.exp(-x.square())]


def differences(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """∇fn(x) by the five-point rule, whose error is of fourth order: it can stand inside itself."""
    h = 1e-2
    rows = h * torch.eye(len(x), dtype=x.dtype)
    return torch.stack([(8 * (fn(x + e) - fn(x - e)) - (fn(x + 2 * e) - fn(x - 2 * e))) / (12 * h) for e in rows])


def expression(choices: list[int], gradient: Gradient, variables: list[Tensor], depth: int) -> Tensor:
    """A vector of the variables in scope, all of one length; with a derivative inside as long as `depth` allows one."""
    def pick(number: int) -> int:
        return choices.pop() % number if choices else 0

    here = UNARY[pick(len(UNARY))](variables[pick(len(variables))]) * variables[pick(len(variables))]
    if depth and pick(4):
        rest = list(choices)
        point = variables[pick(len(variables))]

        def inside(w: Tensor) -> Tensor:
            body = expression(list(rest), gradient, [*variables, w], depth - 1)
            return (body * variables[-1]).sum() + (w * variables[0] + 0.5 * w.square() * variables[-1]).sum()

        here = here + 0.3 * gradient(inside, point)
    return here


def whole(choices: list[int], gradient: Gradient) -> Callable[[Tensor], Tensor]:
    return lambda z: expression(list(choices), gradient, [z], 2).sum()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=8, max_size=30), st.integers(0, 2**20))
def test_plain_vectorised_and_numeric_derivatives_agree(choices: list[int], seed: int) -> None:
    points = 0.5 * torch.randn(2, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ours = whole(choices, grad)
    plain = torch.stack([grad(ours, x) for x in points])
    with functional():
        together = torch.func.vmap(lambda x: grad(ours, x))(points)
    numeric = torch.stack([differences(whole(choices, differences), x) for x in points])
    torch.testing.assert_close(plain, together, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(plain, numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("over_all_clients", [False, True])
def test_what_a_function_captured_is_a_constant_of_its_derivative(over_all_clients: bool) -> None:
    """F(z) = Σ ∂_w(w·z + ½w²z) at w = z is Σ z + z²: its gradient is 1 + 2z."""
    x = torch.tensor([1.0, 2.0])

    def outer(z: Tensor) -> Tensor:
        return grad(lambda w: (w * z + 0.5 * w.square() * z).sum(), z).sum()

    def by_vjp(z: Tensor) -> Tensor:
        return vjp(lambda w: w * z + 0.5 * w.square() * z, z, torch.ones(2)).sum()

    def by_jacobian(z: Tensor) -> Tensor:
        return value_and_jacobian(lambda w: (w * z + 0.5 * w.square() * z).sum().reshape(1), z)[1].sum()

    for fn in (outer, by_vjp, by_jacobian):
        if over_all_clients:
            with functional():
                found = grad(fn, x)
        else:
            found = grad(fn, x)
        torch.testing.assert_close(found, 1 + 2 * x)


def test_a_hessian_inside_a_loss_sees_the_captured_point_once() -> None:
    """Σ ∇²_w(w²z)·v at w = z is Σ 2zv: its gradient in z is 2v."""
    x, v = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0])
    torch.testing.assert_close(grad(lambda z: hvp(lambda w: (w.square() * z).sum(), z, v).sum(), x), 2 * v)


@engines
def test_a_derivative_in_the_data_inside_a_loss_keeps_its_dependence_on_x(engine: str) -> None:
    torch.manual_seed(0)
    data = Data.from_parts({f"c{k}": {"a": torch.randn(5, 3, dtype=torch.float64)} for k in range(3)})
    penalty = Minimization(lambda x, b: grad(lambda a: torch.tanh(a @ x).sum(), b.a).square().sum())
    by_hand = Minimization(lambda x, b: ((1 - torch.tanh(b.a @ x) ** 2)[:, None] * x).square().sum())
    ends = []
    for problem in (penalty, by_hand):
        fed = Federation(problem, data, engine=engine)
        algorithm = FedAvg(0.05, 2)
        ends.append(rounds(algorithm, fed, algorithm.init(fed, torch.ones(3, dtype=torch.float64)), 3).x)
    torch.testing.assert_close(*ends)
    assert (ends[0] - 1).norm() > 0.1
