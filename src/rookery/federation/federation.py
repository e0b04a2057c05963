"""The federation and its verbs: broadcast, map and iterate, mean (and sum), collect. Everything an algorithm may do with a network.

One file, because a cohort and its federation know each other: two would import each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from types import MethodType
from typing import Any, Generic, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from ..data.store import Data
from ..errors import AlgorithmError, Away, PlacementError, ProblemError, StateLost, WeightError
from ..problems.base import Problem
from . import rng
from .client import Setting
from .engine import Engine, choose
from .epochs import Epochs, local_work
from .ledger import PHASES, Ledger
from .operations import Index, Map, Put, Take
from .pending import PendingOps
from .placed import Place, Placed
from .program import SetUp, check_client_function, outputs
from .reducer import Collector, Reducer
from .weights import Floats, client_weights, inclusion

P_co = TypeVar("P_co", bound=Problem, covariant=True)
T = TypeVar("T")
Argument = Placed | Floats | Index | float | str | tuple[float, ...] | None  # bool and int are floats to a type checker


class Cohort(Place, Generic[P_co]):
    """Some of the clients of a federation, and what an algorithm may do with them: broadcast, map and iterate, mean and sum, collect."""

    def __init__(self, fed: Federation[P_co], index: Index, even: bool = False) -> None:
        super().__init__(index, fed.data.names)
        self.fed = fed
        self.even = even  # drawn in proportion to the weights, so that the mean over it is a plain one

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

    @overload
    def broadcast(self, value: Tensor, /) -> Placed: ...
    @overload
    def broadcast(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Placed, ...]: ...
    def broadcast(self, *values: Tensor) -> Placed | tuple[Placed, ...]:
        """Server → clients. One handle per tensor; it costs when it is first used, and only at clients that lack it."""
        return _single([self.fed.pending.place(self, value) for value in values])

    @overload
    def map(self, fn: Callable[..., Tensor], *placed: Argument, same_draws_as: Placed | None = None) -> Placed: ...
    @overload
    def map(self, fn: Callable[..., tuple[Tensor, ...]], *placed: Argument, same_draws_as: Placed | None = None) -> tuple[Placed, ...]: ...
    def map(self, fn: Callable[..., Any], *placed: Argument, same_draws_as: Placed | None = None) -> Placed | tuple[Placed, ...]:
        """Run `fn(client, *values)` at each client; nothing crosses the network, and nothing runs before a mean asks for it.

        placed: values at the clients, numbers, or an array with one number per client
        same_draws_as: draw the samples of the call that made this value
        """
        return self._record(check_client_function(fn), placed, 1, same_draws_as)

    @overload
    def iterate(self, fn: Callable[..., Tensor], carry: Placed, *placed: Argument, steps: int | Index,
                same_draws_as: Placed | None = None) -> Placed: ...
    @overload
    def iterate(self, fn: Callable[..., tuple[Tensor, ...]], carry: tuple[Placed, ...], *placed: Argument, steps: int | Index,
                same_draws_as: Placed | None = None) -> tuple[Placed, ...]: ...
    def iterate(self, fn: Callable[..., Any], carry: Placed | tuple[Placed, ...], *placed: Argument, steps: int | Index,
                same_draws_as: Placed | None = None) -> Placed | tuple[Placed, ...]:
        """Repeat `fn(client, *carry, *values)`, its results becoming the carry of the next step; the other values stay.

        carry: one value at the clients, or as many as `fn` returns
        steps: one number, or one per client (see `steps`); every step draws anew
        """
        carried = carry if isinstance(carry, tuple) else (carry,)
        method = check_client_function(fn)
        count = outputs(method.__func__)[0]
        if count != len(carried) or not all(isinstance(value, Placed) for value in carried):
            got = ", ".join(type(value).__name__ for value in carried)
            raise PlacementError(f"{method.__qualname__} returns {count} values, which its next step takes: the carry is as many values at "
                                 f"the clients, in a tuple where there are several; got {got or 'none'}")
        if isinstance(steps, np.integer):
            steps = int(steps)
        if isinstance(steps, np.ndarray) and steps.shape != (self.size,):
            raise PlacementError(f"steps is one number, or one for each of the {self.size} clients; got shape {steps.shape}")
        if (steps if isinstance(steps, int) else np.min(steps)) < 0:
            raise PlacementError(f"steps says how often a function is repeated; it cannot be {np.min(steps)}")
        return self._record(method, (*carried, *placed), steps, same_draws_as)

    def _record(self, fn: MethodType, placed: tuple[Any, ...], times: int | Index,
                same_draws_as: Placed | None) -> Placed | tuple[Placed, ...]:
        fed = self.fed
        count, several = outputs(fn.__func__)
        arguments = tuple(fed.pending.argument(self, fn, a) for a in placed)
        call, phase, like = fed._next_call(), fed.ledger.current, None
        if same_draws_as is not None:
            like = same_draws_as.call
            if like is None:
                raise PlacementError("same_draws_as= takes a value made by map or iterate; this one was broadcast or taken")
            call, phase = like.call, like.phase
        out = tuple(fed.pending.number() for _ in range(count))
        op = Map(fn, arguments, out, times, phase, call, like)
        fed.pending.queue.append((self, op))
        handles = [fed.pending.handle(self, id, op) for id in out]
        return tuple(handles) if several else handles[0]

    @overload
    def mean(self, value: Placed, /) -> Tensor: ...
    @overload
    def mean(self, first: Placed, second: Placed, /, *others: Placed) -> tuple[Tensor, ...]: ...
    def mean(self, *values: Placed) -> Tensor | tuple[Tensor, ...]:
        """Clients → server: the weighted mean. One exchange, however many values; they leave the clients."""
        if not self.fed.weights[self.index].sum() > 0:
            self.fed.pending.abandon(self)
            raise WeightError(f"the weights of this cohort of {self.size} add up to 0; a mean needs at least one positive weight")
        return _single(self.fed.pending.bring(self, values, Reducer(self.names, self.mean_weights, floating=True)))

    @overload
    def sum(self, value: Placed, /) -> Tensor: ...
    @overload
    def sum(self, first: Placed, second: Placed, /, *others: Placed) -> tuple[Tensor, ...]: ...
    def sum(self, *values: Placed) -> Tensor | tuple[Tensor, ...]:
        """Clients → server: the plain sum. One exchange, however many values; they leave the clients."""
        return _single(self.fed.pending.bring(self, values, Reducer(self.names, self.ones, floating=False)))

    @overload
    def collect(self, value: Placed, /) -> Tensor: ...
    @overload
    def collect(self, first: Placed, second: Placed, /, *others: Placed) -> tuple[Tensor, ...]: ...
    def collect(self, *values: Placed) -> Tensor | tuple[Tensor, ...]:
        """Clients → server: every client's value by itself, a row each, in the order of the clients. One exchange; they leave the clients.

        The server sees what each client sent, which a mean hides: it is refused where only sums may leave the clients.
        """
        if self.fed.only_sums:
            made = next((f"{v.call.fn.__qualname__}'s result" for v in values if isinstance(v, Placed) and v.call is not None), "a value")
            self.fed.pending.abandon(self)
            raise PlacementError("only sums leave the clients of this federation (only_sums=True, as under a secure sum), and collect "
                                 f"would show the server {made} at each client: take fed.sum or fed.mean, or another method")
        return _single(self.fed.pending.bring(self, values, Collector(self.names, self.ones, floating=False)))

    def take(self, state: Placed, default: Placed) -> Placed:
        """A value of another cohort, or of the population, at this cohort's clients; `default` at those that have none."""
        fed = self.fed
        if state.place is self and not state.pool:
            return state
        fed.pending.usable(state)
        if state.id in fed.pending.values:
            raise PlacementError("take moves what clients made themselves; this value is the server's: broadcast it to the cohort")
        if default.place is not self:
            raise PlacementError("the default of take must be placed at the same cohort: write S.take(state, S.broadcast(value))")
        fed.pending.settle(state)
        op = Take(state.id, default.id, (fed.pending.number(),))
        fed.pending.queue.append((self, op))
        return fed.pending.handle(self, op.out[0])

    def steps(self, local_steps: int | Epochs | tuple[int, ...], batch: int | None, name: str = "local_steps") -> int | Index:
        """Local work as a number of steps, for `iterate`: per client where it is given in epochs, or as one number each."""
        return local_work(local_steps, batch, self.fed.data.sizes, self.index, name)


