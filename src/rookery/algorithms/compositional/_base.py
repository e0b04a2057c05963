"""What algorithms on compositions have in common: which inner maps they take, and the gradient at an estimate of the inner value."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

from ...errors import AlgorithmError
from ...problems.base import Problem
from ...problems.kinds import Compositional
from ..base import Algorithm

if TYPE_CHECKING:
    from ...data.store import Batch
    from ...federation.client import Client
    from ...federation.federation import Federation


class Composition(Algorithm):
    """Base of the algorithms on compositions."""

    solves: ClassVar[type[Problem]] = Compositional
    inner_map: ClassVar[Literal["shared", "local", "any", "one machine"]] = "shared"

    def validate(self, fed: Federation, x: Tensor) -> Tensor:
        x = super().validate(fed, x)
        shared = fed.problem.shared  # type: ignore[attr-defined]
        if self.inner_map == "shared" and not shared:
            raise AlgorithmError(f"{self.title} needs a shared inner map, g = mean_k g_k; this problem has Compositional(shared=False): "
                                 "take ComFedL, Local-SCGD or Local-SCGDM")
        if self.inner_map == "local" and shared:
            raise AlgorithmError(f"{self.title} needs local inner maps, mean_k f_k(g_k(x)); this problem has Compositional(shared=True): "
                                 "take FedDRO, which shares the inner value")
        if self.inner_map == "one machine" and fed.population != 1:
            raise AlgorithmError(f"{self.title} runs on one machine, and this federation has {fed.population} clients: "
                                 "pool their rows into one client, or take FedDRO, GCIVR or Local-SCGD, which average over clients")
        return x


def gradient_at(c: Client, x: Tensor, b: Batch, y: Tensor, *sizes: int | None) -> Tensor:
    """J_g(x; b)ᵀ∇f(y) + ∇h(x): y stands for the inner value. f, where it has samples, and h have draws of their own."""
    slope = c.f_gradient(y) if c.problem.shared else c.f_gradient(y, c.draw(*sizes))  # type: ignore[attr-defined]
    return with_h(c, x, c.g_vjp(x, b, slope), *sizes)


def with_h(c: Client, x: Tensor, direction: Tensor, *sizes: int | None) -> Tensor:
    """The direction with ∇h(x) added, where there is an h, on a draw of its own."""
    return direction if c.problem.h is None else direction + c.h_gradient(x, c.draw(*sizes))  # type: ignore[attr-defined]
