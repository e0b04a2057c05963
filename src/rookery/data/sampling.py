"""How a client draws: with replacement, by shuffled epochs, in order, class-stratified, per task, stored, Gaussian.

A sampler turns a `Draw` (the hashed randomness of some clients and steps) and a `Request` (sizes, from the algorithm)
into a selection, and a selection into a `Batch`. Leading axes are free: `(clients, steps, …)` while selecting,
`(clients, …)` or nothing while fetching, so one text serves every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..federation import rng
from .store import Batch, Data

Selection = dict[str, Tensor]


class Request(NamedTuple):
    """What an algorithm asks for: `outer` samples (None: all of them) and `inner` conditional ones for each."""

    outer: int | None = None
    inner: int | None = None


class Draw:
    """The randomness of draw number `position` in a client function, for some clients and some repetitions of it."""

    def __init__(self, data: Data, clients: NDArray[np.int64], keys: rng.Keys, position: int, steps: NDArray[np.int64],
                 stream: Callable[[int, int], np.random.Generator] | None = None) -> None:
        self.data, self.clients, self.steps = data, clients, steps
        self.keys = rng.combine(keys, position)
        self._stream = stream or (lambda _, key: rng.normal_stream(key))

    def column(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """One value per client, shaped to broadcast against `(clients, steps, size)`."""
        return values[self.clients][:, None, None]

    def below(self, size: int, bound: NDArray[np.int64]) -> NDArray[np.int64]:
        """`(clients, steps, size)` integers below `bound`."""
        return rng.uniform_index(self.keys, self.steps, size, bound)

    def shuffled(self, size: int) -> NDArray[np.int64]:
        """Ranks in an endless row of shuffled epochs: step s takes places s·size … of it, so each row comes once an epoch."""
        out = np.empty((len(self.clients), len(self.steps), size), dtype=np.int64)
        places = self.steps[:, None] * size + np.arange(size)
        for i, n in enumerate(self.data.sizes[self.clients]):
            epoch, rank = np.divmod(places, n)
            number, inverse = np.unique(epoch, return_inverse=True)
            order = rng.permuted_index(rng.combine(self.keys[i : i + 1], number), int(n))
            out[i] = order[inverse.reshape(rank.shape), rank]
        return out

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """`(clients, steps, *shape)` standard Gaussians."""
        blocks = [self._stream(i, int(key)).standard_normal((len(self.steps), *shape), dtype=np.float32)
                  for i, key in enumerate(self.keys)]
        return torch.from_numpy(np.stack(blocks))

    def seed(self, place: int) -> int:
        """An integer for torch's generator, for the first client and the step at `place`."""
        return int(rng.combine(self.keys[:1], self.steps[place])[0] >> np.uint64(1))


class Sampler(Protocol):
    """What a problem asks of its sampler, which selects samples for many clients and steps at once, and then fetches them."""

    def select(self, draw: Draw, request: Request) -> Selection:
        """What to fetch, as tensors by name with the leading axes (clients, steps)."""
        ...

    def fetch(self, data: Data, selection: Selection) -> Batch:
        """The samples of one step, from a selection with the leading axis (clients), or with none for one client."""
        ...

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        """All of one client's samples, from views of its rows."""
        ...


class _Rows:
    """Samplers whose batch is a list of rows."""

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        raise NotImplementedError

    def select(self, draw: Draw, request: Request) -> Selection:
        if request.inner is not None:
            raise DataError(f"{type(self).__name__} draws rows without conditional samples; give the problem "
                            "sampling=Stored(...), PerTask(...) or Normal(...) to draw inner samples")
        if not draw.data.forms():
            raise DataError(f"{type(self).__name__} draws rows, and these clients are streams without rows: "
                            "give the problem sampling=Normal(...)")
        start = draw.column(draw.data.offsets)
        rows = _everything(draw) if request.outer is None else self.rows(draw, request.outer)
        return {"rows": torch.from_numpy(start + rows), "index": torch.from_numpy(rows)}

    def fetch(self, data: Data, selection: Selection) -> Batch:
        return Batch(data.take(selection["rows"]), selection["index"])

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        return Batch(fields, torch.arange(len(next(iter(fields.values())))))


def _everything(draw: Draw) -> NDArray[np.int64]:
    """All rows, for clients of one size."""
    size = int(draw.data.sizes[draw.clients[0]])
    return np.broadcast_to(np.arange(size), (len(draw.clients), len(draw.steps), size)).copy()


@dataclass(frozen=True)
class Replacement(_Rows):
    """Draws rows uniformly with replacement, which is what the papers assume."""

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        return draw.below(size, draw.column(draw.data.sizes))


@dataclass(frozen=True)
class Shuffled(_Rows):
    """Draws rows in shuffled epochs: within one call of a client function every row comes once before any comes twice."""

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        return draw.shuffled(size)


