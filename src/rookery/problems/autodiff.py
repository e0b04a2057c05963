"""Derivatives of plain functions of a flat vector, in two evaluations behind one name.

Eager (`torch.autograd.grad`) costs what an ordinary training step costs; functional (`torch.func.grad`) is the one
that vectorises over clients. Engines choose; oracles and user losses call `grad` and `vjp` and need not know.
Both nest: `grad` inside a function that is itself differentiated gives the second derivative.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import ProblemError

_functional: ContextVar[bool] = ContextVar("functional", default=False)
_depth: ContextVar[int] = ContextVar("depth", default=0)  # of derivatives around this place, in the eager evaluation


@contextmanager
def functional() -> Iterator[None]:
    """Inside, derivatives are taken with `torch.func`, so that they may stand under `vmap`."""
    token = _functional.set(True)
    try:
        yield
    finally:
        _functional.reset(token)


def vjp(fn: Callable[[Tensor], Tensor], x: Tensor, v: Tensor | None) -> Tensor:
    """J(x)ᵀv for fn: R^d → R^p, never forming J; `v=None` stands for 1 and a scalar `fn`.

    >>> vjp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    tensor([2., 4.])
    """
    if _functional.get():
        value, pull = torch.func.vjp(fn, x)[:2]
        return pull(torch.ones_like(_scalar(value)) if v is None else v)[0]  # type: ignore[no-any-return]
    nested, leaf = _leaf(x)
    token = _depth.set(_depth.get() + 1)
    try:
        with torch.enable_grad():
            value = fn(leaf)
            if v is None:
                _scalar(value)
            if not value.requires_grad:
                return torch.zeros_like(x)
            (gradient,) = torch.autograd.grad(value, leaf, v, create_graph=nested, materialize_grads=True)
    finally:
        _depth.reset(token)
    return gradient


def value_and_jacobian(fn: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """fn(x) and J(x), p × d, for fn: R^d → R^p: one forward pass and p backward ones.

    >>> value_and_jacobian(lambda x: (x * x).sum().reshape(1), torch.tensor([1.0, 2.0]))
    (tensor([5.]), tensor([[2., 4.]]))
    """
    if _functional.get():
        value, pull = torch.func.vjp(fn, x)[:2]
        units = torch.ones_like(value)[None] if len(value) == 1 else torch.eye(len(value), dtype=value.dtype, device=value.device)
        return value, _stack([pull(unit)[0] for unit in units])
    nested, leaf = _leaf(x)
    token = _depth.set(_depth.get() + 1)
    try:
        with torch.enable_grad():
            value = fn(leaf)
            if not value.requires_grad:
                return value, x.new_zeros(len(value), len(x))
            rows = [torch.autograd.grad(v, leaf, retain_graph=True, create_graph=nested, materialize_grads=True)[0] for v in value]
            return value if nested else value.detach(), _stack(rows)
    finally:
        _depth.reset(token)


def pullback(fn: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """fn(x), and the function v ↦ J(x)ᵀv of the same forward pass, to be called once: v may depend on fn(x).

    >>> value, pull = pullback(lambda x: x * x, torch.tensor([1.0, 2.0]))
    >>> value, pull(value)
    (tensor([1., 4.]), tensor([ 2., 16.]))
    """
    if _functional.get():
        value, back = torch.func.vjp(fn, x)[:2]
        return value, lambda v: back(v)[0]  # type: ignore[no-any-return]
    nested, leaf = _leaf(x)
    token = _depth.set(_depth.get() + 1)
    try:
        with torch.enable_grad():
            value = fn(leaf)
    finally:
        _depth.reset(token)

    def pull(v: Tensor) -> Tensor:
        if not value.requires_grad:
            return torch.zeros_like(x)
        return torch.autograd.grad(value, leaf, v, create_graph=nested, materialize_grads=True)[0]

    return value if nested else value.detach(), pull


def gradients(fn: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a scalar function in both of its variables, from one forward and one backward pass.

    >>> gradients(lambda x, y: (x * y * y).sum(), torch.tensor([3.0]), torch.tensor([2.0]))
    (tensor([4.]), tensor([12.]))
    """
    if _functional.get():
        value, back = torch.func.vjp(fn, x, y)[:2]
        return back(torch.ones_like(_scalar(value)))  # type: ignore[no-any-return]
    (nested, first), (_, second) = _leaf(x), _leaf(y)
    token = _depth.set(_depth.get() + 1)
    try:
        with torch.enable_grad():
            value = _scalar(fn(first, second))
            if not value.requires_grad:
                return torch.zeros_like(x), torch.zeros_like(y)
            return torch.autograd.grad(value, (first, second), create_graph=nested, materialize_grads=True)  # type: ignore[return-value]
    finally:
        _depth.reset(token)


