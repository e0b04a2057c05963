"""Data of rows that stay in datasets: held out, chosen, moved, fingerprinted as rows in memory are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from counted import LINEAR, Counting, Pictures, lazy, parts
from torch.utils.data import Subset

from rookery import Data, FedAvg, Federation
from rookery.data import dirichlet, hold_out, split
from rookery.engines import Wire
from rookery.errors import CheckpointError, DataError
from rookery.training import checkpoint


@pytest.mark.parametrize("groups", [None, "task"])
def test_rows_are_held_out_as_in_memory(groups: str | None) -> None:
    memory = Data.from_parts(parts() | {"lone": {name: column[:1] for name, column in parts()["north"].items()}})
    data = lazy(memory)
    data.groups("labels")
    for a, b in zip(hold_out(memory, 0.3, 2, groups), hold_out(data, 0.3, 2, groups), strict=True):
        assert a.names == b.names
        assert a.sizes.tolist() == b.sizes.tolist()
        assert all(torch.equal(a.views(k)[name], b.views(k)[name]) for k in range(len(a.names)) for name in a.forms())
        assert np.array_equal(a.groups("labels").order, b.groups("labels").order)
    train = hold_out(data, 0.3)[0]
    assert hold_out(train, 0.3)[1].take(torch.tensor([0]))["inputs"].shape == (1, 3)
    with pytest.raises(DataError, match="names a row's group by one number"):
        hold_out(data, 0.3, groups="many")


def test_one_dataset_is_split_and_spread_by_subsets() -> None:
    pool = Pictures(60, lambda picture: torch.from_numpy(picture).flatten().float())
    kept = split(pool.targets, test=0.2).train
    site = dirichlet(np.asarray(pool.targets)[kept], sites=3, alpha=1.0)
    data = Data.from_datasets({name: Subset(pool, kept[site == name].tolist()) for name in sorted(set(site.tolist()))})
    assert int(data.sizes.sum()) == 48
    assert data.take(torch.arange(48))["inputs"][:, 0].long().sort().values.tolist() == kept.tolist()


def test_the_rest_of_the_interface_is_that_of_rows_in_memory() -> None:
    memory = Data.from_parts(parts())
    data = lazy(memory)
    assert data.names == memory.names
    assert data.forms() == memory.forms()
    assert data.offsets.tolist() == memory.offsets.tolist()
    assert data.client_keys.tolist() == memory.client_keys.tolist()
    assert [data.owner(row) for row in range(24)] == [memory.owner(row) for row in range(24)]
    assert data.device == memory.device
    for client in (None, 0, 2):
        assert torch.equal(data.column("labels", client), memory.column("labels", client))
    assert data.to("cpu") is data
    assert torch.equal(data.part(2, 0).views(1)["inputs"], memory.part(2, 0).views(1)["inputs"])
    assert data.part(2, 0).names == memory.part(2, 0).names == ("east", "north")
    assert repr(data).startswith("Data.from_datasets(north: 9 rows, south")
    for other in (memory, data):
        with pytest.raises(DataError, match=r"there is no field 'class'; the clients have \['inputs', 'labels', 'many', 'task'\]"):
            other.column("class", 0)
    with pytest.raises(DataError, match=r"'inputs' is float32 of shape \(3,\): write data.take"):
        data.column("inputs", 0)
    with pytest.raises(DataError, match=r"no field of them is in memory: write data.take\(rows\)"):
        _ = data.fields


def test_rows_go_to_the_federations_device() -> None:
    """The device without numbers stands for one that has them."""
    data = lazy(Data.from_parts(parts())).to("meta")
    assert data.device.type == "meta"
    assert all(value.device.type == "meta" for value in data.take(torch.tensor([0, 20])).values())
    assert data.part(1).device.type == data.only(np.arange(3)).device.type == "meta"


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_a_run_goes_on_from_its_checkpoint_with_the_same_rows_only(engine: str, tmp_path: Path) -> None:
    memory, algorithm = Data.from_parts(parts()), FedAvg(0.05, 2, 3)

    def federation(data: Data) -> Federation[Any]:
        return Federation(LINEAR, data, seed=5, engine=Wire(tmp_path) if engine == "wire" else engine)

    def advanced(fed: Federation[Any], state: Any, rounds: int) -> Any:
        for _ in range(rounds):
            state = algorithm.round(fed, state)
        return state

    whole = advanced(fed := federation(memory), algorithm.init(fed, torch.zeros(3)), 4).x
    fed = federation(lazy(memory))
    state = advanced(fed, algorithm.init(fed, torch.zeros(3)), 2)
    checkpoint.save(tmp_path / "run", algorithm, fed, state)
    fed = federation(lazy(memory))
    assert torch.equal(advanced(fed, checkpoint.load(tmp_path / "run", algorithm, fed), 2).x, whole)
    for name, row in (("south", 0), ("east", 6)):
        other = parts()
        other[name]["inputs"][row, 1] += 1
        with pytest.raises(CheckpointError, match="belongs to another run"):
            checkpoint.load(tmp_path / "run", algorithm, federation(lazy(Data.from_parts(other))))
    counting = {name: Counting(own) for name, own in parts().items()}
    data = Data.from_datasets(counting)
    assert data.fingerprint() == data.fingerprint()
    assert all(set(d.read) <= {0, len(d) - 1} for d in counting.values())
