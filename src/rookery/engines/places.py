"""What the server knows of its sites, and the words in which it asks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import errors
from ..errors import RookeryError, UploadError
from ..federation.operations import Map, Op, PerClient, Put, Ref, Take
from .frames import describe


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


def described(op: Op, positions: Sequence[int], held: Sequence[set[int]]) -> dict[str, Any]:
    """An operation at the clients of these positions in the cohort, of which each holds some values."""
    if isinstance(op, Map):
        times = [op.times_of(position) for position in positions]
        return {"op": "map", "fn": [describe(op.fn.__self__), op.fn.__name__],
                "arguments": [_argument(a, positions) for a in op.arguments], "out": list(op.out),
                "times": times[0] if len(set(times)) == 1 else times, "phase": op.phase, "call": op.call, "known": op.known}
    if isinstance(op, Take):
        return {"op": "take", "source": op.source, "holders": [row for row, own in enumerate(held) if op.source in own],
                "default": op.default, "out": op.out[0]}
    assert isinstance(op, Put)
    return {"op": "put", "pool": op.pool, "source": op.source}


def _argument(argument: Any, positions: Sequence[int]) -> dict[str, Any]:
    if isinstance(argument, Ref):
        return {"ref": argument.id}
    if isinstance(argument, PerClient):
        return {"each": [argument.numbers[position].item() for position in positions]}
    return {"value": describe(argument)}


def error_of(note: Any, client: Any, site: str) -> Exception:
    """A site's error under the site's name, or its client's."""
    match note:
        case [str(kind), str(message)]:
            cls = getattr(errors, kind, None)
            if isinstance(cls, type) and issubclass(cls, RookeryError) and not issubclass(cls, UploadError):
                return cls(f"site {site!r}: {message}")
            return UploadError(client if isinstance(client, str) else site, message)
    return UploadError(site, f"it answered with an error of no known form: {note!r}")
