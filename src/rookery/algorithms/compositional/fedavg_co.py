"""FedAvg for compositions, as it stands and repaired: the counterexample of FedDRO's paper and the way out.

Khanduri, Li, Ibn Sultan, Qiang, Kliewer, Zhu, "FedDRO: Federated compositional optimization for distributionally robust learning",
arXiv:2311.12652, Algorithm 1 (Cases I and II), Theorems 4.1 and 4.2.
    x_k, ȳ, η, I  →  x, y, lr, local_steps

The paper's Algorithm 1 is deterministic and has no h. Here a step has one batch, for g, ∇g and h alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import LocalSteps, value_at
from ._base import Composition


@dataclass(frozen=True)
class _FedAvgCO(Composition, LocalSteps[Compositional]):
    """The steps of Algorithm 1; ȳ is one exchange of d_g numbers."""

    local_steps: int = 1

    def inner(self, c: CompositionalClient, x: Tensor) -> Tensor:
        """The inner value g_k(x_k) of a batch."""
        return c.g(c.project_x(x), c.draw(self.batch))

    def own_step(self, c: CompositionalClient, x: Tensor, lr: float) -> Tensor:
        """Line 5: a step along equation (6) with y_k = g_k(x_k)."""
        x = c.project_x(x)
        return x - lr * c.plug_in_gradient(x, c.draw(self.batch))

    def shared_step(self, c: CompositionalClient, x: Tensor, y: Tensor, lr: float) -> Tensor:
        """A step along equation (6) with y_k = ȳ, on the batch of `inner`."""
        x, b = c.project_x(x), c.draw(self.batch)
        direction = c.g_vjp(x, b, c.f_gradient(y))
        if c.problem.h is not None:
            direction = direction + c.h_gradient(x, b)
        return x - lr * direction


@dataclass(frozen=True)
class FedAvgCaseI(_FedAvgCO):
    """x_k ← x_k − lr·∇g_k(x_k)∇f(g_k(x_k)), `local_steps` times; x ← mean_k x_k. It does not solve shared compositions, at any lr."""

    title: ClassVar[str] = "Vanilla FedAvg-CO (Case I)"

    def round(self, fed: Federation[Compositional], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.iterate(self.own_step, S.broadcast(s.x), value_at(self.lr, s.t), steps=self.local_steps)
        return self.State(fed.project_x(S.mean(X)), s.t + 1)


@dataclass(frozen=True)
class FedAvgCaseII(_FedAvgCO):
    """As Case I, but a round's first step has ∇f(ȳ), ȳ = mean_k g_k(x). It solves shared compositions with one local step only."""

    title: ClassVar[str] = "Vanilla FedAvg-CO (Case II)"

    def round(self, fed: Federation[Compositional], s: LocalSteps.State) -> LocalSteps.State:
        S, lr = fed.cohort(), value_at(self.lr, s.t)
        X = S.broadcast(s.x)
        Y = S.map(self.inner, X)
        y = S.mean(Y)  # line 8 of the iteration before: it opens the round, so that a client that was away can join
        X = S.map(self.shared_step, X, S.broadcast(y), lr, same_draws_as=Y)
        X = S.iterate(self.own_step, X, lr, steps=self.local_steps - 1)
        return self.State(fed.project_x(S.mean(X)), s.t + 1)


@dataclass(frozen=True)
class ModifiedFedAvg(_FedAvgCO):
    """x_k ← x_k − lr·∇g_k(x_k)∇f(ȳ), ȳ = mean_k g_k(x_k) shared at every step; x averaged every `local_steps`. FedDRO with beta=1."""

    title: ClassVar[str] = "Modified FedAvg-CO"

    def round(self, fed: Federation[Compositional], s: LocalSteps.State) -> LocalSteps.State:
        S, lr = fed.cohort(), value_at(self.lr, s.t)
        X = S.broadcast(s.x)
        for _ in range(self.local_steps):
            Y = S.map(self.inner, X)
            y = S.mean(Y)
            X = S.map(self.shared_step, X, S.broadcast(y), lr, same_draws_as=Y)
        return self.State(fed.project_x(S.mean(X)), s.t + 1)
