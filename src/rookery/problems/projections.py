"""Projections onto feasible sets."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import ProblemError


def ball(radius: float) -> Callable[[Tensor], Tensor]:
    """The projection onto {‖x‖ ≤ radius}.

    >>> ball(1.0)(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    if not 0 <= radius < math.inf:
        raise ProblemError(f"a ball's radius is finite and not negative; got {radius}")
    return lambda x: x * (radius / torch.linalg.vector_norm(x).clamp_min(max(radius, 1e-30)))


def box(low: float, high: float) -> Callable[[Tensor], Tensor]:
    """The projection onto [low, high]^d.

    >>> box(0.0, 1.0)(torch.tensor([-1.0, 2.0]))
    tensor([0., 1.])
    """
    if not low <= high:
        raise ProblemError(f"a box reaches from its low to its high end; got {low} and {high}")
    return lambda x: x.clamp(low, high)


def simplex(x: Tensor) -> Tensor:
    """The projection onto {x ≥ 0, Σx = 1} by sorting (Held, Wolfe and Crowder, 1974).

    >>> simplex(torch.tensor([0.5, 1.5]))
    tensor([0., 1.])
    """
    ordered = torch.sort(x, descending=True).values
    excess = torch.cumsum(ordered, 0) - 1
    count = torch.arange(1, x.shape[0] + 1, device=x.device, dtype=x.dtype)
    threshold = (excess / count).amax(0)
    return (x - threshold).clamp_min(0)
