"""Rows that stay in datasets give the samples, the results and the ledger of the same rows in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from counted import LINEAR, SIZES, Counting, Pictures, lazy, parts
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from rookery import FCSG, Batch, Data, Epochs, FedAvg, FedDRO, Federation, FedNest, LocalSGDA, Minimization, Model, Program
from rookery.data import Draw, PerTask, Positives, Replacement, Request, Shuffled, Stored, Stratified, positive_counts
from rookery.errors import DataError
from rookery.federation import Client
from rookery.federation.client import Setting
from rookery.objectives import ap_surrogate, hyper_parameters
from rookery.problems import testproblems as known

ENGINES = ["loop", "vectorised", "wire", "auto"]


def trained(data: Data, problem: Minimization, algorithm: FedAvg, rounds: int = 3, **options: Any) -> tuple[Tensor, Federation[Any]]:
    fed = Federation(problem, data, seed=5, **options)
    state = algorithm.init(fed, torch.zeros(3))
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x, fed


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sampling", [Replacement(), Shuffled(), Stratified("labels", 1)], ids=repr)
@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_training_is_that_of_rows_in_memory(engine: str, sampling: Any, clients_per_round: int | None) -> None:
    problem = Minimization(LINEAR.f, sampling=sampling)
    options = {"engine": engine, "clients_per_round": clients_per_round, "weights": "samples"}
    memory = Data.from_parts(parts())
    (x, fed), (y, other) = (trained(data, problem, FedAvg(0.05, Epochs(1), 3), **options) for data in (memory, lazy(memory)))
    assert torch.equal(x, y)
    assert not torch.equal(x, torch.zeros(3))
    assert fed.ledger == other.ledger


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("clients_per_round", [None, 2])
def test_full_batches_are_those_of_rows_in_memory(engine: str, clients_per_round: int | None) -> None:
    memory = Data.from_parts(parts())
    (x, fed), (y, other) = (trained(data, LINEAR, FedAvg(0.05, 2), engine=engine, clients_per_round=clients_per_round)
                            for data in (memory, lazy(memory)))
    torch.testing.assert_close(x, y)  # clients that run as one graph in memory go one by one
    assert fed.ledger == other.ledger


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("make", "algorithm"), [
    (known.conditional, FCSG(0.05, 2, 2, 2)), (known.compositional, FedDRO(0.05, local_steps=2, batch=2)),
    (known.minimax, LocalSGDA(0.05, 0.05, 2, 2)), (known.bilevel, FedNest(0.05, batch=2))],
    ids=lambda value: getattr(value, "__name__", ""))
def test_problems_of_other_kinds(make: Any, algorithm: Any, engine: str) -> None:
    k = make()
    ends = []
    for data in (k.data, lazy(k.data)):
        fed = Federation(k.problem, data, engine=engine)
        state = algorithm.init(fed, k.x0) if k.y0 is None or isinstance(algorithm, FedDRO) else algorithm.init(fed, k.x0, k.y0)
        ends.append(algorithm.round(fed, algorithm.round(fed, state)).x)
    torch.testing.assert_close(ends[0], ends[1])
    assert not torch.equal(ends[0], k.x0)


class Unwritable(Pictures):
    def __getitem__(self, row: int) -> tuple[Any, int]:
        picture = np.full((4, 2), row, dtype=np.uint8)
        picture.flags.writeable = False
        return picture.T[:, ::-1], self.targets[row]


@pytest.mark.parametrize("dataset", [
    TensorDataset(torch.arange(6, dtype=torch.uint8)[:, None, None].expand(6, 2, 4), torch.arange(6) % 3), Pictures(6, torch.from_numpy),
    Pictures(6, lambda picture: picture), Unwritable(6, None), Subset(Pictures(12, torch.from_numpy), range(6)),
    Subset(Pictures(12, torch.from_numpy), np.arange(6).tolist()),
    ConcatDataset([Pictures(3, torch.from_numpy), Subset(Pictures(6, torch.from_numpy), [3, 4, 5])]),
    ConcatDataset([Pictures(3, torch.from_numpy), TensorDataset(torch.arange(3, 6, dtype=torch.uint8)[:, None, None].expand(3, 2, 4),
                                                                torch.arange(3))]),
    [(torch.full((2, 4), i, dtype=torch.uint8), i % 3) for i in range(6)],
    [[torch.full((2, 4), i, dtype=torch.uint8), np.int64(i % 3)] for i in range(6)],
    [{"labels": i % 3, "inputs": torch.full((2, 4), i, dtype=torch.uint8)} for i in range(6)]])
def test_datasets_of_every_make(dataset: Any) -> None:
    """Labels are numbers of Python's, of NumPy's or of torch's, also in one dataset; bytes stay bytes."""
    data = Data.from_datasets({"a": dataset, "b": TensorDataset(torch.zeros(2, 2, 4, dtype=torch.uint8), torch.tensor([5, 6]))})
    rows = torch.tensor([[5, 0, 6], [1, 1, 7]])
    batch = data.take(rows)
    assert batch["inputs"].dtype == torch.uint8
    assert batch["inputs"].shape == (2, 3, 2, 4)
    assert batch["inputs"][..., 0, 0].tolist() == [[5, 0, 0], [1, 1, 0]]
    assert batch["labels"].dtype == torch.int64
    assert batch["labels"].tolist() == [[2, 0, 5], [1, 1, 6]]
    assert data.views(0)["labels"].tolist() == [0, 1, 2, 0, 1, 2]


