"""Each algorithm against a NumPy twin written from the paper's own lines, ten rounds, full batches, unequal clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import twins
from torch import Tensor

from rookery import (
    FCSG,
    FCSGM,
    SCAFFOLD,
    AccFCSGM,
    Conditional,
    Data,
    Epochs,
    FedAvg,
    FedDRO,
    Federation,
    FedNest,
    Minimization,
    as_bilevel,
    box,
)
from rookery.data import Stored
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem

LR, Q, ROUNDS = 0.1, 3, 10


def rows(k: TestProblem) -> list[dict[str, np.ndarray]]:
    return [{name: field.numpy() for name, field in k.data.views(i).items()} for i in range(len(k.data.names))]


def plain_gradients(k: TestProblem) -> list[Any]:
    return [lambda x, p=p: p["a"].T @ (p["a"] @ x - p["b"]) / len(p["b"]) + 0.5 * x for p in rows(k)]


def conditional_gradients(k: TestProblem) -> list[Any]:
    means = [(p["eta"].mean(1), p["b"]) for p in rows(k)]
    return [lambda x, e=e, b=b: e.T @ (e @ x - b) / len(b) + 0.5 * x for e, b in means]


def run(algorithm: Any, fed: Federation, state: Any) -> list[Any]:
    states = []
    for _ in range(ROUNDS):
        state = algorithm.round(fed, state)
        states.append(state)
    return states


def same(ours: list[Tensor], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) == ROUNDS
    np.testing.assert_allclose(torch.stack(ours).numpy(), np.asarray(theirs), rtol=1e-9, atol=1e-11)


def different(ours: list[Tensor], theirs: list[Any]) -> None:
    assert np.abs(torch.stack(ours).numpy() - np.asarray(theirs)).max() > 1e-3


def test_fedavg() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, weights="samples")
    algorithm = FedAvg(LR, Q)
    ours = [s.x for s in run(algorithm, fed, algorithm.init(fed, k.x0))]
    theirs = twins.fedavg(plain_gradients(k), k.x0.numpy(), LR, Q, ROUNDS, weights=k.data.sizes)
    same(ours, theirs)
    different(ours, twins.fedavg(plain_gradients(k), k.x0.numpy(), LR, Q, ROUNDS))  # equal weights are another algorithm


def test_fedavg_with_epochs_makes_as_many_steps_as_a_client_has_batches() -> None:
    """With the rows of a client all alike, the batch does not matter and only the number of steps is left."""
    k = known.minimization()
    alike = Data.from_parts({n: {f: v[:1].repeat(len(v), *[1] * (v.dim() - 1)) for f, v in k.data.views(i).items()}
                             for i, n in enumerate(k.data.names)})
    fed = Federation(k.problem, alike)
    algorithm = FedAvg(LR, Epochs(2), 2)
    x = algorithm.round(fed, algorithm.init(fed, k.x0)).x
    single = TestProblem(k.problem, alike, k.x_star, k.gradient)
    ends = []
    for gradient, n in zip(plain_gradients(single), alike.sizes, strict=True):
        z = k.x0.numpy()
        for _ in range(int(np.ceil(2 * n / 2))):
            z = z - LR * gradient(z)
        ends.append(z)
    np.testing.assert_allclose(x.numpy(), np.mean(ends, 0), rtol=1e-9)


def test_scaffold() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data)
    algorithm = SCAFFOLD(LR, Q, server_lr=0.7)
    same([s.x for s in run(algorithm, fed, algorithm.init(fed, k.x0))],
         twins.scaffold(plain_gradients(k), k.x0.numpy(), LR, Q, ROUNDS, server_lr=0.7))


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("name", ["fcsg", "fcsg_m", "acc_fcsg_m"])
def test_fcsg_family(name: str, projected: bool) -> None:
    k = known.conditional()
    low, high = (0.05, 0.3) if projected else (-1e9, 1e9)
    p = k.problem
    assert isinstance(p, Conditional)
    fed = Federation(Conditional(p.f, p.g, p.h, sampling=Stored("eta"), project_x=box(low, high)), k.data)
    algorithm = {"fcsg": FCSG(LR, Q), "fcsg_m": FCSGM(LR, Q, beta=0.3), "acc_fcsg_m": AccFCSGM(LR, Q, beta=0.3)}[name]
    ours = [s.x for s in run(algorithm, fed, algorithm.init(fed, k.x0))]
    beta = () if name == "fcsg" else (0.3,)
    same(ours, getattr(twins, name)(conditional_gradients(k), k.x0.numpy(), LR, *beta, Q, ROUNDS, project=lambda x: np.clip(x, low, high)))
    if projected:
        different(ours, getattr(twins, name)(conditional_gradients(k), k.x0.numpy(), LR, *beta, Q, ROUNDS))  # the constraint is active
    elif name == "acc_fcsg_m":
        different(ours, twins.broken_acc_fcsg_m(conditional_gradients(k), k.x0.numpy(), LR, 0.3, Q, ROUNDS))


@pytest.mark.parametrize("steps", [1, 3])
def test_feddro(steps: int) -> None:
    k = known.compositional()
    parts = rows(k)
    g = [lambda x, p=p: p["A"].mean(0) @ x - p["b"].mean(0) for p in parts]
    jacobian = [lambda x, p=p: p["A"].mean(0) for p in parts]
    h = [lambda x, p=p: 0.5 * (x - p["e"].mean(0)) for p in parts]
    fed = Federation(k.problem, k.data)
    algorithm = FedDRO(LR, 0.3, steps)
    y0 = np.array([3.0, -2.0])  # away from g(x0): from there, with full batches, beta would not show
    started = algorithm.State(k.x0, torch.from_numpy(y0), None, 0)
    states = run(algorithm, fed, started)
    theirs = twins.fed_dro(g, jacobian, lambda y: y - 1, h, k.x0.numpy(), LR, 0.3, steps, ROUNDS, y0=y0)
    same([s.x for s in states], [x for x, _ in theirs])
    same([s.y for s in states], [y for _, y in theirs])
    broken = twins.broken_fed_dro(g, jacobian, lambda y: y - 1, h, k.x0.numpy(), LR, 0.3, steps, ROUNDS)
    different([s.x for s in run(algorithm, fed, algorithm.init(fed, k.x0))], [x for x, _ in broken])


def bilevel_oracles(k: TestProblem) -> dict[str, list[Any]]:
    means = [{name: field.mean(0) for name, field in p.items()} for p in rows(k)]
    return {"fx": [lambda x, y, m=m: x - m["r"] for m in means], "fy": [lambda x, y, m=m: y - m["t"] for m in means],
            "gy": [lambda x, y, m=m: m["H"] @ y - m["C"] @ x - m["e"] for m in means],
            "gyy": [lambda x, y, v, m=m: m["H"] @ v for m in means], "gxy": [lambda x, y, v, m=m: -m["C"].T @ v for m in means]}


@pytest.mark.parametrize("series", ["random neumann", "neumann"])
def test_fednest(series: str) -> None:
    k = known.bilevel()
    fed = Federation(k.problem, k.data)
    algorithm = FedNest(LR, inner_lr=0.3, inner_rounds=2, local_steps=Q, terms=4, smoothness=2.5, inverse_solver=series)
    chosen: list[int] = []
    draw = fed.integer
    fed.integer = lambda bound: chosen.append(draw(bound)) or chosen[-1]  # type: ignore[func-returns-value,method-assign]
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))
    primes = chosen if series == "random neumann" else None
    def twin(**options: Any) -> list[Any]:
        return twins.fednest(**bilevel_oracles(k), x0=k.x0.numpy(), y0=np.zeros(2), alpha=LR, beta=0.3, tau=[Q] * 4, T=2, N=4, ell=2.5,
                             rounds=ROUNDS, n_primes=primes, **options)
    same([s.x for s in states], [x for x, _ in twin()])
    same([s.y for s in states], [y for _, y in twin()])
    different([s.y for s in states], [y for _, y in twin(inn=twins.broken_fed_inn)])
    assert series == "neumann" or len(set(chosen)) > 1


def test_fednest_with_unequal_local_steps() -> None:
    """Local steps may differ by client; step sizes are divided by τ_i."""
    k = known.minimization()
    alike = Data.from_parts({n: {f: v.mean(0, keepdim=True).repeat(len(v), *[1] * (v.dim() - 1)) for f, v in k.data.views(i).items()}
                             for i, n in enumerate(k.data.names)})
    gradients = plain_gradients(TestProblem(k.problem, alike, k.x_star, k.gradient))
    fed = Federation(as_bilevel(Minimization(k.problem.f)), alike)  # type: ignore[attr-defined]
    algorithm = FedNest(LR, local_steps=Epochs(1), batch=2)
    states = run(algorithm, fed, algorithm.init(fed, k.x0))
    x, theirs = k.x0.numpy(), []
    tau = [int(np.ceil(n / 2)) for n in alike.sizes]
    for _ in range(ROUNDS):
        x = twins.fed_out([lambda z, y, g=g: g(z) for g in gradients], [lambda z, y, v: 0 * z] * 4, x, np.zeros(1), np.zeros(1), LR, tau)
        theirs.append(x)
    same([s.x for s in states], theirs)
    assert len(set(tau)) > 1
