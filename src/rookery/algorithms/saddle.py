"""What the methods for min_x max_y have in common: a state of x, y and t, and the check of where y starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor

from ..errors import AlgorithmError
from ..problem import Minimax, Problem
from .base import Algorithm

if TYPE_CHECKING:
    from ..fed import Federation


def start(y: Tensor | None) -> Tensor:
    """The starting point of the second variable, checked."""
    if y is None:
        raise AlgorithmError("this problem has an inner variable: give its starting point, init(fed, x, y)")
    if not isinstance(y, Tensor) or y.dim() != 1 or not y.is_floating_point():
        what = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise AlgorithmError(f"the starting point of y is one flat vector of floating-point numbers; got {what}")
    return y.detach()


@dataclass(frozen=True)
class Saddle(Algorithm):
    """Base of the methods that take Minimax problems directly."""

    solves: ClassVar[type[Problem]] = Minimax

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def init(self, fed: Federation, x: Tensor, y: Tensor | None = None) -> Any:
        return self.State(self.fits(fed, x), start(y), 0)
