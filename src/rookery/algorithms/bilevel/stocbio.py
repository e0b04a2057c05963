"""stocBiO: stochastic bilevel optimisation with a summed Neumann series, on one machine.

Ji, Yang, Liang, "Bilevel optimization: Convergence analysis and enhanced design", ICML 2021, Algorithms 2 and 3.
    x, y, β, α, Q, 1/η, D  →  x, y, lr, inner_lr, terms, smoothness, inner_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import BilevelClient
from ...problems.kinds import Bilevel
from ..base import check_positive, check_start, value_at
from ._base import Centralised
from .curvature import neumann_sum


@dataclass(frozen=True)
class StocBiO(Centralised):
    """D = `inner_steps` SGD steps on y from the last one, then v = ηΣ_{q=0..Q}Π_q(I − η∇²yy g_j)∇y f with η = 1/smoothness, Q = terms."""

    title: ClassVar[str] = "stocBiO"

    inner_steps: int = 1

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(inner_steps=self.inner_steps)

    def init(self, fed: Federation[Bilevel], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        return self.State(x, check_start(x, y), 0)

    def round(self, fed: Federation[Bilevel], s: State) -> State:
        x, y = self.advance(fed, s.x, s.y, value_at(self.lr, s.t), value_at(self.inner_lr, s.t), self.inner_steps)
        return self.State(x, y, s.t + 1)

    def factors(self, fed: Federation[Bilevel]) -> int:
        return self.terms

    def inverse(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, factors: int) -> Tensor:
        return neumann_sum(c, x, y, v, self.batch, self.smoothness, factors)
