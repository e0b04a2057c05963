"""ALSET: alternating stochastic gradients for bilevel problems, on one machine.

Chen, Sun, Yin, "Closing the gap: Tighter analysis of alternating stochastic gradient methods for bilevel problems", NeurIPS 2021.
    x, y, α, β, N, ℓ_{g,1}, T  →  x, y, lr, inner_lr, terms, smoothness, inner_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...problems.kinds import Bilevel
from ..base import check_positive, check_start, value_at
from ._base import Centralised


@dataclass(frozen=True)
class ALSET(Centralised):
    """`inner_steps` SGD steps on y from the last one, then one step on x with the Hessian inverse approximated by HIA.

    It is FedNest-SGD of one client with one local step.

    >>> ALSET(lr=0.1, inner_steps=3).inner_steps
    3
    """

    title: ClassVar[str] = "ALSET"

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
