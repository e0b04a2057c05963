"""The federation and its verbs: broadcast, map, mean (and sum). Everything an algorithm may do with a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from . import rng
from .client import Setting
from .data.store import Data
from .engines import choose
from .engines.base import Engine, Flush, Index, Map, Op, PerClient, Put, Reducer, Ref, Take
from .errors import AlgorithmError, PlacementError, WeightError
from .ledger import PHASES, Ledger
from .problem import Problem
from .program import Program, check_client_function, outputs


@dataclass(frozen=True)
class Epochs(Program):
    """Local work in passes over the client's own rows instead of steps: `local_steps=Epochs(5)`."""

    number: float


LOST = "was lost with an exchange that failed; go on from the state before it"


class Clients:
    """A value that lives at the clients: no arithmetic, no reading. `map` works on it, `mean` brings it to the server."""

    __slots__ = ("__weakref__", "_fed", "call", "cohort", "id", "pool", "spent")

    def __init__(self, cohort: Cohort, id: int, call: Map | None = None, pool: bool = False) -> None:
        self.cohort, self.id, self.call, self.pool = cohort, id, call, pool
        self.spent: str | None = None
        self._fed = cohort.fed
        self._fed._alive.add(id)
        self._fed._handles.add(self)

    def __del__(self) -> None:
        self._fed._alive.discard(self.id)

    def __repr__(self) -> str:
        return f"Clients({self.cohort.size} values at the clients)"

    def _refuse(self: object, /, *_: object, **__: object) -> NoReturn:
        raise PlacementError("a value at the clients cannot be used at the server or mixed with a server value: compute with it inside "
                             "fed.map(self.method, value), or bring it over with fed.mean(value)")

    __torch_function__: classmethod[Any, ..., NoReturn] = classmethod(_refuse)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __getitem__ = __len__ = __iter__ = __float__ = __int__ = __bool__ = __array__ = _refuse


class Cohort:
    """Some of the clients, with the verbs."""

    def __init__(self, fed: Federation, index: Index) -> None:
        self.fed, self.index = fed, index

    @property
    def size(self) -> int:
        return len(self.index)

    @property
    def names(self) -> list[str]:
        return [self.fed.data.names[i] for i in self.index]

    def broadcast(self, *values: Tensor) -> Any:
        """Server → clients. One handle per tensor; it costs when it is first used, and only at clients that lack it."""
        return _single([self.fed._place(self, value) for value in values])

    def map(self, fn: Callable[..., Any], *placed: Any, times: int | Index = 1, like: Clients | None = None) -> Any:
        """Run `fn(client, *values)` at each client; nothing crosses the network, and nothing runs before a mean asks for it.

        placed: values at the clients, numbers, or an array with one number per client
        times: repeat, the results becoming the first arguments (one number, or one per client: see `steps`)
        like:  draw the same samples as the call that made this value
        """
        check_client_function(fn)
        fed = self.fed
        count, several = outputs(fn.__func__)  # type: ignore[attr-defined]
        arguments = tuple(fed._argument(self, fn, a) for a in placed)
        if isinstance(times, np.integer):
            times = int(times)
        if isinstance(times, np.ndarray) and times.shape != (self.size,):
            raise PlacementError(f"times must be one number, or one for each of the {self.size} clients; got shape {times.shape}")
        if np.min(times) < 0:
            raise PlacementError(f"times says how often a function is repeated; it cannot be {np.min(times)}")
        if not (isinstance(times, int) and times == 1) and count > len(arguments):
            raise PlacementError(f"{fn.__qualname__} returns {count} values but takes {len(arguments)}: repeated, results become arguments")
        call, phase = fed._next_call(), fed.ledger.current
        if like is not None:
            if like.call is None:
                raise PlacementError("like= takes a value made by map; this one was broadcast or taken")
            call, phase = like.call.call, like.call.phase
        out = tuple(fed._number() for _ in range(count))
        op = Map(fn, arguments, out, times, phase, call, None if like is None else like.call)
        fed._pending.append((self, op))
        handles = [Clients(self, id, op) for id in out]
        return tuple(handles) if several else handles[0]

    def mean(self, *values: Clients) -> Any:
        """Clients → server: the weighted mean. One exchange, however many values; they leave the clients."""
        weights = self.fed.weights[self.index]
        if not weights.sum() > 0:
            raise WeightError(f"the weights of this cohort of {self.size} add up to 0; a mean needs at least one positive weight")
        return self.fed._bring(self, values, weights / weights.sum(), floating=True)

    def sum(self, *values: Clients) -> Any:
        """Clients → server: the plain sum."""
        return self.fed._bring(self, values, np.ones(self.size), floating=False)

    def take(self, state: Clients, default: Clients) -> Clients:
        """A value of another cohort, or of the population, at this cohort's clients; `default` at those that have none."""
        fed = self.fed
        if state.cohort is self and not state.pool:
            return state
        fed._usable(state)
        if state.id in fed._values:
            raise PlacementError("take moves what clients made themselves; this value is the server's: broadcast it to the cohort")
        if default.cohort is not self:
            raise PlacementError("the default of take must be placed at the same cohort: write S.take(state, S.broadcast(value))")
        fed._settle(state)
        op = Take(state.id, default.id, (fed._number(),))
        fed._pending.append((self, op))
        return Clients(self, op.out[0])

    def steps(self, local_steps: int | Epochs, batch: int | None) -> int | Index:
        """Local work as a number of steps, per client where it is given in epochs (for `map(times=…)`)."""
        if isinstance(local_steps, int):
            return local_steps
        if batch is None:
            return math.ceil(local_steps.number)
        return np.maximum(1, np.ceil(local_steps.number * self.fed.data.sizes[self.index] / batch)).astype(np.int64)


