"""What the federation hands to an engine: the operations of a cohort, and what is wanted of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Index = NDArray[np.int64]


class Ref(NamedTuple):
    """A value at the clients, by number."""

    id: int


class PerClient(NamedTuple):
    """A number of the server's for each client (local steps, sizes)."""

    numbers: Index


@dataclass(frozen=True)
class Map:
    """Run `fn(client, *arguments)`, `times` times over, its results becoming its first arguments."""

    fn: MethodType  # of a program
    arguments: tuple[Any, ...]
    out: tuple[int, ...]
    times: int | Index
    phase: str
    call: int
    like: Map | None = None  # the operation whose samples it draws again
    drawn: list[int] = field(default_factory=lambda: [0])  # how often one repetition drew, once it has run

    @property
    def known(self) -> int:
        """Draws that were counted already."""
        return 0 if self.like is None else max(self.like.drawn[0], self.like.known)

    @property
    def most(self) -> int:
        """The largest number of repetitions at a client."""
        return self.times if isinstance(self.times, int) else int(self.times.max())

    def times_of(self, position: int) -> int:
        return self.times if isinstance(self.times, int) else int(self.times[position])

    def arguments_of(self, position: int, read: Callable[[int], Tensor]) -> list[Any]:
        """The arguments at one client."""
        return [read(a.id) if isinstance(a, Ref) else a.numbers[position].item() if isinstance(a, PerClient) else a for a in self.arguments]

    @property
    def reads(self) -> list[int]:
        return [a.id for a in self.arguments if isinstance(a, Ref)]


@dataclass(frozen=True)
class Take:
    """`source` where a client holds it, else `default`."""

    source: int
    default: int
    out: tuple[int, ...]

    @property
    def reads(self) -> list[int]:
        return [self.source, self.default]


@dataclass(frozen=True)
class Put:
    """Write `source` into the population's state `pool`."""

    pool: int
    source: int
    undo: Callable[[], None]  # gives the handle that this replaced back, should the exchange fail
    out: tuple[int, ...] = ()

    @property
    def reads(self) -> list[int]:
        return [self.source]


Op = Map | Take | Put


@dataclass
class Flush:
    """The pending operations of a cohort, and what is wanted of them at the server."""

    cohort: Index
    ops: list[Op]
    values: dict[int, Tensor]  # values from the server that the operations read
    news: dict[int, Index]  # for each of them, the positions in the cohort that do not hold it yet
    wants: list[int]  # to be uploaded
    keep: set[int]  # results still in use after the flush
    free: set[int]  # stored values no longer in use
