"""Compositions on one machine, SCGD and NASA: twins, identities, the laws that say nothing of other clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import known_compositional as problems
import numpy as np
import pytest
import twins_compositional as twins
from known_compositional import ON_BATCHES, different, recorded, run, same, shared_functions

from rookery import MBSGD, NASA, SCGD, Compositional, Federation, LocalSCGD, LocalSCGDM, box

LR, Q, ROUNDS = 0.1, 3, 10


@pytest.mark.parametrize("projected", [False, True])
def test_one_machine_twins_on_the_samples_that_were_drawn(projected: bool) -> None:
    k = problems.one_client()
    low, high = (-0.2, 0.4) if projected else (-1e9, 1e9)
    clip: dict[str, Any] = {"project": lambda x: np.clip(x, low, high)} if projected else {}
    g, jac, f, h = ON_BATCHES
    start = np.clip(k.x0.numpy(), low, high)  # a starting point is projected
    fed, sampling = recorded(k, project_x=box(low, high))
    ours = run(SCGD(LR, 0.3, 1, 3), fed, k.x0)
    first, *rest = sampling.__dict__["drawn"]
    arguments = (*ON_BATCHES, list(zip(rest[::2], rest[1::2], strict=True)), start, g(start, first), LR, 0.3)
    same(ours, twins.scgd(*arguments, **clip))
    if not projected:
        different(ours, twins.broken_scgd(*arguments))

    fed, sampling = recorded(k, project_x=box(low, high))
    ours = run(NASA(0.5, 0.4, 1.2, 0.8, 1, 3), fed, k.x0)
    first, second, *rest = sampling.__dict__["drawn"]
    u = g(start, first)
    z = jac(start, first).T @ f(u) + h(start, second)
    arguments = (*ON_BATCHES, list(zip(rest[::2], rest[1::2], strict=True)), start, z, u, 1 / 0.5, 0.4, 1.2, 0.8)
    same(ours, twins.nasa(*arguments, **clip))
    if not projected:
        different(ours, twins.broken_nasa(*arguments))


@pytest.mark.parametrize("full", [True, False])
def test_scgd_with_beta_one_is_sgd_on_the_composition(full: bool) -> None:
    k = problems.one_client()
    p = k.problem
    assert isinstance(p, Compositional)
    k = replace(k, problem=Compositional(p.f, p.g))  # without h: one draw a step
    batch = None if full else 3
    fed = Federation(k.problem, k.data)
    algorithm, sgd = MBSGD(LR, batch), []
    state = algorithm.init(fed, k.x0)
    for t in range(ROUNDS):
        fed.counters["train"] = t + 1  # SCGD's first call starts y
        state = algorithm.round(fed, state)
        sgd.append(state.x.numpy())
    same(run(SCGD(LR, 1.0, 1, batch), Federation(k.problem, k.data), k.x0), sgd)
    different(run(SCGD(LR, 0.3, 1, batch), Federation(k.problem, k.data), k.x0), sgd)


def test_local_scgd_of_one_client_is_scgd_and_without_momentum_so_is_local_scgdm() -> None:
    k = problems.one_client()
    theirs = run(SCGD(LR, 0.3, Q, 2), Federation(k.problem, k.data), k.x0)
    same(run(LocalSCGD(LR, Q, 2, tracking=0.3), Federation(k.problem, k.data), k.x0), theirs)
    same(run(LocalSCGDM(LR, Q, 2, tracking=0.3, beta=1.0), Federation(k.problem, k.data), k.x0), theirs)


def test_nasa_with_full_weights_is_gradient_descent_along_the_last_gradient() -> None:
    """At tau = a = b = 1 with full batches: x_{k+1} = x_k − lr·z_k, z_k = J(x_k)ᵀ∇f(g(x_{k−1})) + ∇h(x_k)."""
    k = problems.one_client()
    g, jac, f, h = (functions[0] for functions in shared_functions(k))
    x = before = k.x0.numpy()
    theirs = []
    for _ in range(ROUNDS):
        before, x = x, x - LR * (jac(x).T @ f(g(before)) + h(x))
        theirs.append(x)
    same(run(NASA(LR, 1.0), Federation(k.problem, k.data), k.x0), theirs)