class Federation(Cohort[P_co]):
    """All clients, their data, what is minimised over them, and the engine that runs them.

    weights:      "equal", "samples", or one number per client; the same in every mean, renormalised in a cohort
    clients_per_round:  how many clients `cohort()` draws; all of them by default
    cohorts:      "uniform", every client as likely as every other, and the mean weighted; or "weighted", a client as often as its weight
                  says, and the mean plain
    engine:       "auto", "loop", "vectorised", "wire", "ray", or an engine object
    precision:    a torch dtype for autocast inside the oracles (torch.bfloat16); the state keeps its own
    min_batch:    refuse to compute anything from fewer different rows at once: a value of one row is that row's. Above 1 no batch has a
                  row twice, unless more are asked for than the client has; each then comes once before any comes twice
    only_sums:    the server may see sums and means only, as under a secure sum: `collect` is refused
    quorum:       so many clients must be there for a round: one that a site does not answer is played again without the site's clients,
                  as if they had not been there when it began. By default all must

    With unequal weights the mean over a uniform cohort is Σ p_k v_k/Σ p_k, a ratio: its expectation is not the mean over all clients, by an
    amount that vanishes as cohorts grow. `cohorts="weighted"` has no such bias: systematic sampling takes client k with probability exactly
    clients_per_round·p_k, which must not exceed 1.
    """

    def __init__(self, problem: P_co, data: Data, *, engine: str | Engine = "auto", seed: int = 0,
                 weights: str | Sequence[float] = "equal", clients_per_round: int | None = None, cohorts: str = "uniform",
                 device: str | torch.device = "cpu", precision: torch.dtype | None = None, min_batch: int = 1,
                 only_sums: bool = False, quorum: int | None = None) -> None:
        if not isinstance(problem, Problem) or not isinstance(data, Data):
            raise AlgorithmError(f"write Federation(problem, data), with a problem and Data; got {type(problem).__name__} and "
                                 f"{type(data).__name__}")
        self.data, self._problem = data.to(device), problem
        super().__init__(self, np.arange(len(data.names)))
        if clients_per_round is not None and not 1 <= clients_per_round <= self.population:
            raise AlgorithmError(f"clients_per_round lies between 1 and the number of clients, {self.population}; got {clients_per_round}")
        if quorum is not None and not 1 <= quorum <= self.population:
            raise AlgorithmError(f"quorum lies between 1 and the number of clients, {self.population}; got {quorum}")
        self.clients_per_round, self.quorum = clients_per_round, self.population if quorum is None else quorum
        self.away: set[str] = set()  # clients that are not there: no cohort has them until they are back
        self._present: Cohort[P_co] | None = None
        self.weights = client_weights(weights, self.data)
        if cohorts not in ("uniform", "weighted"):
            raise AlgorithmError(f'cohorts are "uniform" or "weighted"; got {cohorts!r}')
        self.cohorts, self.only_sums = cohorts, only_sums
        if cohorts == "weighted" and clients_per_round is not None:
            self._inclusion(clients_per_round, self._canonical)
        self.ledger = Ledger()
        if not 0 <= seed < 2**63:
            raise AlgorithmError(f"a seed lies between 0 and 2**63 - 1; got {seed}")
        self.setting = Setting(problem, self.data, seed, precision, min_batch=min_batch)
        self.counters = dict.fromkeys((*PHASES, *(f"server:{p}" for p in PHASES)), 0)
        self.engine = choose(engine)
        self.engine.bind(self.setting)
        self.pending = PendingOps(self.ledger, self.engine, self)

    @property
    def problem(self) -> P_co:
        """What is minimised; after `prepare` the finished problem."""
        return self._problem

    @property
    def population(self) -> int:
        """The number of all clients."""
        return len(self.data.names)

    @property
    def present(self) -> Cohort[P_co]:
        """The clients that are there: the federation itself, unless some are away."""
        if not self.away:
            return self
        index = self._there(np.arange(self.population))
        if self._present is None or not np.array_equal(self._present.index, index):
            self._present = Cohort(self, index)
        return self._present

    def prepare(self, x: Tensor) -> P_co:
        """Agree on a problem's constants before training: sum its `statistics(x, all rows)` over the clients, then `finish(sum)`.

        The sum is an ordinary exchange in the ledger's phase `setup`. The federation goes on with the finished problem, which is returned.
        A problem without such constants is returned as it is.
        """
        problem = self.problem
        if problem.statistics is None or problem.finish is None:
            return problem
        with self.phase("setup"):
            sums = self.map(SetUp().sums, self.broadcast(x))
            total = self.mean(sums) if problem.weighted else self.sum(sums)
        self.use(problem.finish(total), total)
        return self.problem

    def use(self, problem: Problem, constants: Tensor) -> None:
        """Go on with the problem that these constants have finished."""
        if not isinstance(problem, type(self._problem)):
            raise ProblemError(f"finish returns a problem of the same kind, {type(self._problem).__name__}; it returned "
                               f"{type(problem).__name__}")
        self.pending.finish()
        with self.phase("setup"):
            self.ledger.cross("down", "finish", constants.numel(), constants.nbytes, self.size)
        self._problem = problem
        self.setting = replace(self.setting, problem=problem, constants=constants, checked=set())
        self.engine.bind(self.setting)

    def cohort(self, size: int | None = None) -> Cohort[P_co]:
        """The clients of this round: `size` of them without replacement (default: `clients_per_round`), or all that are there."""
        size = size if size is not None else self.clients_per_round
        if size is None or size == self.population:
            return self.present
        if not 1 <= size <= len(self._canonical):
            raise AlgorithmError(f"a cohort has between 1 and {len(self._canonical)} clients (those with a positive weight); {size} were "
                                 "asked for")
        stream, even, able = rng.normal_stream(self._server_key()), self.cohorts == "weighted", self._there(self._canonical)
        if size > len(able):
            return Cohort(self, np.sort(able))
        chosen = rng.systematic(self._inclusion(size, able), size, stream) if even else \
            stream.choice(len(able), size, replace=False, shuffle=False)
        return Cohort(self, np.sort(able[chosen]), even)

    def missed(self, error: Away | StateLost) -> None:
        """After a round that came to nothing: who is away from now on. Where too few are left to play it again, they are waited for, and
        it raises what it is given if they do not come.

        Nobody is away then: whoever tries again asks all of those that the quorum asks for.
        """
        gone = set(error.clients or [error.client]) if isinstance(error, Away) else self.engine.roll_call(self.away)
        gone, most = self.away | gone, self.population - self.quorum
        if len(gone) > most and isinstance(error, Away):
            gone = self.engine.wait(self.away, gone, most)
        self.away = gone if len(gone) <= most else set()
        if len(gone) > most:
            raise error

    def put(self, state: Placed | None, cohort: Place, new: Placed) -> Placed:
        """Write a cohort's values into the population's state (None: an empty one). The old handle is spent."""
        self.pending.usable(new)
        if new.place is not cohort:
            raise PlacementError("put writes the values of the cohort it names; these live at another one")
        if state is None:
            handle = self.pending.handle(self, self.pending.number(), pool=True)
            self.pending.queue.append((cohort, Put(handle.id, new.id, lambda: None)))
            return handle
        return self.pending.put(state, cohort, new)

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
        """The problem's projection of x, for use after a mean; x itself where there is none."""
        return x if self.problem.project_x is None else self.problem.project_x(x)

    def project_y(self, y: Tensor) -> Tensor:
        """The problem's projection of y, for use after a mean; y itself where there is none."""
        return y if self.problem.project_y is None else self.problem.project_y(y)

    # below: bookkeeping

    @cached_property
    def _canonical(self) -> Index:
        """Clients of positive weight in the order of their names' keys: a cohort does not depend on the order they were given in."""
        order = np.argsort(self.data.client_keys, kind="stable")
        return order[self.weights[order] > 0]

    def _there(self, clients: Index) -> Index:
        """Those of some clients that are not away."""
        return np.asarray([k for k in clients if self.data.names[k] not in self.away], dtype=np.int64) if self.away else clients

    def _inclusion(self, size: int, clients: Index) -> Floats:
        """The probability size·p_k of each of these clients to be in a cohort that is drawn by weight."""
        return inclusion(size, self.weights[clients], [self.data.names[k] for k in clients])

    def _next_call(self) -> int:
        self.counters[self.ledger.current] += 1
        return self.counters[self.ledger.current]

    def _server_key(self) -> int:
        self.counters[f"server:{self.ledger.current}"] += 1
        return int(rng.combine(rng.as_keys(rng.name_key("server")), self.setting.seed, rng.name_key(self.ledger.current),
                               self.counters[f"server:{self.ledger.current}"])[0])


def _single(values: Sequence[T]) -> T | tuple[T, ...]:
    return values[0] if len(values) == 1 else tuple(values)
