"""Bilevel problems whose answer fits what a method really settles at, in closed form from the clients' matrices."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rookery import Data
from rookery.problems import testproblems as known
from rookery.problems.testproblems import SIZES, TestProblem


def means(k: TestProblem) -> list[dict[str, Tensor]]:
    """The means of every client's rows: H, C, e, t, r of the bilevel test problem."""
    return [{name: field.mean(0) for name, field in k.data.views(i).items()} for i in range(len(k.data.names))]


def averaged(k: TestProblem, name: str) -> Tensor:
    return torch.stack([m[name] for m in means(k)]).mean(0)


def inverse_gradient(k: TestProblem) -> Tensor:
    """[∇²yy g]⁻¹∇y f at the solution."""
    assert k.y_star is not None
    return torch.linalg.solve(averaged(k, "H"), k.y_star - averaged(k, "t"))


def own_series(k: TestProblem, terms: int, smoothness: float) -> list[Tensor]:
    """(1/ℓ)Σ_{n=0..N}(I − H_i/ℓ)^n of each client."""
    found = []
    for m in means(k):
        factor, power = torch.eye(len(m["H"]), dtype=torch.float64) - m["H"] / smoothness, torch.eye(len(m["H"]), dtype=torch.float64)
        total = power
        for _ in range(terms):
            power = power @ factor
            total = total + power
        found.append(total / smoothness)
    return found


def own_hypergradients(sizes: tuple[int, ...] = SIZES, terms: int = 3, smoothness: float = 2.5) -> TestProblem:
    """The bilevel test problem with the point where mean_i(∂x f_i − ∇²xy g_i·p_i) = 0 for each client's own cut series: LFedNest's."""
    k = known.bilevel(sizes=sizes)
    H, C, e, r = (averaged(k, name) for name in "HCer")
    pulls = [m["C"].T @ M for m, M in zip(means(k), own_series(k, terms, smoothness), strict=True)]
    A = torch.stack(pulls).mean(0)
    a = torch.stack([P @ m["t"] for P, m in zip(pulls, means(k), strict=True)]).mean(0)
    J, z = torch.linalg.solve(H, C), torch.linalg.solve(H, e)
    matrix, right = torch.eye(len(r), dtype=torch.float64) + A @ J, r + a - A @ z
    x = torch.linalg.solve(matrix, right)
    return TestProblem(k.problem, k.data, x, lambda v: matrix @ v - right, y_star=J @ x + z)


def agreeing(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    """One machine, and t moved to y*(mean r): ∇y f vanishes at the solution, where any number of Neumann factors gives p = 0."""
    k = known.bilevel(sizes=(sum(sizes),))
    r, y = averaged(k, "r"), torch.linalg.solve(averaged(k, "H"), averaged(k, "C") @ averaged(k, "r") + averaged(k, "e"))
    fields: dict[str, Any] = {name: field.clone() for name, field in k.data.fields.items()}
    fields["t"] += y - averaged(k, "t")
    J = torch.linalg.solve(averaged(k, "H"), averaged(k, "C"))
    return TestProblem(k.problem, Data(fields, k.data.names, k.data.sizes), r, lambda x: x - r + J.T @ (J @ (x - r)), y_star=y)


def pooled_minimax(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    return known.minimax(sizes=(sum(sizes),))


def pooled_bilevel(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    return known.bilevel(sizes=(sum(sizes),))


def alike_inside(sizes: tuple[int, ...] = SIZES) -> TestProblem:
    """The compositional minimax test problem with A and B the same in every row: what LocalSCGDAM tracks is then right for every client."""
    k = known.compositional_minimax(sizes=sizes)
    same = {name: averaged(k, name).expand_as(k.data.fields[name]).clone() for name in "AB"}
    return TestProblem(k.problem, Data(k.data.fields | same, k.data.names, k.data.sizes), k.x_star, k.gradient, k.y_star)
