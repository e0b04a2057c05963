"""The federation and its verbs: broadcast, map, mean (and sum). Everything an algorithm may do with a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.store import Data
from ..errors import AlgorithmError, PlacementError, WeightError
from ..problems.base import Problem
from . import rng
from .client import Setting
from .engine import Engine, choose
from .epochs import Epochs
from .ledger import PHASES, Ledger
from .operations import Index, Map, Put, Take
from .pending import PendingOps
from .placed import Placed
from .program import check_client_function, outputs
from .reducer import Reducer

Floats = NDArray[np.float64]


class Cohort:
    """Some of the clients, with the verbs."""

    def __init__(self, fed: Federation, index: Index, even: bool = False) -> None:
        self.fed, self.index = fed, index
        self.even = even  # drawn in proportion to the weights, so that the mean over it is a plain one

    @property
    def size(self) -> int:
        return len(self.index)

    @property
    def mean_weights(self) -> Floats:
        """What `mean` weighs each client with; they sum to 1."""
        weights: Floats = np.ones(self.size) if self.even else self.fed.weights[self.index]
        return np.asarray(weights / weights.sum())

    @property
    def importance(self) -> Floats:
        """Each client's weight in the mean over all clients, over that in this cohort's mean: |S|/N where weights are equal.

        The cohort's mean of importance·value is the part of these clients in the mean over all.
        """
        shares = self.fed.weights[self.index] / self.fed.weights.sum()
        return self.size * shares if self.even else np.full(self.size, shares.sum())

    @property
    def horvitz_thompson(self) -> float:
        """The factor that makes the cohort's mean an unbiased estimate of the mean over all clients.

        It is (N/|S|)·Σ_{k∈S} p_k for a uniform cohort, whose weighted mean is a ratio; 1 where clients are drawn by their weights.
        """
        everyone = self.size == self.fed.population
        return 1.0 if self.even or everyone else float(len(self.fed._canonical) / self.size * self.importance[0])

    @cached_property
    def names(self) -> list[str]:
        return [self.fed.data.names[i] for i in self.index]

    def broadcast(self, *values: Tensor) -> Any:
        """Server → clients. One handle per tensor; it costs when it is first used, and only at clients that lack it."""
        return _single([self.fed.pending.place(self, value) for value in values])

    def map(self, fn: Callable[..., Any], *placed: Any, times: int | Index = 1, like: Placed | None = None) -> Any:
        """Run `fn(client, *values)` at each client; nothing crosses the network, and nothing runs before a mean asks for it.

        placed: values at the clients, numbers, or an array with one number per client
        times: repeat, the results becoming the first arguments (one number, or one per client: see `steps`)
        like:  draw the same samples as the call that made this value
        """
        check_client_function(fn)
        fed = self.fed
        count, several = outputs(fn.__func__)  # type: ignore[attr-defined]
        arguments = tuple(fed.pending.argument(self, fn, a) for a in placed)
        if isinstance(times, np.integer):
            times = int(times)
        if isinstance(times, np.ndarray) and times.shape != (self.size,):
            raise PlacementError(f"times must be one number, or one for each of the {self.size} clients; got shape {times.shape}")
        if (times if isinstance(times, int) else np.min(times)) < 0:
            raise PlacementError(f"times says how often a function is repeated; it cannot be {np.min(times)}")
        if not (isinstance(times, int) and times == 1) and count > len(arguments):
            raise PlacementError(f"{fn.__qualname__} returns {count} values but takes {len(arguments)}: repeated, results become arguments")
        call, phase = fed._next_call(), fed.ledger.current
        if like is not None:
            if like.call is None:
                raise PlacementError("like= takes a value made by map; this one was broadcast or taken")
            call, phase = like.call.call, like.call.phase
        out = tuple(fed.pending.number() for _ in range(count))
        op = Map(fn, arguments, out, times, phase, call, None if like is None else like.call)
        fed.pending.queue.append((self, op))
        handles = [Placed(self, id, op) for id in out]
        return tuple(handles) if several else handles[0]

    def mean(self, *values: Placed) -> Any:
        """Clients → server: the weighted mean. One exchange, however many values; they leave the clients."""
        if not self.fed.weights[self.index].sum() > 0:
            self.fed.pending.abandon(self)
            raise WeightError(f"the weights of this cohort of {self.size} add up to 0; a mean needs at least one positive weight")
        return self.fed._bring(self, values, self.mean_weights, floating=True)

    def sum(self, *values: Placed) -> Any:
        """Clients → server: the plain sum."""
        return self.fed._bring(self, values, np.ones(self.size), floating=False)

    def take(self, state: Placed, default: Placed) -> Placed:
        """A value of another cohort, or of the population, at this cohort's clients; `default` at those that have none."""
        fed = self.fed
        if state.cohort is self and not state.pool:
            return state
        fed.pending.usable(state)
        if state.id in fed.pending.values:
            raise PlacementError("take moves what clients made themselves; this value is the server's: broadcast it to the cohort")
        if default.cohort is not self:
            raise PlacementError("the default of take must be placed at the same cohort: write S.take(state, S.broadcast(value))")
        fed.pending.settle(state)
        op = Take(state.id, default.id, (fed.pending.number(),))
        fed.pending.queue.append((self, op))
        return Placed(self, op.out[0])

    def steps(self, local_steps: int | Epochs | tuple[int, ...], batch: int | None, name: str = "local_steps") -> int | Index:
        """Local work as a number of steps (for `map(times=…)`): per client where it is given in epochs, or as one number each."""
        if isinstance(local_steps, int):
            return local_steps
        if isinstance(local_steps, tuple):
            if len(local_steps) != self.fed.population or any(not isinstance(n, int) or n < 1 for n in local_steps):
                raise AlgorithmError(f"{name} as a tuple holds one whole number of at least 1 for each of the {self.fed.population} "
                                     f"clients, in the order of fed.names; got {local_steps!r}")
            return np.asarray(local_steps, dtype=np.int64)[self.index]
        if not isinstance(local_steps, Epochs):
            raise AlgorithmError(f"{name} is a whole number, one for each client, or Epochs(…); got {local_steps!r}")
        if batch is None:
            return math.ceil(local_steps.number)
        return np.maximum(1, np.ceil(local_steps.number * self.fed.data.sizes[self.index] / batch)).astype(np.int64)


