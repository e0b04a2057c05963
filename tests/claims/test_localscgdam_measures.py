"""The measurement of LocalSCGDAM's theorem: its problem's closed forms, its rule, its fits on made-up laws, and what it finds in small."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from experiment_files import FOLDER, module
from torch import Tensor

from rookery import Batch, Data, Federation, LocalSCGDAM, Program, theory

run, saddle = (module("localscgdam-theory", name) for name in ("run", "saddle"))
X = torch.tensor([0.7, -0.4])
REGIMES = [(False, "same"), (True, "same"), (True, "crossed"), (True, "joint")]


@dataclass(frozen=True)
class Ask(Program):
    """g_k, and ∇g_kᵀ∂z f_k and ∂y f_k at a given (z, y), on draws of their own as in the algorithm."""

    def inner(self, c: Any, x: Tensor) -> Tensor:
        return c.g(x, c.draw(20_000))

    def directions(self, c: Any, x: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        b = c.draw(20_000)
        return c.g_vjp(x, c.draw(20_000), c.f_z(z, y, b)), c.f_y(z, y, b)


def federation(differ: bool, outer: str, noise: float = 1.0, replicas: int = 1) -> Federation[Any]:
    return Federation(saddle.problem(differ, outer, replicas, noise), Data.streams(["a", "b", "c", "d"]), seed=3)


# the problem


def test_the_exact_gradient_is_that_of_the_largest_value_over_y() -> None:
    """By automatic differentiation of Φ = mean_k f_k(mean_j g_j(x), y*(x)) without noise, written with the problem's own f and g."""
    batches = [Batch({"xi": torch.zeros(1, 1, 6), "side": torch.tensor([s]), "other": torch.tensor([r])})
               for s, r in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0))]
    p = saddle.problem(replicas=1)
    x = X.clone().requires_grad_()
    z = torch.stack([p.g(x, b) for b in batches]).mean(0)
    y = (z @ saddle.Q)[None]
    value = sum(p.f(z, y, b) for b in batches) / 4
    value.backward()
    torch.testing.assert_close(saddle.exact(X)[0].float(), x.grad)
    for other in (y + 0.1, y - 0.1):
        assert sum(p.f(z, other, b) for b in batches) / 4 < value


@pytest.mark.parametrize(("differ", "outer"), REGIMES)
def test_the_mean_of_the_estimates_is_the_exact_gradient_unless_inner_and_outer_functions_differ_in_step(differ: bool, outer: str) -> None:
    fed = federation(differ, outer)
    z = fed.mean(fed.map(Ask().inner, fed.broadcast(X)))
    torch.testing.assert_close(z, saddle.A @ X, rtol=0, atol=0.015)
    y = (saddle.A @ X @ saddle.Q)[None]
    fx, fy = fed.mean(*fed.map(Ask().directions, *fed.broadcast(X, saddle.A @ X, y)))
    apart = saddle.D.T @ saddle.E if outer == "joint" else torch.zeros(2)
    torch.testing.assert_close(fx, saddle.exact(X)[0].float() + apart, rtol=0, atol=0.04)  # five standard errors
    torch.testing.assert_close(fy, torch.zeros(1), rtol=0, atol=0.03)
    assert (saddle.D.T @ saddle.E).norm() > 0.2  # would be seen


def test_replicas_do_not_touch_each_other() -> None:
    """Another starting point of one replica leaves the others' iterates as they are, bit for bit."""
    ends = []
    for first in (0.0, 1.0):
        fed = federation(True, "crossed", replicas=3)
        algorithm = LocalSCGDAM(0.1, 0.2, 2, 1)
        state = algorithm.init(fed, torch.tensor([first, 0, 0, 0, 0, 0]), torch.zeros(3))
        for _ in range(4):
            state = algorithm.round(fed, state)
        ends.append((state.x.reshape(3, 2), state.y))
    (x, y), (other_x, other_y) = ends
    assert torch.equal(x[1:], other_x[1:])
    assert torch.equal(y[1:], other_y[1:])
    assert not torch.equal(x[0], other_x[0])