class Federation(Cohort):
    """All clients, their data, what is minimised over them, and the engine that runs them.

    weights:      "equal", "samples", or one number per client; the same in every mean, renormalised in a cohort
    participate:  how many clients `cohort()` draws; all of them by default
    engine:       "auto", "loop", "vectorised", "wire", or an engine object
    precision:    a torch dtype for autocast inside the oracles (torch.bfloat16); the state keeps its own
    """

    def __init__(self, problem: Problem, data: Data, *, engine: str | Engine = "auto", seed: int = 0,
                 weights: str | Sequence[float] = "equal", participate: int | None = None,
                 device: str | torch.device = "cpu", precision: torch.dtype | None = None) -> None:
        self.data = data if torch.device(device).type == "cpu" else data.to(device)
        super().__init__(self, np.arange(len(data.names)))
        if participate is not None and not 1 <= participate <= self.population:
            raise AlgorithmError(f"participate must lie between 1 and the number of clients, {self.population}; got {participate}")
        self.participate = participate
        self.weights = _weights(weights, self.data)
        self.ledger = Ledger()
        if not 0 <= seed < 2**63:
            raise AlgorithmError(f"a seed lies between 0 and 2**63 - 1; got {seed}")
        self.setting = Setting(problem, self.data, seed, precision)
        self._alive: set[int] = set()
        self._handles: WeakSet[Clients] = WeakSet()
        self._values: dict[int, Tensor] = {}
        self._delivered: dict[int, Index] = {}
        self._stored: set[int] = set()
        self._pending: list[tuple[Cohort, Op]] = []
        self._numbers = 0
        self.counters = dict.fromkeys((*PHASES, *(f"server:{p}" for p in PHASES)), 0)
        self.engine = choose(engine)
        self.engine.start(self.setting)

    @property
    def problem(self) -> Problem:
        return self.setting.problem

    @property
    def population(self) -> int:
        return len(self.data.names)

    def use(self, problem: Problem, constants: Tensor | None = None) -> None:
        """Go on with another problem over the same data (`prepare` does, with the constants that finished it)."""
        self._finish_pending()
        if constants is not None:
            with self.phase("setup"):
                self.ledger.book(floats_down=constants.numel() * self.size, bytes_down=constants.nbytes * self.size)
        self.setting = Setting(problem, self.data, self.setting.seed, self.setting.precision, constants)
        self.engine.start(self.setting)

    def cohort(self, size: int | None = None) -> Cohort:
        """The clients of this round: `size` of them without replacement (default: `participate`), or all."""
        size = size if size is not None else self.participate
        if size is None or size == self.population:
            return self
        if not 1 <= size <= self.population:
            raise AlgorithmError(f"a cohort has between 1 and {self.population} clients; {size} were asked for")
        chosen = rng.normal_stream(self._server_word()).choice(self.population, size, replace=False, shuffle=False)
        return Cohort(self, np.sort(self._canonical[chosen]))

    def put(self, state: Clients | None, cohort: Cohort, new: Clients) -> Clients:
        """Write a cohort's values into the population's state (None: an empty one). The old handle is spent."""
        self._usable(new)
        if new.cohort is not cohort:
            raise PlacementError("put writes the values of the cohort it names; these live at another one")
        if state is None:
            handle = Clients(self, self._number(), pool=True)
            self._pending.append((cohort, Put(handle.id, new.id, lambda: None)))
            return handle
        self._usable(state)
        if not state.pool:
            raise PlacementError("put writes into population state, made by put(None, cohort, value)")
        pool = state.id
        for where, op in list(self._pending):  # what other cohorts still have to read from it or write into it comes first
            if where is not cohort and pool in (op.pool if isinstance(op, Put) else None, *op.reads):
                self._run(where, [], None)
        handle = Clients(self, pool, pool=True)

        def undo() -> None:
            state.id, state.spent = pool, None
            handle.id, handle.spent = -1, LOST

        state.id, state.spent = -1, "was replaced by put, which returned the new handle"  # its end must not free the pool
        self._pending.append((cohort, Put(pool, new.id, undo)))
        return handle

    def integer(self, bound: int) -> int:
        """A random integer in [0, bound) at the server, from the same seed."""
        return int(rng.below(rng.words(self._server_word()), bound)[0])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Inside, exchanges and draws are booked under another phase; the draws of training do not shift."""
        with self.ledger.phase(name):
            yield

    def project_x(self, x: Tensor) -> Tensor:
        """The problem's projection, for use after a mean."""
        return x if self.problem.project_x is None else self.problem.project_x(x)

    def project_y(self, y: Tensor) -> Tensor:
        return y if self.problem.project_y is None else self.problem.project_y(y)

    # below: bookkeeping

    @property
    def _canonical(self) -> Index:
        """Clients in the order of their names' words, so that a cohort does not depend on the order they were given in."""
        if "canonical" not in self.__dict__:
            self.__dict__["canonical"] = np.argsort(self.data.words, kind="stable")
        return self.__dict__["canonical"]  # type: ignore[no-any-return]

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _next_call(self) -> int:
        self.counters[self.ledger.current] += 1
        return self.counters[self.ledger.current]

    def _server_word(self) -> int:
        self.counters[f"server:{self.ledger.current}"] += 1
        return int(rng.combine(rng.words(rng.name_word("server")), self.setting.seed, rng.name_word(self.ledger.current),
                               self.counters[f"server:{self.ledger.current}"])[0])

    def _place(self, cohort: Cohort, value: Tensor) -> Clients:
        if not isinstance(value, Tensor):
            what = "a value already at the clients" if isinstance(value, Clients) else type(value).__name__
            raise PlacementError(f"broadcast takes tensors at the server; got {what}")
        handle = Clients(cohort, self._number())
        self._values[handle.id] = value.detach().clone()  # what the server does with its tensor later is its own affair
        return handle

    def _usable(self, value: Clients) -> None:
        if value.spent:
            raise PlacementError(f"this value {value.spent}; to keep a copy at the clients, return it twice from the client function")

    def _argument(self, cohort: Cohort, fn: Callable[..., Any], value: Any) -> Any:
        if isinstance(value, Clients):
            self._usable(value)
            if value.cohort is not cohort and not (value.id in self._values and value.cohort is self):
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
            return PerClient(value)
        if isinstance(value, tuple | list):
            return tuple(self._argument(cohort, fn, v) for v in value)
        if isinstance(value, float) and not math.isfinite(value):
            raise PlacementError(f"{fn.__qualname__} was given {value}; a number that goes to the clients must be finite")
        if value is not None and not isinstance(value, bool | int | float | str):
            raise PlacementError(f"{fn.__qualname__} takes values at the clients, numbers and texts; got {type(value).__name__}")
        return value

    def _settle(self, state: Clients) -> None:
        """Run what still has to write `state`, without an upload."""
        for cohort, op in list(self._pending):
            if state.id in op.out or (isinstance(op, Put) and op.pool == state.id):
                self._run(cohort, [], None)

    def _finish_pending(self) -> None:
        while self._pending:
            self._run(self._pending[0][0], [], None)

    def _bring(self, cohort: Cohort, values: tuple[Clients, ...], weights: np.ndarray, floating: bool) -> Any:
        if not values:
            raise PlacementError("mean and sum need at least one value at the clients")
        for value in values:
            if not isinstance(value, Clients):
                raise PlacementError(f"mean and sum take values at the clients; got {type(value).__name__}, which is at the server already")
            self._usable(value)
            if value.cohort is not cohort:
                raise PlacementError("a mean is taken over the cohort its values live at; use that cohort's mean")
        reducer = Reducer(cohort.names, weights, floating)
        self._run(cohort, list(values), reducer)
        self.ledger.book(exchanges=1, floats_up=sum(s.numel() for s in reducer.sums) * cohort.size,
                         bytes_up=sum(s.nbytes for s in reducer.sums) * cohort.size)
        return _single(reducer.sums)

    def _run(self, cohort: Cohort, wants: list[Clients], reducer: Reducer | None) -> None:
        """Flush a cohort's pending operations: what nobody will read is dropped, the rest runs once."""
        needed = {v.id for v in wants} | self._alive
        ops: list[Op] = []
        rest: list[tuple[Cohort, Op]] = []
        for where, op in reversed(self._pending):
            if isinstance(op, Put) or needed.intersection(op.out):
                needed.update(op.reads)
                if where is cohort:
                    ops.insert(0, op)
                else:
                    rest.insert(0, (where, op))
        asked = [v.id for v in wants]
        read = {id for op in ops for id in op.reads} | set(asked)
        values = {id: self._values[id] for id in read if id in self._values}
        news = {id: self._newcomers(id, cohort) for id in values}
        later = (self._alive - set(asked)) | {id for _, op in rest for id in op.reads} | {op.pool for _, op in rest if isinstance(op, Put)}
        made = {id for op in ops for id in op.out} | {op.pool for op in ops if isinstance(op, Put)}
        silent = reducer or Reducer(cohort.names, np.ones(cohort.size), False)
        flush = Flush(cohort.index, ops, values, news, asked, made & later, (self._stored | made | set(values)) - later)
        try:
            self.engine.flush(flush, silent)
        except Exception:
            self._roll_back(cohort, ops, rest)
            raise
        for v in wants:
            v.spent = "was averaged, and left the clients with that"
            self._alive.discard(v.id)
        self._pending = rest
        self._stored = (self._stored | made | set(values)) & later
        for id, who in news.items():
            self._delivered[id] = np.union1d(self._delivered[id], cohort.index[who]) if id in self._delivered else cohort.index
            self.ledger.book(floats_down=values[id].numel() * len(who), bytes_down=values[id].nbytes * len(who))
        self._values = {id: v for id, v in self._values.items() if id in later}
        self._delivered = {id: who for id, who in self._delivered.items() if id in self._values}
        for phase, work in silent.works:
            with self.ledger.phase(phase):
                self.ledger.book(work.calls, samples=work.samples)

    def _roll_back(self, cohort: Cohort, ops: list[Op], rest: list[tuple[Cohort, Op]]) -> None:
        """After a failed exchange: what it would have made is lost, what was there before is as it was."""
        for op in reversed(ops):
            if isinstance(op, Put):
                op.undo()
        made = {id for op in ops for id in op.out}
        for handle in list(self._handles):
            if handle.id in made:
                handle.spent = LOST
                self._alive.discard(handle.id)
        self._pending = rest

    def _newcomers(self, id: int, cohort: Cohort) -> Index:
        """Positions in the cohort that do not hold a broadcast value yet."""
        if id not in self._delivered:
            return np.arange(cohort.size)
        return np.flatnonzero(~np.isin(cohort.index, self._delivered[id]))


def _single(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _weights(weights: str | Sequence[float], data: Data) -> np.ndarray:
    if isinstance(weights, str):
        if weights not in ("equal", "samples"):
            raise WeightError(f'weights are "equal", "samples" or one number per client; got {weights!r}')
        return np.ones(len(data.names)) if weights == "equal" else data.sizes.astype(np.float64)
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (len(data.names),):
        raise WeightError(f"one weight per client is needed: {len(data.names)} clients, weights of shape {array.shape}")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(bad):
        raise WeightError(f"weights must be finite and not negative; client {data.names[bad[0]]!r} has {array[bad[0]]}")
    if not array.sum() > 0:
        raise WeightError("the weights are all 0; give at least one client a positive weight")
    return array
