"""The engine for small models and many clients: one client function becomes one graph over all clients.

A client function is run once for one client to see what it draws, then traced under `vmap` with its derivatives written
out; replaying the graph costs no Python per client and no autograd. Clients are grouped by local steps and by the sizes
of full batches; a group of one loops.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from ..autodiff import functional
from ..client import Client, Setting
from ..data.sampling import Draw, Request
from ..data.store import Batch
from ..errors import EngineError
from ..problem import Problem
from .base import Flush, Index, Map, PerClient, Put, Reducer, Ref, Take, Work, results, run_one
from .local import LocalEngine

Graph = Callable[..., tuple[Tensor, ...]]


@dataclass
class Plan:
    """What one run at one client showed of a client function."""

    requests: list[Request]
    calls: Counter[str]
    samples: list[int]  # a full batch counts one row
    graphs: dict[Any, Graph] = field(default_factory=dict)

    @property
    def by_size(self) -> bool:
        return any(request.outer is None for request in self.requests)

    def sizes(self, rows: int) -> list[int]:
        """Samples of each draw at a client with so many rows: a full batch has its size."""
        return [seen if request.outer is not None else seen * rows for request, seen in zip(self.requests, self.samples, strict=True)]


_PLANS: WeakKeyDictionary[Problem, dict[Any, Plan]] = WeakKeyDictionary()  # federations over the same problem share their graphs


class Vectorised(LocalEngine):
    """Runs an operation for all clients of a cohort at once."""

    name = "vectorised"

    def start(self, setting: Setting) -> None:
        super().start(setting)
        self.plans = _PLANS.setdefault(setting.problem, {})
        for blocked, why in ((setting.problem.random, "its losses use torch's generator (dropout or augmentation)"),
                             (setting.precision is not None, "precision= wraps oracles in autocast")):
            if blocked:
                raise EngineError(f'the vectorised engine cannot run this problem: {why}; write engine="loop" or engine="auto"')

    @torch.no_grad()
    def flush(self, flush: Flush, reducer: Reducer) -> None:
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
            made = self._group(op, plan, flush.cohort[positions], times, part)
            for name, count in plan.calls.items():
                calls[name] += count * times * len(positions)
            samples += sum(plan.sizes(int(self.setting.data.sizes[flush.cohort[positions[0]]]))[op.known:]) * times * len(positions)
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
        op.drawn[0] = len(plan.requests)  # known to later operations of the same flush
        return out, Work(calls, samples, len(plan.requests))

    def _plan(self, flush: Flush, op: Map, arguments: list[Any]) -> Plan:
        """Run the function plainly at one client, off the ledger, to see what it draws and calls."""
        key = (op.fn.__func__, _Owner(op.fn.__self__),  # type: ignore[attr-defined]
               *(tuple(a.shape[1:]) if isinstance(a, Tensor) else None if isinstance(a, float) else a for a in arguments))
        if key not in self.plans:
            first = [a[0] if isinstance(a, Tensor) else a for a in arguments]
            _, _, client = run_one(self.setting, op, int(flush.cohort[0]), 1, first)
            rows = max(1, int(self.setting.data.sizes[flush.cohort[0]]))
            self.plans[key] = Plan(client.requests, client.calls, [seen // rows if request.outer is None else seen for request, seen
                                                                   in zip(client.requests, client.samples, strict=True)])
        return self.plans[key]

    def _groups(self, flush: Flush, op: Map, plan: Plan) -> list[tuple[Index, int]]:
        """Positions of clients that can run together, and how often they repeat."""
        n = len(flush.cohort)
        times = np.full(n, op.times) if isinstance(op.times, int) else np.asarray(op.times)
        sizes = self.setting.data.sizes[flush.cohort] if plan.by_size else np.zeros(n, dtype=np.int64)
        kinds, which = np.unique(np.stack([times, sizes]), axis=1, return_inverse=True)
        return [(np.flatnonzero(which.reshape(-1) == k), int(kinds[0, k])) for k in range(kinds.shape[1])]

    def _group(self, op: Map, plan: Plan, clients: Index, times: int, arguments: list[Any]) -> list[Tensor]:
        count = len(op.out)
        if len(clients) == 1:
            single = [a[0] if isinstance(a, Tensor) else a for a in arguments]
            return [value[None] for value in run_one(self.setting, op, int(clients[0]), times, single)[0]]
        sampling, data = self.setting.problem.sampling, self.setting.data
        keys, steps = self.setting.keys(clients, op.phase, op.call), np.arange(times)
        selections = [sampling.select(Draw(data, clients, keys, position, steps), request)
                      for position, request in enumerate(plan.requests)] if times else []
        # a number becomes an input of the graph, so that a schedule does not trace it anew; TorchScript knows no true and false here
        arguments = [torch.tensor(a, dtype=torch.float64) if isinstance(a, float) else int(a) if isinstance(a, bool) else a
                     for a in arguments]
        for step in range(times):
            batches = [sampling.fetch(data, {name: index[:, step] for name, index in selection.items()}) for selection in selections]
            tensors = [a for a in arguments if isinstance(a, Tensor)] + [leaf for batch in batches for leaf in batch.leaves()]
            graph = self._graph(op, plan, times, arguments, batches, tensors)
            arguments = [*graph(*tensors), *arguments[count:]]
        return arguments[:count]

    def _graph(self, op: Map, plan: Plan, times: int, arguments: list[Any], batches: list[Batch], tensors: list[Tensor]) -> Graph:
        statics = tuple(a for a in arguments if not isinstance(a, Tensor))
        # all but numbers have a row per client, and the number of clients is written into the graph
        key = (times, statics, *((tuple(t.shape), t.dtype) for t in tensors))
        if key not in plan.graphs:
            def one(*inputs: Tensor) -> tuple[Tensor, ...]:
                rest = list(inputs)
                values = [rest.pop(0) if isinstance(a, Tensor) else a for a in arguments]
                served = [batch.rebuild(rest) for batch in batches]
                client = Client(self.setting, times, lambda position, request: self._served(op, plan, served, position, request),
                                traced=True)
                return results(op, op.fn(client, *values))

            plan.graphs[key] = _trace(op, one, tensors)
        return plan.graphs[key]

    @staticmethod
    def _served(op: Map, plan: Plan, served: list[Batch], position: int, request: Request) -> Batch:
        if position >= len(served) or plan.requests[position] != request:
            raise EngineError(f"{op.fn.__qualname__} draws differently from one client to the next; write engine=\"loop\"")
        return served[position]


class _Owner:
    """A program as a part of a key: by value where it can be hashed, else by identity."""

    def __init__(self, program: Any) -> None:
        self.program = program
        try:
            self.hash = hash(program)
        except TypeError:
            self.hash = id(program)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Owner) and type(self.program) is type(other.program) and bool(self.program == other.program)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Fused normalisations, whose derivatives TorchScript cannot record, in plain operations."""
    aten = torch.ops.aten
    return get_decompositions([aten.native_batch_norm, aten.native_batch_norm_backward, aten.native_group_norm,
                               aten.native_group_norm_backward, aten.native_layer_norm, aten.native_layer_norm_backward])


