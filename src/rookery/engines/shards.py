"""The engine whose clients are cut into shards, each with a local engine of its own; here all of them in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..data.store import Data
from ..errors import EngineError
from ..federation.client import Setting
from ..federation.operations import Flush, Map, Op, PerClient, Put
from ..federation.reducer import Collector, Reducer
from .shard import Method, Part, Reply, Shard
from .tracing import ProgramKey

INNER = ("auto", "loop", "vectorised")


@dataclass
class Known:
    """What the engine knows of one shard."""

    base: int = 0  # its last exchange that went well everywhere
    values: set[int] = field(default_factory=set)  # from the server
    programs: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)  # what it may forget, told with its next part of an exchange


class Shards:
    """Cuts the clients into shards that follow one another, and adds up what each of them has summed, in their order.

    number: how many shards; no more than there are clients
    inner:  the engine of each shard, "auto", "loop" or "vectorised"

    The sums of a shard are in float64 (int64 for whole numbers), and so are those of all.
    """

    name = "shards"
    folder: Path | None = None

    def __init__(self, number: int, inner: str = "auto") -> None:
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise EngineError(f"the clients are cut into at least one shard; got {number!r}")
        if inner not in INNER:
            raise EngineError(f"the engine of a shard is one of {', '.join(INNER)}; got {inner!r}")
        self.number, self.inner = number, inner
        self.data: Data | None = None
        self.exchanges = 0
        self.programs: dict[ProgramKey, int] = {}

    def bind(self, setting: Setting) -> None:
        if self.data is None:
            clients = len(setting.data.names)
            count = min(self.number, clients)
            self.names, self.bounds = setting.data.names, [clients * k // count for k in range(count + 1)]
            self.known = [Known() for _ in range(count)]
            self.start(count)
            cut = [setting.data.part(*range(first, end)) for first, end in zip(self.bounds, self.bounds[1:], strict=False)]
            self.ask("bind", {k: (replace(setting, data=own, checked=set()),) for k, own in enumerate(cut)})
            self.data = setting.data
        elif setting.data is self.data and setting.constants is not None:
            self.ask("use", dict.fromkeys(range(len(self.known)), (setting.problem, setting.constants)))
        else:
            raise EngineError(f"the shards of an engine belong to one federation; make another {type(self).__name__}(…) for the next one")

    def start(self, count: int) -> None:
        """Make the shards."""
        self.shards = [Shard(self.inner) for _ in range(count)]

    def ask(self, method: str, tasks: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method of some shards, and give their answers, or the error of the first that fails."""
        return {k: getattr(self.shards[k], method)(*arguments) for k, arguments in tasks.items()}

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        self.exchanges += 1
        cuts = np.searchsorted(flush.cohort, self.bounds)
        tasks: dict[int, tuple[Part, dict[int, Tensor]]] = {}
        sent: dict[tuple[int, ...], dict[int, Tensor]] = {}  # shards that lack the same values are given the same object
        for k, known in enumerate(self.known):
            if cuts[k] < cuts[k + 1]:
                lacks = tuple(id for id in flush.values if id not in known.values)
                values = sent.setdefault(lacks, {id: flush.values[id] for id in lacks})
                tasks[k] = self._part(flush, reducer, k, slice(cuts[k], cuts[k + 1])), values
        replies: dict[int, Reply] = self.ask("run", tasks)
        maps = [op for op in flush.ops if isinstance(op, Map)]
        for k, reply in replies.items():
            if isinstance(reducer, Collector):
                reducer.add_stack(reply.sent, int(cuts[k]))
            elif flush.wants:
                reducer.add_part(int(cuts[k]), reply.sent, [_form(*form) for form in reply.forms])
            reducer.works += reply.works
            for op, drawn in zip(maps, reply.drawn, strict=True):
                op.drawn[0] = max(op.drawn[0], drawn)
        for k, known in enumerate(self.known):  # from here on nothing can fail
            if k in tasks:
                part, values = tasks[k]
                known.base, known.late = part.number, set()
                known.values = (known.values | values.keys()) - part.free
                known.programs |= part.programs.keys()
            else:
                known.late |= flush.free
                known.values -= flush.free

    def _part(self, flush: Flush, reducer: Reducer, k: int, here: slice) -> Part:
        """What shard k does, with those of its clients that stand in these positions of the cohort."""
        known, first, end = self.known[k], self.bounds[k], self.bounds[k + 1]
        programs: dict[int, Any] = {}
        own: dict[int, Map] = {}  # by the operation of the whole cohort
        ops: list[Op] = []
        for op in flush.ops:
            if isinstance(op, Map):
                number = self.programs.setdefault(ProgramKey(op.fn.__self__), len(self.programs))
                if number not in known.programs:
                    programs[number] = op.fn.__self__
                named = replace(op, fn=cast(Any, Method(number, op.fn.__name__)), drawn=[0], like=None,
                                times=op.times if isinstance(op.times, int) else op.times[here],
                                arguments=tuple(PerClient(a.numbers[here]) if isinstance(a, PerClient) else a for a in op.arguments))
                if op.like is not None:  # of an earlier exchange, only the number of its draws is left to know
                    named = replace(named, like=own.get(id(op.like)) or replace(named, arguments=(), drawn=[op.known]))
                own[id(op)] = named
                ops.append(named)
            else:
                ops.append(Put(op.pool, op.source, _nothing) if isinstance(op, Put) else op)
        cohort = None if here.stop - here.start == end - first else flush.cohort[here] - first
        return Part(self.exchanges, known.base, cohort, ops, programs, flush.wants, flush.keep, flush.free | known.late,
                    reducer.weights[here], reducer.floating, isinstance(reducer, Collector))

    # checkpoints: what a local engine would save, so that a run may go on with other shards

    def save(self, tag: str, ids: Sequence[int]) -> dict[str, Tensor]:
        found = self.ask("save", {k: (known.base, tag, list(ids)) for k, known in enumerate(self.known)})
        out: dict[str, Tensor] = {}
        for id in ids:
            out |= _joined(id, [(self.bounds[k], part) for k, part in found.items() if f"{id}.clients" in part])
        return out

    def forget(self, tags: Sequence[str]) -> None:
        """What was saved is in the caller's file."""

    def roll_call(self, away: set[str]) -> set[str]:
        """Nobody comes back by themselves: who is away in a simulation was sent away."""
        return away

    def wait(self, away: set[str], gone: set[str], most: int) -> set[str]:
        return gone

    def load(self, tag: str, ids: Mapping[int, int], tensors: Mapping[str, Tensor]) -> set[str]:
        tasks = {}
        for k, known in enumerate(self.known):
            own = {old: _cut(old, tensors, *self.bounds[k : k + 2]) for old in ids}
            held = {old: ids[old] for old, part in own.items() if part}
            tasks[k] = known.base, tag, held, {name: rows for part in own.values() for name, rows in part.items()}
        self.ask("load", tasks)
        return set()


