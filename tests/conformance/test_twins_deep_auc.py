"""The methods of deep AUC maximisation against their NumPy twins, ten rounds, full batches, heterogeneous clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import twins_auc as twins
from test_twins import different, rows, run, same

from rookery import CODASCA, FESSGDA, CoDA, CODAPlus, Federation, FeDXL1, FeDXL2, LocalSCGDAM, LocalSGDAM, Pairwise, box
from rookery.problems import testproblems as known
from rookery.problems.testproblems import TestProblem

ROUNDS = 10


def saddle(k: TestProblem) -> dict[str, list[Any]]:
    means = [{name: field.mean(0) for name, field in p.items()} for p in rows(k)]
    return {"fx": [lambda x, y, m=m: x + m["e"] + m["A"].T @ y for m in means],
            "fy": [lambda x, y, m=m: m["A"] @ x - y - m["b"] for m in means]}


def nested_saddle(k: TestProblem) -> dict[str, list[Any]]:
    means = [{name: field.mean(0) for name, field in p.items()} for p in rows(k)]
    return {"g": [lambda x, m=m: m["A"] @ x - m["b"] for m in means], "jac": [lambda x, m=m: m["A"] for m in means],
            "fz": [lambda z, y, m=m: z - m["c"] + m["B"].T @ y for m in means],
            "fy": [lambda z, y, m=m: m["B"] @ z - y for m in means]}


def starts(k: TestProblem) -> dict[str, Any]:
    assert k.y0 is not None
    return {"x0": k.x0.numpy(), "y0": k.y0.numpy()}


def column(found: list[Any], place: int) -> list[Any]:
    return [entry[place] for entry in found]


@pytest.mark.parametrize("projected", [False, True])
def test_localscgdam(projected: bool) -> None:
    k = known.compositional_minimax()
    sides = (box(-0.4, 0.3), box(-0.2, 0.1)) if projected else (None, None)
    fed = Federation(replace(k.problem, project_x=sides[0], project_y=sides[1]), k.data)
    algorithm = LocalSCGDAM(0.3 * 0.2, 0.5 * 0.2, 3, tracking=2.0 * 0.2, beta=3.0 * 0.2, inner_beta=2.5 * 0.2)
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))

    def twin(**options: Any) -> list[Any]:
        inside = {"project_x": lambda x: np.clip(x, -0.4, 0.3), "project_y": lambda y: np.clip(y, -0.2, 0.1)} if projected else {}
        return twins.local_scgdam(**nested_saddle(k), **starts(k), gamma_x=0.3, gamma_y=0.5, eta=0.2, alpha=2.0, beta_x=3.0, beta_y=2.5,
                                  p=3, rounds=ROUNDS, **inside, **options)

    for place, letter in enumerate("xyhuv"):
        same([getattr(s, letter) for s in states], column(twin(), place))
    different([s.h for s in states], column(twin(average_h=False), 2))


@pytest.mark.parametrize("projected", [False, True])
def test_localsgdam(projected: bool) -> None:
    k = known.minimax()
    sides = (box(-0.4, 0.3), box(-0.2, 0.1)) if projected else (None, None)
    fed = Federation(replace(k.problem, project_x=sides[0], project_y=sides[1]), k.data)
    algorithm = LocalSGDAM(0.3 * 0.5, 0.4 * 0.5, 3, beta=0.8 * 0.5)
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))

    def twin(**options: Any) -> list[Any]:
        inside = {"project_x": lambda x: np.clip(x, -0.4, 0.3), "project_y": lambda y: np.clip(y, -0.2, 0.1)} if projected else {}
        return twins.local_sgdam(**saddle(k), **starts(k), lr_x=0.3, lr_y=0.4, alpha=0.5, beta=0.8, p=3, rounds=ROUNDS, **inside, **options)

    for place, letter in enumerate(("x", "y", "dx", "dy")):
        same([getattr(s, letter) for s in states], column(twin(), place))
    different([s.x for s in states], column(twin(average_momenta=False), 0))


def test_fess_gda() -> None:
    k = known.minimax()
    fed = Federation(k.problem, k.data)
    algorithm = FESSGDA(0.05, 0.1, 3, smoothing=2.0, beta=0.4, server_lr=1.2, inner_server_lr=0.8)
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))

    def twin(**options: Any) -> list[Any]:
        return twins.fess_gda(**saddle(k), **starts(k), eta_xl=0.05, eta_yl=0.1, eta_xg=1.2, eta_yg=0.8, K=3, p=2.0, beta=0.4,
                              rounds=ROUNDS, **options)

    for place, letter in enumerate("xyz"):
        same([getattr(s, letter) for s in states], column(twin(), place))
    different([s.x for s in states], column(twin(count_steps=False), 0))


def test_fess_gda_averages_unprojected_points_and_projects_their_mean() -> None:
    """The paper's clients send projected ones, which biases even one local step; every method here follows one rule."""
    k = known.minimax()
    fed = Federation(replace(k.problem, project_y=box(-0.2, 0.1)), k.data)
    algorithm = FESSGDA(0.05, 0.1, 3, smoothing=2.0, beta=0.4)
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))

    def twin(**options: Any) -> list[Any]:
        return twins.fess_gda(**saddle(k), **starts(k), eta_xl=0.05, eta_yl=0.1, eta_xg=1.0, eta_yg=1.0, K=3, p=2.0, beta=0.4,
                              rounds=ROUNDS, project_y=lambda y: np.clip(y, -0.2, 0.1), **options)

    same([s.y for s in states], column(twin(send_projected=False), 1))
    different([s.y for s in states], column(twin(), 1))