@dataclass(frozen=True)
class Stratified(_Rows):
    """Draws a fixed number of positives in every batch: the first `positives` rows have `label` > 0, the others not."""

    label: str
    positives: int

    def rows(self, draw: Draw, size: int) -> NDArray[np.int64]:
        if not 0 < self.positives < size:
            raise DataError(f"a stratified batch of {size} needs between 1 and {size - 1} positives, not {self.positives}")
        groups, data = draw.data.groups(self.label), draw.data
        positive = np.asarray([int(groups.size[f : f + c][groups.value[f : f + c] > 0].sum())
                               for f, c in zip(groups.first[draw.clients], groups.number[draw.clients], strict=True)])
        negative = data.sizes[draw.clients] - positive
        for client, p, n in zip(draw.clients, positive, negative, strict=True):
            if p == 0 or n == 0:
                raise DataError(f"client {data.names[client]!r} has {p} positive and {n} negative rows; stratified draws "
                                "need both: use sampling=Replacement(), or leave the client out")
        # rows of a client are sorted by label in `order`: negatives first
        rank = draw.below(size, np.where(np.arange(size) < self.positives, positive[:, None], negative[:, None])[:, None, :])
        rank[:, :, : self.positives] += negative[:, None, None]
        start = draw.column(data.offsets)
        rows: NDArray[np.int64] = groups.order[start + rank] - start
        return rows


@dataclass(frozen=True)
class PerTask:
    """Tasks (values of a field) as outer samples with `query` rows each; the inner samples are other rows of the same task."""

    task: str
    query: int

    def select(self, draw: Draw, request: Request) -> Selection:
        outer, inner = _both(self, request)
        groups, data, need = draw.data.groups(self.task), draw.data, inner + self.query
        for client in draw.clients:
            mine = slice(groups.first[client], groups.first[client] + groups.number[client])
            if groups.size[mine].min() < need:
                small = groups.value[mine][groups.size[mine].argmin()]
                raise DataError(f"task {small} of client {data.names[client]!r} has {groups.size[mine].min()} rows; "
                                f"{inner} inner and {self.query} query rows need {need}")
        group = draw.column(groups.first) + draw.below(outer, draw.column(groups.number))
        size = groups.size[group]
        widest = int(size.max())
        bits = rng.splitmix64(rng.combine(draw.keys[:, None, None], draw.steps[None, :, None], 1, np.arange(outer))[..., None]
                              + rng.counting(widest))
        bits[np.arange(widest) >= size[..., None]] = np.iinfo(np.uint64).max
        chosen = np.argsort(bits, axis=-1, kind="stable")[..., :need]
        rows = groups.order[groups.start[group][..., None] + chosen]
        index = rows - data.offsets[draw.clients][:, None, None, None]
        cut = {"inner": slice(0, inner), "": slice(inner, need)}
        return {f"{part}{kind}": torch.from_numpy(np.ascontiguousarray(what[..., where]))
                for part, where in cut.items() for kind, what in (("rows", rows), ("index", index))}

    def fetch(self, data: Data, selection: Selection) -> Batch:
        inner = Batch(data.take(selection["innerrows"]), selection["innerindex"])
        return Batch(data.take(selection["rows"]), selection["index"], inner)

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise DataError("PerTask needs both sizes, outer and inner: there is no full batch of tasks")


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
        rows = _everything(draw) if request.outer is None else draw.below(request.outer, draw.column(draw.data.sizes))
        selection = {"rows": torch.from_numpy(draw.column(draw.data.offsets) + rows), "index": torch.from_numpy(rows)}
        if not forms[self.inner].shape:
            raise DataError(f"field {self.inner!r} holds several samples for each row, (rows, samples, …); it has a single number a row")
        stored = forms[self.inner].shape[0]
        if request.inner is not None:
            flat = Draw(draw.data, draw.clients, draw.keys, 1, draw.steps).below(rows.shape[2] * request.inner, np.asarray(stored))
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
            other = Draw(draw.data, draw.clients, draw.keys, 1, draw.steps, draw._stream)
            selection["eta"] = other.normal((request.outer, request.inner or 0, *self.inner_shape)).to(self.dtype)
        return selection

    def fetch(self, data: Data, selection: Selection) -> Batch:
        eta = Batch({"eta": selection["eta"].to(data.device)}) if "eta" in selection else None
        return Batch({"xi": selection["xi"].to(data.device)}, None, eta)

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise DataError("a Gaussian source has no end: give the number of outer (and inner) samples to draw")


def _both(sampler: object, request: Request) -> tuple[int, int]:
    if request.outer is None or request.inner is None:
        raise DataError(f"{type(sampler).__name__} needs both sizes, outer and inner; got {request}")
    return request.outer, request.inner
