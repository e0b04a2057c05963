"""The iterate that is drawn uniformly from the steps of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery import FCSG, FCSGM, SCAFFOLD, AccFCSGM, Compositional, Conditional, FedAvg, FedDRO, Federation, FedOpt, Minimization
from rookery.problems import testproblems as known
from rookery.training import run

K = known.minimization()


@pytest.mark.parametrize("algorithm", [FCSG(0.1, 4, 2, 2), FCSGM(0.1, 4, 2, 2, beta=0.3), AccFCSGM(0.1, 4, 2, 2, beta=0.3),
                                       FedDRO(0.1, 0.3, 4, 2), FedAvg(0.1, 4, 2)], ids=lambda a: a.title)
@pytest.mark.parametrize("seed", range(3))
def test_the_uniform_output_is_the_mean_of_the_clients_points_at_its_step(algorithm: Any, seed: int, tmp_path: Path) -> None:
    make = {Conditional: known.conditional, Compositional: known.compositional, Minimization: known.minimization}[algorithm.solves]
    k, rounds = make(), 5

    def start() -> tuple[Federation, Any]:
        fed = Federation(k.problem, k.data, seed=seed)
        return fed, algorithm.init(fed, k.x0)

    fed, state = start()
    result = run(algorithm, fed, state, rounds, output="uniform", folder=tmp_path / "run")
    plain, state = start()
    same = run(algorithm, plain, state, rounds)
    assert torch.equal(result.state.x, same.state.x)  # training does not notice
    assert fed.ledger["train"] == plain.ledger["train"]
    assert result.output is not None
    # the index again, by hand: a run of whole rounds, then one round with as many local steps as are left
    third, state = start()
    with third.phase("output"):
        whole, left = divmod(1 + third.integer(4 * rounds), 4)
    for _ in range(whole):
        state = algorithm.round(third, state)
    if left:
        state = replace(algorithm, local_steps=left).round(third, state)
    assert torch.equal(result.output, state.x)
    inside = left if isinstance(algorithm, FedDRO) else 0  # its steps exchange y as they go
    assert fed.ledger["output"].exchanges == (inside + 1 if left else 0)
    fed, state = start()
    again = run(algorithm, fed, state, rounds, output="uniform", folder=tmp_path / "run", resume=True)
    assert again.output is not None
    assert torch.equal(again.output, result.output)


def test_the_uniform_output_is_after_one_of_the_steps_from_the_first_to_the_last() -> None:
    algorithm, seen = FedAvg(0.1), set()
    for seed in range(30):
        fed = Federation(K.problem, K.data, seed=seed, engine="loop")
        states = [algorithm.init(fed, K.x0)]
        result = run(algorithm, fed, states[0], 3, output="uniform")
        for _ in range(3):
            states.append(algorithm.round(fed, states[-1]))
        seen |= {t for t, s in enumerate(states) if result.output is not None and torch.allclose(result.output, s.x, rtol=0, atol=1e-12)}
    assert seen == {1, 2, 3}


@pytest.mark.parametrize("seed", range(4))
def test_the_uniform_output_of_local_gradient_descent_by_hand(seed: int) -> None:
    fed, algorithm = Federation(K.problem, K.data, seed=seed), FedAvg(0.1, 4)
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 5, output="uniform")
    means, x = [], K.x0
    for _ in range(5):
        points = [x] * len(K.data.names)
        for _ in range(4):
            for i, point in enumerate(points):
                rows = K.data.views(i)
                points[i] = point - 0.1 * (rows["a"].T @ (rows["a"] @ point - rows["b"]) / len(rows["b"]) + 0.5 * point)
            means.append(torch.stack(points).mean(0))
        x = torch.stack(points).mean(0)
    assert result.output is not None
    near = [float((result.output - mean).abs().max()) for mean in means]
    assert min(near) < 1e-12
    assert sorted(near)[1] > 1e-6


@pytest.mark.parametrize("algorithm", [SCAFFOLD(0.1, 4, 2), FedOpt(0.1, 4, 2, "adam", server_lr=1.0)], ids=lambda a: a.title)
def test_where_x_is_no_mean_of_points_the_uniform_iterate_is_a_rounds(algorithm: Any) -> None:
    for seed in range(4):
        fed = Federation(K.problem, K.data, seed=seed)
        result = run(algorithm, fed, algorithm.init(fed, K.x0), 5, output="uniform")
        again = Federation(K.problem, K.data, seed=seed)
        state, seen = algorithm.init(again, K.x0), [K.x0]
        for _ in range(5):
            state = algorithm.round(again, state)
            seen.append(state.x)
        assert result.output is not None
        assert any(torch.equal(result.output, x) for x in seen[1:])
        assert torch.equal(result.state.x, state.x)
        assert fed.ledger["output"].exchanges == 0
