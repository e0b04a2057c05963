"""MBSGD and the unconstrained baseline: one minibatch gradient at every client, averaged at every step.

Ghadimi, Lan, "Stochastic first- and zeroth-order methods for nonconvex stochastic programming", SIAM Journal on Optimization 2013, as
Khanduri et al., "FedDRO", arXiv:2311.12652, Section 6, customise it for compositions, and their parallel SGD without constraints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import OneGradient, value_at
from ._base import Composition


@dataclass(frozen=True)
class _AveragedGradient(Composition, OneGradient[Compositional]):
    """x ← x − lr·mean_k (a minibatch gradient of client k): one exchange of d numbers."""

    inner_map: ClassVar = "any"

    def round(self, fed: Federation[Compositional], s: OneGradient.State) -> OneGradient.State:
        S = fed.cohort()
        direction = S.mean(S.map(self.gradient, S.broadcast(s.x)))
        return self.State(fed.project_x(s.x - value_at(self.lr, s.t) * direction), s.t + 1)

    def gradient(self, c: CompositionalClient, x: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class MBSGD(_AveragedGradient):
    """x ← x − lr·mean_k ∇[h + f∘g_k](x; batch), g of the client's own minibatch: Case I of FedAvg-CO with one local step.

    Where the clients' inner maps differ it has the bias of Case I.
    """

    title: ClassVar[str] = "MBSGD"

    def gradient(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return c.plug_in_gradient(x, c.draw(self.batch))


@dataclass(frozen=True)
class Unconstrained(_AveragedGradient):
    """x ← x − lr·mean_k ∇h_k(x; batch): parallel SGD on h alone, the composition (a fairness constraint, say) ignored."""

    title: ClassVar[str] = "Unconstrained"
    exact_with_local_steps: ClassVar[bool] = True  # it averages after each

    def validate(self, fed: Federation[Compositional], x: Tensor) -> Tensor:
        x = super().validate(fed, x)
        if fed.problem.h is None:
            raise AlgorithmError("Unconstrained minimises h alone, and this problem has none: give Compositional an h, or take MBSGD")
        return x

    def gradient(self, c: CompositionalClient, x: Tensor) -> Tensor:
        return c.h_gradient(x, c.draw(self.batch))
