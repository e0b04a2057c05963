"""Problems with a known solution for the algorithms on compositions and on worst cases, beyond those of the
package; the clients' functions in NumPy, for the twins; and how runs are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery import Batch, Compositional, Data, Federation, Minimax, simplex
from rookery.data import Replacement
from rookery.objectives import fast_dro
from rookery.problems import testproblems as known
from rookery.problems.testproblems import SIZES, TestProblem, _rows, client_means


def local(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> TestProblem:
    """mean_k ½ mean_i ‖g_k(x) − t_i‖² of g_k = mean_i (A_i x − b_i), plus ¼‖x‖²: local inner maps, d_g = 2."""
    data = _rows(seed, {"A": (2, 3), "b": (2,), "t": (2,)}, sizes, 1.0)
    H = client_means(data, lambda p: p["A"].mean(0).T @ p["A"].mean(0)) + 0.5 * torch.eye(3, dtype=torch.float64)
    r = client_means(data, lambda p: p["A"].mean(0).T @ (p["b"].mean(0) + p["t"].mean(0)))

    def g(x: Tensor, b: Batch) -> Tensor:
        return (b.A @ x - b.b).mean(0)

    def f(z: Tensor, b: Batch) -> Tensor:
        return 0.5 * (z - b.t).square().sum(1).mean()

    return TestProblem(Compositional(f, g, lambda x, b: 0.25 * x.square().sum(), shared=False), data, torch.linalg.solve(H, r),
                 lambda x: H @ x - r)


def one_client(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    return known.compositional(sizes=(sum(sizes),))


def scalar(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    return known.compositional(sizes=sizes, dg=1)


def only_h(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    """The composition of `testproblems`, and the solution of its h alone."""
    k = known.compositional(sizes=sizes)
    e = client_means(k.data, lambda p: p["e"].mean(0))
    return replace(k, x_star=e, y_star=None, gradient=lambda x: 0.5 * (x - e))


def constrained(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> TestProblem:
    """½ mean‖x − e‖² subject to one constraint, a·x − b ≤ 0 of the means, which is active; y is its multiplier."""
    data = _rows(seed, {"a": (3,), "b": (), "e": (3,)}, sizes, 1.0)
    a, e = (client_means(data, lambda p, n=n: p[n].mean(0)) for n in ("a", "e"))  # type: ignore[misc]
    data.fields["b"].add_(a @ e - 1.0 - client_means(data, lambda p: p["b"].mean(0)))  # so that the minimum of h violates it, by 1
    z = 1.0 / (a @ a)
    x = e - z * a

    def g(x: Tensor, b: Batch) -> Tensor:
        return (b.a @ x - b.b).mean().reshape(1)

    problem = Compositional(lambda y: 0.5 * y.clamp(min=0).square().sum(), g, lambda x, b: 0.5 * (x - b.e).square().sum(1).mean())
    return TestProblem(problem, data, x, lambda x: x - e + z * a, y_star=z.reshape(1))


def weights(sizes: tuple[int, ...] = SIZES, seed: int = 0) -> TestProblem:
    """½‖x‖² + p·(Ax + b) − 2‖p‖² over the simplex, solved inside it: Ax + b − 4p is constant there, x = −Aᵀp."""
    data = _rows(seed, {"A": (2, 3), "b": (2,)}, sizes, 0.5)
    A, b = (client_means(data, lambda p, n=n: p[n].mean(0)) for n in ("A", "b"))  # type: ignore[misc]
    one, eye = torch.ones(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    system = torch.cat([torch.cat([A @ A.T + 4 * eye, one[:, None]], 1), torch.cat([one, torch.zeros(1, dtype=torch.float64)])[None]])
    p = torch.linalg.solve(system, torch.cat([b, torch.ones(1, dtype=torch.float64)]))[:2]
    assert p.min() > 0.1
    inside = eye - 0.5 * torch.ones(2, 2, dtype=torch.float64)  # onto the directions along the simplex

    def f(x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return 0.5 * x.square().sum() + y @ (batch.A @ x + batch.b).mean(0) - 2 * y.square().sum()

    def gradient(x: Tensor) -> Tensor:
        best = 0.5 * one + inside @ (A @ x + b) / 4  # the maximiser, as long as it lies inside
        return x + A.T @ best

    return TestProblem(Minimax(f, project_y=simplex), data, -A.T @ p, gradient, y_star=p)


def robust(sizes: tuple[int, ...] = SIZES, seed: int = 0, lam: float = 8.0) -> TestProblem:
    """ℓ_i(x) = a_i·x + ½‖x − e‖²: the χ² worst case over all rows is their mean and their variance over 2λ, where that is small."""
    data = _rows(seed, {"a": (3,), "e": (3,)}, sizes, 1.0)
    data.fields["e"].copy_(data.fields["e"][0].expand_as(data.fields["e"]))  # no part of the variance
    eye = torch.eye(3, dtype=torch.float64)
    a = client_means(data, lambda p: p["a"].mean(0))
    H = eye + (client_means(data, lambda p: p["a"].T @ p["a"] / len(p["a"])) - torch.outer(a, a)) / lam
    r = client_means(data, lambda p: p["e"].mean(0)) - a
    problem = fast_dro(lambda x, b: b.a @ x + 0.5 * (x - b.e).square().sum(1), "chi2", lam)
    return TestProblem(problem, data, torch.linalg.solve(H, r), lambda x: H @ x - r)


# functions in NumPy, and comparisons


def parts(k: TestProblem) -> list[dict[str, np.ndarray]]:
    return [{name: field.numpy() for name, field in k.data.views(i).items()} for i in range(len(k.data.names))]


def shared_functions(k: TestProblem) -> tuple[Any, ...]:
    """g, J, ∇f and ∇h of each client of `testproblems.compositional`, full batches."""
    p = parts(k)
    return ([lambda x, p=p: p["A"].mean(0) @ x - p["b"].mean(0) for p in p], [lambda x, p=p: p["A"].mean(0) for p in p],
            [lambda y: y - 1 for _ in p], [lambda x, p=p: 0.5 * (x - p["e"].mean(0)) for p in p])


def local_functions(k: TestProblem) -> tuple[Any, ...]:
    p = parts(k)
    return ([lambda x, p=p: p["A"].mean(0) @ x - p["b"].mean(0) for p in p], [lambda x, p=p: p["A"].mean(0) for p in p],
            [lambda y, p=p: y - p["t"].mean(0) for p in p], [lambda x: 0.5 * x for _ in p])


def states(algorithm: Any, fed: Federation, x: Tensor, rounds: int = 10, *more: Tensor) -> list[Any]:
    state, out = algorithm.init(fed, x, *more), []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        out.append(state)
    return out


def run(algorithm: Any, fed: Federation, x: Tensor, rounds: int = 10) -> list[Any]:
    return [s.x.numpy() for s in states(algorithm, fed, x, rounds)]


def same(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 1
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-9, atol=1e-11)


def different(ours: list[Any], theirs: list[Any]) -> None:
    assert np.abs(np.asarray(ours) - np.asarray(theirs)).max() > 1e-3


class Recording(Replacement):
    """Rows with replacement, and the batches that were drawn."""

    def fetch(self, data: Data, selection: dict[str, Tensor]) -> Batch:
        batch = super().fetch(data, selection)
        self.__dict__.setdefault("drawn", []).append({name: field.numpy() for name, field in batch.fields.items()})
        return batch


ON_BATCHES = (lambda x, b: b["A"].mean(0) @ x - b["b"].mean(0), lambda x, b: b["A"].mean(0), lambda y: y - 1,
              lambda x, b: 0.5 * (x - b["e"].mean(0)))


def recorded(k: TestProblem, **options: Any) -> tuple[Federation, Recording]:
    sampling = Recording()
    return Federation(replace(k.problem, sampling=sampling, **options), k.data, engine="loop"), sampling
