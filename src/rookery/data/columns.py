"""What a column of numbers must be, wherever it comes from, and how rows are grouped by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import DataError, EngineError

_RESERVED = {"index", "key", "inner", "fields", "leaves", "rebuild", "front", "_fewest"}


class Form(NamedTuple):
    """What every row of a field is: its shape (without the rows) and its dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} of shape {self.shape}"


def as_column(values: Any, field: str, client: object = None) -> Tensor:
    """A column as a dense tensor of numbers, apart from any graph."""
    who = f"field {field!r}" + ("" if client is None else f" of client {client!r}")
    try:
        if isinstance(values, list | tuple) and values and all(isinstance(value, Tensor) for value in values):
            values = torch.stack(list(values))
        if not isinstance(values, Tensor) and hasattr(values, "__array__"):  # of pandas too, which torch would index by label
            values = own_array(np.asarray(values))
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


def own_array(values: NDArray[Any]) -> NDArray[Any]:
    """An array that torch takes without a warning: read-only and flipped ones are copied."""
    return values if values.flags.writeable and values.flags.c_contiguous else values.copy()


def not_finite(column: Tensor) -> int | None:
    """The first row with an infinity or a NaN."""
    if not (column.is_floating_point() or column.is_complex()) or bool(torch.isfinite(column.sum())) or bool(torch.isfinite(column).all()):
        return None
    return int((~torch.isfinite(column.reshape(len(column), -1)).all(1)).nonzero()[0, 0])


def client_name(name: object) -> Any:
    """Whole numbers as names become texts."""
    return str(name) if isinstance(name, int | np.integer) else name


def check_clients(names: Sequence[object], sizes: NDArray[np.int64], fields: Iterable[object]) -> None:
    """Clients and fields have names, distinct ones, and clients have rows where there are fields."""
    fields = list(fields)
    if not names:
        raise DataError("a federation needs at least one client; none was given")
    other = [name for name in (*names, *fields) if not isinstance(name, str)]
    if other:
        raise DataError(f"clients and fields have texts as names; got {other[0]!r}: write str(name)")
    if len(set(names)) != len(names):
        twice = sorted({str(n) for n in names if list(names).count(n) > 1})[0]
        raise DataError(f"client names must be distinct, but {twice!r} stands twice; rename one of them")
    if len(sizes) != len(names):
        raise DataError(f"one size per client is needed: {len(names)} names, {len(sizes)} sizes")
    clash = sorted(field for field in _RESERVED if field in fields)
    if clash:
        raise DataError(f"{clash[0]!r} is a word a batch uses itself; rename that field")
    empty = np.flatnonzero(sizes <= 0)
    if fields and len(empty):
        raise DataError(f"client {names[empty[0]]!r} has no rows; leave it out of the federation")


def joined(parts: Mapping[Any, Mapping[str, Any]]) -> tuple[dict[str, Tensor], list[int]]:
    """The fields of all clients, client after client, and how many rows each has."""
    columns = {client: {field: as_column(column, field, client) for field, column in fields.items()} for client, fields in parts.items()}
    first = next(iter(columns.values()), {})
    sizes = []
    for client, fields in columns.items():
        if set(fields) != set(first):
            raise DataError(f"every client needs the same fields: {sorted(first)}; client {client!r} has {sorted(fields)}")
        lengths = {name: len(column) for name, column in fields.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"the fields of client {client!r} have unequal lengths: {lengths}")
        sizes.append(next(iter(lengths.values()), 0))
        for name, column in fields.items():
            if column.shape[1:] != first[name].shape[1:]:
                raise DataError(f"rows of field {name!r} have shape {tuple(column.shape[1:])} at client {client!r} "
                                f"and {tuple(first[name].shape[1:])} at the first one")
            if column.dtype != first[name].dtype:
                raise DataError(f"field {name!r} is {column.dtype} at client {client!r} and {first[name].dtype} at the "
                                "first one; convert one of them")
    return {name: torch.cat([fields[name] for fields in columns.values()]) for name in first}, sizes


def found_device(device: torch.device | str) -> torch.device:
    """The device, if this machine has it."""
    try:
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError) as error:  # torch built without CUDA asserts
        there = ["cpu", *(["cuda"] if torch.cuda.is_available() else []), *(["mps"] if torch.backends.mps.is_available() else [])]
        raise EngineError(f"torch finds no device {str(device)!r} on this machine; "
                          f"write device={' or '.join(map(repr, there))}") from error
    return torch.device(device)


class Groups(NamedTuple):
    """Rows of every client sorted by the value of one field (a class, a task)."""

    order: NDArray[np.int64]  # row numbers, sorted by (client, value)
    start: NDArray[np.int64]  # first place in `order` of each group
    size: NDArray[np.int64]  # rows in each group
    value: NDArray[Any]  # the field's value in each group
    first: NDArray[np.int64]  # first group of each client
    number: NDArray[np.int64]  # groups of each client

    @classmethod
    def of(cls, value: NDArray[Any], sizes: NDArray[np.int64]) -> Groups:
        """From one value a row, client after client, and the clients' sizes."""
        client = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((value, client))
        pair = np.stack([client[order], value[order]])
        start = np.flatnonzero(np.concatenate([[True], (pair[:, 1:] != pair[:, :-1]).any(0)]))
        number = np.bincount(client[order][start], minlength=len(sizes))
        return cls(order, start, np.diff(np.append(start, len(order))), value[order][start],
                   np.concatenate([[0], np.cumsum(number)[:-1]]), number)

    def merged(self, least: int, sizes: NDArray[np.int64]) -> Groups:
        """The same with a client's groups of fewer than `least` rows as one, and the smallest of the others in it where it needs that.

        >>> Groups.of(np.array([7, 7, 8, 9, 5, 5, 5]), np.array([4, 3])).merged(2, np.array([4, 3])).size.tolist()
        [2, 2, 3]
        >>> Groups.of(np.array([7, 7, 7, 8, 8]), np.array([5])).merged(3, np.array([5])).size.tolist()
        [5]
        """
        if int(self.size.min(initial=least)) >= least:
            return self
        group = np.arange(len(self.size))
        for first, number in zip(self.first, self.number, strict=True):
            by_size = first + np.argsort(self.size[first : first + number], kind="stable")
            few = int((self.size[by_size] < least).sum())
            few += 0 < few < number and self.size[by_size[:few]].sum() < least
            group[by_size[:few]] = by_size[:few].min(initial=len(group))
        own = np.empty(len(self.order), dtype=np.int64)
        own[self.order] = np.repeat(group, self.size)
        return Groups.of(own, sizes)
