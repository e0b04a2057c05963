"""ALSET: alternating stochastic gradients for bilevel problems, on one machine.

Chen, Sun, Yin, "Closing the gap: Tighter analysis of alternating stochastic gradient methods for bilevel problems", NeurIPS 2021.
    x, y, α, β, N, ℓ_{g,1}, T  →  x, y, lr, inner_lr, terms, smoothness, inner_steps
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._base import FromLastPoint


@dataclass(frozen=True)
class ALSET(FromLastPoint):
    """`inner_steps` SGD steps on y from the last one, then one step on x with the Hessian inverse approximated by HIA.

    It is FedNest-SGD of one client with one local step.

    >>> ALSET(lr=0.1, inner_steps=3).inner_steps
    3
    """

    title: ClassVar[str] = "ALSET"
