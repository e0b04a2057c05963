"""One client's rows in a map-style dataset: read by number when they are drawn, collated as torch does it, checked as they come."""

from __future__ import annotations

import hashlib
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from ..errors import DataError
from .columns import Form, as_column, client_name, not_finite, own_array

PAIR = ("inputs", "labels")  # the fields of an item without names of its own
CHUNK_ROWS, CHUNK_BYTES = 1024, 16 << 20  # read at once, on the way into a batch


@runtime_checkable
class MapStyle(Protocol):
    """A dataset with a length, whose items are read by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> object: ...


def dataset_rows(datasets: Mapping[str, MapStyle | Dataset[Any]], fields: Sequence[str] | None,
                 columns: Mapping[str, Mapping[str, Any]] | None) -> list[DatasetRows]:
    """The clients of `Data.from_datasets`, with the forms of the first client's first row."""
    if not isinstance(datasets, Mapping) or isinstance(fields, str) or not isinstance(columns or {}, Mapping):
        raise DataError('from_datasets takes a mapping from clients\' names to datasets, {"north": dataset, …}, names of fields as a '
                        f'tuple, ("inputs", "labels"), and columns by field; got {type(datasets).__name__}, {fields!r} and {columns!r}')
    clients: dict[str, DatasetRows] = {}
    forms = None
    for key, dataset in datasets.items():
        name = client_name(key)
        if name in clients:
            raise DataError(f"client names must be distinct, but {name!r} stands twice; rename one of them")
        clients[name] = DatasetRows(name, map_style(name, dataset), None if fields is None else tuple(fields), forms)
        forms = clients[name].forms
    for field, given in (columns or {}).items():
        if field not in (forms or {}) or not isinstance(given, Mapping) or {client_name(key) for key in given} != set(clients):
            raise DataError(f'columns= has values by field and by client, {{"labels": {{"north": …, …}}}}: for some of the fields '
                            f"{sorted(forms or {})} and all of the clients; {field!r} has "
                            f"{sorted(map(str, given)) if isinstance(given, Mapping) else type(given).__name__}")
        for key, values in given.items():
            clients[client_name(key)].give(field, values)
    return list(clients.values())


def map_style(name: str, dataset: MapStyle | Dataset[Any]) -> MapStyle:
    """The dataset, if its rows can be read by number."""
    who = f"the dataset of client {name!r}"
    if isinstance(dataset, IterableDataset):
        raise DataError(f"{who} must be a map-style one, because samples are drawn by row number; an IterableDataset has neither length "
                        "nor row numbers: write a Dataset with __len__ and __getitem__")
    if isinstance(dataset, DataLoader):
        raise DataError(f"{who} is drawn from by the federation itself; a DataLoader came: write loader.dataset")
    if isinstance(dataset, Mapping):
        raise DataError(f"{who} must be a map-style one, whose items are rows; a mapping of fields came: write Data.from_parts for rows in "
                        "memory")
    if isinstance(dataset, type) or not isinstance(dataset, MapStyle):
        raise DataError(f"{who} must be a map-style one, with __len__ and __getitem__; {type(dataset).__name__} has not both: write them")
    return dataset


