"""`iterate`: repetition at the client, by one number of steps or by one for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from verbs import NAMES, engines, federation, ones, work

from rookery import Data, Epochs, Federation, Minimization, RookeryError
from rookery.data import Draw, Request
from rookery.errors import PlacementError
from rookery.federation.client import Setting


@engines
def test_times_repeats(engine: str) -> None:
    fed = federation(engine)
    assert fed.mean(fed.iterate(work.increment, fed.broadcast(ones()), steps=5)).tolist() == [6.0, 6.0]
    assert fed.mean(fed.iterate(work.add, fed.broadcast(ones()), 2.0, steps=3)).tolist() == [7.0, 7.0]
    assert fed.sum(fed.iterate(work.increment, fed.broadcast(ones(0.0)), steps=np.asarray([0, 1, 2, 40]))).tolist() == [43.0, 43.0]


@engines
def test_times_per_client_and_c_times(engine: str) -> None:
    fed = federation(engine)
    times = np.asarray([1, 3, 3, 2])
    # each repetition adds the number of repetitions
    assert fed.sum(fed.iterate(work.times, fed.broadcast(ones(0.0)), steps=times)).tolist() == [float((times**2).sum())] * 2
    fed.sum(fed.iterate(work.descend, fed.broadcast(ones()), 0.1, steps=times))
    assert fed.ledger["train"].calls["gradient"] == 9
    assert fed.ledger["train"].samples == 18


@engines
def test_repetitions_draw_anew(engine: str) -> None:
    """Descent by hand, on the very rows that were drawn."""
    data = Data.from_parts({name: {"u": torch.arange(n, dtype=torch.float64)[:, None]} for name, n in {"a": 10, "b": 20}.items()})
    problem = Minimization(lambda x, b: 0.5 * (x - b.u).square().sum(-1).mean())
    fed = Federation(problem, data, engine=engine)
    setting = Setting(problem, data, 0)
    clients = np.arange(2)
    index = problem.sampling.select(Draw(data, clients, setting.keys(clients, "train", 1), 0, np.arange(4)), Request(2))["index"]
    expected = torch.zeros(2, dtype=torch.float64)
    for step in range(4):
        expected = expected - 0.1 * (expected - index[:, step].double().mean(1))
    got = fed.sum(fed.iterate(work.descend, fed.broadcast(torch.zeros(1, dtype=torch.float64)), 0.1, steps=4))
    torch.testing.assert_close(got, expected.sum()[None], rtol=1e-12, atol=0)
    assert len({tuple(i) for i in index[1].tolist()}) == 4


@engines
def test_no_repetition_passes_arguments_through(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones(3.0))
    assert fed.mean(fed.iterate(work.descend, x, 0.1, steps=0)).tolist() == [3.0, 3.0]
    assert fed.mean(fed.iterate(work.increment, fed.map(work.level, x), steps=np.zeros(4, dtype=np.int64))).tolist() == [1111 / 4] * 2
    account = fed.ledger["train"]
    assert account.calls["gradient"] == 0
    assert account.samples == 4  # of `level`


def test_times_of_the_wrong_length_is_refused() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="steps is one number, or one for each of the 4 clients; got shape \\(3,\\)"):
        fed.iterate(work.increment, fed.broadcast(ones()), steps=np.asarray([1, 2, 3]))


def test_repeated_results_need_a_place_among_the_arguments() -> None:
    fed = federation()
    for times in (0, 2, np.asarray([1, 1, 1, 1])):
        with pytest.raises(PlacementError, match=r"Work\.both returns 2 values, which its next step takes: the carry is as many values"):
            fed.iterate(work.both, fed.broadcast(ones()), steps=times)


@engines
def test_times_may_be_a_number_of_numpy(engine: str) -> None:
    fed = federation(engine)
    assert fed.mean(fed.iterate(work.increment, fed.broadcast(ones()), steps=np.int64(3))).tolist() == [4.0, 4.0]  # type: ignore[arg-type]


@engines
@pytest.mark.parametrize("times", [-1, np.asarray([1, 1, -1, 1])], ids=["one", "per client"])
def test_a_negative_number_of_repetitions_is_refused(engine: str, times: Any) -> None:
    fed = federation(engine)
    with pytest.raises(RookeryError, match=r"times|-1"):
        fed.mean(fed.iterate(work.increment, fed.broadcast(ones()), steps=times))


def test_local_work_in_epochs() -> None:
    fed = federation()
    assert fed.steps(7, 2) == 7
    assert fed.steps(Epochs(2), 3).tolist() == [3, 4, 4, 5]  # type: ignore[union-attr]
    assert fed.steps(Epochs(0.1), 100).tolist() == [1, 1, 1, 1]  # type: ignore[union-attr]
    assert fed.steps(Epochs(2.5), None) == 3
    S = fed.cohort(2)
    sizes = [4 + NAMES.index(name) for name in S.names]
    assert S.steps(Epochs(1), 1).tolist() == sizes  # type: ignore[union-attr]
