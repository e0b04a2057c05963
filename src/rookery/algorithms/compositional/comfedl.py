"""ComFedL: local SGD with the compositional gradient of large batches.

Huang, Li, Huang, "Compositional federated learning: Applications in distributionally robust averaging and meta learning",
arXiv:2106.11264, for mean_k f_k(g_k(x)).   w, η, batch sizes O(ε⁻²)  →  x, lr, batch

One batch serves g, ∇g and f: it is FCSG on a problem whose inner samples do not depend on the outer ones. The bias falls with the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import LocalSteps, check_positive, value_at
from ._base import Composition


@dataclass(frozen=True)
class ComFedL(Composition, LocalSteps[Compositional]):
    """x_k ← x_k − lr·∇[h + f_k∘g_k](x_k; batch), `local_steps` times; x ← mean_k x_k."""

    title: ClassVar[str] = "ComFedL"
    plain_average: ClassVar[bool] = True
    inner_map: ClassVar = "local"

    inner: int | None = None  # conditional samples of each row, on problems made by `conditional_as_compositional`

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(inner=self.inner)

    def round(self, fed: Federation[Compositional], s: LocalSteps.State) -> LocalSteps.State:
        S = fed.cohort()
        X = S.iterate(self.step, S.broadcast(s.x), value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        return self.State(fed.project_x(S.mean(X)), s.t + 1)

    def step(self, c: CompositionalClient, x: Tensor, lr: float) -> Tensor:
        x = c.project_x(x)
        return x - lr * c.plug_in_gradient(x, c.draw(self.batch, self.inner))
