"""A client at work: the problem's oracles under its batches' randomness, and what is checked when one is first used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.sampling import Draw, Request
from ..data.store import Batch, Data
from ..errors import AlgorithmError, EngineError, FewRows, ProblemError, RookeryError
from ..problems.base import Problem
from ..problems.checks import depends, failed, refuse_matrices
from . import rng
from .generators import generators, seeded
from .noise import Kind, Noise

MOST_DRAWS = 100_000  # by one run of a client function, whose arguments a server chooses; and most calls of oracles


@dataclass(frozen=True)
class Setting:
    """What all clients of a federation share: the problem, the data, and how oracles are evaluated."""

    problem: Problem
    data: Data
    seed: int
    precision: torch.dtype | None = None
    constants: Tensor | None = None  # the sum that finished the problem in `prepare`
    min_batch: int = 1  # no batch may have fewer different rows
    salt: int = field(default=0, repr=False)  # a site's secret, without which nobody knows what its clients draw; 0: none
    checked: set[str] = field(default_factory=set)  # hand-written oracles already compared with autodiff
    phase_keys: dict[str, rng.Keys] = field(default_factory=dict, init=False)  # by phase, those of all clients without the call

    def __post_init__(self) -> None:
        if not isinstance(self.seed, int | np.integer) or isinstance(self.seed, bool):
            raise AlgorithmError(f"a seed is a whole number; got {self.seed!r}")
        if self.precision is not None and not (isinstance(self.precision, torch.dtype) and self.precision.is_floating_point):
            raise AlgorithmError(f"precision is a floating dtype of torch, such as torch.bfloat16; got {self.precision!r}")
        if not isinstance(self.salt, int) or not 0 <= self.salt < 2**128:
            raise AlgorithmError("a salt is a whole number from 0, none, to 2**128 - 1, as from secrets.randbits(128); got another")

    def keys(self, clients: np.ndarray, phase: str, call: int) -> rng.Keys:
        """The random keys of one call at these clients. Under a salt, one that becomes known tells nothing of another."""
        if self.salt:
            owners = [int(key) for key in self.data.client_keys[clients]]
            return np.concatenate([rng.hidden(self.salt, "call", owner, int(self.seed), phase, call) for owner in owners])
        if phase not in self.phase_keys:
            self.phase_keys[phase] = rng.combine(self.data.client_keys, self.seed, rng.name_key(phase))
        return rng.combine(self.phase_keys[phase][clients], call)

    def generator_seed(self, seed: int) -> int:
        """What torch's generator starts from; what it makes may be seen in results, and tells nothing of draws under a salt."""
        return int(rng.hidden(self.salt, "generator", seed)[0] >> np.uint64(1)) if self.salt else seed

    def draw(self, request: Request, clients: np.ndarray, keys: rng.Keys, position: int, steps: np.ndarray,
             stream: Callable[[int, int], np.random.Generator]) -> Draw:
        """The randomness of a request. Under `min_batch` no batch has a row twice, and none is a part of one of another size."""
        if self.min_batch > 1:  # the difference of two such batches would be of few rows
            keys = rng.combine(keys, request.outer or 0, request.inner or 0)
        return Draw(self.data, clients, keys, position, steps, stream, self.min_batch)

    def check(self, batch: Batch, clients: np.ndarray) -> None:
        """Refuse a batch of these clients that has fewer different rows than `min_batch` for a loss at one of them."""
        if self.min_batch > 1 and int((fewest := batch._fewest(len(clients))).min()) < self.min_batch:
            name = self.data.names[clients[int(fewest.argmin())]]
            raise FewRows(f"this federation draws no batch of fewer than min_batch={self.min_batch} samples, different rows, because "
                            f"what is computed from few can give them away; a batch of {int(fewest.min())} was drawn at client {name!r}: "
                            "raise batch (and inner), or merge small clients")

    def autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        return nullcontext() if self.precision is None else torch.autocast(device.type, dtype=self.precision)


