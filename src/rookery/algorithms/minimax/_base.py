"""What the methods for min_x max_y have in common: a state of x, y and t, and where y starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...problems.kinds import Minimax
from ..base import Algorithm, check_start


@dataclass(frozen=True)
class Saddle(Algorithm[Minimax]):
    """Base of the methods that take Minimax problems directly."""

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def init(self, fed: Federation[Minimax], x: Tensor, y: Tensor | None = None) -> Any:
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(check_start(x, y)), 0)
