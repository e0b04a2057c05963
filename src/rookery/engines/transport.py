"""How frames reach sites: what an engine asks of a network, and the network that is this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Transport(Protocol):
    """Carries frames to sites and brings their replies. Deadlines, encryption and connections are its business; frames are not."""

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        """Send each site its frame, all at once, and wait for the replies until the deadline.

        What a site did not answer is an exception in its place, which says why: nobody knows then whether the site has executed the frame.
        """
        ...


class InProcess:
    """Sites in this process, asked one after the other."""

    def __init__(self, answers: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.answers = dict(answers)

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        return {name: self.answers[name](frame) for name, frame in frames.items()}
