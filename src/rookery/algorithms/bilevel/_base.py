"""What the bilevel methods of one machine have in common.

All step x ← x − α(∂x f − ∇²xy g·v) at the new y, with v ≈ [∇²yy g]⁻¹∇y f: HIA in BSA, TTSA and ALSET, the summed series in stocBiO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import BilevelClient
from ...problems.kinds import Bilevel
from ..base import Algorithm, Number, check_positive, check_start, one_machine_only, value_at
from .curvature import neumann_product, refuse_embedded


@dataclass(frozen=True)
class Centralised(Algorithm[Bilevel]):
    """Base of the methods of one machine: some SGD steps on y, then one step on x along the approximate hypergradient."""

    exact_with_local_steps: ClassVar[bool] = True  # there are no other clients to drift from

    lr: Number
    inner_lr: Number = 0.1
    terms: int = 5
    smoothness: float = 1.0  # at least the largest eigenvalue of ∇²yy g
    batch: int | None = None  # None: all rows

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, terms=self.terms, smoothness=self.smoothness, batch=self.batch)

    def validate(self, fed: Federation[Bilevel], x: Tensor) -> Tensor:
        one_machine_only(self, fed, "FedNest or SimFBO")
        x = super().validate(fed, x)
        refuse_embedded(fed, self.title)
        return x

    def advance(self, fed: Federation[Bilevel], x: Tensor, y: Tensor, alpha: float, beta: float, steps: int) -> tuple[Tensor, Tensor]:
        """x and y after `steps` steps of size β on y, and one of size α on x."""
        X = fed.broadcast(x)
        Y = fed.iterate(self.inner_step, fed.broadcast(y), X, beta, steps=steps)
        x, y = fed.mean(*fed.map(self.outer_step, X, Y, alpha, self.factors(fed)))
        return fed.project_x(x), fed.project_y(y)

    def factors(self, fed: Federation[Bilevel]) -> int:
        """A random number of factors below N, for HIA."""
        return fed.integer(self.terms)

    def inner_step(self, c: BilevelClient, y: Tensor, x: Tensor, beta: float) -> Tensor:
        return c.project_y(y - beta * c.g_y(x, y, c.draw(self.batch)))

    def outer_step(self, c: BilevelClient, x: Tensor, y: Tensor, alpha: float, factors: int) -> tuple[Tensor, Tensor]:
        v = self.inverse(c, x, y, c.f_y(x, y, c.draw(self.batch)), factors)
        return c.project_x(x - alpha * (c.f_x(x, y, c.draw(self.batch)) - c.g_xy(x, y, c.draw(self.batch), v))), y

    def inverse(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor, factors: int) -> Tensor:
        """[∇²yy g]⁻¹v by HIA, unless a method has another way."""
        return self.terms * neumann_product(c, x, y, v, self.batch, self.smoothness, factors)


@dataclass(frozen=True)
class FromLastPoint(Centralised):
    """Base of those that take `inner_steps` steps on y from where the last iteration left it."""

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
