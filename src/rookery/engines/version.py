"""What a site holds after a frame and what made it, and an owner's word on what may run and leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import NamedTuple, Protocol

from torch import Tensor

from ..federation.client import Setting


class Maker(NamedTuple):
    """What made a value: a client function, by the full name of its program and its own, and which of its results the value is."""

    program: str
    method: str
    place: int


FROM_SERVER = Maker("", "", 0)  # of a value of the server's that a client has kept as its own


@dataclass(frozen=True)
class Version:
    """What a site holds after a frame: the server's values, each client's own ones with what made them, the problem as it was finished."""

    shared: Mapping[int, Tensor]
    own: tuple[Mapping[int, Tensor], ...]
    makers: tuple[Mapping[int, Maker], ...]
    setting: Setting


class Guard(Protocol):
    """An owner's word on what may run: raises `Refused` for what may not."""

    def begin(self) -> None:
        """A frame has come that was not executed before."""
        ...

    def operation(self, kind: str) -> None:
        """An operation of the site as a whole is to run."""
        ...

    def function(self, fn: MethodType, times: int) -> None:
        """A function that is to run, and how often, over all of a frame's clients."""
        ...

    def drew(self) -> None:
        """A batch is to be drawn, beyond the first of a function's run."""
        ...

    def moved(self, size: int) -> None:
        """So many bytes have come, are to leave, or are kept in a file."""
        ...

    def leaves(self, maker: Maker | None) -> None:
        """A value of a client's is to leave the site; nobody knows who made what was saved without a maker."""
        ...
