"""ALSET: alternating stochastic gradients for bilevel problems, on one machine.

Chen, Sun, Yin, "Closing the gap: Tighter analysis of alternating stochastic gradient methods for bilevel problems", NeurIPS 2021.
    x, y, α, β, N, ℓ_{g,1}, T  →  x, y, lr, inner_lr, terms, smoothness, inner_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..base import check_positive, value_at
from ._base import _Alone

if TYPE_CHECKING:
    from ...federation.federation import Federation



@dataclass(frozen=True)
class ALSET(_Alone):
    """`inner_steps` SGD steps on y from the last one, then one HIA step on x. FedNest-SGD of one client with one local step.

    >>> ALSET(lr=0.1, inner_steps=3).inner_steps
    3
    """

    title: ClassVar[str] = "ALSET"
    inner_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(inner_steps=self.inner_steps)

    def round(self, fed: Federation, s: _Alone.State) -> _Alone.State:
        x, y = self.iterate(fed, s.x, s.y, value_at(self.lr, s.t), value_at(self.inner_lr, s.t), self.inner_steps)
        return self.State(x, y, s.t + 1)
