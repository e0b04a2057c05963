"""stocBiO: stochastic bilevel optimisation with a summed Neumann series, on one machine.

Ji, Yang, Liang, "Bilevel optimization: Convergence analysis and enhanced design", ICML 2021, Algorithms 2 and 3.
    x, y, β, α, Q, 1/η, D  →  x, y, lr, inner_lr, terms, smoothness, inner_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import BilevelClient
from ...problems.kinds import Bilevel
from ._base import FromLastPoint
from .curvature import neumann_sum


@dataclass(frozen=True)
class StocBiO(FromLastPoint):
    """D = `inner_steps` SGD steps on y from the last one, then v = ηΣ_{q=0..Q}Π_q(I − η∇²yy g_j)∇y f with η = 1/smoothness, Q = terms."""

    title: ClassVar[str] = "stocBiO"

    def factors(self, fed: Federation[Bilevel]) -> int:
        return self.terms

    def inverse(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, factors: int) -> Tensor:
        return neumann_sum(c, x, y, v, self.batch, self.smoothness, factors)
