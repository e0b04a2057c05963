"""Invariant logistic regression: a classifier whose decision must hold for the mean of many noisy views of one input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.sampling import Normal, Selection
from ..data.store import Batch, Data
from ..errors import ProblemError
from ..problems.kinds import Conditional


@dataclass(frozen=True, eq=False, kw_only=True)
class Views(Normal):
    """Inputs a ~ N(0, scale²I) with labels b = sign(aᵀtruth), and views η ~ N(a, noise²I): outer field `b`, inner field `eta`."""

    truth: Tensor
    noise: float
    scale: float

    def fetch(self, data: Data, selection: Selection) -> Batch:
        drawn = super().fetch(data, selection)
        assert drawn.inner is not None
        a = self.scale * drawn.xi
        b = torch.where(a @ self.truth.to(a.device) < 0, -1.0, 1.0).to(a.dtype)
        return Batch({"b": b}, None, Batch({"eta": a[..., None, :] + self.noise * drawn.inner.eta}))


def invariant_logistic(truth: Tensor, noise: float = 1.0, scale: float = 1.0, lam: float = 0.001, gamma: float = 10.0,
                       **options: Any) -> Conditional:
    """min_x E_{a,b} log(1 + exp(−b·E[ηᵀx | a])) + λ Σ_i γx_i²/(1 + γx_i²), the mean over the views η inside the logarithm.

    `truth` labels the inputs and gives d; `noise` and `scale` are the papers' σ2 and σ1. Clients are streams without rows:

    >>> from rookery import FCSG, Federation
    >>> fed = Federation(invariant_logistic(torch.tensor([1.0, -2.0])), Data.streams(["a", "b"]))
    >>> algorithm = FCSG(lr=0.1, local_steps=5, outer=1, inner=10)
    >>> algorithm.round(fed, algorithm.init(fed, torch.zeros(2))).x.shape
    torch.Size([2])

    Reference: Hu, Zhang, Chen, He, "Biased stochastic first-order methods for conditional stochastic optimization and applications in
    meta learning", NeurIPS 2020; Wu et al., "Federated conditional stochastic optimization", NeurIPS 2023, equation (4).
    """
    if not isinstance(truth, Tensor) or truth.dim() != 1 or not truth.is_floating_point():
        what = f"{truth.dtype} of shape {tuple(truth.shape)}" if isinstance(truth, Tensor) else type(truth).__name__
        raise ProblemError(f"truth is a flat floating vector, one number per input; got {what}")
    for name, value in {"noise": noise, "lam": lam, "gamma": gamma}.items():
        if not value >= 0:
            raise ProblemError(f"{name} must not be negative; got {value}")
    if not scale > 0:
        raise ProblemError(f"scale must be positive; got {scale}")

    def g(x: Tensor, xi: Batch, eta: Batch) -> Tensor:
        return (eta.eta @ x)[..., None]

    def f(u: Tensor, xi: Batch) -> Tensor:
        return F.softplus(-xi.b * u[:, 0])

    def h(x: Tensor) -> Tensor:
        return lam * (gamma * x.square() / (1 + gamma * x.square())).sum()

    def gradient(x: Tensor, batch: Batch) -> Tensor:
        assert batch.inner is not None
        eta = batch.inner.eta.mean(1)
        slope = -batch.b * torch.sigmoid(-batch.b * (eta * x).sum(-1))
        return (slope[:, None] * eta).mean(0) + 2 * lam * gamma * x / (1 + gamma * x.square()).square()

    sampling = Views(truth.shape, truth.shape, truth.dtype, truth=truth, noise=noise, scale=scale)
    return Conditional(f, g, h, **{"sampling": sampling, "oracles": {"gradient": gradient}, **options})