def _leaf(x: Tensor) -> tuple[bool, Tensor]:
    """Whether this derivative stands inside another one, and the variable it is taken in.

    Inside another derivative everything keeps its graph, also a derivative in something that does not depend on the outer variable.
    The variable is an alias of x of its own: what the function captured of x is a constant of this derivative.
    """
    nested = _depth.get() > 0 and torch.is_grad_enabled()
    return nested, x.view_as(x) if nested and x.requires_grad else x.detach().requires_grad_()


def _stack(rows: list[Tensor]) -> Tensor:
    return rows[0][None] if len(rows) == 1 else torch.stack(rows)  # a single row, which may be long, is not copied


def _scalar(value: Tensor) -> Tensor:
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ProblemError(f"a function whose gradient is taken must return one number as a tensor; it returned {what}: "
                           "take a mean over the batch")
    return value


def grad(fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """∇fn(x) of a scalar function.

    >>> grad(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]))
    tensor([ 3., 12.])
    """
    return vjp(fn, x, None)


def for_each(fn: Callable[..., Tensor], *stacked: Any) -> Tensor:
    """fn of every slice along the first axis, stacked: one after the other, or where derivatives are functional as one graph.

    stacked: tensors, or dicts of tensors, with one first axis

    >>> for_each(lambda a, b: a * b["of"], torch.tensor([1.0, 2.0]), {"of": torch.tensor([3.0, 4.0])})
    tensor([3., 8.])
    """
    if _functional.get():
        found: Tensor = torch.func.vmap(fn, randomness="different")(*stacked)
        return found
    number = len(next(iter(stacked[0].values())) if isinstance(stacked[0], dict) else stacked[0])
    parts = [[{name: column[i] for name, column in s.items()} if isinstance(s, dict) else s[i] for s in stacked] for i in range(number)]
    return torch.stack([fn(*part) for part in parts])


@cache
def _load_forward_rules() -> None:
    """What torch loads with the first forward derivative, here without its warning about its own means."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch._decomp.decompositions_for_jvp  # noqa: F401


def jvp(fn: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """fn(x) and J(x)v for fn: R^d → R^p, in one forward pass.

    >>> jvp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    _load_forward_rules()
    try:
        if _functional.get():
            return torch.func.jvp(fn, (x,), (v,))  # type: ignore[return-value]
        with forward_ad.dual_level():
            value, tangent = forward_ad.unpack_dual(fn(forward_ad.make_dual(x, v)))  # type: ignore[no-untyped-call]
            return value, torch.zeros_like(value) if tangent is None else tangent
    except NotImplementedError:  # an operation without a forward derivative: J(x)v is the gradient of Jᵀu·v in u
        value = fn(x)
        return value, grad(lambda u: torch.dot(vjp(fn, x, u), v), torch.zeros_like(value))


def hvp(fn: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> Tensor:
    """∇²fn(x)·v without a Hessian: by differentiating ∇fn(x)·v, or in a graph, where it is cheaper, ∇fn along v.

    >>> hvp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]))
    tensor([ 6., 12.])
    """
    if _functional.get():
        _load_forward_rules()
        try:
            return torch.func.jvp(lambda z: grad(fn, z), (x,), (v,))[1]  # type: ignore[no-any-return]
        except NotImplementedError:  # an operation without a forward derivative
            pass
    return grad(lambda z: torch.dot(grad(fn, z), v), x)


def cross(fn: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """∇²xy fn(x, y)·v, the gradient in x of ∇y fn(x, y)·v.

    >>> cross(lambda x, y: (x * y).sum(), torch.ones(2), torch.ones(2), torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return grad(lambda z: torch.dot(grad(lambda w: fn(z, w), y), v), x)
