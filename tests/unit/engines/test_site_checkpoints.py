"""Checkpoints that stay at the sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from recorded_frames import Small, exchange, held, picture, plain, rows, scaffold

from rookery import Data, Federation, RookeryError
from rookery.engines import Wire
from rookery.errors import StateLost


def test_sites_save_and_load_under_a_tag(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    _, state = scaffold(wire, 1)
    wire.save("after-1", [state.ci.id])
    saved = [held(site).get(state.ci.id) for site in wire.sites]
    assert sum(value is not None for value in saved) == 2
    assert len(list(tmp_path.iterdir())) == 4
    for site in wire.sites:
        assert site.file("after-1").exists()
        changed = {id: value + 1 for id, value in site.held.own[0].items()}
        site.versions = {site.counter: replace(site.held, own=(changed,))}
    wire.load("after-1", {state.ci.id: state.ci.id}, {})
    assert [held(site).get(state.ci.id) for site in wire.sites] == saved

    later = Wire(tmp_path)
    Federation(plain(), rows(), engine=later)
    later.load("after-1", {state.ci.id: state.ci.id}, {})
    assert [held(site) for site in later.sites] == [{} if value is None else {state.ci.id: value} for value in saved]


def test_a_missing_tag_says_state_lost_and_names_the_site(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    fed, state = scaffold(wire, 1, clients_per_round=4)
    with pytest.raises(StateLost, match=r"^site 'a': state lost: no checkpoint 'never' at this site$"):
        wire.load("never", {1: 1}, {})
    wire.save("once", [state.ci.id])
    wire.sites[2].file("once").unlink()
    with pytest.raises(StateLost, match=r"^site 'c': state lost: no checkpoint 'once' at this site$"):
        wire.load("once", {1: 1}, {})
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]


def test_a_site_without_a_folder_says_so() -> None:
    wire = Wire()
    Federation(plain(), rows(), engine=wire)
    for ask in (lambda: wire.save("tag", [1]), lambda: wire.load("tag", {1: 1}, {})):
        with pytest.raises(StateLost, match=r"^site 'a': .*no folder"):
            ask()


def test_a_damaged_checkpoint_at_a_site_is_refused_by_name(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    _, state = scaffold(wire, 1, clients_per_round=4)
    wire.save("tag", [state.ci.id])
    file = wire.sites[1].file("tag")
    file.write_bytes(file.read_bytes()[:-3])
    before = picture(wire.sites[1])
    with pytest.raises(RookeryError, match=r"^site 'b'") as caught:
        wire.load("tag", {state.ci.id: state.ci.id}, {})
    assert type(caught.value).__name__ in ("StateLost", "CheckpointError")
    assert picture(wire.sites[1]) == before


@pytest.mark.parametrize("method", ["twice", "views"])
def test_values_that_share_memory_are_saved(tmp_path: Path, method: str) -> None:
    """A client function may return its argument, or two views of it."""
    wire = Wire(tmp_path)
    fed = Federation(plain(), rows(), engine=wire)
    first, second = fed.map(getattr(Small(), method), fed.broadcast(torch.tensor([1.0, 2.0, 3.0])))
    exchange(fed)
    wire.save("tag", [first.id, second.id])
    saved = held(wire.sites[0])
    later = Wire(tmp_path)
    Federation(plain(), rows(), engine=later)
    later.load("tag", {first.id: first.id, second.id: second.id}, {})
    assert held(later.sites[0]) == {id: saved[id] for id in (first.id, second.id)}


def test_sites_of_one_folder_keep_apart(tmp_path: Path) -> None:
    """Names that differ only where a file system would not tell them apart."""
    names = ("A", "a", "a/b", "a.b", "..", "ä")
    wire = Wire(tmp_path)
    fed = Federation(plain(), Data.from_parts({name: {"u": torch.zeros(2, 3)} for name in names}), engine=wire)
    value = fed.map(Small().divide, fed.broadcast(torch.ones(3)), np.arange(1.0, 7.0))[0]
    exchange(fed)
    wire.save("tag", [value.id])
    assert len(list(tmp_path.iterdir())) == 6
    before = [held(site)[value.id] for site in wire.sites]
    assert len(set(before)) == 6
    wire.load("tag", {value.id: value.id}, {})
    assert [held(site)[value.id] for site in wire.sites] == before
