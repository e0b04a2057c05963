"""What a sampler is given and what it must do: the randomness of draws, what is asked for, and what samplers of rows have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError, FewRows
from ..federation import rng
from .store import Batch, Data

Selection = dict[str, Tensor]


class Request(NamedTuple):
    """What an algorithm asks for: `outer` samples (None: all of them) and `inner` conditional ones for each."""

    outer: int | None = None
    inner: int | None = None


class Draw:
    """The randomness of draw number `position` in a client function, for some clients and some repetitions of it.

    least: a federation's `min_batch`. Above 1 a draw is distinct: a batch has no row twice, as far as there are rows
    """

    def __init__(self, data: Data, clients: NDArray[np.int64], keys: rng.Keys, position: int, steps: NDArray[np.int64],
                 stream: Callable[[int, int], np.random.Generator] | None = None, least: int = 1) -> None:
        self.data, self.clients, self.steps, self.least = data, clients, steps, least
        self.keys = rng.combine(keys, position)
        self._stream = stream or (lambda _, key: rng.normal_stream(key))

    @property
    def distinct(self) -> bool:
        return self.least > 1

    def refuse_few(self, field: str, *sizes: NDArray[np.int64]) -> None:
        """Refuse to draw by the two sides of a field other than labels where one has rows of a client, but fewer than `least`."""
        for client, *sides in zip(self.clients, *(size.flat for size in sizes), strict=True):
            if self.distinct and field != "labels" and any(0 < side < self.least for side in sides):
                raise FewRows(f"nothing is drawn by a column other than labels of which fewer than min_batch={self.least} rows of a client "
                              f"are positive, or are not; so it is with {field!r} at client {self.data.names[client]!r}: draw by labels, "
                              "or merge small clients")

    def column(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """One value per client, shaped to broadcast against `(clients, steps, size)`."""
        return values[self.clients][:, None, None]

    def below(self, size: int, bound: NDArray[np.int64]) -> NDArray[np.int64]:
        """`(clients, steps, size)` integers below `bound`."""
        return rng.uniform_index(self.keys, self.steps, size, bound)

    def choose(self, size: int, number: NDArray[np.int64], group: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """`(clients, steps, size)` integers below `number`, for rows: with replacement, or, if the draw is `distinct`, without.

        Where more are asked for than there are, each comes once before any comes twice.

        group: a whole number for each of the places; those of one number are taken from the same rows, others from other ones
        """
        if not self.distinct:
            return self.below(size, number)
        shape = (len(self.clients), len(self.steps), size)
        keys = rng.combine(self.keys[:, None], self.steps[None]).reshape(-1)
        numbers = np.broadcast_to(number, shape).reshape(-1)
        if group is None:
            return rng.distinct_index(keys, size, numbers[::size]).reshape(shape)
        groups = np.broadcast_to(group, shape).reshape(-1)
        cell = np.repeat(np.arange(len(keys)) * (int(groups.max()) + 1), size) + groups
        order, out = np.argsort(cell, kind="stable"), np.empty(len(cell), dtype=np.int64)
        starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
        counts = np.diff(starts, append=len(cell))
        for count in np.unique(counts):
            places = order[starts[counts == count][:, None] + np.arange(count)]
            first = places[:, 0]
            out[places] = rng.distinct_index(rng.combine(keys[first // size], groups[first]), int(count), numbers[first])
        return out.reshape(shape)

    def beside(self, position: int = 1) -> Draw:
        """Another draw for the same clients and steps, independent of this one, as for inner samples."""
        return Draw(self.data, self.clients, self.keys, position, self.steps, self._stream, self.least)

    def shuffled(self, size: int) -> NDArray[np.int64]:
        """Ranks in an endless row of shuffled epochs: step s takes places s·size … of it, so each row comes once an epoch.

        If the draw is `distinct`, no batch has places in two epochs: rows at the end of one that do not fill a batch are left out.
        """
        out = np.empty((len(self.clients), len(self.steps), size), dtype=np.int64)
        for i, n in enumerate(self.data.sizes[self.clients]):
            stride, length = (size, n) if not self.distinct else (size, n // size * size) if size <= n else (-(-size // n) * n, n)
            epoch, rank = np.divmod(self.steps[:, None] * stride + np.arange(size), length)
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


class Rows:
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
        rows = everything(draw) if request.outer is None else self.rows(draw, request.outer)
        return {"rows": torch.from_numpy(start + rows), "index": torch.from_numpy(rows)}

    def fetch(self, data: Data, selection: Selection) -> Batch:
        return Batch(data.take(selection["rows"]), selection["index"])

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        return Batch(fields, torch.arange(len(next(iter(fields.values())))))


def everything(draw: Draw) -> NDArray[np.int64]:
    """All rows, for clients of one size."""
    size = int(draw.data.sizes[draw.clients[0]])
    return np.broadcast_to(np.arange(size), (len(draw.clients), len(draw.steps), size)).copy()


class Brief:
    """A repr that leaves out the fields in LATER where they have their default: a run's fingerprint holds it, and older runs go on."""

    LATER: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        own = [f for f in fields(self) if f.name not in self.LATER or getattr(self, f.name) != f.default]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in own)})"
