"""torch's global generators: seeded by a batch's key where a loss is random, and looked at where nothing may have used them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_ALONE = threading.RLock()  # a process may have several runs at work, and the generators are those of all


def _begin_anew() -> None:
    """A process that was forked while another thread held the lock has nobody who would give it back."""
    global _ALONE
    _ALONE = threading.RLock()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def seeded(key: int | None, device: torch.device) -> Iterator[None]:
    """Inside, torch's generators start from `key`; outside they are as they were. None changes nothing."""
    if key is None:
        yield
        return
    with _ALONE, torch.random.fork_rng(devices=[] if device.type == "cpu" else [device],
                                       device_type=device.type if device.type != "cpu" else "cuda"):
        torch.manual_seed(key)
        yield


def generators(device: torch.device) -> list[bytes]:
    """The states of torch's global generators that code on this device may use."""
    with _ALONE:
        states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return [state.numpy().tobytes() for state in states]
