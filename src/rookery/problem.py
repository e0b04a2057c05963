"""What is minimised: six kinds of problem, written as plain losses of one client's batch.

A user writes the functions under the papers' letters f, g, h; derivative oracles follow by automatic differentiation.
All vectors are flat, all functions differentiable torch code, and a mean over the batch is taken inside them.
The reductions of one kind to another stand in `rookery.reductions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from .autodiff import cross, grad, hvp, value_and_jacobian, vjp
from .data.sampling import Replacement, Sampler
from .data.store import Batch
from .errors import ProblemError
from .vector import Model

if TYPE_CHECKING:
    from .client import Client
    from .fed import Federation

Projection = Callable[[Tensor], Tensor]
Variables = dict[str, tuple[int, dict[str, Callable[..., Tensor]]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What every kind has.

    sampling:    how a client draws (`rookery.data`)
    project_x, project_y: projections onto the feasible sets; gradients are taken at projected points, and each mean is projected
    model:       the module behind the losses, if there is one: engines read from it what they may do
    stochastic:  the losses use torch's generator (dropout, augmentation); by default what the model says
    oracles:     hand-written oracles by name; each is compared with automatic differentiation on its first use
    statistics, finish: set-up sums, see `prepare`; `weighted` makes them means with the federation's weights
    """

    ORACLES: ClassVar[tuple[str, ...]] = ()

    sampling: Sampler = field(default_factory=Replacement)
    project_x: Projection | None = None
    project_y: Projection | None = None
    model: Model | None = None
    stochastic: bool | None = None
    oracles: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    statistics: Callable[[Tensor, Batch], Tensor] | None = None
    finish: Callable[[Tensor], Problem] | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        for letter in ("f", "g", "h"):
            function = getattr(self, letter, callable)
            if not callable(function) and not (letter == "h" and function is None):
                raise ProblemError(f"{letter} of a {type(self).__name__} is a function; got {type(function).__name__}")
        if self.model is not None and not isinstance(self.model, Model):
            raise ProblemError(f"a problem's model is a Model; got {type(self.model).__name__}: write Model(module)")
        if isinstance(self.sampling, type) or not hasattr(self.sampling, "select"):
            raise ProblemError(f"sampling is a sampler of rookery.data, such as Shuffled(); got {self.sampling!r}")
        unknown = set(self.oracles) - set(self.ORACLES)
        if unknown:
            raise ProblemError(f"{type(self).__name__} has the oracles {list(self.ORACLES)}; {sorted(unknown)[0]!r} is not one of them")

    @property
    def random(self) -> bool:
        """Whether oracles must run under the generator seeded by their batch."""
        return self.stochastic if self.stochastic is not None else bool(self.model and self.model.stochastic)

    def oracle(self, name: str) -> Callable[..., Tensor]:
        """The oracle of that name, hand-written where there is one."""
        if name not in self.ORACLES:
            raise ProblemError(f"{type(self).__name__} has no oracle {name!r}; it has {', '.join(self.ORACLES)}")
        return self.oracles.get(name) or getattr(self, name)

    def variables(self, oracle: str) -> Variables:
        """For an oracle of derivatives: what they are taken in, by letter, each with its place among the arguments and with the functions
        of which one at least must depend on it. These take the oracle's arguments up to the batch."""
        return {}

    def check_oracle(self, name: str, expected: Any, result: Any) -> None:
        """Compare a hand-written oracle's result with that of automatic differentiation."""
        if isinstance(expected, tuple):
            for part, other in zip(expected, result, strict=True):
                self.check_oracle(name, part, other)
            return
        scale = expected.abs().max().clamp_min(1e-3)
        tolerance = 1e-3 if expected.dtype in (torch.float32, torch.bfloat16) else 1e-7
        if result.shape != expected.shape or not bool(((result - expected).abs() <= tolerance * scale).all()):
            raise ProblemError(f"the hand-written oracle {name!r} disagrees with automatic differentiation: shape {tuple(result.shape)} "
                               f"against {tuple(expected.shape)}, values {result.flatten()[:3].tolist()} against "
                               f"{expected.flatten()[:3].tolist()}; correct it, or leave it out of oracles=")

    def prepare(self, fed: Federation, x: Tensor) -> Problem:
        """Agree on global constants before training: sum `statistics(x, all rows)` over the clients, then `finish(sum)`.

        The sum is an ordinary exchange in the ledger's phase `setup`. The federation goes on with the finished problem.
        """
        if self.statistics is None or self.finish is None:
            return self
        with fed.phase("setup"):
            sums = fed.map(self.sums, fed.broadcast(x))
            total = fed.mean(sums) if self.weighted else fed.sum(sums)
        fed.use(self.finish(total), total)
        return fed.problem

    def sums(self, c: Client, x: Tensor) -> Tensor:
        """Client function of `prepare`."""
        assert self.statistics is not None
        return c.evaluate(self.statistics, x, c.draw())


