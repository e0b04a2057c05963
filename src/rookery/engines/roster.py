"""Who takes part in a run, as the sites say it: the server's knowledge of rows that it does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..data.store import Data
from ..errors import Away, EngineError, UploadError
from .frames import VERSION, unpack
from .places import error_of


class Roster(Data):
    """Clients by name, with the number of their rows, and no rows; `digests` tell whether a site's rows are those of another day."""

    digests: tuple[str, ...] = ()
    least: Mapping[str, int] = MappingProxyType({})  # by site: nothing is computed from fewer rows at once

    def _moved(self, device: torch.device) -> Data:
        return self

    def fingerprint(self) -> list[str]:
        return list(self.digests)


@dataclass(frozen=True)
class Welcome:
    """What a site says of itself at the beginning of a run."""

    site: str
    clients: list[tuple[str, int]]
    counter: int
    digest: str
    salt: str
    min_batch: int
    splits: dict[str, list[int]]  # how many rows each client has of them


def hello(problem: dict[str, Any], seed: int, precision: torch.dtype | None, min_batch: int) -> dict[str, Any]:
    """What the server says of a run: in words, from which each site makes its own problem."""
    return {"versions": {"rookery": __version__, "frames": VERSION}, "problem": problem, "seed": seed, "precision": str(precision),
            "min_batch": min_batch}


def roster(welcomes: Sequence[Welcome]) -> Roster:
    """All clients, site after site."""
    clients = [client for welcome in welcomes for client in welcome.clients]
    names = [name for name, _ in clients]
    twice = next((name for name, number in Counter(names).items() if number > 1), None)
    if twice is not None:
        where = [welcome.site for welcome in welcomes if twice in dict(welcome.clients)]
        raise EngineError(f"every client has a name of its own, and {twice!r} is at {' and '.join(map(repr, where))}: rename one of them")
    every = dict.fromkeys(split for welcome in welcomes for split in welcome.splits)
    splits = {split: _those_with(names, [size for welcome in welcomes for size in welcome.splits.get(split, [0] * len(welcome.clients))])
              for split in every}
    found = Roster({}, tuple(names), np.asarray([size for _, size in clients], dtype=np.int64), splits)
    object.__setattr__(found, "digests", tuple(f"{welcome.site} {welcome.digest}" for welcome in welcomes))
    object.__setattr__(found, "least", {welcome.site: welcome.min_batch for welcome in welcomes})
    return found


def _those_with(names: Sequence[str], sizes: Sequence[int]) -> Roster | None:
    """The clients that have rows of a split."""
    there = [(name, size) for name, size in zip(names, sizes, strict=True) if size]
    return Roster({}, tuple(name for name, _ in there), np.asarray([size for _, size in there], dtype=np.int64)) if there else None


def welcome_of(site: str, reply: bytes | Exception) -> Welcome:
    """A site's answer to a hello."""
    if isinstance(reply, Exception):
        raise Away(site, f"it did not answer to the hello of this run: {reply}")
    header, _ = unpack(reply)
    if "error" in header:
        raise error_of(header["error"], site, site)
    match header.get("welcome"):
        case {"clients": list(clients), "counter": int(counter), "digest": str(digest), "salt": str(salt), "min_batch": int(least),
              "splits": dict(splits)} if header.get("site") == site and counter >= 0 and all(
                  isinstance(client, list) and [type(entry) for entry in client] == [str, int] for client in clients) and all(
                  isinstance(sizes, list) and [type(size) for size in sizes] == [int] * len(clients) for sizes in splits.values()):
            return Welcome(site, [(name, size) for name, size in clients], counter, digest, salt, least, splits)
    raise UploadError(site, f"its welcome has no known form; it says that it is {header.get('site')!r}")