def staged(ours: list[Any], theirs: list[Any], ends: list[int], restarts: list[Any], place: int) -> None:
    """A state after a stage's last round has the next one's start; the twin has both."""
    expected = [restarts[ends.index(r)][place] if r in ends else theirs[r][place] for r in range(ROUNDS)]
    same([getattr(s, "xy"[place]) for s in ours], expected)


def best(k: TestProblem) -> Any:
    means = [{name: field.mean(0) for name, field in p.items()} for p in rows(k)]
    return lambda x: np.mean([m["A"] @ x - m["b"] for m in means], 0)


@pytest.mark.parametrize("plus", [False, True])
def test_coda(plus: bool) -> None:
    k = known.minimax()
    fed = Federation(k.problem, k.data)
    algorithm = (CODAPlus if plus else CoDA)(0.1, 2, stage=2, growth=2, prox=0.5)
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))
    first = {"v0": k.x0.numpy(), "a0": np.zeros(2)}

    def twin(**options: Any) -> tuple[list[Any], list[Any]]:
        restarts: list[Any] = []
        return twins.coda(**saddle(k), **first, eta0=0.1, T0=4, gamma=0.5, I=2, stages=3, growth=2, plus=plus, dual=best(k),
                          restarts=restarts, **options), restarts

    for place in (0, 1):
        staged(states, *twin()[:1], [1, 5], twin()[1], place)
    different([s.x for s in states], column(twin(prox=False)[0], 0)[:ROUNDS])
    assert [s.stage for s in states] == [0, 1, 1, 1, 1, 2, 2, 2, 2, 2]


def test_codasca() -> None:
    k = known.minimax()
    fed = Federation(k.problem, k.data)
    algorithm = CODASCA(0.1, 3, stage=2, growth=2, prox=0.5, server_lr=0.8)
    states = run(algorithm, fed, algorithm.init(fed, k.x0, k.y0))
    first = {"v0": k.x0.numpy(), "a0": np.zeros(2)}

    def twin(**options: Any) -> tuple[list[Any], list[Any]]:
        restarts: list[Any] = []
        return twins.codasca(**saddle(k), **first, eta=0.1, eta_g=0.8, gamma=0.5, I=3, rounds_per_stage=2, stages=3, growth=2,
                             restarts=restarts, **options), restarts

    for place in (0, 1):
        staged(states, *twin()[:1], [1, 5], twin()[1], place)
    different([s.x for s in states], column(twin(variates=False)[0], 0)[:ROUNDS])


def scored(k: TestProblem) -> dict[str, list[Any]]:
    each = rows(k)
    return {"scores": [lambda w, p=p: p["a"] @ w for p in each], "dscores": [lambda w, p=p: p["a"] for p in each],
            "labels": [p["labels"] > 0 for p in each]}


def test_fedxl1() -> None:
    k = known.pairwise()
    fed = Federation(k.problem, k.data)
    algorithm = FeDXL1(0.05, 3)
    states = run(algorithm, fed, algorithm.init(fed, k.x0))

    def twin(**options: Any) -> list[Any]:
        return twins.fedxl1(**scored(k), ell_s=lambda s, t: -(1 - s + t), ell_t=lambda s, t: 1 - s + t, w0=k.x0.numpy(), eta=0.05,
                            K_steps=3, rounds=ROUNDS, **options)

    same([s.x for s in states], twin())
    different([s.x for s in states], twin(own_pool=True))


def test_fedxl2() -> None:
    """E_+ λ log E_− exp(½(1 − s + t)²/λ): a nonlinear f."""
    k, lam = known.pairwise(), 2.0

    def ell(s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.exp(0.5 * (1 - s + t).square() / lam)

    assert isinstance(k.problem, Pairwise)
    fed = Federation(replace(k.problem, ell=ell, f=lambda u: lam * torch.log(u)), k.data)
    algorithm = FeDXL2(0.05, 3, gamma=0.6, beta=0.4)
    states = run(algorithm, fed, algorithm.init(fed, 0.2 * k.x0))

    def value(s: Any, t: Any) -> Any:
        return np.exp(0.5 * (1 - s + t) ** 2 / lam)

    def twin(**options: Any) -> list[Any]:
        return twins.fedxl2(**scored(k), ell=value, ell_s=lambda s, t: -(1 - s + t) / lam * value(s, t),
                            ell_t=lambda s, t: (1 - s + t) / lam * value(s, t), w0=0.2 * k.x0.numpy(), eta=0.05, K_steps=3, rounds=ROUNDS,
                            f_slope=lambda u: lam / u, gamma=0.6, beta=0.4, **options)

    same([s.x for s in states], column(twin(), 0))
    same([s.d for s in states], column(twin(), 1))
    different([s.x for s in states], column(twin(own_pool=True), 0))


def test_fedxl2_where_an_inner_value_is_0() -> None:
    """E_+ f(E_− (t − s)) with f(u) = u + ½u², begun where all scores are 0: a value of 0 is one to average with, and no blank."""
    k = known.pairwise()
    assert isinstance(k.problem, Pairwise)
    fed = Federation(replace(k.problem, ell=lambda s, t: t - s, f=lambda u: u + 0.5 * u * u), k.data)
    algorithm = FeDXL2(0.02, 3, gamma=0.6, beta=0.4)
    states = run(algorithm, fed, algorithm.init(fed, 0 * k.x0))
    expected = twins.fedxl2(**scored(k), ell=lambda s, t: t - s, ell_s=lambda s, t: 0 * (s + t) - 1, ell_t=lambda s, t: 0 * (s + t) + 1,
                            w0=0 * k.x0.numpy(), eta=0.02, K_steps=3, rounds=ROUNDS, f_slope=lambda u: 1 + u, gamma=0.6, beta=0.4)
    same([s.x for s in states], column(expected, 0))