@dataclass(frozen=True, eq=False)
class Minimization(Problem):
    """min_x mean_k E f_k(x; ξ).  f(x, batch) → scalar."""

    ORACLES: ClassVar[tuple[str, ...]] = ("value", "gradient")
    f: Callable[[Tensor, Batch], Tensor]

    def value(self, x: Tensor, b: Batch) -> Tensor:
        return self.f(x, b)

    def gradient(self, x: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.f(z, b), x)

    def variables(self, oracle: str) -> Variables:
        return {"x": (0, {"f": self.f})} if oracle == "gradient" else {}


@dataclass(frozen=True, eq=False)
class Conditional(Problem):
    """min_x mean_k E_ξ f_ξ( E_{η|ξ} g_η(x, ξ) ) + h(x).

    g(x, ξ, η) → (b, m, p) for b outer samples and m inner samples of each; f(u, ξ) → (b,) at u of shape (b, p);
    h(x) → scalar, optional. `gradient` is that of the empirical nested objective: biased, by O(1/m) for smooth f.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("value", "gradient")
    f: Callable[[Tensor, Batch], Tensor]
    g: Callable[[Tensor, Batch, Batch], Tensor]
    h: Callable[[Tensor], Tensor] | None = None

    def value(self, x: Tensor, b: Batch) -> Tensor:
        if b.inner is None:
            raise ProblemError("a conditional problem needs conditional samples: give it sampling=Stored(...), PerTask(...) or Normal(...)")
        inner = self.g(x, b, b.inner)
        if inner.dim() != 3:
            raise ProblemError("g must return (outer, inner, p) values, one row for each pair of samples; "
                               f"it returned {tuple(inner.shape)}")
        value = self.f(inner.mean(1), b).mean()
        return value if self.h is None else value + self.h(x)

    def gradient(self, x: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.value(z, b), x)

    def variables(self, oracle: str) -> Variables:
        return {"x": (0, {"the objective": self.value})} if oracle == "gradient" else {}


def flat(value: Tensor) -> Tensor:
    """An inner value, refused where it is not one vector."""
    if value.dim() != 1:
        raise ProblemError(f"the inner map g returns one flat vector; it returned shape {tuple(value.shape)}: write .reshape(-1)")
    return value


@dataclass(frozen=True, eq=False)
class Compositional(Problem):
    """min_x h(x) + f(g(x)), h = mean_k E h_k.

    `shared=True`: g = mean_k E g_k(x; ζ) and f(z) is known to all. `shared=False`: mean_k f_k(g_k(x)), with f(z, batch).
    g(x, batch) → (d_g,), f → scalar, h(x, batch) → scalar, optional.
    `g_and_jacobian` is the pair g(x), J_g(x). `own_gradient` is ∇[h + f∘g] with g of this one batch: biased, and at one
    client of a shared inner map the gradient of another function.
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("g", "g_vjp", "g_and_jacobian", "f_value", "f_gradient", "h_value", "h_gradient",
                                          "own_gradient")
    f: Callable[..., Tensor]
    g: Callable[[Tensor, Batch], Tensor]
    h: Callable[[Tensor, Batch], Tensor] | None = None
    shared: bool = True

    def oracle(self, name: str) -> Callable[..., Tensor]:
        oracle = super().oracle(name)
        return oracle if name != "g" else lambda x, b: flat(oracle(x, b))

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        return vjp(lambda z: self.g(z, b), x, v)

    def g_and_jacobian(self, x: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        return value_and_jacobian(lambda z: flat(self.g(z, b)), x)

    def f_value(self, z: Tensor, b: Batch | None = None) -> Tensor:
        return self.f(z) if self.shared else self.f(z, b)

    def f_gradient(self, z: Tensor, b: Batch | None = None) -> Tensor:
        return grad(lambda u: self.f_value(u, b), z)

    def h_value(self, x: Tensor, b: Batch) -> Tensor:
        return torch.zeros((), dtype=x.dtype, device=x.device) if self.h is None else self.h(x, b)

    def h_gradient(self, x: Tensor, b: Batch) -> Tensor:
        return torch.zeros_like(x) if self.h is None else grad(lambda z: self.h_value(z, b), x)

    def own_gradient(self, x: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.f_value(self.g(z, b), b) + self.h_value(z, b), x)

    def variables(self, oracle: str) -> Variables:
        if oracle not in ("g_vjp", "g_and_jacobian", "h_gradient", "own_gradient"):
            return {}
        functions: dict[str, Callable[..., Tensor]] = {"g": self.g} if self.h is None else {"h": self.h, "g": self.g}
        return {"x": (0, functions)}


@dataclass(frozen=True, eq=False)
class Minimax(Problem):
    """min_x max_y mean_k E f_k(x, y; ξ).  f(x, y, batch) → scalar."""

    ORACLES: ClassVar[tuple[str, ...]] = ("f", "f_x", "f_y")
    f: Callable[[Tensor, Tensor, Batch], Tensor]

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.f(z, y, b), x)

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.f(x, z, b), y)

    def variables(self, oracle: str) -> Variables:
        return {letter: ("xy".index(letter), {"f": self.f}) for letter in oracle[2:]}