def _trace(op: Map, one: Callable[..., tuple[Tensor, ...]], tensors: list[Tensor]) -> Graph:
    """The function over all clients as a TorchScript graph of plain tensor operations, derivatives included."""
    # zero-dimensional inputs are the numbers of the server; everything else has a row per client
    dims = tuple(0 if t.dim() else None for t in tensors)
    try:
        with functional(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = make_fx(torch.func.vmap(one, in_dims=dims), decomposition_table=_decompositions())(*tensors)
            for node in list(graph.graph.nodes):
                if node.target is torch.ops.aten.detach.default:
                    node.replace_all_uses_with(node.args[0])
            graph.graph.eliminate_dead_code()
            graph.recompile()
            return _script(graph, tensors)
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(f"{op.fn.__qualname__} does not vectorise over clients "
                          f"({str(error).splitlines()[0] if str(error) else type(error).__name__}); "
                          'multiply by masks instead of indexing by a condition, or write engine="loop"') from error


def _script(graph: Graph, tensors: list[Tensor]) -> Graph:
    """The graph as TorchScript, which replays it without Python; where TorchScript cannot, the graph itself."""
    try:
        traced: Graph = torch.jit.trace(graph, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]
        traced(*tensors)  # what it cannot run shows here
        return traced
    except (RuntimeError, NotImplementedError, AttributeError):
        graph(*tensors)
        return graph
