"""The conditional methods of one machine: twins on the samples that were drawn, identities, what their paper states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import twins_baselines as twins
from baselines import HIGH, LOW, LR, ROUNDS, Q, different, run, same
from torch import Tensor

from rookery import BSGD, FCSG, Batch, BSpiderBoost, Conditional, Data, Federation, box
from rookery.data import Stored
from rookery.problems import testproblems as known


class Recording(Stored):
    """Conditional samples, and the gradient on each batch that was drawn, in NumPy."""

    def fetch(self, data: Data, selection: dict[str, Tensor]) -> Batch:
        batch = super().fetch(data, selection)
        assert batch.inner is not None
        eta, b = batch.inner.eta.mean(1).numpy(), batch.b.numpy()
        self.__dict__.setdefault("drawn", []).append(lambda x: eta.T @ (eta @ x - b) / len(b) + 0.5 * x)
        return batch


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("algorithm", [BSGD(LR, Q, 2, 3), BSpiderBoost(LR, Q, 2, 3, 5)], ids=lambda a: a.title)
def test_one_machine_twins_on_the_samples_that_were_drawn(algorithm: BSGD, projected: bool) -> None:
    k = known.conditional(sizes=(9,))
    sampling, p = Recording("eta"), k.problem
    low, high = (LOW, HIGH) if projected else (-1e9, 1e9)
    fed = Federation(Conditional(p.f, p.g, p.h, sampling=sampling, project_x=box(low, high)), k.data, engine="loop")  # type: ignore[attr-defined]
    ours = run(algorithm, fed, k.x0)
    batches = sampling.__dict__["drawn"]
    assert len(batches) == Q * ROUNDS

    def clip(x: np.ndarray) -> np.ndarray:
        return np.clip(x, low, high)

    plain, spider = twins.bsgd(batches, k.x0.numpy(), LR, clip), twins.bspiderboost(batches, k.x0.numpy(), LR, Q, clip)
    right, wrong = (spider, plain) if isinstance(algorithm, BSpiderBoost) else (plain, spider)
    same(ours, right[Q - 1::Q])
    different(ours, wrong[Q - 1::Q])
    if isinstance(algorithm, BSpiderBoost) and not projected:
        different(ours, twins.broken_bspiderboost(batches, k.x0.numpy(), LR, Q)[Q - 1::Q])


@pytest.mark.parametrize("steps", [1, Q])
def test_fcsg_of_one_client_is_bsgd(steps: int) -> None:
    k = known.conditional(sizes=(9,))
    fed = Federation(k.problem, k.data, seed=2)
    algorithm, bsgd = BSGD(LR, 1, 2, 3), []
    state = algorithm.init(fed, k.x0)
    for t in range(ROUNDS):
        fed.counters["train"] = 3 * t  # FCSG has three calls in a round, and its first one draws
        state = algorithm.round(fed, state)
        bsgd.append(state.x.numpy())
    same(run(FCSG(LR, 1, 2, 3), Federation(k.problem, k.data, seed=2), k.x0), bsgd)
    full = [run(a, Federation(k.problem, k.data), k.x0) for a in (FCSG(LR, steps), BSGD(LR, steps), BSpiderBoost(LR, steps))]
    same(full[1], [x.numpy() for x in full[0]])
    same(full[2], [x.numpy() for x in full[0]])  # with full batches the corrections are exact


def test_bspiderboost_estimates_better_than_bsgd_from_the_same_batches() -> None:
    """The correction's variance is that of a difference of gradients at near points: with a full anchor, small against a gradient's."""
    k = known.conditional(sizes=(12,))
    moves: dict[str, list[Tensor]] = {"BSGD": [], "BSpiderBoost": []}
    for seed in range(30):
        for algorithm in (BSGD(0.02, 4, 2), BSpiderBoost(0.02, 4, 2)):
            moves[algorithm.title].append(run(algorithm, Federation(k.problem, k.data, seed=seed, engine="loop"), k.x0, 1)[0])
    spread = {name: float(torch.stack(ends).std(0).norm()) for name, ends in moves.items()}
    assert spread["BSpiderBoost"] < 0.2 * spread["BSGD"]
