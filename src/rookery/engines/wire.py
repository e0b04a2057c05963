"""Clients in this process, but reached only through real frames: what keeps every algorithm fit for a network."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import errors
from ..errors import EngineError, FrameError, RookeryError, UploadError
from ..federation.client import Setting
from ..federation.operations import Flush, Index, Map, Op, PerClient, Put, Ref, Take
from ..federation.reducer import Reducer, Work
from .frames import describe, numbers, pack, unpack
from .site import Site, booked

TRIES = 3
FINISH = 0  # the number under which the constants of `prepare` travel


class Wire:
    """Keeps every client behind a `Site` in this process, and reaches it only through the bytes that a network would carry.

    `folder` is where the sites keep their checkpoints; `frame_bytes` counts what really crossed.
    """

    name = "wire"

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.run = uuid.uuid4().hex
        self.sites: list[Site] = []
        self.frame_bytes = 0

    def bind(self, setting: Setting) -> None:
        if not self.sites:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
            self.sites = [Site(replace(setting, data=setting.data.part(k), constants=None, checked=set()), self.run, self.folder)
                          for k in range(len(setting.data.names))]
            self.counters = [0] * len(self.sites)
            self.well = [True] * len(self.sites)  # whether the last exchange a site took part in ended well everywhere
            self.held: list[set[int]] = [set() for _ in self.sites]  # what each site holds, as far as the server knows
            self.late: list[set[int]] = [set() for _ in self.sites]  # what each may forget, told with the next frame that goes there
        elif setting.constants is not None:
            for k in range(len(self.sites)):
                self._send(k, [{"op": "finish", "total": FINISH}], {FINISH: setting.constants})
        else:
            raise EngineError("a remote site holds its own problem; it changes only through fed.prepare(x)")

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        news = {id: set(where.tolist()) for id, where in flush.news.items()}
        wants = list(dict.fromkeys(flush.wants))
        maps = {(op.phase, op.call): op for op in flush.ops if isinstance(op, Map)}
        pools = {op.pool for op in flush.ops if isinstance(op, Put)}
        made = {id for op in flush.ops for id in op.out} | pools
        used = made | set(flush.values) | {id for op in flush.ops for id in op.reads} | set(wants)
        for k, held in enumerate(self.held):
            self.late[k] = (self.late[k] | (flush.free & held)) - used
        reached: dict[int, set[int]] = {}
        held_before: dict[int, set[int]] = {}
        try:
            for position, k in enumerate(flush.cohort.tolist()):
                before, ops = self.held[k], [_describe(op, position, self.held[k]) for op in flush.ops]
                values = {id: value for id, value in flush.values.items() if position in news[id]}
                header, uploads = self._send(k, ops, values, wants, made, made & flush.free)
                reached[k] = (made | set(values)) - pools
                held_before[k] = before
                self._book(k, header, maps, reducer)
                if flush.wants:
                    reducer.add(position, [uploads[wants.index(id)] for id in flush.wants])
        except BaseException:
            for k, there in reached.items():  # the flush may be tried again, so what it read stays and what it left goes
                self.late[k] |= there
                self.well[k] = False
                self.held[k] -= pools - held_before[k]  # what was put there is dropped
            raise
        for k, held in enumerate(self.held):
            self.late[k] |= flush.free & held

    def _book(self, k: int, header: dict[str, Any], maps: dict[tuple[str, int], Map], reducer: Reducer) -> None:
        name = self.sites[k].name
        try:
            reported = booked(header)
        except FrameError as error:
            raise UploadError(name, str(error)) from None
        for phase, call, calls, samples, draws in reported:
            if (phase, call) not in maps:
                raise UploadError(name, f"it reports work on call {call} of phase {phase}, which it was not asked for")
            reducer.work(maps[phase, call], Work(calls, samples, draws))

    def save(self, tag: str, ids: list[int]) -> None:
        """Every site keeps these values under `tag`, in its own folder."""
        for k in range(len(self.sites)):
            self._send(k, [{"op": "save", "tag": tag, "ids": ids}], {})

    def load(self, tag: str, ids: dict[int, int] | None = None) -> None:
        """Every site takes these values, under new numbers, from what it kept under `tag`."""
        for k in range(len(self.sites)):
            header, _ = self._send(k, [{"op": "load", "tag": tag, "ids": [list(pair) for pair in (ids or {}).items()]}], {})
            self.held[k] |= set(numbers(header, "loaded"))

    def _send(self, k: int, ops: list[Any], values: dict[int, Tensor], wants: list[int] | tuple[()] = (),
              made: set[int] | None = None, drop: set[int] | None = None) -> tuple[dict[str, Any], dict[int, Tensor]]:
        site, free = self.sites[k], self.late[k] & self.held[k]
        frame = pack({"run": self.run, "k": self.counters[k] + 1, "ops": ops, "want": list(wants), "free": sorted(free),
                      "drop": sorted(drop or ()), "commit": self.well[k]}, values)
        header, tensors = self._exchange(site, frame)
        if "error" in header:
            raise _error(header["error"], site.name)
        told = (header.get("site"), header.get("run"), header.get("k"))
        if told != (site.name, self.run, self.counters[k] + 1) or set(tensors) != set(range(len(wants))):
            raise UploadError(site.name, "its reply does not belong to the frame it was sent")
        self.counters[k] += 1
        self.well[k] = True
        self.held[k] = (self.held[k] - free) | set(values) | ((made or set()) - (drop or set()))
        self.late[k] = set()
        return header, tensors

    def _exchange(self, site: Site, frame: bytes) -> tuple[dict[str, Any], dict[int, Tensor]]:
        """A frame and its reply; one that arrives damaged is asked for again, which the site answers from memory."""
        for attempt in range(TRIES):
            reply = site.answer(frame)
            self.frame_bytes += len(frame) + len(reply)
            try:
                return unpack(reply, finite=False)  # the reducer refuses non-finite uploads, by name
            except FrameError as error:
                if attempt == TRIES - 1:
                    raise UploadError(site.name, f"{error}, {TRIES} times over") from None
        raise AssertionError

    def export(self, id: int) -> tuple[Index, list[Tensor]]:
        raise EngineError("a value at a remote site does not come to the server; use save(tag)")

    def restore(self, id: int, clients: Index, values: list[Tensor], pool: bool) -> None:
        raise EngineError("a value at a remote site is not sent from the server; use load(tag)")


def _describe(op: Op, position: int, held: set[int]) -> dict[str, Any]:
    if isinstance(op, Map):
        return {"op": "map", "fn": [describe(op.fn.__self__), op.fn.__name__],
                "arguments": [_argument(a, position) for a in op.arguments],
                "out": list(op.out), "times": op.times_of(position), "phase": op.phase, "call": op.call, "known": op.known}
    if isinstance(op, Take):
        # whether the site must hold the source is the server's knowledge: a site that lost it must not fall back on the default
        return {"op": "take", "source": op.source if op.source in held else None, "default": op.default, "out": op.out[0]}
    assert isinstance(op, Put)
    return {"op": "put", "pool": op.pool, "source": op.source}


def _argument(argument: Any, position: int) -> dict[str, Any]:
    if isinstance(argument, Ref):
        return {"ref": argument.id}
    return {"value": argument.numbers[position].item() if isinstance(argument, PerClient) else describe(argument)}


def _error(note: Any, site: str) -> Exception:
    """A site's error under the site's name."""
    match note:
        case [str(kind), str(message)]:
            cls = getattr(errors, kind, None)
            if isinstance(cls, type) and issubclass(cls, RookeryError) and cls is not UploadError:
                return cls(f"site {site!r}: {message}")
            return UploadError(site, message)
    return UploadError(site, f"it answered with an error of no known form: {note!r}")
