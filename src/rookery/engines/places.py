"""What the server knows of its sites, and the words in which it asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from .. import errors
from ..errors import RookeryError, UploadError
from ..federation.operations import Map, Op, PerClient, Put, Ref, Take
from .frames import Buffer, pack
from .programs import describe, named


@dataclass
class Place:
    """What the server knows of one site."""

    name: str
    clients: list[int]  # their numbers in the federation, in the order of the site's own
    base: int = 0  # the last frame that ended well everywhere
    sent: int = 0
    shared: set[int] = field(default_factory=set)  # values of the server's that it holds
    own: dict[int, set[int]] = field(default_factory=dict)  # by client, values that the client made
    late: set[int] = field(default_factory=set)  # what it may forget, told with the next frame that goes there
    tags: list[str] = field(default_factory=list)  # checkpoints that it may forget
    programs: set[str] = field(default_factory=set)  # those that it has the same of
    missed: bool = False  # it did not answer
    saved: bool = False  # it has the last checkpoint
    lost: bool = False  # nobody has what its clients had made: it stays away

    def __post_init__(self) -> None:
        self.rows = {client: row for row, client in enumerate(self.clients)}

    @property
    def held(self) -> set[int]:
        """The numbers of all values there."""
        return self.shared.union(*self.own.values())


@dataclass
class Asked:
    """A frame on its way to a site, and what the site will hold once it is executed."""

    place: Place
    frame: bytes
    clients: list[int]
    wants: int = 0
    shared: set[int] = field(default_factory=set)
    made: set[int] = field(default_factory=set)
    free: set[int] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)

    def check(self, run: str, header: dict[str, Any], tensors: dict[int, Tensor]) -> None:
        """Refuse a reply that is an error, or that belongs to something else."""
        name = self.place.name
        if "error" in header:
            raise error_of(header["error"], header.get("client"), name)
        told = (header.get("site"), header.get("run"), header.get("k"))
        if told != (name, run, self.place.sent) or set(tensors) != set(range(len(self.clients) * self.wants)):
            raise UploadError(name, "its reply does not belong to the frame it was sent")


class Frames:
    """The frames of one exchange. Sites that are told the same, as most are, are sent the same bytes."""

    def __init__(self) -> None:
        self.last: tuple[dict[str, Any], Buffer, bytes] | None = None

    def made(self, header: dict[str, Any], buffer: Buffer) -> bytes:
        if self.last is None or self.last[1] is not buffer or self.last[0] != header:
            self.last = header, buffer, pack(header, buffer)
        return self.last[2]


AtSite = Callable[[Sequence[int], Sequence[set[int]]], dict[str, Any]]
"""What depends on a site: given the positions of its clients in the cohort, and the values that each of them holds."""


def in_words(op: Op) -> tuple[AtSite, set[str]]:
    """An operation in words, once for all sites but for what depends on a site, and the full names of the programs in it."""
    if isinstance(op, Map):
        program, arguments = describe(op.fn.__self__), [_argument(a) for a in op.arguments]
        words = {"op": "map", "fn": [program, op.fn.__name__], "arguments": arguments, "out": list(op.out),
                 "times": op.times if isinstance(op.times, int) else 0, "phase": op.phase, "call": op.call, "known": op.known}
        each = {place: a for place, a in enumerate(op.arguments) if isinstance(a, PerClient)}
        varies = each or not isinstance(op.times, int)
        return partial(_map_at, op, words, each) if varies else lambda positions, held: words, named([program, arguments])
    if isinstance(op, Take):
        return partial(_take_at, op), set()
    assert isinstance(op, Put)
    put = {"op": "put", "pool": op.pool, "source": op.source}
    return lambda positions, held: put, set()


def _map_at(op: Map, words: dict[str, Any], each: Mapping[int, PerClient], positions: Sequence[int],
            held: Sequence[set[int]]) -> dict[str, Any]:
    times, arguments = [op.times_of(position) for position in positions], list(words["arguments"])
    for place, argument in each.items():
        arguments[place] = {"each": [argument.numbers[position].item() for position in positions]}
    return {**words, "arguments": arguments, "times": times[0] if len(set(times)) == 1 else times}


def _take_at(op: Take, positions: Sequence[int], held: Sequence[set[int]]) -> dict[str, Any]:
    return {"op": "take", "source": op.source, "holders": [row for row, own in enumerate(held) if op.source in own],
            "default": op.default, "out": op.out[0]}


def _argument(argument: Any) -> dict[str, Any]:
    return {"ref": argument.id} if isinstance(argument, Ref) else {"value": None if isinstance(argument, PerClient) else describe(argument)}


def error_of(note: Any, client: Any, site: str) -> Exception:
    """A site's error under the site's name, or its client's."""
    match note:
        case [str(kind), str(message)]:
            cls = getattr(errors, kind, None)
            if isinstance(cls, type) and issubclass(cls, RookeryError) and not issubclass(cls, UploadError):
                return cls(f"site {site!r}: {message}")
            return UploadError(client if isinstance(client, str) else site, message)
    return UploadError(site, f"it answered with an error of no known form: {note!r}")
