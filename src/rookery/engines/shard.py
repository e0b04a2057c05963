"""Some of the clients with a local engine of their own, wherever it runs: it takes its part of an exchange, and answers with sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..federation.client import Setting
from ..federation.engine import choose
from ..federation.operations import Flush, Index, Map, Op, Put, Take
from ..federation.reducer import Collector, Reducer, Work
from ..problems.base import Problem
from .local import LocalEngine


class Method(NamedTuple):
    """A client function by name, of a program that the shard holds under a number."""

    program: int
    name: str


@dataclass(frozen=True)
class Part:
    """What one shard does in an exchange. The functions of its operations are `Method`s."""

    number: int
    base: int  # the shard's last exchange that went well everywhere
    cohort: Index | None  # clients by their numbers in the shard; None: all of them
    ops: list[Op]
    programs: dict[int, Any]  # those that the shard does not hold yet
    wants: list[int]
    keep: set[int]
    free: set[int]
    weights: NDArray[np.float64]
    floating: bool
    collect: bool

    @property
    def made(self) -> set[int]:
        return {id for op in self.ops for id in op.out}

    @property
    def puts(self) -> list[Put]:
        return [op for op in self.ops if isinstance(op, Put)]


class Reply(NamedTuple):
    """What a shard's part of an exchange gave."""

    sent: list[Tensor]  # sums in float64 or int64; a row for each client where values are collected
    forms: list[tuple[torch.Size, torch.dtype]]  # of one client's uploads
    works: list[tuple[str, Work]]  # by phase
    drawn: list[int]  # by function, how often one repetition drew


class Shard:
    """A part of the clients. What an exchange made counts once a later call names that exchange as its base, and is forgotten otherwise.

    So an exchange that fails at one shard leaves all of them as they were, and none is asked twice for one that went well.
    """

    def __init__(self, inner: str) -> None:
        self.engine = cast(LocalEngine, choose(inner))
        self.values: dict[int, Tensor] = {}  # from the server
        self.programs: dict[int, Any] = {}
        self.last: tuple[Part, Mapping[int, Tensor]] | None = None

    def bind(self, setting: Setting) -> None:
        self.setting, self.everyone = setting, np.arange(len(setting.data.names))
        self.engine.bind(setting)

    def use(self, problem: Problem, constants: Tensor) -> None:
        """Go on with the problem that these constants have finished."""
        self.bind(replace(self.setting, problem=problem, constants=constants, checked=set()))

    def run(self, part: Part, values: Mapping[int, Tensor]) -> Reply:
        """Everything but the writes to the population's state, which cannot be taken back."""
        self._settle(part.base)
        self.last = part, values
        self.programs.update(part.programs)
        ops = [self._called(op) for op in part.ops if not isinstance(op, Put)]
        keep = part.made & (part.keep | {op.source for op in part.puts})
        cohort = self._cohort(part)
        reducer = (Collector if part.collect else Reducer)([self.setting.data.names[k] for k in cohort], part.weights, part.floating)
        nobody = {op.source for op in ops if isinstance(op, Take)} - self.engine.store.keys() - self.engine.pools.keys()
        self.engine.store.update(dict.fromkeys(nobody, (np.zeros(0, dtype=np.int64), [])))
        try:
            self.engine.flush(Flush(cohort, ops, {**self.values, **values}, {}, part.wants, keep, set()), reducer)
        finally:
            for id in nobody:
                del self.engine.store[id]
        calls: dict[str, Counter[str]] = defaultdict(Counter)
        samples: Counter[str] = Counter()
        for phase, work in reducer.works:
            calls[phase].update(work.calls)
            samples[phase] += work.samples
        sent = reducer.results if isinstance(reducer, Collector) else [t.double() if t.is_floating_point() else t for t in reducer.totals]
        works = [(phase, Work(calls[phase], samples[phase], 0)) for phase in calls]
        drawn = [op.drawn[0] for op in ops if isinstance(op, Map)]
        return Reply(sent, [(value.shape, value.dtype) for value in reducer.like], works, drawn)

    def save(self, base: int, tag: str, ids: Sequence[int]) -> dict[str, Tensor]:
        self._settle(base)
        return self.engine.save(tag, [id for id in ids if id in self.engine.store or id in self.engine.pools])

    def load(self, base: int, tag: str, ids: Mapping[int, int], tensors: Mapping[str, Tensor]) -> None:
        self._settle(base)
        self.engine.load(tag, ids, tensors)

    def _called(self, op: Op) -> Op:
        if not isinstance(op, Map):
            return op
        program, name = cast(Method, op.fn)
        return replace(op, fn=getattr(self.programs[program], name))

    def _cohort(self, part: Part) -> Index:
        return self.everyone if part.cohort is None else part.cohort

    def _settle(self, base: int) -> None:
        if self.last is None:
            return
        (part, values), self.last = self.last, None
        gone = part.made
        if part.number == base:
            self.values.update(values)
            cohort = self._cohort(part)
            for op in part.puts:
                rows = self.engine.store[op.source][1] if op.source in self.engine.store else [self.values[op.source]] * len(cohort)
                self.engine._write(op.pool, cohort, rows)
            gone = (gone - part.keep) | part.free
        for id in gone:
            for held in (self.values, self.engine.store, self.engine.pools):
                held.pop(id, None)  # type: ignore[attr-defined]
