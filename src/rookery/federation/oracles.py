"""What a client function may ask its client for: one protocol for all problems, and one for each kind with the oracles of that kind.

A client function says by its annotation which kind of problem it is for, and a type checker refuses an oracle that this kind does not have:

    def step(self, c: MinimizationClient, x: Tensor, lr: float) -> Tensor:
        return x - lr * c.gradient(x, c.draw(self.batch))

A kind of one's own, with `ORACLES` of its own, has a protocol of its own beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data.store import Batch
from ..problems.base import Problem
from ..problems.kinds import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization
from ..problems.pairwise import Pairwise
from . import rng
from .noise import Kind


class Client(Protocol):
    """One client, as its client functions see it, whatever the kind of problem."""

    @property
    def problem(self) -> Problem:
        """The problem itself, to ask what it has."""
        ...

    @property
    def steps(self) -> int:
        """How often this client repeats the function in this call: τ_i."""
        ...

    def draw(self, outer: int | None = None, inner: int | None = None) -> Batch:
        """A batch: `outer` samples (None: all rows), and `inner` conditional ones for each."""
        ...

    @property
    def min_batch(self) -> int:
        """The fewest different rows that anything may be computed from."""
        ...

    def uniform(self, keys: rng.Keys, size: int) -> NDArray[np.float64]:
        """`(keys, size)` numbers between 0 and 1 that the keys say; where a site has a secret, nobody foresees them."""
        ...

    @property
    def size(self) -> int:
        """How many rows this client has to train on."""
        ...

    def rows(self, split: str = "train") -> Batch:
        """All rows of a split ("validation", "test"), which may be none."""
        ...

    def noise(self, like: Tensor, kind: Kind = "normal") -> Tensor:
        """Random numbers of the form of `like`, of the client's own."""
        ...

    def project_x(self, x: Tensor) -> Tensor:
        """The problem's projection of x; x itself where there is none."""
        ...

    def project_y(self, y: Tensor) -> Tensor:
        """The problem's projection of y; y itself where there is none."""
        ...

    def evaluate(self, fn: Callable[..., Tensor], x: Tensor, /, *rest: Tensor | Batch) -> Tensor:
        """Any other function of a vector and a batch, run as the oracles are: under the batch's randomness, in the set precision."""
        ...


class MinimizationClient(Client, Protocol):
    """A client of a `Minimization`, with its oracles."""

    @property
    def problem(self) -> Minimization: ...

    def value(self, x: Tensor, b: Batch) -> Tensor:
        """The mean loss f(x) of the batch."""
        ...

    def gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient ∇f(x) of the batch's mean loss."""
        ...


