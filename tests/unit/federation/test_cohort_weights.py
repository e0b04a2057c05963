"""Unequal weights and cohorts: what is unbiased, what is not, and cohorts drawn by weight."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import twins_bilevel as twins
from nested_problems import inverse_gradient
from rounds import rounds

from rookery import SCAFFOLD, Cohort, Data, FedAvg, Federation, FedNova, ShroFBO, SimFBO
from rookery.errors import AlgorithmError
from rookery.federation.rng import systematic
from rookery.problems import testproblems as known

WEIGHTS = [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize(("kind", "steps"), [(SimFBO, 1), (ShroFBO, 1), (ShroFBO, (1, 2, 1, 3))])
def test_the_mean_over_all_cohorts_is_the_step_of_all_clients(kind: Any, steps: Any) -> None:
    """p̃_i = (n/|C|)·p_i: one round of every possible cohort, on average, is the round of all clients."""
    k = known.bilevel()
    algorithm = kind(0.1, 0.1, 0.1, local_steps=steps)
    ends = {}
    for name, chosen in {"all": [None], "cohorts": list(combinations(range(4), 2))}.items():
        moved = []
        for index in chosen:
            fed = Federation(k.problem, k.data, weights=WEIGHTS, engine="loop")
            if index is not None:
                fed.cohort = lambda size=None, fed=fed, index=index: Cohort(fed, np.array(index))  # type: ignore[method-assign]
            moved.append(algorithm.round(fed, algorithm.init(fed, k.x0, k.y0, inverse_gradient(k))))
        ends[name] = [torch.stack([getattr(s, v) for s in moved]).mean(0) for v in "xyv"]
    for mean, whole in zip(ends["cohorts"], ends["all"], strict=True):
        torch.testing.assert_close(mean, whole, rtol=0, atol=1e-13)


@pytest.mark.parametrize("cohorts", [None, [[0, 2], [1, 3], [0, 1], [2, 3], [0, 3]]])
@pytest.mark.parametrize("kind", [SimFBO, ShroFBO])
def test_weights_and_cohorts_as_in_the_twin(kind: Any, cohorts: Any) -> None:
    k = known.bilevel()
    means = [{n: f.mean(0).numpy() for n, f in k.data.views(i).items()} for i in range(4)]
    oracles = {"fx": [lambda x, y, m=m: x - m["r"] for m in means], "fy": [lambda x, y, m=m: y - m["t"] for m in means],
               "gy": [lambda x, y, m=m: m["H"] @ y - m["C"] @ x - m["e"] for m in means],
               "gyy": [lambda x, y, v, m=m: m["H"] @ v for m in means], "gxy": [lambda x, y, v, m=m: -m["C"].T @ v for m in means]}
    fed = Federation(k.problem, k.data, weights=WEIGHTS, engine="loop")
    left = [] if cohorts is None else [Cohort(fed, np.array(c)) for c in cohorts]
    if left:
        fed.cohort = lambda size=None: left.pop(0)  # type: ignore[method-assign]
    tau = (1, 3, 2, 1)
    algorithm = kind(0.1, 0.2, 0.15, local_steps=tau)
    state, ours = algorithm.init(fed, k.x0, k.y0), []
    for _ in range(5):
        state = algorithm.round(fed, state)
        ours.append(state.x.numpy())
    rates: Any = (0.1, 0.2, 0.15)

    def twin(**options: Any) -> Any:
        return [x for x, *_ in twins.simfbo(**oracles, x0=k.x0.numpy(), y0=np.zeros(2), gamma=rates, eta=rates, tau=tau, rounds=5,
                                            weights=WEIGHTS, cohorts=cohorts, normalised=kind is ShroFBO, **options)]

    np.testing.assert_allclose(ours, twin(), rtol=1e-9, atol=1e-11)
    if cohorts is not None:
        assert np.abs(np.array(ours) - np.array(twin(renormalised=True))).max() > 1e-3


def test_systematic_sampling_takes_each_as_often_as_it_is_likely() -> None:
    likely = np.array([1.0, 0.05, 0.5, 0.45, 0.8, 0.2])
    stream, counts, draws = np.random.default_rng(0), np.zeros(6), 20_000
    for _ in range(draws):
        chosen = systematic(likely, 3, stream)
        assert len(set(chosen.tolist())) == 3
        counts[chosen] += 1
    assert np.all(np.abs(counts / draws - likely) <= 5 * np.sqrt(likely * (1 - likely) / draws) + 1e-12)


def test_a_cohort_drawn_by_weight_has_an_unbiased_mean_and_a_uniform_one_has_not() -> None:
    """One step of FedAvg, on average over 1 000 cohorts of two, against the step of all clients."""
    k = known.minimization()
    algorithm, moves = FedAvg(0.5), {}
    whole = algorithm.round(*((fed := Federation(k.problem, k.data, weights=WEIGHTS)), algorithm.init(fed, k.x0))).x
    for cohorts in ("uniform", "weighted"):
        fed = Federation(k.problem, k.data, weights=WEIGHTS, clients_per_round=2, cohorts=cohorts, engine="loop")
        start = algorithm.init(fed, k.x0)
        moves[cohorts] = torch.stack([algorithm.round(fed, start).x - whole for _ in range(1000)])
    error = {name: float((m.mean(0) / (m.std(0) / 1000**0.5)).abs().max()) for name, m in moves.items()}
    assert error["weighted"] < 4.5
    assert error["uniform"] > 6


def test_a_client_with_too_much_weight_cannot_be_drawn_by_weight() -> None:
    k = known.minimization()
    with pytest.raises(AlgorithmError, match=r"'site-0' has 0.6 of all weight, too much for a cohort of 2.*at most 1 clients"):
        Federation(k.problem, k.data, weights=[6, 1, 2, 1], clients_per_round=2, cohorts="weighted")
    with pytest.raises(AlgorithmError, match="""cohorts are "uniform" or "weighted"; got 'by weight'"""):
        Federation(k.problem, k.data, cohorts="by weight")


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_scaffold_keeps_its_variate_the_weighted_mean_of_the_clients(engine: str) -> None:
    """c = Σ p_i c_i after any sequence of cohorts, also where these are drawn by weight."""
    k = known.minimization()
    fed = Federation(k.problem, k.data, weights=WEIGHTS, clients_per_round=2, cohorts="weighted", engine=engine, seed=3)
    algorithm = SCAFFOLD(0.1, 3)
    state = algorithm.init(fed, k.x0)
    for _ in range(6):
        state = algorithm.round(fed, state)
    own = fed.take(state.ci, fed.map(algorithm.zero, fed.broadcast(k.x0)))
    parts = fed.map(algorithm.finish, *fed.broadcast(k.x0, k.x0), own, fed.broadcast(0 * k.x0), 1, np.ones(4), 1.0)[2]
    torch.testing.assert_close(fed.mean(parts), state.c, rtol=1e-10, atol=1e-12)


def test_a_client_without_weight_does_not_disturb_scaffold() -> None:
    k = known.minimization()
    parts = {name: dict(k.data.views(i)) for i, name in enumerate(k.data.names)}
    ends = []
    for weights in ([1.0] * 4, [1.0] * 4 + [0.0]):
        if len(weights) > 4:
            parts["mute"] = {name: 3 * field for name, field in parts["site-1"].items()}
        fed, algorithm = Federation(k.problem, Data.from_parts(parts), weights=weights), SCAFFOLD(0.1, 3)
        state = algorithm.init(fed, k.x0)
        for _ in range(3):
            state = algorithm.round(fed, state)
        ends.append(state)
    torch.testing.assert_close(ends[0].x, ends[1].x)
    torch.testing.assert_close(ends[0].c, ends[1].c)


def test_fednova_weighs_its_steps_as_its_mean_does() -> None:
    """With equal weights drawing by weight is drawing uniformly by another hand: one local step is FedAvg's."""
    k = known.minimization()
    feds = [Federation(k.problem, k.data, weights=WEIGHTS, clients_per_round=2, cohorts="weighted", seed=5) for _ in range(2)]
    a, b = (algorithm.round(fed, algorithm.init(fed, k.x0)).x for algorithm, fed in zip((FedNova(0.1), FedAvg(0.1)), feds, strict=True))
    torch.testing.assert_close(a, b)


def test_scaffold_with_unequal_weights_and_cohorts_finds_the_weighted_solution() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data, weights="samples", clients_per_round=2)
    w = torch.tensor(fed.weights / fed.weights.sum())
    parts = [k.data.views(i) for i in range(4)]
    H = sum(w[i] * p["a"].T @ p["a"] / len(p["b"]) for i, p in enumerate(parts)) + 0.5 * torch.eye(3, dtype=torch.float64)
    r = sum(w[i] * p["a"].T @ p["b"] / len(p["b"]) for i, p in enumerate(parts))
    algorithm = SCAFFOLD(0.1, 4)
    state = rounds(algorithm, fed, algorithm.init(fed, k.x0), 400)
    torch.testing.assert_close(state.x, torch.linalg.solve(H, r), atol=1e-8, rtol=0)
