"""How a client draws: with replacement, by shuffled epochs, in order, class-stratified, stored, Gaussian.

A sampler turns a `Draw` (the hashed randomness of some clients and steps) and a `Request` (sizes, from the algorithm)
into a selection, and a selection into a `Batch`. Leading axes are free: `(clients, steps, …)` while selecting,
`(clients, …)` or nothing while fetching, so one text serves every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from .draws import Brief, Draw, Request, Rows, Sampler, Selection, everything
from .positives import positive_counts
from .store import Batch, Data

__all__ = ["Balanced", "Draw", "Normal", "Replacement", "Request", "Sampler", "Selection", "Shuffled", "Stored", "Stratified"]


@dataclass(frozen=True)
class Replacement(Rows):
    """Draws rows uniformly with replacement, which is what the papers assume."""

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        return draw.choose(size, draw.column(draw.data.sizes))


@dataclass(frozen=True)
class Shuffled(Rows):
    """Draws rows in shuffled epochs: within one call of a client function every row comes once before any comes twice."""

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        return draw.shuffled(size)


@dataclass(frozen=True, repr=False)
class Stratified(Brief, Rows):
    """Draws a fixed number of positives in every batch: the first rows have `label` > 0, the others not.

    positives:  their number; or, for batches of any size,
    share:      their share of a batch, rounded, at least one row and not all; a batch of one row is then drawn as by `Replacement`
    importance: give batches the field `importance`: π·m/k at k positives of m rows and (1 − π)·m/(m − k) at the others, for a client with
                the share π of positives. Means of importance·value over a batch are then unbiased for the client's own means, and a client
                of one class draws from it with importance 1, where it is refused otherwise. Full batches do without the field
    """

    LATER: ClassVar[tuple[str, ...]] = ("share", "importance")
    counted: ClassVar[bool] = False  # whether batches count the different rows of each side by themselves
    label: str
    positives: int = 0
    share: float | None = None
    importance: bool = False

    def __post_init__(self) -> None:
        if self.share is not None and (self.positives or not 0 < self.share < 1):
            raise DataError("share is the share of positives in a batch, between 0 and 1, and stands in the place of their number: write "
                            f"Stratified({self.label!r}, share=0.5); got share={self.share} and positives={self.positives}")

    def select(self, draw: Draw, request: Request) -> Selection:
        selection = super().select(draw, request)
        return selection | {"importance": self._importance(draw, request.outer)} if self.importance and request.outer else selection

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        k, (positive, negative) = self._number(size), self._classes(draw)
        if k == 0:
            return draw.choose(size, positive + negative)
        for client, p, n in zip(draw.clients, positive.flat, negative.flat, strict=True):
            if not self.importance and (p == 0 or n == 0):
                raise DataError(f"client {draw.data.names[client]!r} has {p} positive and {n} negative rows; stratified draws "
                                "need both: use sampling=Replacement(), importance=True, or leave the client out")
        # rows of a client are sorted by label in `order`: negatives first
        taken = np.where(negative == 0, True, np.where(positive == 0, False, np.arange(size) < k))
        start = draw.column(draw.data.offsets)
        rank = draw.choose(size, np.where(taken, positive, negative), taken) + negative * taken
        rows: NDArray[np.int64] = draw.data.groups(self.label).order[start + rank] - start
        return rows

    def _number(self, size: int) -> int:
        """The positives of a batch; 0 where it is drawn without a look at classes."""
        if self.share is not None:
            return 0 if size == 1 else min(max(round(self.share * size), 1), size - 1)
        if not 0 < self.positives < size:
            raise DataError(f"a stratified batch of {size} needs between 1 and {size - 1} positives, not {self.positives}")
        return self.positives

    def _classes(self, draw: Draw) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many positives and how many other rows each client has."""
        positive = positive_counts(draw.data, self.label, draw.clients)[:, None, None]
        negative = draw.column(draw.data.sizes) - positive
        if not self.counted:
            draw.refuse_few(self.label, positive, negative)
        return positive, negative

    def _importance(self, draw: Draw, size: int) -> Tensor:
        k, (positive, negative) = self._number(size), self._classes(draw)
        own = positive / (positive + negative)
        weight = np.where(np.arange(size) < k, own * size / max(k, 1), (1 - own) * size / (size - k))
        weight = np.where((k > 0) & (positive > 0) & (negative > 0), weight, 1.0)
        return torch.from_numpy(np.broadcast_to(weight, (len(draw.clients), len(draw.steps), size)).copy())

    def fetch(self, data: Data, selection: Selection) -> Batch:
        batch = super().fetch(data, selection)
        if "importance" in selection:
            if "importance" in batch.fields:
                raise DataError("a stratified draw gives its rows the field 'importance'; rename the clients' field of that name")
            precise = any(field.dtype == torch.float64 for field in batch.fields.values())
            batch.fields["importance"] = selection["importance"].to(data.device, torch.float64 if precise else torch.float32)
        return batch


