"""What is wrong with a dataset, or with a row of one, is said by the client's, the row's and the field's name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from counted import LINEAR, Pictures, parts
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from rookery import Data, FedAvg, Federation, Minimization
from rookery.data import Stratified, hold_out
from rookery.errors import DataError

ROW = (torch.zeros(3), 1)


class Rows(Dataset[Any]):
    """A list of items, of which an exception is raised."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        if isinstance(self.items[row], Exception):
            raise self.items[row]
        return self.items[row]


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter([torch.ones(3)])


class Lengthless(Dataset[Tensor]):
    def __getitem__(self, row: int) -> Tensor:
        return torch.ones(3)


class Broken(Lengthless):
    def __len__(self) -> int:
        raise OSError("the disk is gone")


@pytest.mark.parametrize(("dataset", "words"), [
    (Endless(), "an IterableDataset has neither length nor row numbers: write a Dataset with __len__ and __getitem__"),
    (Lengthless(), "with __len__ and __getitem__; Lengthless has not both"), (TensorDataset, "with __len__ and __getitem__; type"),
    (DataLoader(TensorDataset(torch.ones(2))), r"a DataLoader came: write loader\.dataset"), (7, "int has not both"),
    ({"inputs": torch.ones(2)}, r"a mapping of fields came: write Data\.from_parts"), (Broken(), "OSError: the disk is gone"),
    (Rows(), "client 'south' has no rows; leave it out"), (Subset(Rows(ROW), []), "client 'south' has no rows; leave it out")])
