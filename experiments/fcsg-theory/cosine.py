"""A conditional problem that is not convex, meets the theorems' assumptions, and has its gradient and its bias in closed form.

    f_ξ(u) = 1 − cos(u_1 − b) + (κ/2)v|v|,  v = u_2 − x*_1,     g_η(x, ξ) = (ηᵀx, x_1 + ζ),
    a ~ N(0, ρ²I),  b = aᵀx* + τν,  η ~ N(a, σ²I),  ζ ~ N(0, σ²),  ν ~ N(0, 1)

    F(x) = 1 − e^{−τ²/2} exp(−ρ²‖x − x*‖²/2) + (κ/2)v|v|,  v = x_1 − x*_1

f and g have Lipschitz gradients. With κ = 0 the outer function is smooth and m inner samples bias the gradient by O(1/m); with κ > 0 its
derivative has a kink, which lies at the inner mean of every sample once x is at x*: there the bias is O(m^−½), as the paper's bound allows.

Replicas: x holds many copies of the problem one after the other, and each has samples of its own. The algorithms treat every coordinate
alike, so that one run is many independent ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import theory
import torch
from torch import Tensor

from rookery import Batch, Conditional, Data
from rookery.data.sampling import Selection

STAR = (0.3, 0.4)  # x*; runs start at 0
TAU = 1.0
APART, UNEVEN = 0.5, 0.5  # clients that differ have x* ± APART along the second axis, and ρ = 1 ± UNEVEN


@dataclass(frozen=True)
class Sides(theory.Sides):
    """Draws a, b, η and ζ. Clients of even and of odd number are alike, or lie on the two sides of x*."""

    sigma: float = 1.0

    def fetch(self, data: Data, selection: Selection) -> Batch:
        xi, noise, side = selection["xi"], selection["eta"], selection["side"][..., None, None]
        a = (1 + UNEVEN * side) * xi[..., :-1]
        star = torch.tensor(STAR, dtype=self.dtype) + side * torch.tensor((0.0, APART), dtype=self.dtype)
        b = (a * star).sum(-1) + TAU * xi[..., -1]
        return Batch({"b": b}, None, Batch({"eta": a[..., None, :, :] + self.sigma * noise[..., :-1], "zeta": self.sigma * noise[..., -1]}))


def problem(replicas: int, sigma: float = 1.0, kink: float = 0.0, differ: bool = False) -> Conditional:
    d = len(STAR)

    def g(x: Tensor, xi: Batch, eta: Batch) -> Tensor:
        X = x.reshape(replicas, d)
        return torch.cat([(eta.eta * X).sum(-1), X[:, 0] + eta.zeta], -1)

    def f(u: Tensor, xi: Batch) -> Tensor:
        v = u[:, replicas:] - STAR[0]
        return (1 - torch.cos(u[:, :replicas] - xi.b) + 0.5 * kink * v * v.abs()).sum(-1)

    def gradient(x: Tensor, batch: Batch) -> Tensor:
        assert batch.inner is not None
        X, eta = x.reshape(replicas, d), batch.inner.eta.mean(1)
        of_cosine = torch.sin((eta * X).sum(-1) - batch.b)[..., None] * eta
        of_kink = kink * (X[:, 0] + batch.inner.zeta.mean(1) - STAR[0]).abs()
        return (of_cosine + torch.stack([of_kink, torch.zeros_like(of_kink)], -1)).mean(0).reshape(-1)

    sampling = Sides((replicas, d + 1), (replicas, d + 1), sigma=sigma, differ=differ)
    return Conditional(f, g, sampling=sampling, oracles={"gradient": gradient})


def lost(x: Tensor) -> bool:
    """Whether a replica has left ‖x − x*‖ < 1. F is flat far away, where ‖∇F‖ is small and nothing is solved."""
    return bool((x.reshape(-1, len(STAR)) - torch.tensor(STAR)).norm(dim=1).max() >= 1)


def exact(x: Tensor, kink: float = 0.0, differ: bool = False, s: float = 0.0) -> Tensor:
    """∇F of each replica; with s = σ²/m the mean of the estimates from m inner samples, bias included."""
    X = x.reshape(-1, len(STAR)).double()
    total = torch.zeros_like(X)
    for side in (1.0, -1.0) if differ else (0.0,):
        rho2 = (1 + UNEVEN * side) ** 2
        off = X - torch.tensor((STAR[0], STAR[1] + APART * side), dtype=torch.float64)
        weight = torch.exp(-(TAU**2 + rho2 * off.square().sum(-1) + s * X.square().sum(-1)) / 2)
        total += (rho2 * off + s * X) * weight[:, None] / (2 if differ else 1)
    v, w = X[:, 0] - STAR[0], math.sqrt(s)
    folded = v.abs() if w == 0 else w * math.sqrt(2 / math.pi) * torch.exp(-v.square() / (2 * s)) + v * torch.erf(v / (w * math.sqrt(2)))
    total[:, 0] += kink * folded  # E|v + wε|
    return total
