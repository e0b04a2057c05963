"""What algorithms on compositions have in common: which inner maps they take, and gradients at an estimate of the inner value."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from ...data.store import Batch
from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import CompositionalClient
from ...problems.kinds import Compositional
from ..base import Algorithm, one_machine_only


class Composition(Algorithm[Compositional]):
    """Base of the algorithms on compositions."""

    inner_map: ClassVar[Literal["shared", "local", "any", "one machine"]] = "shared"

    def validate(self, fed: Federation[Compositional], x: Tensor) -> Tensor:
        x = super().validate(fed, x)
        shared = fed.problem.shared
        if self.inner_map == "shared" and not shared:
            raise AlgorithmError(f"{self.title} needs a shared inner map, g = mean_k g_k; this problem has Compositional(shared=False): "
                                 "take ComFedL, Local-SCGD or Local-SCGDM")
        if self.inner_map == "local" and shared:
            raise AlgorithmError(f"{self.title} needs local inner maps, mean_k f_k(g_k(x)); this problem has Compositional(shared=True): "
                                 "take FedDRO, which shares the inner value")
        if self.inner_map == "one machine":
            one_machine_only(self, fed, "FedDRO, GCIVR or Local-SCGD")
        return x


def gradient_at(c: CompositionalClient, x: Tensor, b: Batch, y: Tensor, *sizes: int | None) -> Tensor:
    """J_g(x; b)ᵀ∇f(y) + ∇h(x): y stands for the inner value. f, where it has samples, and h have draws of their own."""
    slope = c.f_gradient(y) if c.problem.shared else c.f_gradient(y, c.draw(*sizes))
    return with_h(c, x, c.g_vjp(x, b, slope), *sizes)


def with_h(c: CompositionalClient, x: Tensor, direction: Tensor, *sizes: int | None) -> Tensor:
    """The direction with ∇h(x) added, where there is an h, on a draw of its own."""
    return direction if c.problem.h is None else direction + c.h_gradient(x, c.draw(*sizes))


def value_and_slope(c: CompositionalClient, x: Tensor, b: Batch, y: Tensor) -> tuple[Tensor, Tensor]:
    """g(x; b), and ∇g(x; b) from the same forward pass where g is one number, as its estimate y is; else an empty vector.

    ∇g·∇f(ȳ) is then ∇g times a number, and ∇g can wait at the client for ȳ: a forward and a backward pass less than to compute it again.
    """
    if len(y) > 1:
        return c.g(x, b), x.new_zeros(0)
    g, J = c.g_and_jacobian(x, b)
    return g, J[0]


def step_at(c: CompositionalClient, x: Tensor, slope: Tensor, y: Tensor, lr: float, batch: int | None) -> Tensor:
    """lr·[∇h(x) + ∇g(x)·∇f(y)] on the samples of the call before, whose `value_and_slope` left the slope; h has a draw after those.

    lr goes into the few numbers of ∇f(y), which spares a pass over x.
    """
    outer = lr * c.f_gradient(y)
    if slope.numel():
        if c.problem.h is not None:
            c.draw(batch)  # that of the call before, which the slope is of
        move = slope * outer
    else:
        move = c.g_vjp(x, c.draw(batch), outer)
    return move if c.problem.h is None else move + lr * c.h_gradient(x, c.draw(batch))
