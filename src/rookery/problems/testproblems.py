"""Small problems with a known solution, one of each kind, heterogeneous across clients of unequal size.

All are quadratic, so that the solution is a linear system solved here in closed form from the clients' mean matrices
(each client counts equally). Rows are stored, so that a full batch is exact and a small one is noisy.

>>> known = minimization()
>>> float(known.gradient(known.x_star).norm()) < 1e-12
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..data import Batch, Data, Stored
from .base import Problem
from .kinds import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization
from .pairwise import Pairwise

SIZES = (5, 3, 4, 7)


@dataclass(frozen=True)
class TestProblem:
    """A problem with its data and its known solution x* (and y*), where to start, and the exact gradient of the whole objective in x."""

    __test__: ClassVar[bool] = False  # pytest takes classes of such a name for tests

    problem: Problem
    data: Data
    x_star: Tensor
    gradient: Callable[[Tensor], Tensor]
    y_star: Tensor | None = None

    @property
    def x0(self) -> Tensor:
        return torch.ones_like(self.x_star)

    @property
    def y0(self) -> Tensor | None:
        return None if self.y_star is None else torch.zeros_like(self.y_star)


def _rows(seed: int, shapes: dict[str, tuple[int, ...]], sizes: tuple[int, ...], spread: float) -> Data:
    """Random rows whose mean differs from client to client by `spread`."""
    r = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=r, dtype=torch.float64)

    return Data.from_parts({f"site-{k}": {name: spread * normal(*shape) + 0.3 * normal(n, *shape) for name, shape in shapes.items()}
                            for k, n in enumerate(sizes)})


def client_means(data: Data, fn: Callable[[dict[str, Tensor]], Tensor]) -> Tensor:
    """mean_k fn(rows of client k): what a quadratic's whole objective is made of."""
    return torch.stack([fn(data.part(k).fields) for k in range(len(data.names))]).mean(0)


def minimization(seed: int = 0, d: int = 3, sizes: tuple[int, ...] = SIZES, spread: float = 1.0) -> TestProblem:
    """f_k(x) = mean_i ½(a_i·x − b_i)² + ¼‖x‖²."""
    data = _rows(seed, {"a": (d,), "b": ()}, sizes, spread)
    H = client_means(data, lambda p: p["a"].T @ p["a"] / len(p["a"])) + 0.5 * torch.eye(d, dtype=torch.float64)
    r = client_means(data, lambda p: p["a"].T @ p["b"] / len(p["a"]))

    def f(x: Tensor, b: Batch) -> Tensor:
        return 0.5 * (b.a @ x - b.b).square().mean() + 0.25 * x.square().sum()

    return TestProblem(Minimization(f), data, torch.linalg.solve(H, r), lambda x: H @ x - r)


def conditional(seed: int = 0, d: int = 3, sizes: tuple[int, ...] = SIZES, spread: float = 1.0, stored: int = 6) -> TestProblem:
    """f_ξ(u) = ½(u − b_ξ)² of u = E[η·x | ξ], each row ξ with its own stored samples η; plus ¼‖x‖²."""
    data = _rows(seed, {"eta": (stored, d), "b": ()}, sizes, spread)
    H = client_means(data, lambda p: p["eta"].mean(1).T @ p["eta"].mean(1) / len(p["b"])) + 0.5 * torch.eye(d, dtype=torch.float64)
    r = client_means(data, lambda p: p["eta"].mean(1).T @ p["b"] / len(p["b"]))

    def g(x: Tensor, xi: Batch, eta: Batch) -> Tensor:
        return (eta.eta @ x)[..., None]

    def f(u: Tensor, xi: Batch) -> Tensor:
        return 0.5 * (u[:, 0] - xi.b).square()

    problem = Conditional(f, g, lambda x: 0.25 * x.square().sum(), sampling=Stored("eta"))
    return TestProblem(problem, data, torch.linalg.solve(H, r), lambda x: H @ x - r)


