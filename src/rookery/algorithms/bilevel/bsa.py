"""BSA: bilevel stochastic approximation, on one machine.

Ghadimi, Wang, "Approximation methods for bilevel programming", arXiv:1802.02246, Algorithm 3 (with HIA, Algorithm 4).
    x, y, α_k, β_t, N, ℓ_{g,1}, t_k  →  x, y, lr, inner_lr, terms, smoothness, inner_steps·⌈√(k+1)⌉
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...problems.kinds import Bilevel
from ..base import check_positive, check_start, value_at
from ._base import Centralised


@dataclass(frozen=True)
class BSA(Centralised):
    """t_k = inner_steps·⌈√(k+1)⌉ SGD steps on y from y_0, the same point in every iteration, then one step on x.

    The step has the Hessian inverse of HIA, (N/L_g)Π_j(I − ∇²yy g_j/L_g) with a random number of factors below N = `terms`.
    """

    title: ClassVar[str] = "BSA"

    inner_steps: int = 1

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        y0: Tensor
        t: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(inner_steps=self.inner_steps)

    def init(self, fed: Federation[Bilevel], x: Tensor, y: Tensor | None = None) -> State:
        x, y = self.validate(fed, x), check_start(x, y)
        return self.State(x, y, y, 0)

    def round(self, fed: Federation[Bilevel], s: State) -> State:
        steps = self.inner_steps * math.ceil(math.sqrt(s.t + 1))
        x, y = self.advance(fed, s.x, s.y0, value_at(self.lr, s.t), value_at(self.inner_lr, s.t), steps)
        return self.State(x, y, s.y0, s.t + 1)
