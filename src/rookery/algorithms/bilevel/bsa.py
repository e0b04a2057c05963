"""BSA: bilevel stochastic approximation, on one machine.

Ghadimi, Wang, "Approximation methods for bilevel programming", arXiv:1802.02246, Algorithm 3 (with HIA, Algorithm 4).
    x, y, α_k, β_t, N, ℓ_{g,1}, t_k  →  x, y, lr, inner_lr, terms, smoothness, inner_steps·⌈√(k+1)⌉
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from torch import Tensor

from ..base import value_at
from ..minimax._base import start
from .alset import ALSET

if TYPE_CHECKING:
    from ...federation.federation import Federation



@dataclass(frozen=True)
class BSA(ALSET):
    """t_k = inner_steps·⌈√(k+1)⌉ SGD steps on y from y_0, the same point in every iteration, then one HIA step on x."""

    title: ClassVar[str] = "BSA"

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        y0: Tensor
        t: int

    def init(self, fed: Federation, x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        return self.State(x, start(x, y), start(x, y), 0)

    def round(self, fed: Federation, s: State) -> State:  # type: ignore[override]
        steps = self.inner_steps * math.ceil(math.sqrt(s.t + 1))
        x, y = self.iterate(fed, s.x, s.y0, value_at(self.lr, s.t), value_at(self.inner_lr, s.t), steps)
        return self.State(x, y, s.y0, s.t + 1)
