"""Distributionally robust objectives as compositions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problem import Compositional

Losses = Callable[[Tensor, Batch], Tensor]


def kl_dro(losses: Losses, lam: float = 1.0, shift: float | None = None, least: float = 0.0, **options: Any) -> Compositional:
    """KL-regularised DRO: λ·log mean exp(ℓ/λ), the worst case of Σ p_i ℓ_i − λ·KL(p, 1/m) over the weights p.

    `losses(x, batch)` → one loss per row. As a composition g = mean exp(ℓ/λ − s), f = λ(log g + s), h = 0. The shift s keeps the
    exponential in range; it is agreed by `prepare` (the mean of ℓ/λ at the starting point) and fixed for the run, or given.
    `least` is the smallest a loss can be: an estimate of g below exp(least/λ − s) is out of its range, and is floored there.
    Reference: FedDRO, equation (4), here with the factor λ, so that the value is the DRO value.
    """
    if not lam > 0:
        raise ProblemError(f"lam must be positive; got {lam}")
    s = 0.0 if shift is None else shift
    # a tracked estimate of g may leave its range; below the floor the logarithm is continued by its tangent
    floor = math.exp(min(max(least / lam - s, -60.0), 60.0))

    def g(x: Tensor, b: Batch) -> Tensor:
        u = losses(x, b) / lam - s
        # beyond exp(60) float32 would overflow: the exponential is continued by its tangent, so that the worst rows keep their pull
        return (torch.exp(u.clamp(max=60.0)) * (1 + (u - 60.0).clamp(min=0.0))).mean().reshape(1)

    def f(z: Tensor) -> Tensor:
        safe = z.clamp(min=floor)
        return (lam * (torch.log(safe) + s + torch.where(z < floor, (z - safe) / floor, torch.zeros_like(z)))).sum()

    def f_gradient(z: Tensor, b: Batch | None = None) -> Tensor:
        return lam / z.clamp(min=floor)

    def statistics(x: Tensor, b: Batch) -> Tensor:
        ell = losses(x, b)
        return torch.stack([ell.sum() / lam, ell.new_tensor(float(len(ell))), (ell < least).sum().to(ell.dtype)])

    def finish(total: Tensor) -> Compositional:
        if total[2] > 0:
            raise ProblemError(f"{int(total[2])} losses lie below least={least}, the smallest that kl_dro was told of; give it least=…")
        return kl_dro(losses, lam, float(total[0] / total[1]), least, **options)

    agreed = {} if shift is not None else {"statistics": statistics, "finish": finish}
    return Compositional(f, g, oracles={"f_gradient": f_gradient}, **agreed, **options)  # type: ignore[arg-type]
