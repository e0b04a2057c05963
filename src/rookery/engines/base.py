"""What the federation hands to an engine, and what an engine hands back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..client import Client, Drawing, Setting, generators, same
from ..errors import AlgorithmError, DataError, EngineError, NonFinite, PlacementError, UploadError

Index = NDArray[np.int64]


class Ref(NamedTuple):
    """A value at the clients, by number."""

    id: int


class PerClient(NamedTuple):
    """A number of the server's for each client (local steps, sizes)."""

    numbers: Index


@dataclass(frozen=True)
class Map:
    """Run `fn(client, *arguments)`, `times` times over, its results becoming its first arguments."""

    fn: Callable[..., Any]
    arguments: tuple[Any, ...]
    out: tuple[int, ...]
    times: int | Index
    phase: str
    call: int
    like: Map | None = None  # the operation whose samples it draws again
    drawn: list[int] = field(default_factory=lambda: [0])  # how often one repetition drew, once it has run

    @property
    def known(self) -> int:
        """Draws that were counted already."""
        return 0 if self.like is None else max(self.like.drawn[0], self.like.known)

    @property
    def most(self) -> int:
        """The largest number of repetitions at a client."""
        return self.times if isinstance(self.times, int) else int(self.times.max())

    def times_of(self, position: int) -> int:
        return self.times if isinstance(self.times, int) else int(self.times[position])

    def arguments_of(self, position: int, read: Callable[[int], Tensor]) -> list[Any]:
        """The arguments at one client."""
        return [read(a.id) if isinstance(a, Ref) else a.numbers[position].item() if isinstance(a, PerClient) else a for a in self.arguments]

    @property
    def reads(self) -> list[int]:
        return [a.id for a in self.arguments if isinstance(a, Ref)]


@dataclass(frozen=True)
class Take:
    """`source` where a client holds it, else `default`."""

    source: int
    default: int
    out: tuple[int, ...]

    @property
    def reads(self) -> list[int]:
        return [self.source, self.default]


@dataclass(frozen=True)
class Put:
    """Write `source` into the population's state `pool`."""

    pool: int
    source: int
    undo: Callable[[], None]  # gives the handle that this replaced back, should the exchange fail
    out: tuple[int, ...] = ()

    @property
    def reads(self) -> list[int]:
        return [self.source]


Op = Map | Take | Put


@dataclass
class Flush:
    """The pending operations of a cohort, and what is wanted of them at the server."""

    cohort: Index
    ops: list[Op]
    values: dict[int, Tensor]  # values from the server that the operations read
    news: dict[int, Index]  # for each of them, the positions in the cohort that do not hold it yet
    wants: list[int]  # to be uploaded
    keep: set[int]  # results still in use after the flush
    free: set[int]  # stored values no longer in use


class Engine(Protocol):
    """Runs client functions somewhere."""

    name: str

    def start(self, setting: Setting) -> None: ...

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        """Run the operations and hand uploads to the reducer. If it fails, nothing the engine holds has changed."""
        ...

    def export(self, id: int) -> tuple[Index, list[Tensor]]:
        """A stored value: the clients that hold it, and their tensors."""
        ...

    def restore(self, id: int, clients: Index, values: list[Tensor], pool: bool) -> None: ...


