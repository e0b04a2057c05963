"""Sums of uploads at the server, and the refusal of bad ones."""

from __future__ import annotations

import math
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
    def results(self) -> list[Tensor]:
        """The sums, floating ones in the dtype of the uploads."""
        return [total.to(value.dtype) if value.is_floating_point() else total for total, value in zip(self.totals, self.like, strict=True)]

    def add(self, position: int, values: list[Tensor]) -> None:
        """Add one client's upload to the sums."""
        self._check(position, values)
        weight = float(self.weights[position])
        if not self.totals:
            self.like = values
            self.totals = [torch.zeros_like(v, dtype=torch.float64 if v.is_floating_point() else torch.int64) for v in values]
        for total, value in zip(self.totals, values, strict=True):
            total.add_(value, alpha=weight if value.is_floating_point() else int(weight))

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
        self.totals = sums if not self.totals else [total + more for total, more in zip(self.totals, sums, strict=True)]

    @property
    def plain(self) -> bool:
        """Whether it makes a sum without weights, so that an engine may add up clients itself and `add_sum` the result."""
        return type(self) is Reducer and bool((self.weights == 1).all())

    def add_sum(self, values: list[Tensor]) -> None:
        """The sum of several clients' uploads, which are finite."""
        self.like = values
        self.totals = values if not self.totals else [total + more for total, more in zip(self.totals, values, strict=True)]

    def add_part(self, first: int, totals: list[Tensor], like: list[Tensor]) -> None:
        """The sums over the clients from position `first` on, in float64 or int64, and the form of their uploads, which are finite."""
        self._check_form(first, like)
        self.like = self.like or like
        # in memory of its own: what came from another process cannot be written to
        self.totals = [total + more for total, more in zip(self.totals or [torch.zeros_like(t) for t in totals], totals, strict=True)]

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


def all_finite(value: Tensor) -> bool:
    """Whether a tensor has neither infinities nor NaN."""
    if value.dim() == 1 and value.numel() <= 16:  # where a list is quicker than a sum
        return all(map(math.isfinite, value.tolist()))
    return math.isfinite(value.sum().item()) or bool(torch.isfinite(value).all())
