"""What has been recorded and not yet run, and who still holds what: the bookkeeping behind the federation's verbs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import PlacementError
from .engine import Engine
from .ledger import Ledger
from .operations import Flush, Index, Map, Op, PerClient, Put, Ref
from .placed import Handles, Place, Placed
from .reducer import Reducer

LOST = "was lost with an exchange that failed; go on from the state before it"


class PendingOps:
    """Records operations and flushes them to the engine.

    A value at the clients is kept as long as a Python name holds its handle; what nobody will read is never computed.
    """

    def __init__(self, ledger: Ledger, engine: Engine, everyone: Place) -> None:
        self.ledger, self.engine, self.everyone = ledger, engine, everyone
        self.handles = Handles()
        self.values: dict[int, Tensor] = {}  # broadcast by the server
        self.delivered: dict[int, Index] = {}  # who holds them
        self.stored: set[int] = set()  # what the engine holds
        self.queue: list[tuple[Place, Op]] = []
        self.numbers = 0

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def handle(self, place: Place, id: int, call: Map | None = None, pool: bool = False) -> Placed:
        return Placed(place, id, self.handles, call, pool)

    def place(self, cohort: Place, value: Tensor) -> Placed:
        if not isinstance(value, Tensor):
            what = "a value already at the clients" if isinstance(value, Placed) else type(value).__name__
            raise PlacementError(f"broadcast takes tensors at the server; got {what}")
        handle = self.handle(cohort, self.number())
        self.values[handle.id] = value.detach().clone()  # what the server does with its tensor later is its own affair
        return handle

    def usable(self, value: Placed) -> None:
        if value.spent:
            raise PlacementError(f"this value {value.spent}; to keep a copy at the clients, return it twice from the client function")

    def argument(self, cohort: Place, fn: Callable[..., Any], value: Any) -> Any:
        if isinstance(value, Placed):
            self.usable(value)
            if value.place is not cohort and not (value.id in self.values and value.place is self.everyone):
                raise PlacementError(f"{fn.__qualname__} runs at another cohort than this value lives at; "
                                     "write S.take(value, default) first")
            return Ref(value.id)
        if isinstance(value, Tensor):
            raise PlacementError(f"{fn.__qualname__} was given a tensor of the server; write fed.broadcast(tensor), "
                                 "so that what it costs is counted")
        if isinstance(value, np.ndarray):
            if value.shape != (cohort.size,):
                raise PlacementError(f"an array passed to {fn.__qualname__} holds one number for each of the {cohort.size} clients; "
                                     f"got shape {value.shape}")
            return PerClient(np.ascontiguousarray(value))
        if isinstance(value, tuple | list):
            if any(isinstance(v, Placed | np.ndarray) for v in value):
                raise PlacementError(f"{fn.__qualname__} was given values at the clients inside a tuple; pass them one by one")
            return tuple(self.argument(cohort, fn, v) for v in value)
        if isinstance(value, float) and not math.isfinite(value):
            raise PlacementError(f"{fn.__qualname__} was given {value}; a number that goes to the clients must be finite")
        if value is not None and not isinstance(value, bool | int | float | str):
            raise PlacementError(f"{fn.__qualname__} takes values at the clients, numbers and texts; got {type(value).__name__}")
        return value

    def put(self, state: Placed, cohort: Place, new: Placed) -> Placed:
        """Record a write into population state. The old handle is spent, unless the exchange fails."""
        self.usable(state)
        if not state.pool:
            raise PlacementError("put writes into population state, made by put(None, cohort, value)")
        pool = state.id
        for where, op in list(self.queue):  # what other cohorts still have to read from it or write into it comes first
            if where is not cohort and pool in (op.pool if isinstance(op, Put) else None, *op.reads):
                self.run(where, [], None)
        handle = self.handle(self.everyone, pool, pool=True)

        def undo() -> None:
            state.id, state.spent = pool, None
            handle.id, handle.spent = -1, LOST

        state.id, state.spent = -1, "was replaced by put, which returned the new handle"  # its end must not free the pool
        self.queue.append((cohort, Put(pool, new.id, undo)))
        return handle

    def settle(self, state: Placed) -> None:
        """Run what still has to write `state`, without an upload."""
        for cohort, op in list(self.queue):
            if state.id in op.out or (isinstance(op, Put) and op.pool == state.id):
                self.run(cohort, [], None)

    def finish(self) -> None:
        while self.queue:
            self.run(self.queue[0][0], [], None)

    def bring(self, cohort: Place, values: tuple[Placed, ...], reducer: Reducer) -> list[Tensor]:
        """What a reducer makes of values at a cohort, in one exchange."""
        if not values:
            raise PlacementError("mean, sum and collect need at least one value at the clients")
        for value in values:
            if not isinstance(value, Placed):
                raise PlacementError(f"mean, sum and collect take values at the clients; got {type(value).__name__}, which is at the "
                                     "server already")
            self.usable(value)
            if value.place is not cohort:
                raise PlacementError("a mean is taken over the cohort its values live at; use that cohort's mean")
        makers = [_maker(value) for value in values]
        self.run(cohort, list(values), reducer)
        for made, one in zip(makers, reducer.like, strict=True):
            self.ledger.cross("up", made, one.numel(), one.nbytes, cohort.size)
        self.ledger.book(exchanges=1)
        return reducer.results

    def run(self, cohort: Place, wants: list[Placed], reducer: Reducer | None) -> None:
        """Flush a cohort's pending operations: what nobody will read is dropped, the rest runs once."""
        needed = {v.id for v in wants} | self.handles.alive
        ops: list[Op] = []
        rest: list[tuple[Place, Op]] = []
        for where, op in reversed(self.queue):
            if isinstance(op, Put) or needed.intersection(op.out):
                needed.update(op.reads)
                if where is cohort:
                    ops.insert(0, op)
                else:
                    rest.insert(0, (where, op))
        asked = [v.id for v in wants]
        read = {id for op in ops for id in op.reads} | set(asked)
        values = {id: self.values[id] for id in sorted(read) if id in self.values}
        news = {id: self.newcomers(id, cohort) for id in values}
        later = self.handles.alive - set(asked)
        later |= {id for _, op in rest for id in op.reads} | {op.pool for _, op in rest if isinstance(op, Put)}
        made = {id for op in ops for id in op.out} | {op.pool for op in ops if isinstance(op, Put)}
        silent = reducer or Reducer(cohort.names, cohort.ones, False)
        flush = Flush(cohort.index, ops, values, news, asked, made & later, (self.stored | made | set(values)) - later)
        try:
            self.engine.flush(flush, silent)
        except BaseException:  # an interrupt must not cost the state either
            self.roll_back(cohort, ops, rest)
            raise
        for v in wants:
            v.spent = "was averaged, and left the clients with that"
            self.handles.alive.discard(v.id)
        self.queue = rest
        self.stored = (self.stored | made | set(values)) & later
        for id, who in news.items():
            self.delivered[id] = np.union1d(self.delivered[id], cohort.index[who]) if id in self.delivered else cohort.index
            reader = next((op.fn.__name__ for op in ops if isinstance(op, Map) and id in op.reads), "")
            if len(who):
                self.ledger.cross("down", reader, values[id].numel(), values[id].nbytes, len(who))
        self.values = {id: v for id, v in self.values.items() if id in later}
        self.delivered = {id: who for id, who in self.delivered.items() if id in self.values}
        for phase, work in silent.works:
            if work.calls or work.samples:
                self.ledger.book(work.calls, phase, samples=work.samples)

    def abandon(self, cohort: Place) -> None:
        """Roll back what is pending at a cohort whose exchange cannot even begin."""
        mine = [op for where, op in self.queue if where is cohort]
        self.roll_back(cohort, mine, [(where, op) for where, op in self.queue if where is not cohort])

    def roll_back(self, cohort: Place, ops: list[Op], rest: list[tuple[Place, Op]]) -> None:
        """After a failed exchange: what it would have made is lost, what was there before is as it was."""
        for op in reversed(ops):
            if isinstance(op, Put):
                op.undo()
        made = {id for op in ops for id in op.out}
        for handle in [each() for each in list(self.handles.all.values())]:
            if handle is not None and handle.id in made:
                handle.spent = LOST
                self.handles.alive.discard(handle.id)
        self.queue = rest

    def newcomers(self, id: int, cohort: Place) -> Index:
        """Positions in the cohort that do not hold a broadcast value yet."""
        if id not in self.delivered:
            return cohort.positions
        return np.flatnonzero(~np.isin(cohort.index, self.delivered[id]))


def _maker(value: Placed) -> str:
    """The client function that made a value, and which of its results it is where there are several, counted from 0."""
    if value.call is None:
        return ""
    name, out = value.call.fn.__name__, value.call.out
    return name if len(out) == 1 else f"{name}[{out.index(value.id)}]"