@dataclass
class Reducer:
    """Sums uploads in fixed client order and refuses bad ones by the client's name. Keeps no stack of them."""

    names: Sequence[str]
    weights: NDArray[np.float64]
    floating: bool
    works: list[tuple[str, Work]] = field(default_factory=list)  # by phase, what operations cost
    totals: list[Tensor] = field(default_factory=list)  # in float64 or int64
    like: list[Tensor] = field(default_factory=list)  # one client's upload, for its form

    @property
    def sums(self) -> list[Tensor]:
        """The results, floating ones in the dtype of the uploads."""
        return [total.to(value.dtype) if value.is_floating_point() else total for total, value in zip(self.totals, self.like, strict=True)]

    def add(self, position: int, values: list[Tensor]) -> None:
        """One client's upload."""
        self._check(position, values)
        weight = float(self.weights[position])
        if not self.totals:
            self.like = values
            self.totals = [torch.zeros_like(v, dtype=torch.float64 if v.is_floating_point() else torch.int64) for v in values]
        for total, value in zip(self.totals, values, strict=True):
            total.add_(value, alpha=weight if value.is_floating_point() else int(weight))

    def add_stack(self, stacks: list[Tensor]) -> None:
        """All clients' uploads at once, a row each."""
        for position in self._suspects(stacks):
            self._check(position, [stack[position] for stack in stacks])
        self.like = [stack[0] for stack in stacks]
        for stack in stacks:
            kind = stack.dtype if stack.is_floating_point() else torch.int64
            weights = torch.as_tensor(self.weights, dtype=kind, device=stack.device)
            # a sum over rows goes pairwise, which a product of the weights with the stack does not
            self.totals.append((weights.reshape(-1, *[1] * (stack.dim() - 1)) * stack).sum(0))

    def work(self, op: Map, work: Work) -> None:
        self.works.append((op.phase, work))
        op.drawn[0] = work.draws

    def _suspects(self, stacks: list[Tensor]) -> list[int]:
        """The first client with something non-finite, or the first one at all for the check of the dtype."""
        for stack in stacks:
            if not bool(torch.isfinite(stack.sum())):
                finite = torch.isfinite(stack.reshape(len(stack), -1)).all(1)
                if not bool(finite.all()):
                    return [int((~finite).nonzero()[0, 0])]
        return [0]

    def _check(self, position: int, values: list[Tensor]) -> None:
        name = self.names[position]
        for i, value in enumerate(values):
            if value.dtype == torch.bool:
                raise UploadError(name, "it sent true and false; return value.long() from the client function to count them")
            if self.floating and not value.is_floating_point():
                raise UploadError(name, f"a mean needs floating-point values, it sent {value.dtype}; "
                                        "return value.double() from the client function")
            if self.like and value.shape != self.like[i].shape:
                raise UploadError(name, f"its upload has shape {tuple(value.shape)}, "
                                        f"the clients before it sent {tuple(self.like[i].shape)}; "
                                        "a client function must return the same shape everywhere")
            if self.like and value.dtype != self.like[i].dtype:
                raise UploadError(name, f"its upload is {value.dtype}, the clients before it sent {self.like[i].dtype}; "
                                        "convert in the client function")
            if not bool(torch.isfinite(value.sum())) and not bool(torch.isfinite(value).all()):
                raise NonFinite(name, "its upload holds a non-finite value; nothing was averaged. "
                                      "Lower the learning rate, or look at this client's data")


def results(op: Map, value: Any) -> tuple[Tensor, ...]:
    """What a client function returned, as the tensors its annotation promises."""
    values = value if isinstance(value, tuple) else (value,)
    if len(values) != len(op.out) or not all(isinstance(v, Tensor) for v in values):
        raise EngineError(f"{op.fn.__qualname__} promises {len(op.out)} tensor(s) in its return annotation and returned "
                          f"{[type(v).__name__ for v in values]}; make the two agree")
    return values


class Work(NamedTuple):
    """What an operation cost: oracle calls, samples newly drawn, draws in one repetition."""

    calls: Counter[str]
    samples: int
    draws: int


def run_one(setting: Setting, op: Map, client: int, times: int, arguments: list[Any]) -> tuple[tuple[Tensor, ...], Work, Client]:
    """Run one operation at one client, plainly. Returns results, their cost, and the client object of the last repetition."""
    drawing = Drawing(setting, client, op.phase, op.call, times)
    calls: Counter[str] = Counter()
    samples = 0
    c = Client(setting, times, drawing, name=setting.data.names[client])
    before = drawing.versions()
    device = next((a.device for a in arguments if isinstance(a, Tensor)), torch.device("cpu"))
    states = generators(device)
    for step in range(times):
        drawing.step = step
        c = Client(setting, times, drawing, name=setting.data.names[client])
        versions = [a._version for a in arguments if isinstance(a, Tensor)]
        out = results(op, op.fn(c, *arguments))
        if versions != [a._version for a in arguments if isinstance(a, Tensor)]:
            raise PlacementError(f"{op.fn.__qualname__} changed an argument in place; values are shared: write x = x + y, not x += y")
        arguments = [*out, *arguments[len(out):]]
        calls.update(c.calls)
        samples += sum(c.samples[op.known:])
    if drawing.versions() != before:
        raise DataError(f"{op.fn.__qualname__} at client {setting.data.names[client]!r} changed its batch in place, "
                        "and a full batch is the data itself: "
                        "write batch.field.clone(), or inplace=False in the first layer, and load the data again")
    if not same(states, generators(device)):
        raise AlgorithmError(f"{op.fn.__qualname__} used torch's global generator, so its results would depend on the order of the "
                             "clients, and a resumed run would differ: write c.noise(x) for random numbers of the client's own, and "
                             "stochastic=True in the problem for a loss that is random")
    return tuple(arguments[: len(op.out)]), Work(calls, samples, len(c.requests)), c