def test_a_dataset_without_rows_by_number_is_refused_at_once(dataset: Any, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        Data.from_datasets({"north": Rows(ROW), "south": dataset})
    assert "client 'south'" in str(caught.value)


@pytest.mark.parametrize(("arguments", "words"), [
    (([Rows(ROW)],), "takes a mapping from clients' names to datasets.*got list"), (({},), "at least one client"),
    (({"a": Rows(ROW)}, "inputs"), "names of fields as a tuple"), (({"a": Rows(ROW), 1: Rows(ROW), "1": Rows(ROW)},), "'1' stands twice"),
    (({1.5: Rows(ROW)},), "texts as names; got 1.5"), (({"a": Rows({})},), "every row needs the same fields"),
    (({"a": Rows({"u": 1})}, ("u", "v")), r"same fields, \['u', 'v'\]; row 0 of client 'a' has \['u'\]"),
    (({"a": Rows({3: 1})},), "texts as names; got 3"),
    (({"a": Rows(ROW)}, None, {"class": {"a": [1]}}), r"some of the fields \['inputs', 'labels'\] and all of the clients; 'class' has"),
    (({"a": Rows(ROW)}, None, {"labels": [1]}), "'labels' has list"), (({"a": Rows(ROW)}, None, {"labels": {"b": [1]}}), r"has \['b'\]"),
    (({"a": Rows(ROW)}, None, {"labels": {"a": [1, 2]}}), r"each of the 1 rows of client 'a', int64 of shape \(\); it has shape \(2,\)"),
    (({"a": Rows(ROW)}, None, {"labels": {"a": [1.5]}}), "as its dataset has them, int64.*float32 and do not fit"),
    (({"a": Rows((1.0, 1.0))}, None, {"labels": {"a": [float("nan")]}}), "do not fit")])
def test_arguments_are_answered_by_a_sentence(arguments: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Data.from_datasets(*arguments)


@pytest.mark.parametrize(("item", "words"), [
    ((torch.tensor([1.0, float("nan"), 0.0]), 1), "field 'inputs' has a value that is not finite in row 2 of client 'south'; clean"),
    ((torch.zeros(2), 1), r"field 'inputs' is float32 of shape \(2,\) in row 2 of client 'south', and float32 of shape \(3,\) in the"),
    ((torch.zeros(3).double(), 1), r"field 'inputs' is float64 of shape \(3,\) in row 2 of client 'south', and float32"),
    ((torch.zeros(3).half(), 1), "field 'inputs' is float16"), ((np.zeros(3), 1), "field 'inputs' is float64"),
    ((torch.zeros(3), 1.0), "field 'labels' is float64 .* in row 2 of client 'south', and int64"),
    ((torch.zeros(3), True), "'labels' is bool"),
    ((torch.zeros(3), torch.tensor([1])), r"field 'labels' is int64 of shape \(1,\)"),
    ((torch.zeros(3), 2**70), "row 2 of client 'south' must have a number.* in field 'labels'.*int came"),
    ((torch.zeros(3), "ill"), "row 2 of client 'south' must have a number.* in field 'labels'.*str came: number texts"),
    ((torch.zeros(3), None), "in field 'labels'.*NoneType came"), ((torch.zeros(3), {"age": 1}), "field 'labels'.*dict came.*of its own"),
    ((torch.zeros(3), (1, 2)), "field 'labels'.*tuple came"), ((torch.zeros(3).to_sparse(), 1), "field 'inputs'.*sparse"),
    ((Image.new("L", (3, 1)), 1), "field 'inputs'.*Image came.*torchvision's ToTensor"),
    ((np.asarray(["a"]), 1), "field 'inputs'.*ndarray came"),
    (torch.zeros(3), r"same fields, \['inputs', 'labels'\]; row 2 of client 'south' has \['inputs'\]"),
    ((torch.zeros(3), 1, 2), "row 2 of client 'south' has 3 entries, and 2 are named"),
    ({"inputs": torch.zeros(3), "label": 1}, r"row 2 of client 'south' has \['inputs', 'label'\]"),
    (KeyError("0002.png"), "row 2 of client 'south' cannot be read: its dataset raises KeyError: '0002.png'"),
    (OSError(), "row 2 of client 'south' cannot be read: its dataset raises OSError")])
def test_a_row_is_named_when_it_is_read(item: Any, words: str) -> None:
    data = Data.from_datasets({"north": Rows(ROW, ROW), "south": Rows(ROW, ROW, item, ROW)})
    data.take(torch.tensor([0, 1, 2, 3, 5]))
    for read in (lambda: data.take(torch.tensor([[3, 4]])), lambda: data.views(1), lambda: data.take(torch.tensor([4, 3]))):
        with pytest.raises(DataError, match=words):
            read()
    if "'inputs'" not in words:  # reading one column does not look at the other ones
        with pytest.raises(DataError, match=words):
            data.groups("labels")
    train, held = hold_out(Data.from_datasets({"south": Rows(ROW, ROW, item, ROW)}), 0.5)
    rows = [row for part in (train, held) for row in part._clients[0].index.tolist()]  # type: ignore[attr-defined]
    assert sorted(rows) == [0, 1, 2, 3]
    with pytest.raises(DataError, match=words):  # a held-out row is numbered as in its dataset
        (train if rows.index(2) < 2 else held).views(0)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire", "auto"])
@pytest.mark.parametrize("batch", [2, None])
def test_every_engine_passes_the_sentence_on(engine: str, batch: int | None) -> None:
    own = {name: TensorDataset(fields["inputs"].clone(), fields["labels"]) for name, fields in parts().items()}
    own["south"].tensors[0][:] = float("inf")
    fed = Federation(LINEAR, Data.from_datasets(own), engine=engine)
    with pytest.raises(DataError, match=r"field 'inputs' has a value that is not finite in row . of client 'south'"):
        FedAvg(0.1, 2, batch).round(fed, FedAvg(0.1, 2, batch).init(fed, torch.zeros(3)))


class Rounded(Rows):
    """Every reading has another label."""

    def __getitem__(self, row: int) -> Any:
        self.times = getattr(self, "times", 0) + 1
        return self.items[row][0], self.times % 2


def test_columns_are_held_against_the_rows() -> None:
    datasets = {"a": Rows(ROW, (torch.zeros(3), 0)), "b": Rows((torch.zeros(3), 0), ROW)}
    given = {"labels": {"b": [0, 1], "a": [0, 1]}}
    problem = Minimization(LINEAR.f, sampling=Stratified("labels", 1))
    fed = Federation(problem, Data.from_datasets(datasets, columns=given), engine="loop")
    with pytest.raises(DataError, match="field 'labels' is 0 in row 1 of client 'a', and 1 in the column that was given or read before"):
        FedAvg(0.1, 1, 2).round(fed, FedAvg(0.1, 1, 2).init(fed, torch.zeros(3)))
    data = Data.from_datasets({"a": Rounded(ROW, ROW, ROW)})
    data.groups("labels")
    with pytest.raises(DataError, match="a dataset must have the same rows every time"):
        data.views(0)


@pytest.mark.parametrize("noise", [lambda: torch.rand(1), random.random, np.random.rand], ids=["torch", "python", "numpy"])
@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_a_dataset_that_draws_random_numbers_is_refused(noise: Any, engine: str) -> None:
    pictures = {name: Pictures(4, lambda picture: torch.from_numpy(picture).float() + float(noise())) for name in "ab"}
    fed = Federation(LINEAR, Data.from_datasets(pictures), engine=engine)
    with pytest.raises(DataError, match=r"client 'a' draws random numbers when a row is read.*stochastic=True"):
        FedAvg(0.1, 1, 2).round(fed, FedAvg(0.1, 1, 2).init(fed, torch.zeros(3)))