@dataclass(frozen=True)
class Balanced(Rows):
    """Draws as many rows of each value of a field as of every other that the client has, to within one: of classes, or of groups.

    Which values have the one row more goes round from step to step. A client that has one value only draws from it. Means over a batch
    are those of a balanced client, and not of the client's own rows.

    Under a `min_batch` a client's groups of fewer rows, by a field other than labels, are drawn as one, with the smallest of the others
    where that is still too few: what is drawn of a group in turn would give its rows away.
    """

    field: str = "labels"

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        groups = draw.data.groups(self.field, 1 if self.field == "labels" else draw.least)
        number, first = draw.column(groups.number), draw.column(groups.first)
        own = (np.arange(size) + draw.steps[None, :, None] * size) % number
        place = groups.start[first + own] + draw.choose(size, groups.size[first + own], own)
        rows: NDArray[np.int64] = groups.order[place] - draw.column(draw.data.offsets)
        return rows


@dataclass(frozen=True)
class Stored:
    """Conditional samples stored with their row: field `inner` has shape (rows, M, …) and holds M samples given that row.

    An inner size of None takes all M, which makes the conditional expectation an exact mean; a number m draws m of them with replacement,
    also where m = M.
    """

    inner: str

    def select(self, draw: Draw, request: Request) -> Selection:
        forms = draw.data.forms()
        if self.inner not in forms:
            raise DataError(f"there is no field {self.inner!r} with stored samples; the clients have {sorted(forms)}")
        rows = everything(draw) if request.outer is None else draw.choose(request.outer, draw.column(draw.data.sizes))
        selection = {"rows": torch.from_numpy(draw.column(draw.data.offsets) + rows), "index": torch.from_numpy(rows)}
        if not forms[self.inner].shape:
            raise DataError(f"field {self.inner!r} holds several samples for each row, (rows, samples, …); it has a single number a row")
        stored = forms[self.inner].shape[0]
        if request.inner is not None:
            owner = np.repeat(np.arange(rows.shape[2]), request.inner)
            flat = draw.beside().choose(len(owner), np.asarray(stored), owner)
            selection["columns"] = torch.from_numpy(flat.reshape(*rows.shape, request.inner))
        return selection

    def fetch(self, data: Data, selection: Selection) -> Batch:
        fields = data.take(selection["rows"])
        eta = fields.pop(self.inner)
        if "columns" in selection:
            columns = selection["columns"]
            columns = columns.reshape(*columns.shape, *[1] * (eta.dim() - columns.dim()))
            eta = eta.gather(columns.dim() - 1 - (eta.dim() - selection["columns"].dim()),
                             columns.expand(*selection["columns"].shape, *eta.shape[selection["columns"].dim():]))
        return Batch(fields, selection["index"], Batch({self.inner: eta}))

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        rest = {name: field for name, field in fields.items() if name != self.inner}
        return Batch(rest, torch.arange(len(fields[self.inner])), Batch({self.inner: fields[self.inner]}))


@dataclass(frozen=True)
class Normal:
    """Generated samples: field `xi` of shape (outer, *outer_shape) and inner field `eta` of shape (outer, inner, *inner_shape), N(0, 1).

    With `inner_shape=None` there are no conditional samples.
    """

    outer_shape: tuple[int, ...]
    inner_shape: tuple[int, ...] | None = None
    dtype: torch.dtype = torch.float32

    def select(self, draw: Draw, request: Request) -> Selection:
        if request.outer is None or (self.inner_shape is not None and request.inner is None):
            raise DataError("a Gaussian source has no end: give the number of outer (and inner) samples to draw")
        selection = {"xi": draw.normal((request.outer, *self.outer_shape)).to(self.dtype)}
        if self.inner_shape is not None:
            selection["eta"] = draw.beside().normal((request.outer, request.inner or 0, *self.inner_shape)).to(self.dtype)
        return selection

    def fetch(self, data: Data, selection: Selection) -> Batch:
        eta = Batch({"eta": selection["eta"].to(data.device)}) if "eta" in selection else None
        return Batch({"xi": selection["xi"].to(data.device)}, None, eta)

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise DataError("a Gaussian source has no end: give the number of outer (and inner) samples to draw")
