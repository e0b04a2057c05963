"""Replies that are malformed, non-finite or an error: the server says which site's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from recorded_frames import Small, exchange, plain, rows
from torch import Tensor

from rookery import FedAvg, Federation, Minimization, RookeryError
from rookery.engines import Wire
from rookery.engines.frames import pack, unpack
from rookery.errors import UploadError


def reply_with(**change: Any) -> Callable[[bytes], bytes]:
    def make(reply: bytes) -> bytes:
        header, tensors = unpack(reply)
        return pack({k: v for k, v in {**header, **change}.items() if v is not Ellipsis}, tensors)
    return make


REPLIES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda reply: b"",
    "truncated": lambda reply: reply[:-1],
    "flipped": lambda reply: bytes([*reply[:-20], reply[-20] ^ 1, *reply[-19:]]),
    "of another site": reply_with(site="c"),
    "of another number": reply_with(k=7),
    "of another run": reply_with(run="another"),
    "without tensors": lambda reply: pack(unpack(reply)[0], {}),
    "with other tensors": lambda reply: pack(unpack(reply)[0], {1: torch.ones(3, dtype=torch.float64)}),
    "with more tensors": lambda reply: pack(unpack(reply)[0], {0: torch.ones(3), 1: torch.ones(3)}),
    "of another shape": lambda reply: pack(unpack(reply)[0], {0: torch.ones(4, dtype=torch.float64)}),
    "of another dtype": lambda reply: pack(unpack(reply)[0], {0: torch.ones(3)}),
    "not finite": lambda reply: pack(unpack(reply)[0], {0: torch.full((3,), float("nan"), dtype=torch.float64)}),
    "without work": reply_with(work=...),
    "with odd work": reply_with(work={}),
    "with work of odd form": reply_with(work=[1]),
    "with odd calls": reply_with(work=[["train", 1, [], 0, 0]]),
    "with texts as numbers of calls": reply_with(work=[["train", 1, {"gradient": "many"}, 0, 0]]),
    "with odd samples": reply_with(work=[["train", 1, {}, "many", 0]]),
    "with negative samples": reply_with(work=[["train", 1, {}, -5, 0]]),
    "with odd draws": reply_with(work=[["train", 1, {}, 0, []]]),
    "with work in an unknown phase": reply_with(work=[["holiday", 1, {}, 0, 0]]),
    "with work nobody asked for": reply_with(work=[["train", 77, {}, 0, 0]]),
    "an odd error": reply_with(error=5),
    "an error of three parts": reply_with(error=["FrameError", "a", "b"]),
    "an error of an unknown name": reply_with(error=["annotations", "a"]),
    "an error without a name": reply_with(error=[None, "a"]),
}


@pytest.mark.parametrize("label", REPLIES)
def test_a_malformed_reply_is_refused_with_the_site_s_name(label: str) -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    site, genuine = wire.sites[1], wire.sites[1].answer
    site.answer = lambda frame: REPLIES[label](genuine(frame))  # type: ignore[method-assign]
    with pytest.raises(RookeryError, match=r"(client|site) 'b'"):
        exchange(fed)
    assert fed.ledger["train"].exchanges == 0


def test_a_non_finite_upload_crosses_and_is_named() -> None:
    fed = Federation(plain(), rows(), engine="wire")
    with pytest.raises(UploadError, match="non-finite") as caught:
        fed.mean(fed.map(Small().divide, fed.broadcast(torch.ones(3)), np.asarray([1.0, 1.0, 0.0, 1.0]))[0])
    assert caught.value.client == "c"


def test_an_upload_that_no_frame_carries_is_refused_and_the_next_exchange_works() -> None:
    fed = Federation(plain(), rows(), engine="wire")
    with pytest.raises(UploadError, match=r"client 'a'.*int16"):
        fed.sum(fed.map(Small().short, fed.broadcast(torch.ones(3))))
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]


def test_a_fault_in_a_loss_reaches_the_server_with_the_site_s_name() -> None:
    def broken(x: Tensor, b: Any) -> Tensor:
        raise ZeroDivisionError("my own fault")

    fed = Federation(Minimization(broken), rows(), engine="wire")
    algorithm = FedAvg(lr=0.1)
    with pytest.raises(RookeryError, match=r"^site 'a': the oracle 'gradient' failed with ZeroDivisionError: my own fault"):
        algorithm.round(fed, algorithm.init(fed, torch.zeros(3, dtype=torch.float64)))
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]
