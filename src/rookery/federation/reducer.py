"""Sums of uploads at the server, and the refusal of bad ones."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NonFinite, UploadError
from .operations import Map

Numbers = list[float]
FEW = 16
CODES = {torch.float32: "f", torch.float64: "d", torch.int64: "q"}  # of Python's arrays


@dataclass
class Reducer:
    """Sums uploads in fixed client order and refuses bad ones by the client's name. Keeps no stack of them."""

    names: Sequence[str]
    weights: NDArray[np.float64]
    floating: bool
    works: list[tuple[str, Work]] = field(default_factory=list)  # by phase, what operations cost
    sums: list[Tensor | Numbers] = field(default_factory=list)  # in float64 or int64; those of few numbers as Python's own
    like: list[Tensor] = field(default_factory=list)  # one client's upload, for its form

    @property
    def totals(self) -> list[Tensor]:
        """The sums in float64 or int64."""
        return [one if isinstance(one, Tensor) else _tensor(one, _wide(value), value.device)
                for one, value in zip(self.sums, self.like, strict=True)]

    @property
    def results(self) -> list[Tensor]:
        """The sums, floating ones in the dtype of the uploads."""
        return [one.to(_result(value)) if isinstance(one, Tensor) else _tensor(one, _result(value), value.device)
                for one, value in zip(self.sums, self.like, strict=True)]

    def add(self, position: int, values: list[Tensor]) -> None:
        """Add one client's upload to the sums."""
        self._check_form(position, values)
        read = [numbers_of(value) for value in values]
        self._check_finite(position, read)
        weight = float(self.weights[position])
        if not self.sums:
            self.like = values
            self.sums = [torch.zeros_like(one, dtype=_wide(one)) if isinstance(one, Tensor) else [0] * len(one) for one in read]
        for place, (value, one) in enumerate(zip(values, read, strict=True)):
            factor, total = weight if value.is_floating_point() else int(weight), self.sums[place]
            if isinstance(one, Tensor):
                total.add_(one, alpha=factor)  # type: ignore[union-attr]
            else:
                self.sums[place] = [before + factor * number for before, number in zip(total, one, strict=True)]

    def add_stack(self, stacks: list[Tensor], first: int = 0) -> None:
        """The uploads of all clients at once, or of those from position `first` on, a row each."""
        for row in self._suspects(stacks):
            self._check(first + row, [stack[row] for stack in stacks])
        self.like = [stack[0] for stack in stacks]
        sums = []
        for stack in stacks:
            kind = stack.dtype if stack.is_floating_point() else torch.int64
            weights = torch.as_tensor(self.weights[first : first + len(stack)], dtype=kind, device=stack.device)
            # a sum over rows goes pairwise, which a product of the weights with the stack does not
            sums.append((weights.reshape(-1, *[1] * (stack.dim() - 1)) * stack).sum(0))
        self._add(sums)

    @property
    def plain(self) -> bool:
        """Whether it makes a sum without weights, so that an engine may add up clients itself and `add_sum` the result."""
        return type(self) is Reducer and bool((self.weights == 1).all())

    def add_sum(self, values: list[Tensor]) -> None:
        """The sum of several clients' uploads, which are finite."""
        self.like = values
        self._add(values)

    def add_part(self, first: int, totals: list[Tensor], like: list[Tensor]) -> None:
        """The sums over the clients from position `first` on, in float64 or int64, and the form of their uploads, which are finite."""
        self._check_form(first, like)
        self.like = self.like or like
        if not self.sums:  # in memory of its own: what came from another process cannot be written to
            self.sums = [torch.zeros_like(total) for total in totals]
        self._add(totals)

    def _add(self, more: list[Tensor]) -> None:
        self.sums = [*more] if not self.sums else [total + one for total, one in zip(self.totals, more, strict=True)]

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
        self._check_form(position, values)
        self._check_finite(position, values)

    def _check_finite(self, position: int, values: Sequence[Tensor | Numbers]) -> None:
        if not all(map(all_finite, values)):
            raise NonFinite(self.names[position], "its upload holds a non-finite value; nothing was averaged. "
                                                  "Lower the learning rate, or look at this client's data")

    def _check_form(self, position: int, values: list[Tensor]) -> None:
        for i, value in enumerate(values):
            if self.like and value.dtype == self.like[i].dtype and value.shape == self.like[i].shape:
                continue  # as that of the clients before it, which was looked at
            name = self.names[position]
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


@dataclass
class Collector(Reducer):
    """Keeps every client's upload, a row each, and refuses bad ones as a sum would."""

    kept: list[list[Tensor]] = field(default_factory=list)  # by value, pieces of rows

    @property
    def results(self) -> list[Tensor]:
        """One tensor a value, with a row for each client in the cohort's order."""
        return [torch.cat(pieces) for pieces in self.kept]

    def add(self, position: int, values: list[Tensor]) -> None:
        self._check(position, values)
        self._keep([value[None] for value in values])

    def add_stack(self, stacks: list[Tensor], first: int = 0) -> None:
        for row in self._suspects(stacks):
            self._check(first + row, [stack[row] for stack in stacks])
        self._keep(stacks)

    def _keep(self, stacks: list[Tensor]) -> None:
        self.like = self.like or [stack[0] for stack in stacks]
        self.kept = self.kept or [[] for _ in stacks]
        for pieces, stack in zip(self.kept, stacks, strict=True):
            pieces.append(stack)


class Work(NamedTuple):
    """What an operation cost: oracle calls, samples newly drawn, draws in one repetition."""

    calls: Counter[str]
    samples: int
    draws: int


def _wide(value: Tensor) -> torch.dtype:
    """The type that values like this one are summed in."""
    return torch.float64 if value.is_floating_point() else torch.int64


def _result(value: Tensor) -> torch.dtype:
    """The type of a sum of values like this one."""
    return value.dtype if value.is_floating_point() else torch.int64


def _tensor(numbers: Numbers, dtype: torch.dtype, device: torch.device) -> Tensor:
    if (code := CODES.get(dtype)) is not None and device.type == "cpu":
        return torch.frombuffer(array(code, numbers), dtype=dtype)  # a third of what torch.tensor takes
    return torch.tensor(numbers, dtype=torch.float64 if dtype.is_floating_point else torch.int64, device=device).to(dtype)


def numbers_of(value: Tensor) -> Tensor | Numbers:
    """A tensor of few numbers as Python's own, with which a sum takes a fraction of the time; any other as it is."""
    return value.tolist() if value.dim() == 1 and 0 < value.numel() <= FEW else value


def all_finite(value: Tensor | Numbers) -> bool:
    """Whether a tensor, or a list of numbers, has neither infinities nor NaN."""
    if isinstance(value, Tensor):
        value = numbers_of(value)
    if not isinstance(value, Tensor):
        return all(map(math.isfinite, value))
    return math.isfinite(value.sum().item()) or bool(torch.isfinite(value).all())