def compositional(seed: int = 0, d: int = 3, dg: int = 2, sizes: tuple[int, ...] = SIZES, spread: float = 1.0,
                  plain: float = 0.5) -> TestProblem:
    """f(z) = ½‖z − 1‖² of z = mean_k mean_i (A_i x − b_i), h_k(x) = ½·plain·mean_i‖x − e_i‖²; plain=0 leaves h out.

    Without h and with d = dg the solution has ∇f(g(x)) = 0. Without h and with d > dg there are many; this is the shortest of them.
    """
    data = _rows(seed, {"A": (dg, d), "b": (dg,), "e": (d,)}, sizes, spread)
    A, b, e = (client_means(data, lambda p, n=n: p[n].mean(0)) for n in ("A", "b", "e"))  # type: ignore[misc]
    H, r = A.T @ A + plain * torch.eye(d, dtype=torch.float64), A.T @ (b + 1) + plain * e
    # without h, AᵀA is singular but for rounding where d > dg: solve the system before it is squared
    x = torch.linalg.solve(H, r) if plain else torch.linalg.pinv(A) @ (b + 1)

    def g(x: Tensor, batch: Batch) -> Tensor:
        return (batch.A @ x - batch.b).mean(0)

    def f(z: Tensor) -> Tensor:
        return 0.5 * (z - 1).square().sum()

    def h(x: Tensor, batch: Batch) -> Tensor:
        return 0.5 * plain * (x - batch.e).square().sum(1).mean()

    return TestProblem(Compositional(f, g, h if plain else None), data, x, lambda x: H @ x - r, y_star=A @ x - b)


