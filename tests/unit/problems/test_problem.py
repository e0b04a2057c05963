"""Oracles against finite differences, test problems against their own definition, checkpoints and population state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rookery import (
    SCAFFOLD,
    Bilevel,
    Compositional,
    CompositionalMinimax,
    Conditional,
    Data,
    FedAvg,
    FedDRO,
    Federation,
    FedNest,
    Minimax,
    Minimization,
    conditional_as_compositional,
)
from rookery.data import Batch
from rookery.engines.local import BLOCK_ROWS, Pool
from rookery.errors import AlgorithmError, CheckpointError, ProblemError
from rookery.problems import testproblems as known
from rookery.problems.autodiff import functional
from rookery.problems.testproblems import TestProblem
from rookery.training.checkpoint import load, save

STEP = 1e-6


def difference(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of fn by central differences, a column per coordinate."""
    eye = torch.eye(len(x), dtype=x.dtype)
    return torch.stack([(fn(x + STEP * e) - fn(x - STEP * e)) / (2 * STEP) for e in eye], -1)


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


# test problems


def total(k: TestProblem, x: Tensor) -> Tensor:
    """The whole objective at x, straight from its definition with all rows."""
    p, parts = k.problem, [Batch(k.data.views(i)) for i in range(len(k.data.names))]

    def mean(fn: Callable[[Batch], Tensor]) -> Tensor:
        return torch.stack([fn(b) for b in parts]).mean(0)

    def argmin(fn: Callable[[Tensor], Tensor], y: Tensor) -> Tensor:
        """Newton's step on a quadratic is exact."""
        (gradient,) = torch.autograd.grad(fn(leaf := y.detach().requires_grad_()), leaf)
        return y - torch.linalg.solve(torch.autograd.functional.hessian(fn, y), gradient)

    match p:
        case Minimization():
            return mean(lambda b: p.f(x, b))
        case Conditional():
            return mean(lambda b: p.f((b.eta.mean(1) @ x)[:, None], b).mean()) + p.h(x)  # type: ignore[misc]
        case Compositional():
            return p.f(mean(lambda b: p.g(x, b))) + mean(lambda b: p.h_value(x, b))
        case Minimax():
            assert k.y_star is not None
            y = argmin(lambda y: -mean(lambda b: p.f(x, y, b)), k.y_star + 1)
            return mean(lambda b: p.f(x, y, b))
        case CompositionalMinimax():
            assert k.y_star is not None
            z = mean(lambda b: p.g(x, b))
            y = argmin(lambda y: -mean(lambda b: p.f(z, y, b)), k.y_star + 1)
            return mean(lambda b: p.f(z, y, b))
        case Bilevel():
            assert k.y_star is not None
            y = argmin(lambda y: mean(lambda b: p.g(x, y, b)), k.y_star + 1)
            return mean(lambda b: p.f(x, y, b))
    raise AssertionError


@pytest.mark.parametrize("name", known.ALL)
@pytest.mark.parametrize("seed", [0, 5])
def test_the_closed_forms_are_those_of_the_definition(name: str, seed: int) -> None:
    k = known.ALL[name](seed=seed)
    assert k.gradient(k.x_star).norm() < 1e-10
    torch.testing.assert_close(k.gradient(k.x0), difference(lambda x: total(k, x), k.x0), rtol=1e-5, atol=1e-6)
    away = k.x_star + 0.1 * torch.randn(3, dtype=torch.float64)
    assert total(k, away) > total(k, k.x_star)
    spread = torch.stack([next(iter(k.data.views(i).values())).mean(0) for i in range(4)]).std(0)
    assert spread.min() > 0.01  # the clients differ


@pytest.mark.parametrize("dg", [1, 2, 3, 4])
def test_a_composition_without_h_has_its_shortest_solution(dg: int) -> None:
    """With fewer inner values than unknowns many x solve it, and a rounded AᵀA may or may not be invertible."""
    k = known.compositional(dg=dg, plain=0.0)
    assert k.gradient(k.x_star).norm() < 1e-10
    A = known.client_means(k.data, lambda p: p["A"].mean(0)).numpy()
    if dg <= 3:
        torch.testing.assert_close(k.y_star, torch.ones(dg, dtype=torch.float64))  # f(z) = ½‖z − 1‖²
    across = np.linalg.svd(A)[2][dg:]  # the directions that g does not see
    np.testing.assert_allclose(across @ k.x_star.numpy(), 0, atol=1e-10)


# population state


def test_population_state_is_sparse_grows_without_moving_and_goes_to_disk_past_its_limit() -> None:
    row = 8 * 4
    for limit in (1 << 30, 2 * BLOCK_ROWS * row):
        pool, r = Pool(10_000, limit), np.random.default_rng(0)
        truth: dict[int, float] = {}
        for t in range(6):
            clients = np.sort(r.choice(10_000, 900, replace=False))
            pool.write(clients, torch.full((900, 8), float(t)) + torch.from_numpy(clients.astype(np.float32))[:, None])
            truth.update({int(c): t + float(c) for c in clients})
        seen = np.asarray(sorted(truth))
        assert pool.used == len(seen) < 6 * 900
        assert torch.equal(pool.read(seen)[:, 3], torch.tensor([truth[int(c)] for c in seen]))
        assert not pool.seen(np.setdiff1d(np.arange(10_000), seen)).any()
        assert len(pool.blocks) == -(-pool.used // BLOCK_ROWS) > 2


# checkpoints


def test_a_truncated_a_foreign_and_a_missing_checkpoint_are_refused(tmp_path: Path) -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, clients_per_round=2)
    algorithm = SCAFFOLD(0.1, 2)
    state = algorithm.round(fed, algorithm.init(fed, k.x0))
    path = tmp_path / "run.ckpt"
    save(path, algorithm, fed, state)
    whole = path.read_bytes()
    for cut in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match="not a whole checkpoint"):
            load(path, algorithm, Federation(k.problem, k.data, clients_per_round=2))
    path.write_bytes(whole)
    others: list[tuple[Any, Federation]] = [
        (SCAFFOLD(0.2, 2), Federation(k.problem, k.data, clients_per_round=2)),
        (algorithm, Federation(k.problem, k.data, clients_per_round=2, seed=1)),
        (algorithm, Federation(k.problem, k.data)), (FedAvg(0.1), Federation(k.problem, k.data, clients_per_round=2)),
        (algorithm, Federation(k.problem, known.minimization(sizes=(2, 2, 2)).data, clients_per_round=2))]
    for other, elsewhere in others:
        with pytest.raises(CheckpointError, match="another run"):
            load(path, other, elsewhere)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load(tmp_path / "nothing", algorithm, fed)
    assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"]  # nothing is left aside


def test_a_site_without_its_checkpoint_says_state_lost(tmp_path: Path) -> None:
    from rookery.engines import Wire
    from rookery.errors import StateLost
    k = known.minimization()
    wire = Wire(tmp_path / "sites")
    (tmp_path / "sites").mkdir()
    fed = Federation(k.problem, k.data, engine=wire)
    algorithm = SCAFFOLD(0.1, 2)
    save(tmp_path / "run.ckpt", algorithm, fed, algorithm.round(fed, algorithm.init(fed, k.x0)))
    wire.sites[2].file(next(p.name.split("-", 1)[1].removesuffix(".safetensors") for p in (tmp_path / "sites").iterdir())).unlink()
    with pytest.raises(StateLost, match="site-2"):
        load(tmp_path / "run.ckpt", algorithm, fed)


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
