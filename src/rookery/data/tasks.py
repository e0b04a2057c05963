"""Draws of tasks, for learning to adapt: rows of one task to adapt on, the inner samples, and others of the same task to be judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError
from ..federation import rng
from .columns import Groups
from .draws import Draw, Request, Selection
from .store import Batch, Data


@dataclass(frozen=True)
class PerTask:
    """Tasks as outer samples with `query` rows each; the inner samples are other rows of the same task.

    task: the field whose values are the tasks of a client; None: all rows of a client are one task, its own

    >>> rows = Data.from_parts({"a": {"u": [1.0, 2.0, 3.0]}, "b": {"u": [4.0, 5.0, 6.0, 7.0]}})
    >>> draw = Draw(rows, np.arange(2), rows.client_keys, 0, np.arange(1))
    >>> PerTask(query=1).select(draw, Request(outer=1, inner=2))["innerrows"].shape  # clients, steps, outer, inner
    torch.Size([2, 1, 1, 2])
    """

    many: ClassVar[bool] = True  # an outer sample is many rows
    task: str | None = None
    query: int = 10

    def select(self, draw: Draw, request: Request) -> Selection:
        outer, inner = _both(self, request)
        data, need = draw.data, inner + self.query
        groups = _whole_clients(data) if self.task is None else data.groups(self.task)
        for client in draw.clients:
            mine = slice(groups.first[client], groups.first[client] + groups.number[client])
            if groups.size[mine].min() < need:
                small = groups.value[mine][groups.size[mine].argmin()]
                what = f"client {data.names[client]!r}" if self.task is None else f"task {small} of client {data.names[client]!r}"
                raise DataError(f"{what} has {groups.size[mine].min()} rows; {inner} inner and {self.query} query rows need {need}")
        group = draw.column(groups.first) + draw.choose(outer, draw.column(groups.number))
        keys = rng.combine(draw.keys[:, None, None], draw.steps[None, :, None], 1, np.arange(outer))
        rows = _members(draw, groups, group, keys, need)
        return _parts(draw, rows, inner)

    def fetch(self, data: Data, selection: Selection) -> Batch:
        inner = Batch(data.take(selection["innerrows"]), selection["innerindex"])
        return Batch(data.take(selection["rows"]), selection["index"], inner)

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise DataError("PerTask needs both sizes, outer and inner: there is no full batch of tasks")


@dataclass(frozen=True)
class Episodes:
    """Few-shot tasks: an outer sample is `ways` classes of the client, drawn without replacement and numbered anew from 0.

    It has `query` rows of each class; the inner samples are as many other rows of each class as an algorithm asks for, the shots. Rows
    come class after class. The field `label` of a batch holds the new numbers.

    >>> rows = Data.from_parts({"a": {"labels": [7, 7, 7, 4, 4, 4, 9, 9, 9]}})
    >>> draw = Draw(rows, np.arange(1), rows.client_keys, 0, np.arange(1))
    >>> sampler = Episodes(ways=2, query=2)
    >>> batch = sampler.fetch(rows, sampler.select(draw, Request(outer=1, inner=1)))
    >>> batch.labels[0, 0], batch.inner.labels[0, 0]  # of the first client and step
    (tensor([[0, 0, 1, 1]]), tensor([[0, 1]]))
    """

    many: ClassVar[bool] = True
    ways: int
    query: int
    label: str = "labels"

    def __post_init__(self) -> None:
        if self.ways < 2 or self.query < 1:
            raise DataError(f"an episode has at least two classes, ways, and a query row of each; got ways={self.ways}, query={self.query}")

    def select(self, draw: Draw, request: Request) -> Selection:
        outer, inner = _both(self, request)
        data, need = draw.data, inner + self.query
        groups = data.groups(self.label)
        for client in draw.clients:
            mine = slice(groups.first[client], groups.first[client] + groups.number[client])
            if groups.number[client] < self.ways:
                raise DataError(f"client {data.names[client]!r} has {groups.number[client]} classes; an episode of {self.ways} needs as "
                                "many: give it more, or take fewer ways")
            if groups.size[mine].min() < need:
                small = groups.value[mine][groups.size[mine].argmin()]
                raise DataError(f"class {small} of client {data.names[client]!r} has {groups.size[mine].min()} rows; {inner} inner and "
                                f"{self.query} query rows of it need {need}: leave the class out, or ask for fewer")
        number = draw.column(groups.number)
        keys = rng.combine(draw.keys[:, None, None], draw.steps[None, :, None], np.arange(outer))
        chosen = _lowest(rng.combine(keys, 0), np.broadcast_to(number, keys.shape), self.ways)
        group = draw.column(groups.first)[..., None] + chosen
        rows = _members(draw, groups, group, rng.combine(keys[..., None], 1, np.arange(self.ways)), need)
        return _parts(draw, rows, inner)

    def fetch(self, data: Data, selection: Selection) -> Batch:
        fields, inner = (data.take(selection[name]) for name in ("rows", "innerrows"))
        for part, rows in ((fields, selection["rows"]), (inner, selection["innerrows"])):
            part[self.label] = torch.arange(self.ways, device=data.device).repeat_interleave(rows.shape[-1] // self.ways).expand(rows.shape)
        return Batch(fields, selection["index"], Batch(inner, selection["innerindex"]))

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise DataError("Episodes needs both sizes, outer and inner: there is no full batch of tasks")


def _both(sampler: object, request: Request) -> tuple[int, int]:
    """The two sizes of a request, for samplers that need both."""
    if request.outer is None or request.inner is None:
        raise DataError(f"{type(sampler).__name__} needs both sizes, outer (tasks) and inner (rows to adapt to); got outer={request.outer} "
                        f"and inner={request.inner}: give the algorithm both, such as outer=1, inner=10")
    return request.outer, request.inner


def _whole_clients(data: Data) -> Groups:
    """All rows of a client as one group."""
    number = len(data.names)
    return Groups(np.arange(int(data.sizes.sum())), data.offsets[:number], data.sizes, np.zeros(number, dtype=np.int64), np.arange(number),
                  np.ones(number, dtype=np.int64))


def _members(draw: Draw, groups: Groups, group: NDArray[np.int64], keys: rng.Keys, need: int) -> NDArray[np.int64]:
    """`need` different rows of each group, along a last axis; a distinct draw has others where a group comes again."""
    if draw.distinct:
        flat = np.repeat(group.reshape(*group.shape[:2], -1), need, axis=2)
        place = draw.beside().choose(flat.shape[2], groups.size[flat], flat - draw.column(groups.first)).reshape(*group.shape, need)
    else:
        place = _lowest(keys, groups.size[group], need)
    rows: NDArray[np.int64] = groups.order[groups.start[group][..., None] + place]
    return rows


def _lowest(keys: rng.Keys, size: NDArray[np.int64], need: int) -> NDArray[np.int64]:
    """`need` different places below each size, along a last axis: those with the lowest hashes."""
    widest = int(size.max())
    bits = rng.splitmix64(keys[..., None] + rng.counting(widest))
    bits[np.arange(widest) >= size[..., None]] = np.iinfo(np.uint64).max
    if widest <= 4 * need:
        return np.argsort(bits, axis=-1, kind="stable")[..., :need]
    some = np.argpartition(bits, need - 1, axis=-1)[..., :need]  # of many rows a few are wanted: only these are sorted
    return np.take_along_axis(some, np.argsort(np.take_along_axis(bits, some, -1), axis=-1, kind="stable"), -1)


def _parts(draw: Draw, rows: NDArray[np.int64], inner: int) -> Selection:
    """The selection: of each group its first rows are inner samples, the others query rows; several groups of a task are joined."""
    start = draw.data.offsets[draw.clients].reshape(-1, *[1] * (rows.ndim - 1))

    def joined(part: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(part).reshape(*part.shape[:3], -1))

    cut = {"inner": rows[..., :inner], "": rows[..., inner:]}
    return {f"{name}{kind}": joined(what) for name, part in cut.items() for kind, what in (("rows", part), ("index", part - start))}
