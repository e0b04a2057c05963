"""The engine for small models and many clients: one client function becomes one graph over all clients.

A client function is run once for one client to see what it draws, then traced under `vmap` with its derivatives written
out; replaying the graph costs no Python per client and no autograd. Clients are grouped by the sizes of full batches, and by
local steps where these differ much; a group of one loops, and so do cohorts that change where full batches have unequal sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ..data.sampling import Request
from ..data.store import Batch
from ..errors import EngineError, RookeryError
from ..federation import rng
from ..federation.client import ClientContext, Setting
from ..federation.drawing import Drawing
from ..federation.noise import Noise
from ..federation.operations import Flush, Index, Map, PerClient, Put, Ref, Take
from ..federation.reducer import Reducer, Work
from ..problems.base import Problem
from . import fusing
from .execute import results, run_one
from .local import LocalEngine, shapes_of
from .rowsums import row_sums
from .tracing import Graph, Guards, ProgramKey, trace


@dataclass
class Plan:
    """What one run at one client showed of a client function."""

    requests: list[Request]
    noises: list[Noise]
    calls: Counter[str]
    samples: list[int]  # a full batch counts one row
    asks_steps: bool  # whether it read c.steps, which is then an input of its graphs
    asks_rows: bool  # whether it read c.rows(…), of which clients have unequally many: they go one by one
    dtypes: list[torch.dtype]  # of its results
    graphs: dict[Any, Graph] = field(default_factory=dict)

    @property
    def by_size(self) -> bool:
        return any(request.outer is None for request in self.requests)

    def sizes(self, rows: int) -> list[int]:
        """Samples of each draw at a client with so many rows: a full batch has its size."""
        return [seen if request.outer is not None else seen * rows for request, seen in zip(self.requests, self.samples, strict=True)]


# clients of unequal local steps run together, and wait for the last, if that adds no more than half to the work
SPARE = 1.5

_PLANS: WeakKeyDictionary[Problem, dict[Any, Plan]] = WeakKeyDictionary()  # federations over the same problem share their graphs


class Vectorised(LocalEngine):
    """Runs a client function for all clients of a cohort at once, as one graph that is traced on its first use."""

    name = "vectorised"

    def bind(self, setting: Setting) -> None:
        super().bind(setting)
        self.plans = _PLANS.setdefault(setting.problem, {})
        self.guards = Guards(setting.problem)
        self.forms = tuple(setting.data.forms().items())
        for blocked, why in ((setting.problem.random, "its losses use torch's generator (dropout or augmentation)"),
                             (setting.precision is not None, "precision= wraps oracles in autocast")):
            if blocked:
                raise EngineError(f'the vectorised engine cannot run this problem: {why}; write engine="loop" or engine="auto"')

    @torch.no_grad()
    def flush(self, flush: Flush, reducer: Reducer) -> None:
        if row_sums(self.setting, flush, reducer):
            self._free(flush)
            return
        made: dict[int, Tensor] = {}
        works: list[tuple[Map, Work]] = []

        def read(id: int) -> Tensor:
            if id in made:
                return made[id]
            return flush.values[id].expand(len(flush.cohort), *flush.values[id].shape) if id in flush.values else self._stack(flush, id)

        for op in flush.ops:
            if isinstance(op, Map):
                out, work = self._map(flush, op, read)
                made.update(zip(op.out, out, strict=True))
                works.append((op, work))
            elif isinstance(op, Take):
                made[op.out[0]] = self._taken(flush, op, read(op.default))
        if flush.wants:
            reducer.add_stack([read(id) for id in flush.wants])
        for op, work in works:
            reducer.work(op, work)
        for op in flush.ops:
            if isinstance(op, Put):
                self._put(flush, op, read(op.source))
        for id in flush.keep & made.keys():
            self.store[id] = (flush.cohort, made[id])
        self._free(flush)

    def _taken(self, flush: Flush, op: Take, default: Tensor) -> Tensor:
        positions, rows = self._holders(flush, op)
        if not len(positions):
            return default
        if shapes_of(rows) != {default.shape[1:]}:
            raise EngineError("clients hold values of different shapes, which one graph cannot take; write engine=\"loop\"")
        rows = rows if isinstance(rows, Tensor) else torch.stack(list(rows))
        if len(positions) == len(flush.cohort):
            return rows
        out = default.clone()
        out[torch.from_numpy(positions)] = rows
        return out

    def _stack(self, flush: Flush, id: int) -> Tensor:
        rows = self._held(flush, id)
        return rows if isinstance(rows, Tensor) else torch.stack(list(rows))

    def _map(self, flush: Flush, op: Map, read: Callable[[int], Tensor]) -> tuple[list[Tensor], Work]:
        arguments = [read(a.id) if isinstance(a, Ref) else torch.from_numpy(a.numbers) if isinstance(a, PerClient) else a
                     for a in op.arguments]
        plan = self._plan(flush, op, arguments)
        out: list[Tensor] = []
        calls: Counter[str] = Counter()
        samples = 0
        for positions, times in self._groups(flush, op, plan):
            whole = len(positions) == len(flush.cohort)
            part = arguments if whole else [a[torch.from_numpy(positions)] if isinstance(a, Tensor) else a for a in arguments]
            made, looked_at = self._group(op, plan, flush.cohort[positions], times, part)
            total = int(times.sum())
            for name, count in plan.calls.items():
                calls[name] += count * total
            samples += sum(plan.sizes(int(self.setting.data.sizes[flush.cohort[positions[0]]]))[op.known:]) * total + looked_at
            if whole:
                out = made
            else:
                if not out:
                    out = [m.new_empty((len(flush.cohort), *m.shape[1:])) for m in made]
                for full, m in zip(out, made, strict=True):
                    if full.shape[1:] != m.shape[1:]:
                        raise EngineError(f"{op.fn.__qualname__} returns values of a different shape at different clients; "
                                          'write engine="loop"')
                    full[torch.from_numpy(positions)] = m
        op.drawn[0] = len(plan.requests) if op.most > 0 else 0  # known to later operations of the same flush
        return out, Work(calls, samples, op.drawn[0])

    @staticmethod
    def _first(op: Map, arguments: list[Any]) -> list[Any]:
        """The arguments of a group's first client, as the plain engine would give them."""
        return [a[0].item() if isinstance(given, PerClient) else a[0] if isinstance(a, Tensor) else a
                for a, given in zip(arguments, op.arguments, strict=True)]

    def _plan(self, flush: Flush, op: Map, arguments: list[Any]) -> Plan:
        """Run the function plainly at one client, off the ledger, to see what it draws, calls and returns."""
        forms = [(tuple(a.shape[1:]), a.dtype) if isinstance(a, Tensor) else None if isinstance(a, float) else (type(a), a)
                 for a in arguments]
        key = (op.fn.__func__, ProgramKey(op.fn.__self__), self.forms, self.setting.min_batch, self.guards.values(), *forms)
        if key not in self.plans:
            shown, _, client = run_one(self.setting, op, int(flush.cohort[0]), 1, self._first(op, arguments))
            rows = max(1, int(self.setting.data.sizes[flush.cohort[0]]))
            samples = [seen // rows if request.outer is None else seen
                       for request, seen in zip(client.requests, client.samples, strict=True)]
            self.plans[key] = Plan(client.requests, client.noises, client.calls, samples, client.asked_steps, client.asked_rows,
                                   [value.dtype for value in shown])
        return self.plans[key]

    def _groups(self, flush: Flush, op: Map, plan: Plan) -> list[tuple[Index, Index]]:
        """Positions of clients that can run together, and how often each repeats."""
        n = len(flush.cohort)
        times = np.full(n, op.times) if isinstance(op.times, int) else np.asarray(op.times)
        if plan.asks_rows:
            return [(np.array([k]), times[k : k + 1]) for k in range(n)]
        if isinstance(op.times, int) and not plan.by_size:
            return [(np.arange(n), times)]
        sizes = self.setting.data.sizes[flush.cohort] if plan.by_size else np.zeros(n, dtype=np.int64)
        apart = times if n * times.max() > SPARE * times.sum() else np.zeros_like(times)
        changing = n < len(self.setting.data.names) and len(np.unique(sizes)) > 1
        if changing or (plan.by_size and not self.setting.data.in_memory):
            # the next cohort has other numbers of clients of each size, and would need graphs of its own: they go one by one; and so do
            # full batches of rows that are not in memory, which might not fit into it together
            return [(np.array([k]), times[k : k + 1]) for k in range(n)]
        kinds, which = np.unique(np.stack([apart, sizes]), axis=1, return_inverse=True)
        members = [np.flatnonzero(which.reshape(-1) == k) for k in range(kinds.shape[1])]
        return [(positions, times[positions]) for positions in members]

    def _group(self, op: Map, plan: Plan, clients: Index, times: Index, arguments: list[Any]) -> tuple[list[Tensor], int]:
        """The results of clients that run together, and how many rows of splits they looked at."""
        count = len(op.out)
        if len(clients) == 1:
            values, _, client = run_one(self.setting, op, int(clients[0]), int(times[0]), self._first(op, arguments))
            return [value[None] for value in values], client.looked_at * int(times[0])
        given = arguments
        # a number becomes an input of the graph, so that a schedule does not trace it anew
        arguments = [torch.tensor(a, dtype=torch.float64) if isinstance(a, float) else a for a in arguments]
        taus = [torch.from_numpy(times.astype(np.float64))] if plan.asks_steps else []
        fewest = times.min()
        owned: tuple[int, ...] = ()
        handed = [a.numel() for a in arguments[:count] if isinstance(a, Tensor)]
        if 1 < fewest == times.max() and len(handed) == count and max(handed) >= fusing.LARGE:
            # no client waits for another with its old values: each step may overwrite what it hands on
            owned = tuple(range(len(taus), len(taus) + count))
            arguments = [*(a.clone(memory_format=torch.contiguous_format) for a in arguments[:count]), *arguments[count:]]
        for step, batches in enumerate(self._batches(op, plan, clients, int(times.max()))):
            tensors = taus + [a for a in arguments if isinstance(a, Tensor)] + [leaf for batch in batches for leaf in batch.leaves()]
            try:
                made = list(self._graph(op, plan, arguments, batches, tensors, owned)(*tensors))
            except Exception as error:
                raise self._blame(op, clients, times, given, error) from error
            if step >= fewest:  # some clients are done
                busy = torch.from_numpy(times > step)
                made = [torch.where(busy.view(-1, *[1] * (new.dim() - 1)), new, old) for new, old in zip(made, arguments, strict=False)]
            arguments = [*made, *arguments[count:]]
        return arguments[:count], 0

    def _blame(self, op: Map, clients: Index, times: Index, arguments: list[Any], error: Exception) -> Exception:
        """What to raise for an error of a graph. If one client's rows are at fault, its plain run raises an error with its name instead."""
        for k, client in enumerate(clients):
            own = [a[k : k + 1] if isinstance(a, Tensor) else a for a in arguments]
            run_one(self.setting, op, int(client), int(times[k]), self._first(op, own))
        return error if isinstance(error, RookeryError) else EngineError(
            f"{op.fn.__qualname__} runs at each client alone, but not at all of them as one graph ({str(error).strip().splitlines()[-1]}); "
            'write engine="loop"')

    def _batches(self, op: Map, plan: Plan, clients: Index, times: int) -> Iterator[list[Batch]]:
        """The clients' batches, repetition after repetition; selected for a run of repetitions at once."""
        if not plan.requests and not plan.noises:
            yield from ([] for _ in range(times))
            return
        sampling, data = self.setting.problem.sampling, self.setting.data
        keys = self.setting.keys(clients, op.phase, op.call)
        streams: dict[int, np.random.Generator] = {}

        def stream(_: int, key: int) -> np.random.Generator:
            if key not in streams:
                streams[key] = rng.normal_stream(key)
            return streams[key]

        ahead = min((Drawing.ahead_of(request) for request in plan.requests), default=times)
        for first in range(0, times, max(1, ahead)):
            steps = np.arange(first, min(first + ahead, times))
            selections = [sampling.select(self.setting.draw(request, clients, keys, position, steps, stream), request)
                          for position, request in enumerate(plan.requests)]
            for place, step in enumerate(steps):
                drawn = [sampling.fetch(data, {name: index[:, place] for name, index in selection.items()}) for selection in selections]
                for batch in drawn:
                    self.setting.check(batch, clients)
                noises = [noise.numbers(keys, position, int(step), self.setting.salt) for position, noise in enumerate(plan.noises)]
                yield [*drawn, *(Batch({"noise": numbers}) for numbers in noises)]

    def _graph(self, op: Map, plan: Plan, arguments: list[Any], batches: list[Batch], tensors: list[Tensor],
               owned: tuple[int, ...]) -> Graph:
        statics = tuple((type(a), a) for a in arguments if not isinstance(a, Tensor))
        # all but numbers have a row per client, and the number of clients is written into the graph
        key = (statics, owned, *((tuple(t.shape), t.dtype) for t in tensors))
        if key not in plan.graphs:
            def one(*inputs: Tensor) -> tuple[Tensor, ...]:
                rest = list(inputs)
                times: Any = rest.pop(0) if plan.asks_steps else 1
                values = [rest.pop(0) if isinstance(a, Tensor) else a for a in arguments]
                served = [batch.rebuild(rest) for batch in batches]
                client = ClientContext(self.setting, times, lambda position, request: self._served(op, plan, served, position, request),
                                traced=True)
                made = results(op, op.fn(client, *values))
                return tuple(value.to(dtype) for value, dtype in zip(made, plan.dtypes, strict=True))

            plan.graphs[key] = trace(op, one, tensors, owned)
        return plan.graphs[key]

    @staticmethod
    def _served(op: Map, plan: Plan, served: list[Batch], position: int, request: Request | Noise) -> Batch:
        position += len(plan.requests) if isinstance(request, Noise) else 0
        if position >= len(served) or [*plan.requests, *plan.noises][position] != request:
            raise EngineError(f"{op.fn.__qualname__} draws differently from one client to the next; write engine=\"loop\"")
        return served[position]