class ClientContext:
    """One client at work in one call: what a client function is given, under the protocols of `oracles`."""

    def __init__(self, setting: Setting, steps: int, serve: Callable[[int, Request | Noise], Batch], traced: bool = False,
                 client: int = 0) -> None:
        self._setting, self._serve, self._traced, self._client = setting, serve, traced, client
        self.asked_rows, self.looked_at = False, 0  # rows of splits, which are no draws
        self._steps, self.asked_steps = steps, False
        self.calls: Counter[str] = Counter()
        self._asked = 0
        self.requests: list[Request] = []
        self.samples: list[int] = []
        self.noises: list[Noise] = []

    def draw(self, outer: int | None = None, inner: int | None = None) -> Batch:
        for size in () if self._traced else (outer, inner):
            if size is not None and not (isinstance(size, int | np.integer) and size >= 1):
                raise AlgorithmError(f"c.draw takes numbers of samples, at least 1, or None for all rows; got {size!r}")
        if len(self.requests) >= MOST_DRAWS:
            raise AlgorithmError(f"a client function draws at most {MOST_DRAWS} batches at a time; repeat it with iterate")
        request = Request(outer, inner)
        batch = self._serve(len(self.requests), request)
        self.requests.append(request)
        first = next(iter((batch.inner or batch).fields.values()))
        number = first.shape[0] * (first.shape[1] if batch.inner is not None else 1)
        rows = next(iter(batch.fields.values())).shape[0] if batch.fields else number
        if getattr(self.problem.sampling, "many", False):  # an outer sample is a task, with rows of its own
            rows *= next(iter(batch.fields.values())).shape[1]
            number += rows
        if getattr(self.problem.sampling, "together", False):  # one set of inner samples beside the outer ones, not one for each
            number += rows
        self.samples.append(number)
        return batch

    @property
    def min_batch(self) -> int:
        return self._setting.min_batch

    def uniform(self, keys: rng.Keys, size: int) -> NDArray[np.float64]:
        """`(keys, size)` numbers between 0 and 1 that the keys say, and the site's salt where there is one."""
        return rng.uniform(keys, size, self._setting.salt)

    @property
    def size(self) -> int:
        self.asked_rows = True
        return int(self._setting.data.sizes[self._client])

    def rows(self, split: str = "train") -> Batch:
        """All rows of a split, which are not a draw. They may be none, and fewer than `min_batch` count as none."""
        if self._traced:
            raise EngineError("rows of a split differ in number from client to client, and run client by client")
        self.asked_rows = True
        fields = self._setting.data.split_rows(split, self._client)
        number = len(next(iter(fields.values()))) if fields else 0
        if number < self._setting.min_batch:
            fields, number = {name: column[:0] for name, column in fields.items()}, 0
        self.looked_at += number
        return Batch(fields, torch.arange(number))

    def noise(self, like: Tensor, kind: Kind = "normal") -> Tensor:
        """Independent numbers of the shape, dtype and device of `like`: standard normal, or uniform between 0 and 1.

        A pure function of seed, client, call and repetition, beside the samples and without shifting them; a call with
        `same_draws_as=` has the noise of the call whose samples it draws. Other laws follow from the uniform one, and a random order
        from sorting it.
        """
        request = Noise.like(like, kind)
        batch = self._serve(len(self.noises), request)
        self.noises.append(request)
        return batch.noise

    @property
    def steps(self) -> int:
        self.asked_steps = True
        return self._steps

    @property
    def problem(self) -> Problem:
        return self._setting.problem

    def project_x(self, x: Tensor) -> Tensor:
        return x if self.problem.project_x is None else self.problem.project_x(x)

    def project_y(self, y: Tensor) -> Tensor:
        return y if self.problem.project_y is None else self.problem.project_y(y)

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        if name.startswith("_"):
            raise AttributeError(name)
        if any(own in self.problem.oracles for own in self.problem.PAIRS.get(name, ())):
            return partial(self._pair, *self.problem.PAIRS[name])
        return partial(self._oracle, name, self.problem.oracle(name))

    def _pair(self, first: str, second: str, *arguments: Any) -> Any:
        """Two oracles by themselves, of which one is hand-written, in the place of the one that gives both."""
        if second.endswith("_vjp"):
            return getattr(self, first)(*arguments), partial(getattr(self, second), *arguments)
        return getattr(self, first)(*arguments), getattr(self, second)(*arguments)

    def _oracle(self, name: str, fn: Callable[..., Tensor], *arguments: Any) -> Tensor:
        if not arguments or not isinstance(arguments[0], Tensor):
            raise AlgorithmError(f"the oracle {name!r} takes a vector first and then a batch; got {[type(a).__name__ for a in arguments]}")
        if not self._traced and any(isinstance(a, Tensor) and a.dim() > 1 for a in arguments):
            refuse_matrices(self.problem, name, arguments)
        self.calls[name] += 1
        self._asked += 1
        if self._asked > MOST_DRAWS:
            raise AlgorithmError(f"a client function asks at most {MOST_DRAWS} oracles at a time; repeat it with iterate")
        known = self._traced or self.problem.random or f"{name} is not random" in self._setting.checked
        first = not self._traced and f"variables of {name}" not in self._setting.checked
        before = None if known else generators(arguments[0].device)
        versions = [leaf._version for leaf in _rows(arguments)] if first else []
        result = self.evaluate(fn, *arguments, what=f"the oracle {name!r}")
        if before is not None:
            if before != generators(arguments[0].device):
                raise ProblemError(f"the oracle {name!r} used torch's generator, and nothing said so: write stochastic=True in the "
                                   "problem, so that every oracle on a batch runs under the batch's own seed")
            self._setting.checked.add(f"{name} is not random")
        if first:
            if versions != [leaf._version for leaf in _rows(arguments)]:
                raise ProblemError(f"the oracle {name!r} changes its batch in place, and the next one on that batch would see other rows: "
                                   "write batch.field + 1 and not batch.field += 1, and inplace=False in the module's first layer")
            self.evaluate(partial(depends, self.problem, name, self._setting.checked), *arguments)
            self._setting.checked.add(f"variables of {name}")
        if name in self.problem.oracles and not self._traced and name not in self._setting.checked:
            # in full precision: two roundings to few digits would differ by more than a mistake
            self.problem.check_oracle(name, self.evaluate(getattr(self.problem, name), *arguments, precise=True),
                                      self.evaluate(fn, *arguments, precise=True) if self._setting.precision else result)
            self._setting.checked.add(name)
        return result

    def evaluate(self, fn: Callable[..., Tensor], *arguments: Any, precise: bool = False, what: str = "") -> Tensor:
        """Any function of a vector and a batch, run as the oracles are: under the batch's own randomness, in the set precision."""
        point: Tensor = arguments[0]
        if self._traced:
            return _to(fn(*arguments), point.dtype)
        key = next((a.key for a in arguments if isinstance(a, Batch) and a.key is not None), None)
        try:
            with seeded(key, point.device), nullcontext() if precise else self._setting.autocast(point.device):
                return _to(fn(*arguments), point.dtype)
        except RookeryError:
            raise
        except Exception as error:
            told = what or f"the function {getattr(fn, '__name__', 'evaluated')!r}"
            raise failed(error, self._setting.data.names[self._client], told, arguments) from error


def _rows(arguments: tuple[Any, ...]) -> list[Tensor]:
    return [leaf for argument in arguments if isinstance(argument, Batch) for leaf in argument.leaves()]


def _to(result: Any, dtype: torch.dtype) -> Tensor:
    """An oracle's result, one tensor or a pair (which unpacks as a tensor does), in the state's own precision; functions stay."""
    if isinstance(result, tuple):
        return tuple(_to(part, dtype) for part in result)  # type: ignore[return-value]
    return result.to(dtype) if isinstance(result, Tensor) else result  # type: ignore[no-any-return]
