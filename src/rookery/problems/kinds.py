"""What is minimised: six kinds of problem, written as plain losses of one client's batch.

A user writes the functions under the papers' letters f, g, h; derivative oracles follow by automatic differentiation.
All vectors are flat, all functions differentiable torch code, and a mean over the batch is taken inside them.
Pairs of rows have a kind of their own in `pairwise`; the reductions of one kind to another stand in `reductions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from .autodiff import cross, grad, gradients, hvp, pullback, value_and_jacobian, vjp
from .base import Problem, Variables


@dataclass(frozen=True, eq=False)
class Minimization(Problem):
    """A plain minimisation, min_x mean_k E f_k(x; ξ).

    f(x, batch) → scalar, the mean loss of the batch.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("value", "gradient")
    f: Callable[[Tensor, Batch], Tensor]

    def value(self, x: Tensor, b: Batch) -> Tensor:
        """The mean loss f(x) of the batch."""
        return self.f(x, b)

    def gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient ∇f(x) of the batch's mean loss."""
        return grad(lambda z: self.f(z, b), x)

    def variables(self, oracle: str) -> Variables:
        return {"x": (0, {"f": self.f})} if oracle == "gradient" else {}


@dataclass(frozen=True, eq=False)
class Conditional(Problem):
    """An expectation inside a nonlinear function, min_x mean_k E_ξ f_ξ( E_{η|ξ} g_η(x, ξ) ) + h(x).

    g(x, ξ, η) → (b, m, p) for b outer samples and m inner samples of each, or (b, 1, p) where g takes their mean itself; f(u, ξ) → (b,)
    at u of shape (b, p); h(x) → scalar, optional. `gradient` is that of the empirical nested objective: biased, by O(1/m) for smooth f.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("value", "gradient", "g_mean", "g_vjp", "g_pullback", "f_slopes", "h_gradient")
    PAIRS: ClassVar[Mapping[str, tuple[str, str]]] = {"g_pullback": ("g_mean", "g_vjp")}
    f: Callable[[Tensor, Batch], Tensor]
    g: Callable[[Tensor, Batch, Batch], Tensor]
    h: Callable[[Tensor], Tensor] | None = None

    def value(self, x: Tensor, b: Batch) -> Tensor:
        """The empirical nested objective, with the mean over the inner samples inside f."""
        value = self.f(self.g_mean(x, b), b).mean()
        return value if self.h is None else value + self.h(x)

    def gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient of the empirical nested objective in x."""
        return grad(lambda z: self.value(z, b), x)

    def g_mean(self, x: Tensor, b: Batch) -> Tensor:
        """The inner values u of shape (b, p), a mean over the inner samples for each outer one."""
        if b.inner is None:
            raise ProblemError("a conditional problem needs conditional samples: give it sampling=Stored(...), PerTask(...) or Normal(...)")
        inner = self.g(x, b, b.inner)
        if inner.dim() != 3:
            raise ProblemError("g must return (outer, inner, p) values, one row for each pair of samples; "
                               f"it returned {tuple(inner.shape)}")
        return inner.mean(1)

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The sum Σ_i J_i(x)ᵀv_i over the outer samples, for v of the inner values' shape (b, p)."""
        return vjp(lambda z: self.g_mean(z, b), x, v)

    def g_pullback(self, x: Tensor, b: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The inner values u of shape (b, p), and the function v ↦ Σ_i J_i(x)ᵀv_i of the same forward pass, to be called once."""
        return pullback(lambda z: self.g_mean(z, b), x)

    def f_slopes(self, u: Tensor, b: Batch) -> Tensor:
        """The gradient of mean_i f_i(u_i) in u, of shape (b, p): at u = `g_mean`, its pull-back plus ∇h is `gradient`."""
        return grad(lambda z: self.f(z, b).mean(), u)

    def h_gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient ∇h(x) of the plain term, 0 where there is none."""
        h = self.h
        return torch.zeros_like(x) if h is None else grad(h, x)

    def variables(self, oracle: str) -> Variables:
        # also for the parts: g may be free of x where h is not
        return {"x": (0, {"the objective": self.value})} if oracle in ("gradient", "g_vjp", "g_pullback") else {}


def _letters(oracle: str, both: str) -> str:
    """The variables that an oracle's derivatives are taken in, from its name."""
    return both if oracle == "f_gradients" else oracle[2:]


def flat(value: Tensor) -> Tensor:
    """An inner value, refused where it is not one vector."""
    if value.dim() != 1:
        raise ProblemError(f"the inner map g returns one flat vector; it returned shape {tuple(value.shape)}: write .reshape(-1)")
    return value


@dataclass(frozen=True, eq=False)
class Compositional(Problem):
    """A composition with the inner map g, min_x h(x) + f(g(x)), h = mean_k E h_k.

    `shared=True`: g = mean_k E g_k(x; ζ) and f(z) is known to all. `shared=False`: mean_k f_k(g_k(x)), with f(z, batch).
    g(x, batch) → (d_g,), f → scalar, h(x, batch) → scalar, optional.
    `g_and_jacobian` is the pair g(x), J_g(x). `plug_in_gradient` is ∇[h + f∘g] with g of this one batch: biased, and at one
    client of a shared inner map the gradient of another function.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("g", "g_vjp", "g_and_jacobian", "f_value", "f_gradient", "h_value", "h_gradient",
                                          "plug_in_gradient")
    f: Callable[..., Tensor]
    g: Callable[[Tensor, Batch], Tensor]
    h: Callable[[Tensor, Batch], Tensor] | None = None
    shared: bool = True

    def oracle(self, name: str) -> Callable[..., Tensor]:
        oracle = super().oracle(name)
        return oracle if name != "g" else lambda x, b: flat(oracle(x, b))

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The product J_g(x)ᵀv, without the Jacobian itself."""
        return vjp(lambda z: self.g(z, b), x, v)

    def g_and_jacobian(self, x: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """The inner value g(x) and its Jacobian J_g(x), from one forward pass and d_g backward ones."""
        return value_and_jacobian(lambda z: flat(self.g(z, b)), x)

    def f_value(self, z: Tensor, b: Batch | None = None) -> Tensor:
        """The outer value f(z); it takes a batch where `shared` is False."""
        return self.f(z) if self.shared else self.f(z, b)

    def f_gradient(self, z: Tensor, b: Batch | None = None) -> Tensor:
        """The gradient ∇f(z) of the outer function."""
        return grad(lambda u: self.f_value(u, b), z)

    def h_value(self, x: Tensor, b: Batch) -> Tensor:
        """The plain term h(x), 0 where there is none."""
        return torch.zeros((), dtype=x.dtype, device=x.device) if self.h is None else self.h(x, b)

    def h_gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient ∇h(x) of the plain term, 0 where there is none."""
        return torch.zeros_like(x) if self.h is None else grad(lambda z: self.h_value(z, b), x)

    def plug_in_gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient of h + f∘g in x with g of this one batch: biased."""
        return grad(lambda z: self.f_value(self.g(z, b), b) + self.h_value(z, b), x)

    def variables(self, oracle: str) -> Variables:
        if oracle not in ("g_vjp", "g_and_jacobian", "h_gradient", "plug_in_gradient"):
            return {}
        functions: dict[str, Callable[..., Tensor]] = {"g": self.g} if self.h is None else {"h": self.h, "g": self.g}
        return {"x": (0, functions)}


@dataclass(frozen=True, eq=False)
class Minimax(Problem):
    """A minimax problem, min_x max_y mean_k E f_k(x, y; ξ).

    f(x, y, batch) → scalar, the mean loss of the batch.
    `best_y`, where argmax_y f(x, y) is known: numbers of a batch, (x, batch) → vector, and the function from their mean over the clients,
    or a multiple of it, to that y.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("f", "f_x", "f_y", "f_gradients")
    PAIRS: ClassVar[Mapping[str, tuple[str, str]]] = {"f_gradients": ("f_x", "f_y")}
    f: Callable[[Tensor, Tensor, Batch], Tensor]
    best_y: tuple[Callable[[Tensor, Batch], Tensor], Callable[[Tensor], Tensor]] | None = None

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in x."""
        return grad(lambda z: self.f(z, y, b), x)

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in y."""
        return grad(lambda z: self.f(x, z, b), y)

    def f_gradients(self, x: Tensor, y: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """The gradients of f in x and in y, from one pass."""
        return gradients(lambda z, w: self.f(z, w, b), x, y)

    def variables(self, oracle: str) -> Variables:
        return {letter: ("xy".index(letter), {"f": self.f}) for letter in _letters(oracle, "xy")}


@dataclass(frozen=True, eq=False)
class CompositionalMinimax(Problem):
    """A composition in a minimax problem, min_x max_y mean_k f_k( mean_j g_j(x), y ).

    g(x, batch) → (d_g,), f(z, y, batch) → scalar.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("g", "g_vjp", "g_pullback", "f", "f_z", "f_y", "f_gradients")
    PAIRS: ClassVar[Mapping[str, tuple[str, str]]] = {"g_pullback": ("g", "g_vjp"), "f_gradients": ("f_z", "f_y")}
    f: Callable[[Tensor, Tensor, Batch], Tensor]
    g: Callable[[Tensor, Batch], Tensor]

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The product J_g(x)ᵀv, without the Jacobian itself."""
        return vjp(lambda z: self.g(z, b), x, v)

    def g_pullback(self, x: Tensor, b: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The inner value g(x), and the function v ↦ J_g(x)ᵀv of the same forward pass, to be called once."""
        return pullback(lambda z: flat(self.g(z, b)), x)

    def f_z(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in the inner value z."""
        return grad(lambda u: self.f(u, y, b), z)

    def f_y(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in y."""
        return grad(lambda u: self.f(z, u, b), y)

    def f_gradients(self, z: Tensor, y: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """The gradients of f in the inner value z and in y, from one pass."""
        return gradients(lambda u, w: self.f(u, w, b), z, y)

    def variables(self, oracle: str) -> Variables:
        if oracle in ("g_vjp", "g_pullback"):
            return {"x": (0, {"g": self.g})}
        return {letter: ("zy".index(letter), {"f": self.f}) for letter in _letters(oracle, "zy")}


@dataclass(frozen=True, eq=False)
class Bilevel(Problem):
    """An optimisation inside an optimisation, min_x mean_k f_k(x, y*(x)),  y*(x) = argmin_y mean_k g_k(x, y).

    f, g(x, y, batch) → scalar.
    `inverse` says what stands for [∇²yy g]⁻¹ in the hypergradient: `series`, an approximation; `identity`, exactly I
    (an embedded composition); `none`, no indirect term at all (an embedded minimax or plain problem).
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("f", "f_x", "f_y", "g", "g_y", "g_yy", "g_xy")
    f: Callable[[Tensor, Tensor, Batch], Tensor]
    g: Callable[[Tensor, Tensor, Batch], Tensor]
    inverse: Literal["series", "identity", "none"] = "series"
    inner: bool = True  # whether there is an inner problem at all

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of the outer loss in x, with y held fixed."""
        return grad(lambda z: self.f(z, y, b), x)

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of the outer loss in y."""
        return grad(lambda z: self.f(x, z, b), y)

    def g_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of the inner loss in y."""
        return grad(lambda z: self.g(x, z, b), y)

    def g_yy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The Hessian of g in y times a vector, ∇²yy g·v."""
        return hvp(lambda z: self.g(x, z, b), y, v)

    def g_xy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The mixed second derivative of g times a vector of y's length, ∇²xy g·v: a vector of x's length."""
        return cross(lambda z, w: self.g(z, w, b), x, y, v)

    def variables(self, oracle: str) -> Variables:
        both = {"f": self.f, "g": self.g} if oracle[0] == "f" else {"g": self.g, "f": self.f}
        return {letter: ("xy".index(letter), both) for letter in oracle[2:]}