class Federation(Cohort):
    """All clients, their data, what is minimised over them, and the engine that runs them.

    weights:      "equal", "samples", or one number per client; the same in every mean, renormalised in a cohort
    clients_per_round:  how many clients `cohort()` draws; all of them by default
    cohorts:      "uniform", every client as likely as every other, and the mean weighted; or "weighted", a client as often as its weight
                  says, and the mean plain
    engine:       "auto", "loop", "vectorised", "wire", or an engine object
    precision:    a torch dtype for autocast inside the oracles (torch.bfloat16); the state keeps its own
    min_batch:    refuse to compute anything from fewer samples at once: a value of one row is that row's

    With unequal weights the mean over a uniform cohort is Σ p_k v_k/Σ p_k, a ratio: its expectation is not the mean over all clients, by an
    amount that vanishes as cohorts grow. `cohorts="weighted"` has no such bias: systematic sampling takes client k with probability exactly
    clients_per_round·p_k, which must not exceed 1.
    """

    def __init__(self, problem: Problem, data: Data, *, engine: str | Engine = "auto", seed: int = 0,
                 weights: str | Sequence[float] = "equal", clients_per_round: int | None = None, cohorts: str = "uniform",
                 device: str | torch.device = "cpu", precision: torch.dtype | None = None, min_batch: int = 1) -> None:
        if not isinstance(problem, Problem) or not isinstance(data, Data):
            raise AlgorithmError(f"write Federation(problem, data), with a problem and Data; got {type(problem).__name__} and "
                                 f"{type(data).__name__}")
        self.data = data.to(device)
        super().__init__(self, np.arange(len(data.names)))
        if clients_per_round is not None and not 1 <= clients_per_round <= self.population:
            raise AlgorithmError(f"clients_per_round lies between 1 and the number of clients, {self.population}; got {clients_per_round}")
        self.clients_per_round = clients_per_round
        self.weights = _weights(weights, self.data)
        if cohorts not in ("uniform", "weighted"):
            raise AlgorithmError(f'cohorts are "uniform" or "weighted"; got {cohorts!r}')
        self.cohorts = cohorts
        if cohorts == "weighted" and clients_per_round is not None:
            self._inclusion(clients_per_round)
        self.ledger = Ledger()
        if not 0 <= seed < 2**63:
            raise AlgorithmError(f"a seed lies between 0 and 2**63 - 1; got {seed}")
        self.setting = Setting(problem, self.data, seed, precision, min_batch=min_batch)
        self.pending = PendingOps(self.ledger)
        self.counters = dict.fromkeys((*PHASES, *(f"server:{p}" for p in PHASES)), 0)
        self.engine = choose(engine)
        self.engine.bind(self.setting)

    @property
    def problem(self) -> Problem:
        return self.setting.problem

    @property
    def population(self) -> int:
        return len(self.data.names)

    def use(self, problem: Problem, constants: Tensor | None = None) -> None:
        """Go on with another problem over the same data (`prepare` does, with the constants that finished it)."""
        self.pending.finish()
        if constants is not None:
            with self.phase("setup"):
                self.ledger.cross("down", "finish", constants.numel(), constants.nbytes, self.size)
        self.setting = replace(self.setting, problem=problem, constants=constants, checked=set())
        self.engine.bind(self.setting)

    def cohort(self, size: int | None = None) -> Cohort:
        """The clients of this round: `size` of them without replacement (default: `clients_per_round`), or all."""
        size = size if size is not None else self.clients_per_round
        if size is None or size == self.population:
            return self
        able = len(self._canonical)
        if not 1 <= size <= able:
            raise AlgorithmError(f"a cohort has between 1 and {able} clients (those with a positive weight); {size} were asked for")
        stream, even = rng.normal_stream(self._server_key()), self.cohorts == "weighted"
        chosen = rng.systematic(self._inclusion(size), size, stream) if even else stream.choice(able, size, replace=False, shuffle=False)
        return Cohort(self, np.sort(self._canonical[chosen]), even)

    def put(self, state: Placed | None, cohort: Cohort, new: Placed) -> Placed:
        """Write a cohort's values into the population's state (None: an empty one). The old handle is spent."""
        self.pending.usable(new)
        if new.cohort is not cohort:
            raise PlacementError("put writes the values of the cohort it names; these live at another one")
        if state is None:
            handle = Placed(self, self.pending.number(), pool=True)
            self.pending.queue.append((cohort, Put(handle.id, new.id, lambda: None)))
            return handle
        return self.pending.put(state, cohort, new, self)

    def integer(self, bound: int) -> int:
        """A random integer in [0, bound) at the server, from the same seed."""
        return int(rng.below(rng.as_keys(self._server_key()), bound)[0])

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Inside, exchanges and draws are booked under another phase; the draws of training do not shift."""
        with self.ledger.phase(name):
            yield

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Inside, training is played ahead: with the samples that the coming calls will draw, and booked under the phase `output`."""
        before = dict(self.counters)
        try:
            with self.ledger.redirected("output"):
                yield
        finally:
            self.counters = before

    def project_x(self, x: Tensor) -> Tensor:
        """The problem's projection, for use after a mean."""
        return x if self.problem.project_x is None else self.problem.project_x(x)

    def project_y(self, y: Tensor) -> Tensor:
        return y if self.problem.project_y is None else self.problem.project_y(y)

    # below: bookkeeping

    @cached_property
    def _canonical(self) -> Index:
        """Clients of positive weight in the order of their names' keys: a cohort does not depend on the order they were given in."""
        order = np.argsort(self.data.client_keys, kind="stable")
        return order[self.weights[order] > 0]

    def _inclusion(self, size: int) -> Floats:
        """The probability size·p_k of each client in `_canonical` to be in a cohort that is drawn by weight."""
        weights = self.weights[self._canonical]
        likely: Floats = size * weights / weights.sum()
        most = float(likely.max())
        if most > 1 + 1e-9:
            name = self.data.names[self._canonical[likely.argmax()]]
            raise AlgorithmError(f"client {name!r} has {most / size:.3g} of all weight, too much for a cohort of {size} drawn by weight; "
                                 f'draw at most {int(size / most)} clients, or write cohorts="uniform"')
        return likely

    def _next_call(self) -> int:
        self.counters[self.ledger.current] += 1
        return self.counters[self.ledger.current]

    def _server_key(self) -> int:
        self.counters[f"server:{self.ledger.current}"] += 1
        return int(rng.combine(rng.as_keys(rng.name_key("server")), self.setting.seed, rng.name_key(self.ledger.current),
                               self.counters[f"server:{self.ledger.current}"])[0])

    def _bring(self, cohort: Cohort, values: tuple[Placed, ...], weights: np.ndarray, floating: bool) -> Any:
        if not values:
            raise PlacementError("mean and sum need at least one value at the clients")
        for value in values:
            if not isinstance(value, Placed):
                raise PlacementError(f"mean and sum take values at the clients; got {type(value).__name__}, which is at the server already")
            self.pending.usable(value)
            if value.cohort is not cohort:
                raise PlacementError("a mean is taken over the cohort its values live at; use that cohort's mean")
        makers = ["" if value.call is None else value.call.fn.__name__ for value in values]
        reducer = Reducer(cohort.names, weights, floating)
        self.pending.run(cohort, list(values), reducer)
        for made, total in zip(makers, reducer.sums, strict=True):
            self.ledger.cross("up", made, total.numel(), total.nbytes, cohort.size)
        self.ledger.book(exchanges=1)
        return _single(reducer.sums)

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