class DatasetRows:
    """A client's rows, numbered as in its dataset, or those of `index` of them. Nothing is kept but the columns that were asked for."""

    def __init__(self, name: str, dataset: MapStyle, fields: tuple[str, ...] | None, forms: dict[str, Form] | None = None,
                 index: NDArray[np.int64] | None = None) -> None:
        self.name, self.dataset, self.fields, self.index = name, dataset, fields, index
        try:
            self.size = len(dataset) if index is None else len(index)
        except Exception as error:
            raise DataError(f"the dataset of client {name!r} does not tell its length ({_said(error)}); write __len__") from error
        if not self.size:
            raise DataError(f"client {name!r} has no rows; leave it out of the federation")
        self.columns: dict[str, Tensor] = {}
        self.repeatable = False  # whether reading was seen to leave the generators of random numbers alone
        self.forms = forms or {}
        if not self.forms:
            self.forms = {field: self._form(field, 0, value) for field, value in self._item(0).items()}
        self.kinds: dict[str, set[object]] = {field: set() for field in self.forms}  # kinds of values that collate to the form
        self.row_bytes = sum(math.prod(form.shape) * form.dtype.itemsize for form in self.forms.values())
        self.chunk = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(1, self.row_bytes)))

    def only(self, rows: NDArray[np.int64]) -> DatasetRows:
        """Some of the rows, as a client of the same name."""
        if len(rows) == self.size:
            return self
        some = DatasetRows(self.name, self.dataset, self.fields, self.forms, rows if self.index is None else self.index[rows])
        some.columns = {field: column[torch.from_numpy(rows)] for field, column in self.columns.items()}
        return some

    def give(self, field: str, values: object) -> None:
        """Use these values of a field instead of reading it from every item; rows are compared with them when they are drawn."""
        column, form = as_column(values, field, self.name).cpu(), self.forms[field]
        if column.shape != (self.size, *form.shape):
            raise DataError(f"columns= must have a value of field {field!r} for each of the {self.size} rows of client {self.name!r}, "
                            f"{form}; it has shape {tuple(column.shape)}")
        if not torch.equal(column.to(form.dtype).to(column.dtype), column):  # a NaN is equal to nothing
            raise DataError(f"columns= must have the values of field {field!r} of client {self.name!r} as its dataset has them, {form}; "
                            f"they are {column.dtype} and do not fit")
        self.columns[field] = column.to(form.dtype)

    def column(self, field: str) -> Tensor:
        """One number a row: read once, item after item, and kept."""
        if field not in self.columns:
            parts = []
            for start in range(0, self.size, self.chunk):
                rows = range(start, min(start + self.chunk, self.size))
                parts.append(self._collated(field, rows, [self._item(row)[field] for row in rows]).cpu())
            self.columns[field] = torch.cat(parts)
        return self.columns[field]

    def read(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """These rows, every field."""
        before = None if self.repeatable else _generators()
        items = [self._item(row) for row in rows]
        if before is not None and before != _generators():
            raise DataError(f"the dataset of client {self.name!r} draws random numbers when a row is read, so results would depend on the "
                            "order of reading, and a resumed run would differ: keep its transforms fixed, and write random ones into the "
                            "loss, with stochastic=True in the problem")
        self.repeatable = True
        return {field: self._collated(field, rows, [item[field] for item in items]) for field in self.forms}

    def fingerprint(self) -> str:
        """Of the rows' numbers, and of the bytes of the first and the last one."""
        digest = hashlib.blake2b(str(self.size).encode() if self.index is None else self.index.tobytes(), digest_size=16)
        for values in self.read([0, self.size - 1]).values():
            digest.update(values.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _row(self, row: int) -> str:
        return f"row {row if self.index is None else int(self.index[row])} of client {self.name!r}"

    def _item(self, row: int) -> dict[str, object]:
        """An item's values by field: those of a mapping by key, of a tuple by place."""
        try:
            item = self.dataset[row if self.index is None else int(self.index[row])]
        except Exception as error:
            raise DataError(f"{self._row(row)} cannot be read: its dataset raises {_said(error)}") from error
        if isinstance(item, Mapping):
            found = {key: item[key] for key in self.fields or item if key in item}
        else:
            values = item if isinstance(item, tuple | list) else (item,)
            names = self.fields or PAIR[: len(values)]
            if len(values) != len(names):
                raise DataError(f"{self._row(row)} has {len(values)} entries, and {len(names)} are named, {names}: name each with "
                                "fields=(…)")
            found = dict(zip(names, values, strict=True))
        wanted = self.forms or self.fields or found
        if not found or set(found) != set(wanted):
            raise DataError(f"every row needs the same fields, {sorted(wanted)}; {self._row(row)} has {sorted(map(str, found))}")
        return found

    def _form(self, field: str, row: int, value: object) -> Form:
        """What a value becomes as a row of a tensor."""
        who = f"{self._row(row)} must have a number, an array of numbers or a tensor in field {field!r}, all of one shape"
        try:
            column = default_collate([_own(value)])
        except Exception as error:
            raise DataError(f"{who}; {type(value).__name__} came ({_said(error)}): convert it in the dataset, a picture by a transform "
                            "such as torchvision's ToTensor, or by numpy.array") from error
        if not isinstance(column, Tensor):
            raise DataError(f"{who}; {type(value).__name__} came: number texts, and give every entry of a nested one a field of its own")
        column = as_column(column, field, self.name)
        return Form(tuple(column.shape[1:]), column.dtype)

    def _collated(self, field: str, rows: Sequence[int], values: list[object]) -> Tensor:
        values = [_own(value) for value in values]
        known, kinds = self.kinds[field], [_kind(value) for value in values]
        for row, value, kind in zip(rows, values, kinds, strict=True):
            if kind not in known:
                self._fits(field, row, value)
                known.add(kind)
        try:
            # torch goes by the first value, and would convert the others to its kind
            column = default_collate(values) if len(set(kinds)) == 1 else torch.cat([default_collate([value]) for value in values])
        except Exception:
            for row, value in zip(rows, values, strict=True):
                self._fits(field, row, value)
            raise
        column = as_column(column, field, self.name)
        odd = not_finite(column)
        if odd is not None:
            raise DataError(f"field {field!r} has a value that is not finite in {self._row(rows[odd])}; clean or impute it in the dataset")
        if field in self.columns:
            expected = self.columns[field][torch.as_tensor(rows)]
            if not torch.equal(column.cpu(), expected):
                odd = int((column.cpu() != expected).nonzero()[0, 0])
                raise DataError(f"field {field!r} is {column[odd].item()} in {self._row(rows[odd])}, and {expected[odd].item()} in the "
                                "column that was given or read before; a dataset must have the same rows every time, and columns= their "
                                "values")
        return column

    def _fits(self, field: str, row: int, value: object) -> None:
        form = self._form(field, row, value)
        if form != self.forms[field]:
            raise DataError(f"field {field!r} is {form} in {self._row(row)}, and {self.forms[field]} in the first row of the first client; "
                            "convert, resize or pad it in the dataset")


def gather(clients: Sequence[DatasetRows], owners: NDArray[np.int64], rows: NDArray[np.int64], device: torch.device) -> dict[str, Tensor]:
    """Rows of several clients in their order, read in chunks into their place, so that nothing is in memory twice."""
    forms, who = clients[0].forms, [clients[k].name for k in np.unique(owners)]
    fits_memory(clients[0].row_bytes, len(rows), f"client {who[0]!r}" if len(who) == 1 else f"{len(who)} clients at once")
    found = {name: torch.empty((len(rows), *form.shape), dtype=form.dtype, device=device) for name, form in forms.items()}
    for owner in np.unique(owners):
        places, client = np.flatnonzero(owners == owner), clients[owner]
        for start in range(0, len(places), client.chunk):
            where = places[start : start + client.chunk]
            for name, values in client.read(rows[where].tolist()).items():
                found[name][torch.from_numpy(where).to(device)] = values.to(device)
    return found


def fits_memory(row_bytes: int, rows: int, who: str) -> None:
    """Refuse to read what this machine cannot hold, where the system tells how much that is, before the system ends the process."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    if row_bytes * rows > memory:
        raise DataError(f"{rows} rows of {who} take {row_bytes * rows / 1e9:.3g} GB, more than the memory of this machine: give the "
                        'algorithm a batch size, evaluate on fewer rows, or write engine="loop" for small batches of many clients')


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else type(error).__name__


def _own(value: object) -> object:
    return own_array(value) if isinstance(value, np.ndarray) else value


def _kind(value: object) -> object:
    """What decides the form of a value."""
    if isinstance(value, Tensor):
        return Tensor, value.dtype, value.shape, value.layout
    return (np.ndarray, value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


def _generators() -> tuple[object, ...]:
    """The states of the generators that a transform may use."""
    numbers = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), numbers["key"].tobytes(), numbers["pos"]