class ConditionalClient(Client, Protocol):
    """A client of a `Conditional` problem, with its oracles; the gradient is that of the empirical nested objective."""

    @property
    def problem(self) -> Conditional: ...

    def value(self, x: Tensor, b: Batch) -> Tensor:
        """The empirical nested objective, with the mean over the inner samples inside f."""
        ...

    def gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient of the empirical nested objective in x."""
        ...

    def g_mean(self, x: Tensor, b: Batch) -> Tensor:
        """The inner values u of shape (b, p), a mean over the inner samples for each outer one."""
        ...

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The sum Σ_i J_i(x)ᵀv_i over the outer samples, for v of the inner values' shape (b, p)."""
        ...

    def g_pullback(self, x: Tensor, b: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The inner values u of shape (b, p), and the function v ↦ Σ_i J_i(x)ᵀv_i of the same forward pass, to be called once."""
        ...

    def f_slopes(self, u: Tensor, b: Batch) -> Tensor:
        """The gradient of mean_i f_i(u_i) in u, of shape (b, p): at u = `g_mean`, its pull-back plus ∇h is `gradient`."""
        ...

    def h_gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient ∇h(x) of the plain term, 0 where there is none."""
        ...


class CompositionalClient(Client, Protocol):
    """A client of a `Compositional` problem, with its oracles."""

    @property
    def problem(self) -> Compositional: ...

    def g(self, x: Tensor, b: Batch) -> Tensor:
        """The inner value g(x) of the batch."""
        ...

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The product J_g(x)ᵀv, without the Jacobian itself."""
        ...

    def g_and_jacobian(self, x: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """The inner value g(x) and its Jacobian J_g(x), from one forward pass and d_g backward ones."""
        ...

    def f_value(self, z: Tensor, b: Batch | None = None) -> Tensor:
        """The outer value f(z); it takes a batch where `shared` is False."""
        ...

    def f_gradient(self, z: Tensor, b: Batch | None = None) -> Tensor:
        """The gradient ∇f(z) of the outer function."""
        ...

    def h_value(self, x: Tensor, b: Batch) -> Tensor:
        """The plain term h(x), 0 where there is none."""
        ...

    def h_gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient ∇h(x) of the plain term, 0 where there is none."""
        ...

    def plug_in_gradient(self, x: Tensor, b: Batch) -> Tensor:
        """The gradient of h + f∘g in x with g of this one batch: biased."""
        ...


class MinimaxClient(Client, Protocol):
    """A client of a `Minimax` problem, with its oracles."""

    @property
    def problem(self) -> Minimax: ...

    def f(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The mean loss f(x, y) of the batch."""
        ...

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in x."""
        ...

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in y."""
        ...

    def f_gradients(self, x: Tensor, y: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """The gradients of f in x and in y, from one pass."""
        ...


class CompositionalMinimaxClient(Client, Protocol):
    """A client of a `CompositionalMinimax` problem, with its oracles."""

    @property
    def problem(self) -> CompositionalMinimax: ...

    def g(self, x: Tensor, b: Batch) -> Tensor:
        """The inner value g(x) of the batch."""
        ...

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The product J_g(x)ᵀv, without the Jacobian itself."""
        ...

    def g_pullback(self, x: Tensor, b: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The inner value g(x), and the function v ↦ J_g(x)ᵀv of the same forward pass, to be called once."""
        ...

    def f(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The mean loss f(z, y) of the batch at the inner value z."""
        ...

    def f_z(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in the inner value z."""
        ...

    def f_y(self, z: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of f in y."""
        ...

    def f_gradients(self, z: Tensor, y: Tensor, b: Batch) -> tuple[Tensor, Tensor]:
        """The gradients of f in the inner value z and in y, from one pass."""
        ...


class PairwiseClient(Client, Protocol):
    """A client of a `Pairwise` problem, with its oracles."""

    @property
    def problem(self) -> Pairwise: ...

    def s(self, x: Tensor, b: Batch) -> Tensor:
        """The rows' scores."""
        ...

    def s_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The sum Σ_i v_i ∇s(x; z_i) over the rows."""
        ...

    def s_pullback(self, x: Tensor, b: Batch) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The rows' scores, and the function v ↦ Σ_i v_i ∇s(x; z_i) of the same forward pass, to be called once."""
        ...

    def pair_losses(self, s: Tensor, t: Tensor) -> Tensor:
        """The losses ℓ(s_i, t_j) of all pairs of a score in s and one in t."""
        ...

    def pair_slopes(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of ℓ(s_i, t_j) in s_i and in t_j, for all pairs."""
        ...

    def f_slope(self, u: Tensor) -> Tensor:
        """The derivative of f at each of some inner values."""
        ...


class BilevelClient(Client, Protocol):
    """A client of a `Bilevel` problem, with its oracles."""

    @property
    def problem(self) -> Bilevel: ...

    def f(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The outer loss f(x, y) of the batch."""
        ...

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of the outer loss in x, with y held fixed."""
        ...

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of the outer loss in y."""
        ...

    def g(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The inner loss g(x, y) of the batch."""
        ...

    def g_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The gradient of the inner loss in y."""
        ...

    def g_yy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The Hessian of g in y times a vector, ∇²yy g·v."""
        ...

    def g_xy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """The mixed second derivative of g times a vector of y's length, ∇²xy g·v: a vector of x's length."""
        ...