def test_fields_have_names() -> None:
    one, three = TensorDataset(torch.ones(2, 2)), TensorDataset(torch.ones(2, 2), torch.arange(2), torch.arange(2) * 0.5)
    assert list(Data.from_datasets({"a": one}).forms()) == ["inputs"]
    assert list(Data.from_datasets({"a": torch.arange(3.0)}).forms()) == ["inputs"]
    assert list(Data.from_datasets({"a": [1.5, 2.5]}, fields=["u"]).forms()) == ["u"]
    assert Data.from_datasets({"a": three}, fields=("inputs", "task", "t")).take(torch.tensor([1]))["t"].tolist() == [0.5]
    mappings = [{"u": 1.0, "v": 2, "path": "a.png"}]
    assert list(Data.from_datasets({1: mappings}, fields=("v", "u")).forms()) == ["v", "u"]  # type: ignore[dict-item]
    with pytest.raises(DataError, match="2 entries, and 1 are named"):
        Data.from_datasets({"a": [(1.0, 2.0)]}, fields=("u",))
    with pytest.raises(DataError, match=r"row 0 of client 'a' has 3 entries, and 2 are named.*fields="):
        Data.from_datasets({"a": three})
    with pytest.raises(DataError, match="'index' is a word a batch uses itself"):
        Data.from_datasets({"a": [{"index": 1}]})


SAMPLERS = [(Replacement(), Request(4)), (Shuffled(), Request(4)), (Shuffled(), Request()), (Stratified("labels", 2), Request(4)),
            (PerTask("task", 1), Request(2, 1)), (Stored("many"), Request(3, 2)), (Stored("many"), Request(3, None)),
            (Stored("many"), Request(None, 2)), (Positives(), Request(2, 3)), (Positives("labels", enrich=1), Request(2, 3))]


@pytest.mark.parametrize(("sampler", "request_"), SAMPLERS, ids=repr)
def test_every_sampler_draws_the_same_rows(sampler: Any, request_: Request) -> None:
    batches = []
    memory = Data.from_parts(parts())
    for data in (memory, lazy(memory)):
        clients = np.asarray([1, 3])  # of one size
        keys = Setting(LINEAR, data, 0).keys(clients, "train", 1)
        selection = sampler.select(Draw(data, clients, keys, 0, np.arange(2)), request_)
        batches.append(sampler.fetch(data, {name: index[:, 1] for name, index in selection.items()}))
    for a, b in zip(*(batch.leaves() for batch in batches), strict=True):
        assert torch.equal(a, b)
    assert list(batches[0].fields) == list(batches[1].fields)


