"""Clients in this process, but reached only through real frames: what keeps every algorithm fit for a network."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import errors
from ..client import Setting
from ..errors import EngineError, FrameError, UploadError
from ..problem import Problem
from .base import Flush, Index, Map, Op, PerClient, Put, Reducer, Ref, Take
from .frames import describe, expect, pack, unpack
from .site import Site

FINISH = 0  # the number under which the constants of `prepare` travel


class Wire:
    """One `Site` per client. `folder` is where the sites keep their checkpoints; `frame_bytes` counts what really crossed."""

    name = "wire"

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.run = uuid.uuid4().hex
        self.sites: list[Site] = []
        self.frame_bytes = 0

    def start(self, setting: Setting) -> None:
        if not self.sites:
            self.sites = [Site(Setting(setting.problem, setting.data.part(k), setting.seed, setting.precision), self.run, self.folder)
                          for k in range(len(setting.data.names))]
            self.counters = [0] * len(self.sites)
            self.late: list[set[int]] = [set() for _ in self.sites]  # values to free when a site is next reached
        elif setting.constants is not None:
            for k in range(len(self.sites)):
                self._send(k, [{"op": "finish", "total": FINISH}], {FINISH: setting.constants})
        else:
            raise EngineError("a remote site holds its own problem; it changes only through problem.prepare(fed, x)")

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        late = {id: set(where.tolist()) for id, where in flush.news.items()}
        for position, k in enumerate(flush.cohort.tolist()):
            ops = [_describe(op, position) for op in flush.ops]
            news = {id: value for id, value in flush.values.items() if position in late[id]}
            header, values = self._send(k, ops, news, flush.wants, flush.free)
            self._book(flush, reducer, header)
            if flush.wants:
                reducer.add(position, [values[i] for i in range(len(flush.wants))])
        reached = set(flush.cohort.tolist())
        for k in range(len(self.sites)):
            if k not in reached:
                self.late[k] |= flush.free

    def save(self, tag: str, ids: list[int]) -> None:
        """Every site keeps these values under `tag`, in its own folder."""
        for k in range(len(self.sites)):
            self._send(k, [{"op": "save", "tag": tag, "ids": ids}], {})

    def load(self, tag: str) -> None:
        for k in range(len(self.sites)):
            self._send(k, [{"op": "load", "tag": tag}], {})

    def _send(self, k: int, ops: list[Any], values: dict[int, Tensor], wants: list[int] | None = None,
              free: set[int] | None = None) -> tuple[dict[str, Any], dict[int, Tensor]]:
        site = self.sites[k]
        dead = sorted((free or set()) | self.late[k])
        frame = pack({"run": self.run, "k": self.counters[k] + 1, "ops": ops, "want": wants or [], "free": dead}, values)
        reply = site.answer(frame)
        self.frame_bytes += len(frame) + len(reply)
        try:
            header, tensors = unpack(reply, finite=False)  # the reducer refuses non-finite uploads, by name
        except FrameError as error:
            raise UploadError(site.name, str(error)) from None
        if "error" in header:
            kind, message = header["error"]
            raise _error(kind, site.name, message)
        if header.get("site") != site.name or header.get("k") != self.counters[k] + 1 or set(tensors) != set(range(len(wants or []))):
            raise UploadError(site.name, "its reply does not belong to the frame it was sent")
        self.counters[k] += 1
        self.late[k] = set()
        return header, tensors

    @staticmethod
    def _book(flush: Flush, reducer: Reducer, header: dict[str, Any]) -> None:
        reducer.calls.update(expect(header, "calls", dict))
        reducer.samples += expect(header, "samples", int)
        reducer.draws.update({call: draws for call, draws in expect(header, "draws", list)})

    def export(self, id: int) -> tuple[Index, list[Tensor]]:
        raise EngineError("a value at a remote site does not come to the server; use save(tag)")

    def restore(self, id: int, clients: Index, values: list[Tensor], pool: bool) -> None:
        raise EngineError("a value at a remote site is not sent from the server; use load(tag)")


def _describe(op: Op, position: int) -> dict[str, Any]:
    if isinstance(op, Map):
        owner = op.fn.__self__  # type: ignore[attr-defined]
        return {"op": "map", "fn": ["problem" if isinstance(owner, Problem) else describe(owner), op.fn.__name__],
                "arguments": [{"ref": a.id} if isinstance(a, Ref) else {"value": describe(a.numbers[position].item() if isinstance(a, PerClient) else a)}
                              for a in op.arguments],
                "out": list(op.out), "times": op.times_of(position), "phase": op.phase, "call": op.call, "known": op.known}
    if isinstance(op, Take):
        return {"op": "take", "source": op.source, "default": op.default, "out": op.out[0]}
    assert isinstance(op, Put)
    return {"op": "put", "pool": op.pool, "source": op.source}


def _error(kind: str, site: str, message: str) -> Exception:
    cls = getattr(errors, kind, EngineError)
    if cls is UploadError:
        return UploadError(site, message)
    return cls(f"site {site!r}: {message}")  # type: ignore[no-any-return]
