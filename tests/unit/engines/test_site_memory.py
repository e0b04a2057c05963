"""Nothing is left behind at a site, and the bytes that crossed are counted."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from recorded_frames import Small, composed, exchange, plain, rows, values

from rookery import SCAFFOLD, FedAvg, FedDRO, Federation
from rookery.engines import Wire
from rookery.errors import UploadError


@pytest.mark.parametrize(("algorithm", "problem", "bound"), [
    (FedAvg(lr=0.1, local_steps=2, batch=2), plain, 1), (SCAFFOLD(lr=0.1, local_steps=2, batch=2), plain, 3),
    (FedDRO(lr=0.1, beta=0.5, local_steps=2, batch=3), composed, 5),
], ids=["FedAvg", "SCAFFOLD", "FedDRO"])
def test_sites_do_not_fill_up(algorithm: Any, problem: Callable[[], Any], bound: int) -> None:
    wire = Wire()
    fed = Federation(problem(), rows(), engine=wire, clients_per_round=2)
    state = algorithm.init(fed, torch.zeros(3, dtype=torch.float64))
    counts = []
    for _ in range(20):
        state = algorithm.round(fed, state)
        counts.append([len(values(site)) for site in wire.sites])
    assert max(map(max, counts)) <= bound
    assert max(map(max, counts[10:])) <= max(map(max, counts[:10]))
    assert all(site.counter >= 3 for site in wire.sites)
    del state
    gc.collect()
    exchange(fed)
    exchange(fed)
    left = [dict(values(site)) for site in wire.sites]
    exchange(fed)
    assert all(len(store) <= 2 for store in left)  # what the last exchange itself used
    assert all(not set(before) & set(values(site)) for before, site in zip(left, wire.sites, strict=True))


def test_a_value_without_a_handle_disappears_at_the_next_exchange() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    x = fed.broadcast(torch.ones(3, dtype=torch.float64))
    y, z = fed.map(Small().divide, x, 2.0)
    fed.mean(y)
    assert all({x.id, z.id} <= set(values(site)) for site in wire.sites)
    gone = {y.id, z.id}  # y was averaged, and leaves with the next frame: until then the exchange could be repeated
    del z
    fed.mean(fed.map(Small().scale, x))
    assert all(x.id in values(site) and not gone & set(values(site)) for site in wire.sites)


def test_a_site_that_was_away_frees_what_it_missed_when_it_is_next_reached() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    x = fed.broadcast(torch.ones(3, dtype=torch.float64))
    fed.mean(fed.map(Small().scale, x))
    gone = x.id
    del x
    some = fed.cohort(2)
    some.mean(some.map(Small().scale, some.broadcast(torch.ones(3))))
    away = [k for k in range(4) if k not in some.index]
    assert [gone in values(site) for site in wire.sites] == [k in away for k in range(4)]
    exchange(fed)
    assert all(gone not in values(site) for site in wire.sites)
    assert all(gone not in ids for ids in (place.late for place in wire.places))


def test_a_refused_upload_leaves_no_values_behind() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    bad, other = fed.map(Small().divide, fed.broadcast(torch.ones(3)), np.asarray([1.0, 1.0, 0.0, 1.0]))
    with pytest.raises(UploadError):
        fed.mean(bad)
    del bad, other
    gc.collect()
    exchange(fed)
    exchange(fed)
    assert all(len(values(site)) <= 2 for site in wire.sites)  # what the last exchange itself used


def test_the_bytes_that_crossed_are_counted() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    crossed = []
    for site in wire.sites:
        def answer(frame: bytes, genuine: Callable[[bytes], bytes] = site.answer) -> bytes:
            reply = genuine(frame)
            crossed.append(len(frame) + len(reply))
            return reply
        site.answer = answer  # type: ignore[method-assign]
    exchange(fed)
    assert len(crossed) == 4
    assert wire.frame_bytes == sum(crossed)
    payload = fed.ledger["train"].bytes_up + fed.ledger["train"].bytes_down
    assert payload == 2 * 4 * 3 * 8
    assert wire.frame_bytes > payload