@pytest.mark.parametrize("engine", ENGINES)
def test_objectives_that_go_by_a_field(engine: str) -> None:
    memory = Data.from_parts(parts())
    model = Model(nn.Linear(3, 1))
    ap = ap_surrogate(lambda x, b: model(x, b.inputs)[:, 0], sampling=Positives(enrich=1))
    ends = []
    for data in (memory, lazy(memory)):
        fed = Federation(ap, data, engine=engine, weights=positive_counts(data).tolist())
        state = FCSG(0.05, 2, 2, 3).init(fed, torch.zeros(model.size))
        ends.append(FCSG(0.05, 2, 2, 3).round(fed, state).x)
    assert torch.equal(*ends)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [3, None])
def test_bilevel_objectives_read_one_column_and_not_the_rows(engine: str, batch: int | None) -> None:
    problem = hyper_parameters(lambda y, b: (b.inputs @ y - b.labels).square(), sampling=Stratified("validation", 1))
    memory = Data.from_parts({name: {"inputs": own["inputs"], "labels": own["labels"], "validation": own["task"]}
                              for name, own in parts().items()})
    ends = []
    for data in (memory, lazy(memory)):
        fed = Federation(problem, data, engine=engine)
        algorithm = FedNest(0.1, batch=batch)
        ends.append(algorithm.round(fed, algorithm.init(fed, torch.zeros(3), torch.zeros(3))).x)
    torch.testing.assert_close(*ends)


@dataclass(frozen=True)
class Full(Program):
    """Two full batches and a small one."""

    def step(self, c: Client, x: Tensor) -> Tensor:
        b, again = c.draw(), c.draw()
        return x + b.inputs.mean(0) - again.inputs.mean(0) + c.draw(1).inputs[0]


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_a_full_batch_is_read_once_a_call_and_a_small_one_is_all_that_is_read(engine: str) -> None:
    datasets = {name: Counting(own) for name, own in parts().items()}
    fed = Federation(LINEAR, Data.from_datasets(datasets), engine=engine)
    before = sum(sum(d.read.values()) for d in datasets.values())
    assert before <= 1  # the first row of the first client
    fed.mean(fed.iterate(Full().step, fed.broadcast(torch.zeros(3)), steps=2))
    assert [sum(d.read.values()) for d in datasets.values()] == [n + 2 + (name == "north") for name, n in SIZES.items()]
    datasets["south"].read.clear()
    algorithm = FedAvg(0.1, 3, 2)
    algorithm.round(fed, algorithm.init(fed, torch.zeros(3)))
    assert sum(datasets["south"].read.values()) == 3 * 2


def test_a_column_is_read_once_or_given() -> None:
    own = parts()
    memory = Data.from_parts(own)
    datasets = {name: Counting(fields) for name, fields in own.items()}
    data = Data.from_datasets(datasets)
    for _ in range(2):
        for a, b in zip(data.groups("labels"), memory.groups("labels"), strict=True):
            assert np.array_equal(a, b)
    assert data.part(1).to("cpu").column("labels", 0).tolist() == own["south"]["labels"].tolist()
    assert [sum(d.read.values()) for d in datasets.values()] == [n + (name == "north") for name, n in SIZES.items()]
    fresh = {name: Counting(fields) for name, fields in own.items()}
    given = Data.from_datasets(fresh, columns={"labels": {name: fields["labels"].tolist() for name, fields in own.items()}})
    assert positive_counts(given).tolist() == positive_counts(memory).tolist()
    assert sum(sum(d.read.values()) for d in fresh.values()) == 1


def test_a_loss_that_changes_a_full_batch_is_refused() -> None:
    def f(x: Tensor, b: Batch) -> Tensor:
        b.inputs.mul_(2.0)
        return (b.inputs @ x).mean()

    fed = Federation(Minimization(f), lazy(Data.from_parts(parts())), engine="loop")
    with pytest.raises(Exception, match="in place"):
        FedAvg(0.1, 2).round(fed, FedAvg(0.1, 2).init(fed, torch.zeros(3)))
