"""A network with faults: what a federation over it comes to must be what it comes to without them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from ..engines import Wire
from ..engines.transport import Transport
from ..federation.client import Setting


class Faulty:
    """Another transport whose frames and replies get lost, are repeated, come late and in another order.

    share: of frames that meet each of these faults; down: sites that do not answer at all
    """

    def __init__(self, transport: Transport, share: float = 0.1, seed: int = 0) -> None:
        self.transport, self.share, self.random = transport, share, random.Random(seed)
        self.down: set[str] = set()
        self.late: list[tuple[str, bytes]] = []  # frames that have yet to arrive
        self.faults = 0

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        order = list(frames.items())
        self.random.shuffle(order)
        replies = {name: self._one(name, frame, seconds) for name, frame in order}
        return {name: replies[name] for name in frames}

    def _one(self, name: str, frame: bytes, seconds: float) -> bytes | Exception:
        if name in self.down:
            return TimeoutError(f"no answer in {seconds:g} s")
        if self._happens():
            for old, again in self.late:
                self.transport.exchange({old: again}, seconds)
            self.late.clear()
        if self._happens():
            self.late.append((name, frame))
            return TimeoutError("the frame is late")
        if self._happens():
            return TimeoutError("the frame was lost")
        reply = self.transport.exchange({name: frame}, seconds)[name]
        if self._happens():
            reply = self.transport.exchange({name: frame}, seconds)[name]
        return TimeoutError("the reply was lost") if self._happens() else reply

    def _happens(self) -> bool:
        happens = self.random.random() < self.share
        self.faults += happens
        return happens


class FaultyWire(Wire):
    """Sites of two clients each in this process, behind a network with faults."""

    def __init__(self, share: float = 0.1, seed: int = 0, tries: int = 50) -> None:
        super().__init__(clients_per_site=2)
        self.tries, self.share, self.seed = tries, share, seed

    def connect(self, setting: Setting) -> None:
        super().connect(setting)
        assert self.transport is not None
        self.transport = Faulty(self.transport, self.share, self.seed)