@dataclass(frozen=True, eq=False)
class CompositionalMinimax(Problem):
    """min_x max_y mean_k f_k( mean_j g_j(x), y ).  g(x, batch) → (d_g,), f(z, y, batch) → scalar."""

    ORACLES: ClassVar[tuple[str, ...]] = ("g", "g_vjp", "f", "f_z", "f_y")
    f: Callable[[Tensor, Tensor, Batch], Tensor]
    g: Callable[[Tensor, Batch], Tensor]

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        return vjp(lambda z: self.g(z, b), x, v)

    def f_z(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda u: self.f(u, y, b), z)

    def f_y(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda u: self.f(z, u, b), y)

    def variables(self, oracle: str) -> Variables:
        if oracle == "g_vjp":
            return {"x": (0, {"g": self.g})}
        return {letter: ("zy".index(letter), {"f": self.f}) for letter in oracle[2:]}


@dataclass(frozen=True, eq=False)
class Bilevel(Problem):
    """min_x mean_k f_k(x, y*(x)),  y*(x) = argmin_y mean_k g_k(x, y).  f, g(x, y, batch) → scalar.

    `inverse` says what stands for [∇²yy g]⁻¹ in the hypergradient: `series`, an approximation; `identity`, exactly I
    (an embedded composition); `none`, no indirect term at all (an embedded minimax or plain problem).
    """

    ORACLES: ClassVar[tuple[str, ...]] = ("f", "f_x", "f_y", "g", "g_y", "g_yy", "g_xy")
    f: Callable[[Tensor, Tensor, Batch], Tensor]
    g: Callable[[Tensor, Tensor, Batch], Tensor]
    inverse: Literal["series", "identity", "none"] = "series"
    inner: bool = True  # whether there is an inner problem at all

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.f(z, y, b), x)

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.f(x, z, b), y)

    def g_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return grad(lambda z: self.g(x, z, b), y)

    def g_yy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """∇²yy g · v"""
        return hvp(lambda z: self.g(x, z, b), y, v)

    def g_xy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """∇²xy g · v, a vector of x's length"""
        return cross(lambda z, w: self.g(z, w, b), x, y, v)

    def variables(self, oracle: str) -> Variables:
        both = {"f": self.f, "g": self.g} if oracle[0] == "f" else {"g": self.g, "f": self.f}
        return {letter: ("xy".index(letter), both) for letter in oracle[2:]}
