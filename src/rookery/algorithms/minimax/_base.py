"""What the methods for min_x max_y have in common: a state of x, y and t, and the check of where y starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...errors import AlgorithmError
from ...problems.base import Problem
from ...problems.kinds import Minimax
from ..base import Algorithm

if TYPE_CHECKING:
    from ...federation.federation import Federation


def start(x: Tensor, y: Tensor | None) -> Tensor:
    """The starting point of the second variable, checked beside that of the first."""
    if y is None:
        raise AlgorithmError("this problem has an inner variable: give its starting point, init(fed, x, y)")
    if not isinstance(y, Tensor) or y.dim() != 1 or not y.is_floating_point():
        what = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise AlgorithmError(f"the starting point of y is one flat vector of floating-point numbers; got {what}")
    if y.dtype != x.dtype:
        raise AlgorithmError(f"x and y start with one dtype; got {x.dtype} and {y.dtype}: write y.to(x.dtype)")
    return y.detach()


def beside(y: Tensor, v: Tensor | None, name: str) -> Tensor:
    """A third variable as long as y, from 0 unless it is given."""
    if v is None:
        return torch.zeros_like(y)
    if not isinstance(v, Tensor) or v.shape != y.shape or v.dtype != y.dtype:
        what = f"{v.dtype} of shape {tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__
        raise AlgorithmError(f"{name} starts as a vector like y, {y.dtype} of shape {tuple(y.shape)}; got {what}: leave it out for 0")
    return v.detach()


@dataclass(frozen=True)
class Saddle(Algorithm):
    """Base of the methods that take Minimax problems directly."""

    solves: ClassVar[type[Problem]] = Minimax

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def init(self, fed: Federation, x: Tensor, y: Tensor | None = None) -> Any:
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(start(x, y)), 0)
