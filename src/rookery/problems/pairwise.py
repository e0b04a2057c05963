"""Risks of pairs of rows, whose two rows may be at two clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..data.store import Batch
from .autodiff import grad, gradients, pullback, vjp
from .base import Problem, Variables
from .kinds import flat


def _identity(u: Tensor) -> Tensor:
    return u


@dataclass(frozen=True, eq=False)
class Pairwise(Problem):
    """A risk of pairs of rows, min_x E_{z⁺} f( E_{z⁻} ℓ(s(x; z⁺), s(x; z⁻)) ), over positives z⁺ and negatives z⁻ of all clients.

    s(x, batch) → one score a row; ℓ(s, t) → element by element, of a positive's and a negative's score; f(u) → element by element, the
    identity unless it is given. Positives are the rows with `label` > 0, and `share` is theirs among all rows, which the clients agree
    on. Pairs of rows of two clients count as all others do, and that is what makes the problem one of its own: no client can compute
    its part of the gradient alone.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("s", "s_vjp", "s_pullback", "pair_losses", "pair_slopes", "f_slope")
    PAIRS: ClassVar[Mapping[str, tuple[str, str]]] = {"s_pullback": ("s", "s_vjp")}
    s: Callable[[Tensor, Batch], Tensor]
    ell: Callable[[Tensor, Tensor], Tensor]
    f: Callable[[Tensor], Tensor] = _identity
    label: str = "labels"
    share: float | None = None

    def s_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The sum Σ_i v_i ∇s(x; z_i) over the rows."""
        return vjp(lambda z: self.s(z, b), x, v)

    def s_pullback(self, x: Tensor, b: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The rows' scores, and the function v ↦ Σ_i v_i ∇s(x; z_i) of the same forward pass, to be called once."""
        return pullback(lambda z: flat(self.s(z, b)), x)

    def pair_losses(self, s: Tensor, t: Tensor) -> Tensor:
        """The losses ℓ(s_i, t_j) of all pairs of a score in s and one in t."""
        return self.ell(s[:, None], t[None, :])

    def pair_slopes(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of ℓ(s_i, t_j) in s_i and in t_j, for all pairs."""
        pairs = s.shape + t.shape
        return gradients(lambda a, c: self.ell(a, c).sum(), s[:, None].expand(pairs).contiguous(), t[None, :].expand(pairs).contiguous())

    def f_slope(self, u: Tensor) -> Tensor:
        """The derivative of f at each of some inner values."""
        return grad(lambda z: self.f(z).sum(), u)

    def variables(self, oracle: str) -> Variables:
        return {"x": (0, {"s": self.s})} if oracle in ("s_vjp", "s_pullback") else {}
