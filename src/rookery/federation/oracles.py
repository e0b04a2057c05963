"""What a client function may ask its client for: one protocol for all problems, and one for each kind with the oracles of that kind.

A client function says by its annotation which kind of problem it is for, and a type checker refuses an oracle that this kind does not have:

    def step(self, c: MinimizationClient, x: Tensor, lr: float) -> Tensor:
        return x - lr * c.gradient(x, c.draw(self.batch))

A kind of one's own, with `ORACLES` of its own, has a protocol of its own beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ..data.store import Batch
from ..problems.base import Problem
from ..problems.kinds import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization
from .noise import Kind


class Client(Protocol):
    """One client, as its functions see it, whatever the kind of problem."""

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
    """A client of a `Minimization`."""

    @property
    def problem(self) -> Minimization: ...

    def value(self, x: Tensor, b: Batch) -> Tensor: ...

    def gradient(self, x: Tensor, b: Batch) -> Tensor: ...


class ConditionalClient(Client, Protocol):
    """A client of a `Conditional` problem; the gradient is that of the empirical nested objective."""

    @property
    def problem(self) -> Conditional: ...

    def value(self, x: Tensor, b: Batch) -> Tensor: ...

    def gradient(self, x: Tensor, b: Batch) -> Tensor: ...


class CompositionalClient(Client, Protocol):
    """A client of a `Compositional` problem."""

    @property
    def problem(self) -> Compositional: ...

    def g(self, x: Tensor, b: Batch) -> Tensor: ...

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor: ...

    def g_and_jacobian(self, x: Tensor, b: Batch) -> tuple[Tensor, Tensor]: ...

    def f_value(self, z: Tensor, b: Batch | None = None) -> Tensor: ...

    def f_gradient(self, z: Tensor, b: Batch | None = None) -> Tensor: ...

    def h_value(self, x: Tensor, b: Batch) -> Tensor: ...

    def h_gradient(self, x: Tensor, b: Batch) -> Tensor: ...

    def plug_in_gradient(self, x: Tensor, b: Batch) -> Tensor: ...


class MinimaxClient(Client, Protocol):
    """A client of a `Minimax` problem."""

    @property
    def problem(self) -> Minimax: ...

    def f(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...


class CompositionalMinimaxClient(Client, Protocol):
    """A client of a `CompositionalMinimax` problem."""

    @property
    def problem(self) -> CompositionalMinimax: ...

    def g(self, x: Tensor, b: Batch) -> Tensor: ...

    def g_vjp(self, x: Tensor, b: Batch, v: Tensor) -> Tensor: ...

    def f(self, z: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def f_z(self, z: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def f_y(self, z: Tensor, y: Tensor, b: Batch) -> Tensor: ...


class BilevelClient(Client, Protocol):
    """A client of a `Bilevel` problem."""

    @property
    def problem(self) -> Bilevel: ...

    def f(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def f_x(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def f_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def g(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def g_y(self, x: Tensor, y: Tensor, b: Batch) -> Tensor: ...

    def g_yy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """∇²yy g · v"""
        ...

    def g_xy(self, x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """∇²xy g · v, a vector of x's length"""
        ...
