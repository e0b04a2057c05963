"""Explicit reductions of one kind of problem to another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from .base import Problem
from .kinds import Bilevel, Compositional, Conditional, Minimax, Minimization


def as_bilevel(problem: Problem) -> Bilevel:
    """Embed a minimax, a shared composition or a plain minimisation in the bilevel form, so that FedNest runs on it.

    Minimax: g = −f; the indirect term vanishes at the inner solution. Compositional: g = ½‖y − g(x)‖², whose Hessian in y is I
    (the FedNest slides omit the ½). Minimization: no inner problem, y ∈ R^0.
    """
    match problem:
        case Bilevel():
            return problem
        case Minimax():
            return _and_set_up(problem, _minimax(problem))
        case Compositional(shared=True):
            return _and_set_up(problem, _compositional(problem))
        case Minimization():
            return _and_set_up(problem, _minimization(problem))
    raise ProblemError(f"{type(problem).__name__} does not embed in Bilevel; Minimax, Compositional(shared=True) and Minimization do")


def _and_set_up(p: Problem, reduced: Bilevel) -> Bilevel:
    """The set-up sums of the problem that was reduced."""
    finish = p.finish
    return reduced if finish is None else replace(reduced, statistics=p.statistics, weighted=p.weighted,
                                                     finish=lambda total: as_bilevel(finish(total)))


def _minimax(p: Minimax) -> Bilevel:
    fx, fy = p.oracle("f_x"), p.oracle("f_y")
    return Bilevel(p.f, lambda x, y, b: -p.f(x, y, b), inverse="none", **_common(p),
                   oracles={"f_x": fx, "f_y": fy, "g_y": lambda x, y, b: -fy(x, y, b)})


def _compositional(p: Compositional) -> Bilevel:
    r, pull, slope, plain = p.oracle("g"), p.oracle("g_vjp"), p.oracle("f_gradient"), p.oracle("h_gradient")

    def f(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return p.f_value(y) + p.h_value(x, b)

    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        return 0.5 * (y - p.g(x, b)).square().sum()

    return Bilevel(f, g, inverse="identity", **_common(p), oracles={
        "f_x": lambda x, y, b: plain(x, b), "f_y": lambda x, y, b: slope(y), "g_y": lambda x, y, b: y - r(x, b),
        "g_yy": lambda x, y, b, v: v.clone(), "g_xy": lambda x, y, b, v: -pull(x, b, v)})


def _minimization(p: Minimization) -> Bilevel:
    gradient = p.oracle("gradient")
    return Bilevel(lambda x, y, b: p.f(x, b), lambda x, y, b: torch.zeros((), dtype=x.dtype), inverse="none", inner=False, **_common(p),
                   oracles={"f_x": lambda x, y, b: gradient(x, b)})


def conditional_as_compositional(p: Conditional) -> Compositional:
    """A conditional problem whose inner samples and g do not depend on ξ, as a composition with a local inner map.

    That is how methods that track one inner value (Local-SCGD) are run on it; where g does depend on ξ this is another problem.
    """
    def g(x: Tensor, b: Batch) -> Tensor:
        if b.inner is None:
            raise ProblemError("the reduced problem draws conditional samples: call c.draw(outer, inner)")
        return p.g(x, b, b.inner).mean((0, 1))

    def f(z: Tensor, b: Batch) -> Tensor:
        rows = len(next(iter(b.fields.values())))
        return p.f(z.expand(rows, len(z)), b).mean()

    h = p.h
    return Compositional(f, g, None if h is None else (lambda x, b: h(x)), shared=False, **_common(p))


def _common(p: Problem) -> dict[str, Any]:
    """What a reduction hands on unchanged."""
    return {"sampling": p.sampling, "project_x": p.project_x, "project_y": p.project_y, "model": p.model, "stochastic": p.stochastic}