def where_it_stops(x: Tensor, joint: bool, tracking: float) -> Tensor:
    """mean_k ∇g_kᵀ∂z f_k at what clients have at one local step: h_k = mean g + tracking·(g_k − mean g), and the common y."""
    z = saddle.A @ x
    found = torch.zeros(2)
    for side in (1.0, -1.0):
        h = z + tracking * side * (saddle.B + saddle.D @ x)
        fz = torch.sin(h - saddle.C) + (z @ saddle.Q) * saddle.Q + joint * side * saddle.E
        found += (saddle.A + side * saddle.D).T @ fz / 2
    return found


@pytest.mark.parametrize("outer", ["crossed", "joint"])
def test_where_both_functions_differ_in_step_the_end_is_another_point(outer: str) -> None:
    """Without noise one local step ends where the clients' mean direction is 0: as αη → 0 that is ∇Φ = −Dᵀe, and 0 if uncorrelated."""
    fed = federation(True, outer, noise=0.0)
    algorithm = LocalSCGDAM(0.1, 0.3, 1, 1, tracking=0.1, beta=0.5, inner_beta=0.5)
    state = algorithm.init(fed, torch.tensor([1.0, -0.5]), torch.zeros(1))
    for _ in range(160):
        state = algorithm.round(fed, state)
    torch.testing.assert_close(where_it_stops(state.x, outer == "joint", 0.1), torch.zeros(2), rtol=0, atol=1e-3)
    limit = -saddle.D.T @ saddle.E if outer == "joint" else torch.zeros(2)
    torch.testing.assert_close(where_it_stops(X, outer == "joint", 0.0), saddle.exact(X)[0].float() - limit)
    assert (saddle.exact(state.x)[0] - limit).norm() < 0.05  # of 0.27


# the rule and the fits


def test_the_rule_has_the_theorems_order_in_steps_and_clients() -> None:
    """All rates are those of `theory.local_scgdam` times one constant each, and the local steps are the same."""
    ratios = []
    for T, K in ((4096, 1), (16384, 1), (2048, 8), (512, 32), (100_000, 3)):
        found, printed = saddle.rule(T, K), theory.local_scgdam(T, K, 1.0, 1.2, 0.1, 2.0, 2.0)
        assert found.pop("local_steps") == printed.pop("local_steps")
        ratios.append([found[name] / printed[name] for name in sorted(printed)])
    assert np.array(ratios) == pytest.approx(np.array([ratios[0]] * len(ratios)))


def test_fits_find_the_law_they_look_for() -> None:
    def made(power: float) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [({"clients": k}, {"steps": length / k, "values": [3 / math.sqrt(length / k**power)] * 4})
                for k in (1, 2, 4, 8) for length in (1000, 4000, 16000)]

    times, slope, order = run.by_clients(made(0.0), 0.05, run.resampled)
    assert times == pytest.approx({k: 3600 / k for k in (1, 2, 4, 8)})
    assert (slope[0], order[0]) == pytest.approx((-1, -0.5))
    assert run.by_clients(made(1.0), 0.12, run.resampled)[1][0] == pytest.approx(0, abs=1e-9)


# the measurement


def mean(regime: str, clients: int, length: int, seed: int = 7) -> float:
    """Of a run with that K·T, or T in the regime of drift."""
    trial, = run.speedup(regime, (clients,), (length,), (length,))
    return float(np.mean(saddle.work(trial | {"seed": seed})["values"]))


def test_more_clients_are_worth_more_steps_unless_inner_and_outer_functions_differ_in_step() -> None:
    few, many, more = mean("alike", 16, 1024), mean("alike", 32, 1024), mean("alike", 32, 4096)
    assert few == pytest.approx(many, rel=0.2)
    assert more < 0.65 * many  # a half, by the theorem
    assert mean("joint", 32, 1024) > 2 * many


def test_a_run_comes_out_again_as_recorded() -> None:
    recorded, = (row["mean"] for row in json.loads((FOLDER / "localscgdam-theory" / "results.json").read_text(encoding="utf-8"))["rows"]
                 if row["metric"] == "stationarity" and row["setting"] == {"regime": "drift", "clients": 2, "steps": 1024})
    assert mean("drift", 2, 1024, seed=0) == pytest.approx(recorded, rel=1e-4)
