"""TTSA: two-timescale stochastic approximation of bilevel problems, on one machine.

Hong, Wai, Wang, Yang, "A two-timescale framework for bilevel optimization", arXiv:2007.05170, Algorithm 1.
    x, y, α_k, β_k, N, ℓ_{g,1}  →  x, y, lr, inner_lr, terms, smoothness
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...problems.kinds import Bilevel
from ..base import check_start, value_at
from ._base import Centralised


@dataclass(frozen=True)
class TTSA(Centralised):
    """y ← y − b_k∇y g, x ← x − a_k(∂x f − ∇²xy g·v) at the new y; b_k = inner_lr·(k+1)^(−2/5), a_k = lr·(k+1)^(−3/5)."""

    title: ClassVar[str] = "TTSA"

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def init(self, fed: Federation[Bilevel], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        return self.State(x, check_start(x, y), 0)

    def round(self, fed: Federation[Bilevel], s: State) -> State:
        k = s.t + 1
        x, y = self.advance(fed, s.x, s.y, value_at(self.lr, s.t) * k**-0.6, value_at(self.inner_lr, s.t) * k**-0.4, 1)
        return self.State(x, y, s.t + 1)