@lru_cache
def _form(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """A tensor that takes no memory."""
    return torch.zeros((), dtype=dtype).expand(shape)


def _nothing() -> None:
    """A shard takes nothing back: it forgets."""


def _joined(id: int, parts: Sequence[tuple[int, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """A value of several shards as one; each comes with the number of its shard's first client."""
    if not parts:
        return {f"{id}.clients": torch.zeros(0, dtype=torch.int64), f"{id}.pool": torch.zeros(0)}
    kind = "pool" if f"{id}.pool" in parts[0][1] else "rows"
    rows, lengths = [part[f"{id}.{kind}"] for _, part in parts], [part.get(f"{id}.lengths") for _, part in parts]
    found = {f"{id}.clients": torch.cat([part[f"{id}.clients"] + first for first, part in parts])}
    if len({one.shape[1:] for one in rows}) > 1 or any(each is not None for each in lengths):  # one client's after the other's
        found[f"{id}.lengths"] = torch.cat([torch.full((len(one),), one.shape[1]) if each is None else each
                                            for one, each in zip(rows, lengths, strict=True)])
        rows = [one.flatten(0, 1) if each is None else one for one, each in zip(rows, lengths, strict=True)]
    return found | {f"{id}.{kind}": torch.cat(rows)}


def _cut(id: int, tensors: Mapping[str, Tensor], first: int, end: int) -> dict[str, Tensor]:
    """What the clients from `first` to before `end` have of a saved value; nothing where none of them has any."""
    clients, kind = tensors[f"{id}.clients"], "pool" if f"{id}.pool" in tensors else "rows"
    a, b = np.searchsorted(clients.numpy(), (first, end)).tolist()
    if a == b:
        return {}
    found, lengths = {f"{id}.clients": clients[a:b] - first}, tensors.get(f"{id}.lengths")
    if lengths is not None:
        found[f"{id}.lengths"] = lengths[a:b]
        a, b = int(lengths[:a].sum()), int(lengths[:b].sum())
    return found | {f"{id}.{kind}": tensors[f"{id}.{kind}"][a:b]}