def minimax(seed: int = 0, d: int = 3, dy: int = 2, sizes: tuple[int, ...] = SIZES, spread: float = 1.0) -> TestProblem:
    """f_k(x, y) = ½‖x‖² + e·x + yᵀAx − ½‖y‖² − b·y, with means of A, b, e over the client's rows."""
    data = _rows(seed, {"A": (dy, d), "b": (dy,), "e": (d,)}, sizes, spread)
    A, b, e = (client_means(data, lambda p, n=n: p[n].mean(0)) for n in ("A", "b", "e"))  # type: ignore[misc]
    H, r = torch.eye(d, dtype=torch.float64) + A.T @ A, A.T @ b - e

    def f(x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return (0.5 * x.square().sum() + (batch.e @ x).mean() + ((batch.A @ x) @ y).mean() - 0.5 * y.square().sum() - (batch.b @ y).mean())

    def sums(x: Tensor, batch: Batch) -> Tensor:
        return torch.cat([(batch.A @ x - batch.b).mean(0), x.new_ones(1)])

    x = torch.linalg.solve(H, r)
    return TestProblem(Minimax(f, (sums, lambda total: total[:-1] / total[-1])), data, x, lambda z: H @ z - r, y_star=A @ x - b)


def quadratic_saddle(seed: int = 0, clients: int = 100, d: int = 10, lam: float = 10.0, s: float = 1.0) -> TestProblem:
    """f_k(x, y) = −[½‖y‖² − b_k·y + t_k y·x] + (lam/2)‖x‖², b_k ~ N(0, s_k²), s_k ~ U(0, 2s), t_k ~ U(0, 0.1): one row a client.

    x* = t̄b̄/(lam + t̄²), y* = b̄ − t̄x*, with means over the clients. Tarzanagh, Li, Thrampoulidis, Oymak, "FedNest", ICML 2022.
    """
    r = torch.Generator().manual_seed(seed)
    t = 0.1 * torch.rand(clients, generator=r, dtype=torch.float64)
    spread = 2 * s * torch.rand(clients, generator=r, dtype=torch.float64)
    b = spread[:, None] * torch.randn(clients, d, generator=r, dtype=torch.float64)
    data = Data.from_parts({f"client-{k}": {"b": b[k : k + 1], "t": t[k : k + 1]} for k in range(clients)})
    tm, bm = t.mean(), b.mean(0)

    def f(x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return (0.5 * lam * x.square().sum() - 0.5 * y.square().sum() + (batch.b @ y).mean() - batch.t.mean() * torch.dot(x, y))

    x = tm * bm / (lam + tm**2)
    return TestProblem(Minimax(f), data, x, lambda z: lam * z - tm * (bm - tm * z), y_star=bm - tm * x)


def compositional_minimax(seed: int = 0, d: int = 3, dy: int = 2, sizes: tuple[int, ...] = SIZES, spread: float = 1.0) -> TestProblem:
    """f_k(z, y) = ½‖z − c‖² + yᵀBz − ½‖y‖² of z = mean_k mean_i (A_i x − b_i), with A_i near the identity."""
    data = _rows(seed, {"A": (d, d), "b": (d,), "B": (dy, d), "c": (d,)}, sizes, spread)
    eye = torch.eye(d, dtype=torch.float64)
    data.fields["A"].mul_(0.2).add_(eye)
    A, b, B, c = (client_means(data, lambda p, n=n: p[n].mean(0)) for n in ("A", "b", "B", "c"))  # type: ignore[misc]
    H = eye + B.T @ B
    z = torch.linalg.solve(H, c)

    def g(x: Tensor, batch: Batch) -> Tensor:
        return (batch.A @ x - batch.b).mean(0)

    def f(u: Tensor, y: Tensor, batch: Batch) -> Tensor:
        return 0.5 * (u - batch.c).square().sum(1).mean() + ((batch.B @ u) @ y).mean() - 0.5 * y.square().sum()

    return TestProblem(CompositionalMinimax(f, g), data, torch.linalg.solve(A, z + b), lambda x: A.T @ (H @ (A @ x - b) - c), y_star=B @ z)


def pairwise(seed: int = 0, d: int = 3, sizes: tuple[int, ...] = SIZES, spread: float = 1.0) -> TestProblem:
    """ℓ(s, t) = ½(1 − s + t)² of scores s = a·x, over pairs of a positive and a negative of any two clients.

    Every client has as many positives as negatives, and all have equally many, the largest of `sizes` of each: pools of scores are the
    same length everywhere.
    """
    rows = max(sizes)
    data = _rows(seed, {"a": (2, d)}, (rows,) * len(sizes), spread)
    both = data.fields.pop("a")
    columns = {"a": both.reshape(-1, d), "labels": torch.arange(2).repeat(len(both))}
    data = Data(columns, data.names, 2 * data.sizes)
    positive, negative = both[:, 1], both[:, 0]
    gaps = (positive[:, None] - negative[None, :]).reshape(-1, d)
    H, r = gaps.T @ gaps / len(gaps), gaps.mean(0)

    def s(x: Tensor, batch: Batch) -> Tensor:
        return batch.a @ x

    def ell(s: Tensor, t: Tensor) -> Tensor:
        return 0.5 * (1 - s + t).square()

    return TestProblem(Pairwise(s, ell, share=0.5), data, torch.linalg.solve(H, r), lambda x: H @ x - r)


def bilevel(seed: int = 0, d: int = 3, dy: int = 2, sizes: tuple[int, ...] = SIZES, spread: float = 1.0) -> TestProblem:
    """g_k(x, y) = ½ yᵀH y − yᵀ(Cx + e) with 1 ≼ mean H ≼ 2, f_k(x, y) = ½‖y − t‖² + ½‖x − r‖²."""
    data = _rows(seed, {"root": (dy, dy), "C": (dy, d), "e": (dy,), "t": (dy,), "r": (d,)}, sizes, spread)
    root = data.fields.pop("root")
    square = root.transpose(1, 2) @ root
    data.fields["H"] = torch.eye(dy, dtype=torch.float64) + square / torch.linalg.matrix_norm(square, 2)[:, None, None]
    H, C, e, t, r = (client_means(data, lambda p, n=n: p[n].mean(0)) for n in ("H", "C", "e", "t", "r"))  # type: ignore[misc]
    inverse: Tensor = torch.linalg.inv(H)
    J = inverse @ C

    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * ((b.H @ y) @ y).mean() - ((b.C @ x + b.e) @ y).mean()

    def f(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * (y - b.t).square().sum(1).mean() + 0.5 * (x - b.r).square().sum(1).mean()

    def gradient(x: Tensor) -> Tensor:
        return x - r + J.T @ (inverse @ (C @ x + e) - t)

    x = torch.linalg.solve(torch.eye(d, dtype=torch.float64) + J.T @ J, r - J.T @ (inverse @ e - t))
    return TestProblem(Bilevel(f, g), data, x, gradient, y_star=inverse @ (C @ x + e))


def counterexample(outer: str = "square") -> TestProblem:
    """Two clients, g_1 = 4x − 4 and g_2 = −2x + 4, whose mean is x, with f = y²/2 ("square") or √(1 + y²) ("root"): the solution is 0.

    FedAvg that shares the inner value only now and then does not find it (Khanduri et al., "FedDRO", 2023, Theorem 4.1).
    """
    def line(slope: float, intercept: float) -> dict[str, Tensor]:
        return {"a": torch.tensor([slope], dtype=torch.float64), "b": torch.tensor([intercept], dtype=torch.float64)}

    def g(x: Tensor, batch: Batch) -> Tensor:
        return (batch.a * x + batch.b).mean().reshape(1)

    def square(z: Tensor) -> Tensor:
        return 0.5 * z.square().sum()

    def root(z: Tensor) -> Tensor:  # its slope is bounded, as the theorem assumes
        return (1 + z.square()).sqrt().sum()

    f, gradient = {"square": (square, lambda x: x), "root": (root, lambda x: x / (1 + x.square()).sqrt())}[outer]
    solution = torch.zeros(1, dtype=torch.float64)
    data = Data.from_parts({"one": line(4.0, -4.0), "two": line(-2.0, 4.0)})
    return TestProblem(Compositional(f, g), data, solution, gradient, y_star=solution)


ALL: dict[str, Callable[..., TestProblem]] = {"minimization": minimization, "conditional": conditional, "compositional": compositional,
                                        "minimax": minimax, "compositional_minimax": compositional_minimax, "bilevel": bilevel,
                                        "pairwise": pairwise}
