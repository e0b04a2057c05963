"""[∇²yy g]⁻¹v and the largest eigenvalue of ∇²yy g from Hessian-vector products alone: no Hessian is ever formed.

Neumann series: Ghadimi, Wang, "Approximation methods for bilevel programming", arXiv:1802.02246.   N, L_g  →  terms, smoothness
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import BilevelClient
from ...federation.program import Program
from ...problems.base import Problem
from ...problems.kinds import Bilevel


def neumann_product(c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, batch: int | None, smoothness: float, factors: int) -> Tensor:
    """(1/ℓ)Π_j(I − ∇²yy g_j/ℓ)·v with a fresh batch for each factor; N times it, for a random number of factors below N, is HIA."""
    for _ in range(factors):
        v = v - c.g_yy(x, y, c.draw(batch), v) / smoothness
    return v / smoothness


def neumann_sum(c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, batch: int | None, smoothness: float, terms: int) -> Tensor:
    """(1/ℓ)Σ_{n=0..terms} Π_{j≤n}(I − ∇²yy g_j/ℓ)·v: fresh batches make every term unbiased."""
    p = v
    for _ in range(terms):
        v = v - c.g_yy(x, y, c.draw(batch), v) / smoothness
        p = p + v
    return p / smoothness


def conjugate(product: Callable[[Tensor], Tensor], v: Tensor, iterations: int) -> Tensor:
    """H⁻¹v by at most `iterations` conjugate-gradient steps from 0, one product with H each (Hestenes, Stiefel 1952).

    Ends when the residual is at the rounding of v. Products must come from one H: small batches and cohorts break the conjugacy.
    """
    p, r, s = torch.zeros_like(v), v, v
    square = torch.dot(r, r)
    enough = square * torch.finfo(v.dtype).eps ** 2
    for _ in range(iterations):
        if square <= enough:
            break
        Hs = product(s)
        curvature = torch.dot(s, Hs)
        if not curvature > 0:
            raise AlgorithmError(f"conjugate gradients met a direction of curvature {float(curvature):.3g}, and need ∇²yy g to be positive "
                                 'definite: add a ridge to the inner problem, or write inverse_solver="neumann"')
        step = square / curvature
        p, r = p + step * s, r - step * Hs
        before, square = square, torch.dot(r, r)
        s = r + square / before * s
    return p


def refuse_embedded(fed: Federation[Bilevel], title: str) -> None:
    """Methods that track [∇²yy g]⁻¹∇y f have nothing to track where a problem says that there is no such term, or that it is ∇y f."""
    inverse = fed.problem.inverse
    if inverse != "series":
        raise AlgorithmError(f"{title} inverts ∇²yy g, and this Bilevel problem has inverse={inverse!r}: "
                             "run FedNest on it, which leaves out what an embedded problem does not need")


@dataclass(frozen=True)
class Curvature(Program):
    """The client function of `estimate_smoothness`."""

    def product(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return c.g_yy(x, y, c.draw(), v)


def estimate_smoothness(fed: Federation[Problem], x: Tensor, y: Tensor, iterations: int = 20) -> float:
    """Estimate the smoothness ℓ_{g,1} of the inner problem at (x, y), the largest eigenvalue of mean_i ∇²yy g_i.

    By power iteration, an exchange of d_y numbers each, in phase `setup`.

    It comes from below, so leave room: `FedNest(smoothness=1.1 * estimate_smoothness(fed, x, y), …)`. LFedNest sums at each client,
    whose own curvature may be larger.
    """
    if not isinstance(fed.problem, Bilevel) or fed.problem.inverse != "series":
        raise AlgorithmError("estimate_smoothness asks for ∇²yy g of a Bilevel problem with an inner Hessian to invert; "
                             f"this is {type(fed.problem).__name__}" +
                             (f"(inverse={fed.problem.inverse!r})" if isinstance(fed.problem, Bilevel) else ""))
    if iterations < 1:
        raise AlgorithmError(f"iterations must be at least 1; got {iterations}")
    with fed.phase("setup"):
        X, Y = fed.broadcast(x, y)
        generator = torch.Generator().manual_seed(fed.integer(2**31))
        v = torch.randn(len(y), generator=generator, dtype=torch.float64).to(y)
        value = 0.0
        for _ in range(iterations):
            v = v / torch.linalg.vector_norm(v)
            w = fed.mean(fed.map(Curvature().product, X, Y, fed.broadcast(v)))
            value, v = float(torch.dot(v, w)), w
            if not bool(w.any()):
                return 0.0
    if value < 0:
        raise AlgorithmError(f"the eigenvalue of ∇²yy g that is largest in size is {value:.3g}: the inner problem is not convex in y: "
                             "add a ridge to it, or start elsewhere")
    return value
