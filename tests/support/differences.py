"""Derivatives by finite differences."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STEP = 1e-6


def difference(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The Jacobian of fn by central differences, a column per coordinate."""
    eye = torch.eye(len(x), dtype=x.dtype)
    return torch.stack([(fn(x + STEP * e) - fn(x - STEP * e)) / (2 * STEP) for e in eye], -1)
