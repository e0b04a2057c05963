"""BSA, TTSA, stocBiO and ALSET: stochastic bilevel optimisation on one machine.

BSA      Ghadimi, Wang, "Approximation methods for bilevel programming", arXiv:1802.02246, Algorithm 3 (with HIA, Algorithm 4)
TTSA     Hong, Wai, Wang, Yang, "A two-timescale framework for bilevel optimization", arXiv:2007.05170, Algorithm 1
stocBiO  Ji, Yang, Liang, "Bilevel optimization: Convergence analysis and enhanced design", ICML 2021, Algorithms 2 and 3
ALSET    Chen, Sun, Yin, "Closing the gap: Tighter analysis of alternating stochastic gradient methods for bilevel problems", NeurIPS 2021
    x, y, α, β, N or Q, ℓ_{g,1} or 1/η  →  x, y, lr, inner_lr, terms, smoothness;  t_k, D or T  →  inner_steps

All step x ← x − α(∂x f − ∇²xy g·v) at the new y, with v ≈ [∇²yy g]⁻¹∇y f: HIA in BSA, TTSA and ALSET, the summed series in stocBiO.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor

from ...errors import AlgorithmError
from ...problems.base import Problem
from ...problems.kinds import Bilevel
from ..base import Algorithm, Number, check_positive
from ..minimax._base import start
from .curvature import neumann_product, refuse_embedded

if TYPE_CHECKING:
    from ...federation.client import Client
    from ...federation.federation import Federation



@dataclass(frozen=True)
class _Alone(Algorithm):
    """What the four have in common."""

    solves: ClassVar[type[Problem]] = Bilevel
    exact_with_local_steps: ClassVar[bool] = True  # there are no other clients to drift from

    lr: Number
    inner_lr: Number = 0.1
    terms: int = 5
    smoothness: float = 1.0  # at least the largest eigenvalue of ∇²yy g
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, inner_lr=self.inner_lr, terms=self.terms, smoothness=self.smoothness, batch=self.batch)

    def validate(self, fed: Federation, x: Tensor) -> Tensor:
        if fed.population != 1:
            raise AlgorithmError(f"{self.title} runs on one machine, and this federation has {fed.population} clients: "
                                 "pool their rows into one client, or take FedNest or SimFBO, which average over clients")
        x = super().validate(fed, x)
        refuse_embedded(fed, self.title)
        return x

    def init(self, fed: Federation, x: Tensor, y: Tensor | None = None) -> Any:
        x = self.validate(fed, x)
        return self.State(x, start(x, y), 0)

    def iterate(self, fed: Federation, x: Tensor, y: Tensor, alpha: float, beta: float, steps: int) -> tuple[Tensor, Tensor]:
        X = fed.broadcast(x)
        Y = fed.map(self.inner_step, fed.broadcast(y), X, beta, times=steps)
        x, y = fed.mean(*fed.map(self.outer_step, X, Y, alpha, self.factors(fed)))
        return fed.project_x(x), fed.project_y(y)

    def factors(self, fed: Federation) -> int:
        """HIA: a random number of factors below N"""
        return fed.integer(self.terms)

    def inner_step(self, c: Client, y: Tensor, x: Tensor, beta: float) -> Tensor:
        return c.project_y(y - beta * c.g_y(x, y, c.draw(self.batch)))

    def outer_step(self, c: Client, x: Tensor, y: Tensor, alpha: float, factors: int) -> tuple[Tensor, Tensor]:
        v = self.inverse(c, x, y, c.f_y(x, y, c.draw(self.batch)), factors)
        return c.project_x(x - alpha * (c.f_x(x, y, c.draw(self.batch)) - c.g_xy(x, y, c.draw(self.batch), v))), y

    def inverse(self, c: Client, x: Tensor, y: Tensor, v: Tensor, factors: int) -> Tensor:
        return self.terms * neumann_product(c, x, y, v, self.batch, self.smoothness, factors)
