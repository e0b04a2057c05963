"""The clients' rows in one flat store with offsets: never padded, never copied per client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError, EngineError
from ..federation.rng import name_key
from . import partition

Fields = Mapping[str, Any]
_RESERVED = {"index", "key", "inner", "fields", "leaves", "rebuild", "front", "_fewest"}


class Batch:
    """One draw of samples at one client. Fields are attributes: `batch.inputs`, `batch.labels`.

    `index` holds the row numbers within the client, `inner` the conditional samples (a batch of their own) of a
    conditional draw, and `key` seeds dropout and augmentation, so that every oracle on this batch sees the same masks.
    """

    __slots__ = ("fields", "index", "inner", "key")

    def __init__(self, fields: dict[str, Tensor], index: Tensor | None = None, inner: Batch | None = None,
                 key: int | None = None) -> None:
        self.fields, self.index, self.inner, self.key = fields, index, inner, key

    def __getattr__(self, name: str) -> Tensor:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(f"a batch has the fields {sorted(self.fields)}; {name!r} is not one of them") from None

    def __repr__(self) -> str:
        return f"Batch({', '.join(f'{k}: {tuple(v.shape)}' for k, v in self.fields.items())})"

    def leaves(self) -> list[Tensor]:
        """All tensors in a fixed order; `rebuild` is the inverse."""
        own = [*self.fields.values(), *([] if self.index is None else [self.index])]
        return own + (self.inner.leaves() if self.inner is not None else [])

    def rebuild(self, leaves: list[Tensor]) -> Batch:
        """A batch of the same form with other tensors, taken in order from the front of `leaves`."""
        fields = {name: leaves.pop(0) for name in self.fields}
        index = None if self.index is None else leaves.pop(0)
        return Batch(fields, index, None if self.inner is None else self.inner.rebuild(leaves), self.key)


def _tensor(values: Any, field: str, client: object = None) -> Tensor:
    """A column as a dense tensor of numbers, apart from any graph."""
    who = f"field {field!r}" + ("" if client is None else f" of client {client!r}")
    try:
        if isinstance(values, list | tuple) and values and all(isinstance(value, Tensor) for value in values):
            values = torch.stack(list(values))
        if not isinstance(values, Tensor) and hasattr(values, "__array__"):  # of pandas too, which torch would index by label
            values = np.asarray(values)
            values = values if values.flags.writeable and values.flags.c_contiguous else values.copy()
        tensor = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{who} must be an array of numbers, one row after the other, all of one shape ({str(error).splitlines()[0]}); "
                        "number texts and fill in missing values first") from error
    if tensor.layout != torch.strided or tensor.dim() == 0:
        what = "a single number" if tensor.dim() == 0 else f"stored as {tensor.layout}"
        raise DataError(f"{who} must be a dense array with a row for each sample; it is {what}")
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch computes little with these
        tensor = tensor.to(torch.int64)
    return tensor.clone() if tensor.is_inference() else tensor


class Groups(NamedTuple):
    """Rows of every client sorted by the value of one field (a class, a task)."""

    order: NDArray[np.int64]  # row numbers, sorted by (client, value)
    start: NDArray[np.int64]  # first place in `order` of each group
    size: NDArray[np.int64]  # rows in each group
    value: NDArray[Any]  # the field's value in each group
    first: NDArray[np.int64]  # first group of each client
    number: NDArray[np.int64]  # groups of each client


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of all clients, client after client. `from_parts` and `by_site` copy what they are given; `Data(…)` keeps tensors as they are.

    >>> data = Data.from_parts({"north": {"u": [1.0, 2.0]}, "south": {"u": [3.0]}})
    >>> data.names, data.sizes.tolist()
    (('north', 'south'), [2, 1])
    """

    fields: dict[str, Tensor]
    names: tuple[str, ...]
    sizes: NDArray[np.int64]

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes)
        if sizes.dtype.kind not in "iu" and sizes.size:
            raise DataError(f"a client's size is its number of rows; got {sizes.tolist()[:3]}")
        for name, value in (("names", tuple(self.names)), ("sizes", sizes.astype(np.int64)),
                            ("fields", {field: _tensor(column, field) for field, column in self.fields.items()})):
            object.__setattr__(self, name, value)
        if not self.names:
            raise DataError("a federation needs at least one client; none was given")
        other = [name for name in (*self.names, *self.fields) if not isinstance(name, str)]
        if other:
            raise DataError(f"clients and fields have texts as names; got {other[0]!r}: write str(name)")
        if len(set(self.names)) != len(self.names):
            twice = sorted({n for n in self.names if self.names.count(n) > 1})[0]
            raise DataError(f"client names must be distinct, but {twice!r} stands twice; rename one of them")
        if len(self.sizes) != len(self.names):
            raise DataError(f"one size per client is needed: {len(self.names)} names, {len(self.sizes)} sizes")
        clash = _RESERVED & set(self.fields)
        if clash:
            raise DataError(f"{sorted(clash)[0]!r} is a word a batch uses itself; rename that field")
        empty = np.flatnonzero(self.sizes <= 0)
        if self.fields and len(empty):
            raise DataError(f"client {self.names[empty[0]]!r} has no rows; leave it out of the federation")
        for name, field in self.fields.items():
            if len(field) != int(self.sizes.sum()):
                raise DataError(f"field {name!r} has {len(field)} rows, the clients' sizes add up to {int(self.sizes.sum())}")
            if (field.is_floating_point() or field.is_complex()) and not (
                    bool(torch.isfinite(field.sum())) or bool(torch.isfinite(field).all())):
                row = int((~torch.isfinite(field.reshape(len(field), -1)).all(1)).nonzero()[0, 0])
                raise DataError(f"field {name!r} of client {self.names[self.owner(row)]!r} holds a non-finite value "
                                f"in row {row - int(self.offsets[self.owner(row)])}; clean or impute it first")

    @classmethod
    def from_parts(cls, parts: Mapping[str, Fields]) -> Data:
        """From one mapping of fields per client: `{"north": {"inputs": …, "labels": …}, …}`. Whole numbers as names become texts."""
        if not isinstance(parts, Mapping) or not all(isinstance(fields, Mapping) for fields in parts.values()):
            raise DataError("from_parts takes a mapping from clients' names to mappings of their fields: "
                            '{"north": {"inputs": …, "labels": …}, …}')
        names = tuple(str(name) if isinstance(name, int | np.integer) else name for name in parts)
        parts = {client: {field: _tensor(column, field, client) for field, column in fields.items()} for client, fields in parts.items()}
        first = next(iter(parts.values()), {})
        sizes = []
        for client, fields in parts.items():
            if set(fields) != set(first):
                raise DataError(f"every client needs the same fields: {sorted(first)}; client {client!r} has {sorted(fields)}")
            lengths = {name: len(column) for name, column in fields.items()}
            if len(set(lengths.values())) > 1:
                raise DataError(f"the fields of client {client!r} have unequal lengths: {lengths}")
            sizes.append(next(iter(lengths.values()), 0))
        joined = {}
        for name in first:
            columns = {client: fields[name] for client, fields in parts.items()}
            shape = next(iter(columns.values())).shape[1:]
            for client, column in columns.items():
                if column.shape[1:] != shape:
                    raise DataError(f"rows of field {name!r} have shape {tuple(column.shape[1:])} at client {client!r} "
                                    f"and {tuple(shape)} at the first one")
                if column.dtype != columns[next(iter(parts))].dtype:
                    raise DataError(f"field {name!r} is {column.dtype} at client {client!r} and {columns[next(iter(parts))].dtype} at the "
                                    "first one; convert one of them")
            joined[name] = torch.cat(list(columns.values()))
        return cls(joined, names, np.asarray(sizes, dtype=np.int64))

    @classmethod
    def by_site(cls, fields: Fields, site: Sequence[Any]) -> Data:
        """From one table and the site of each row (rows are sorted by site once)."""
        owners = partition.column(site, "the site column")
        owners = partition.by_column(owners) if owners.dtype.kind == "O" else owners
        order = np.argsort(owners, kind="stable")
        values, sizes = np.unique(owners, return_counts=True)
        columns = {name: _tensor(values, name) for name, values in fields.items()}
        for name, values_of in columns.items():
            if len(values_of) != len(owners):
                raise DataError(f"field {name!r} has {len(values_of)} rows, the site column {len(owners)}")
        rows = torch.from_numpy(order)
        return cls({name: values_of[rows] for name, values_of in columns.items()}, tuple(str(v) for v in values), sizes.astype(np.int64))

    @classmethod
    def streams(cls, names: Sequence[str]) -> Data:
        """Clients without rows, whose samples are generated (see `sampling.Normal`)."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DataError(f"streams takes a list of clients' names; got {names!r}")
        names = tuple(names)
        return cls({}, names, np.zeros(len(names), dtype=np.int64))

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @cached_property
    def client_keys(self) -> NDArray[np.uint64]:
        """A 64-bit key per client, from its name."""
        return np.asarray([name_key(name) for name in self.names], dtype=np.uint64)

    @property
    def device(self) -> torch.device:
        """Where the rows are; streams without rows are drawn on the cpu."""
        return next((field.device for field in self.fields.values()), torch.device("cpu"))

    def owner(self, row: int) -> int:
        """The client that holds a row of the store."""
        return int(np.searchsorted(self.offsets, row, side="right") - 1)

    def take(self, rows: Tensor) -> dict[str, Tensor]:
        """Every field at `rows` (any shape of row numbers; the field's own shape follows)."""
        if not self.fields:
            raise DataError("these clients are streams without rows: draw from them with a number of samples, "
                            "and use a problem whose sampling generates them")
        flat = rows.reshape(-1).to(next(iter(self.fields.values())).device)
        return {name: field.index_select(0, flat).reshape(*rows.shape, *field.shape[1:]) for name, field in self.fields.items()}

    def views(self, client: int) -> dict[str, Tensor]:
        """One client's rows, not copied."""
        a, n = int(self.offsets[client]), int(self.sizes[client])
        return {name: field[a : a + n] for name, field in self.fields.items()}

    def part(self, client: int) -> Data:
        """One client alone."""
        return Data(self.views(client), (self.names[client],), self.sizes[client : client + 1])

    def to(self, device: torch.device | str) -> Data:
        """The same rows on another device."""
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError) as error:  # torch built without CUDA asserts
            there = ["cpu", *(["cuda"] if torch.cuda.is_available() else []), *(["mps"] if torch.backends.mps.is_available() else [])]
            raise EngineError(f"torch finds no device {str(device)!r} on this machine; "
                              f"write device={' or '.join(map(repr, there))}") from error
        if all(field.device == torch.device(device) for field in self.fields.values()):
            return self
        return Data({name: field.to(device) for name, field in self.fields.items()}, self.names, self.sizes)

    def groups(self, field: str) -> Groups:
        """The rows of each client grouped by a field's value (computed once a field)."""
        cache: dict[str, Groups] = self.__dict__.setdefault("_groups", {})
        if field not in cache:
            if field not in self.fields:
                raise DataError(f"no field {field!r} to group by; the clients have {sorted(self.fields)}")
            value = self.fields[field].cpu().numpy()
            if value.ndim != 1:
                raise DataError(f"field {field!r} groups rows by one number each; it has rows of shape {value.shape[1:]}")
            client = np.repeat(np.arange(len(self.names)), self.sizes)
            order = np.lexsort((value, client))
            pair = np.stack([client[order], value[order]])
            start = np.flatnonzero(np.concatenate([[True], (pair[:, 1:] != pair[:, :-1]).any(0)]))
            owner = client[order][start]
            number = np.bincount(owner, minlength=len(self.names))
            cache[field] = Groups(order, start, np.diff(np.append(start, len(order))), value[order][start],
                                  np.concatenate([[0], np.cumsum(number)[:-1]]), number)
        return cache[field]
