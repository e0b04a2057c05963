"""`same_draws_as=`: the samples of an earlier call, drawn and counted once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from verbs import engines, federation, ones, work

from rookery.errors import PlacementError


@engines
def test_like_draws_the_same_samples(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    same = fed.sum(fed.map(work.drawn, np.arange(4), same_draws_as=first))
    other = fed.sum(fed.map(work.drawn, np.arange(4)))
    assert torch.equal(a, same)
    assert not torch.equal(a, other)
    assert fed.ledger["train"].samples == 2 * 4 * 3  # the second call drew nothing new


@engines
def test_like_counts_the_draws_that_are_new(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    twice = fed.sum(fed.map(work.drawn_twice, np.arange(4), same_draws_as=first))
    assert torch.equal(twice[:, :3], a)
    assert not torch.equal(twice[:, 3:], a)
    assert fed.ledger["train"].samples == 4 * 3 + 4 * 3


@engines
def test_like_counts_once_within_one_exchange(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a, same = fed.sum(first, fed.map(work.drawn, np.arange(4), same_draws_as=first))
    assert torch.equal(a, same)
    assert fed.ledger["train"].samples == 4 * 3


@engines
def test_like_counts_once_with_another_exchange_between(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    fed.mean(fed.map(work.increment, fed.broadcast(ones())))
    same = fed.sum(fed.map(work.drawn, np.arange(4), same_draws_as=first))
    assert torch.equal(a, same)
    assert fed.ledger["train"].samples == 4 * 3


@engines
def test_like_draws_as_then_also_in_another_phase(engine: str) -> None:
    fed = federation(engine)
    first = fed.map(work.drawn, np.arange(4))
    a = fed.sum(first)
    with fed.phase("evaluation"):
        assert torch.equal(a, fed.sum(fed.map(work.drawn, np.arange(4), same_draws_as=first)))


def test_like_takes_a_value_made_by_map() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="same_draws_as= takes a value made by map or iterate; this one was broadcast or taken"):
        fed.map(work.drawn, np.arange(4), same_draws_as=fed.broadcast(ones()))
