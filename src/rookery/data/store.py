"""The clients' rows: in one flat store with offsets, never padded, never copied per client; or in datasets, read when they are drawn.

One file, because the two are forms of one class: `Data.from_datasets` returns the second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ..errors import DataError
from ..federation.rng import name_key
from . import partition
from .batch import Batch
from .columns import Form, Groups, as_column, check_clients, client_name, found_device, joined, not_finite
from .items import DatasetRows, MapStyle, dataset_rows, fits_memory, gather

__all__ = ["Batch", "Data", "DatasetData"]

Fields = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Data:
    """Rows of all clients, client after client. `from_parts` and `by_site` copy what they are given; `Data(…)` keeps tensors as they are;
    `from_datasets` reads rows when they are drawn.

    >>> data = Data.from_parts({"north": {"u": [1.0, 2.0]}, "south": {"u": [3.0]}})
    >>> data.names, data.sizes.tolist()
    (('north', 'south'), [2, 1])
    """

    in_memory: ClassVar[bool] = True  # where it is not, engines read one client's rows at a time for full batches

    fields: dict[str, Tensor]
    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    splits: Mapping[str, Data | None] = dataclass_field(default_factory=dict)  # by name, see `with_splits`

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes)
        if sizes.dtype.kind not in "iu" and sizes.size:
            raise DataError(f"a client's size is its number of rows; got {sizes.tolist()[:3]}")
        for name, value in (("names", tuple(self.names)), ("sizes", sizes.astype(np.int64)),
                            ("fields", {field: as_column(column, field) for field, column in self.fields.items()})):
            object.__setattr__(self, name, value)
        check_clients(self.names, self.sizes, self.fields)
        for name, field in self.fields.items():
            if len(field) != int(self.sizes.sum()):
                raise DataError(f"field {name!r} has {len(field)} rows, the clients' sizes add up to {int(self.sizes.sum())}")
            row = not_finite(field)
            if row is not None:
                raise DataError(f"field {name!r} of client {self.names[self.owner(row)]!r} holds a non-finite value "
                                f"in row {row - int(self.offsets[self.owner(row)])}; clean or impute it first")

    @classmethod
    def from_parts(cls, parts: Mapping[str, Fields]) -> Data:
        """From one mapping of fields per client: `{"north": {"inputs": …, "labels": …}, …}`. Whole numbers as names become texts."""
        if not isinstance(parts, Mapping) or not all(isinstance(fields, Mapping) for fields in parts.values()):
            raise DataError("from_parts takes a mapping from clients' names to mappings of their fields: "
                            '{"north": {"inputs": …, "labels": …}, …}')
        columns, sizes = joined(parts)
        return Data(columns, tuple(client_name(name) for name in parts), np.asarray(sizes, dtype=np.int64))

    @classmethod
    def by_site(cls, fields: Fields, site: Sequence[Any]) -> Data:
        """From one table and the site of each row (rows are sorted by site once)."""
        owners = partition.column(site, "the site column")
        owners = partition.by_column(owners) if owners.dtype.kind == "O" else owners
        order = np.argsort(owners, kind="stable")
        values, sizes = np.unique(owners, return_counts=True)
        columns = {name: as_column(values, name) for name, values in fields.items()}
        for name, values_of in columns.items():
            if len(values_of) != len(owners):
                raise DataError(f"field {name!r} has {len(values_of)} rows, the site column {len(owners)}")
        rows = torch.from_numpy(order)
        return Data({name: values_of[rows] for name, values_of in columns.items()}, tuple(str(v) for v in values), sizes.astype(np.int64))

    @classmethod
    def from_datasets(cls, datasets: Mapping[str, MapStyle | Dataset[Any]], fields: Sequence[str] | None = None,
                      columns: Mapping[str, Mapping[str, Any]] | None = None) -> Data:
        """From one map-style dataset per client, such as torchvision's, a `Subset` or one of your own, also if it does not fit into memory.

        fields:  names for the entries of items that are tuples: by default ("inputs", "labels"), or ("inputs",) for a single entry. Items
                 that are mappings have names, of which `fields` chooses some; other items are one entry
        columns: values known without reading the items, one a row, by field and client: `{"labels": {"north": north.targets, …}}`

        Items are read when a batch is drawn, collated as a DataLoader collates them (`torch.utils.data.default_collate`), moved to the
        federation's device, and kept no longer than the batch; they have to be the same every time. Draws without a size, evaluation and
        set-up sums read all rows of a client for that call, one client after the other. What goes by a field's values (`Stratified`,
        `Positives`, `PerTask`, `hold_out` by groups) reads every item once and keeps that field, unless `columns` has it. The first row
        of the first client is read at once, for the fields' names, shapes and dtypes; what is wrong with another one is said when it is
        read.

        >>> from torch.utils.data import TensorDataset
        >>> north, south = TensorDataset(torch.ones(3, 2), torch.arange(3)), TensorDataset(torch.zeros(2, 2), torch.arange(2))
        >>> data = Data.from_datasets({"north": north, "south": south})
        >>> data.sizes.tolist(), data.take(torch.tensor([2, 3]))["labels"].tolist()
        ([3, 2], [2, 0])
        """
        return DatasetData(dataset_rows(datasets, fields, columns))

    @classmethod
    def streams(cls, names: Sequence[str]) -> Data:
        """Clients without rows, whose samples are generated (see `sampling.Normal`)."""
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise DataError(f"streams takes a list of clients' names; got {names!r}")
        names = tuple(names)
        return Data({}, names, np.zeros(len(names), dtype=np.int64))

    def with_splits(self, **splits: Data) -> Data:
        """The same rows to train on, and beside them others at the same clients, such as `validation=…` and `test=…`.

        A client may lack rows of a split; what it has stays with it, and is reached by client functions with `c.rows("validation")`.

        >>> train, held = Data.from_parts({"a": {"u": [1.0]}, "b": {"u": [2.0]}}), Data.from_parts({"b": {"u": [3.0]}})
        >>> train.with_splits(validation=held).split_rows("validation", 1)
        {'u': tensor([3.])}
        """
        for name, rows in splits.items():
            strangers = sorted(set(rows.names) - set(self.names))
            if strangers:
                raise DataError(f"the split {name!r} has rows of client {strangers[0]!r}, who has none to train on; a split holds further "
                                "rows of the same clients")
        return self._with(dict(self.splits) | splits)

    def _with(self, splits: Mapping[str, Data | None]) -> Data:
        return Data(self.fields, self.names, self.sizes, splits)

    def split(self, name: str) -> Data | None:
        """The clients' rows of a split, None where no client has any; "train" are those to train on."""
        if name == "train":
            return self
        if name not in self.splits:
            raise DataError(f"the clients have no rows called {name!r}; they have {', '.join(['train', *self.splits])}: give them with "
                            f"data.with_splits({name}=…)")
        return self.splits[name]

    def split_rows(self, name: str, client: int) -> dict[str, Tensor]:
        """One client's rows of a split, by the client's number among all; none where it has none."""
        rows = self.split(name)
        if rows is not None and self.names[client] in rows.names:
            return rows.views(rows.names.index(self.names[client]))
        forms = (self if rows is None else rows).forms()
        return {field: torch.zeros((0, *form.shape), dtype=form.dtype, device=self.device) for field, form in forms.items()}

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @cached_property
    def client_keys(self) -> NDArray[np.uint64]:
        """A 64-bit key per client, from its name."""
        return np.asarray([name_key(name) for name in self.names], dtype=np.uint64)

    def owner(self, row: int) -> int:
        """The client that holds a row of the store."""
        return int(self._owners(np.asarray(row)))

    def _owners(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self.offsets, rows, side="right") - 1

    @property
    def device(self) -> torch.device:
        """The device that batches are on."""
        return next((field.device for field in self.fields.values()), torch.device("cpu"))

    def forms(self) -> dict[str, Form]:
        """The shape and dtype of a row of each field."""
        return {name: Form(tuple(field.shape[1:]), field.dtype) for name, field in self.fields.items()}

    def column(self, field: str, client: int | None = None) -> Tensor:
        """One field of one client, or of all; where rows stay in datasets, one that has one number a row."""
        if field not in self.forms():
            raise DataError(f"there is no field {field!r}; the clients have {sorted(self.forms())}")
        return self._column(field, client)

    def _column(self, field: str, client: int | None) -> Tensor:
        return self.fields[field] if client is None else self.fields[field].narrow(0, int(self.offsets[client]), int(self.sizes[client]))

    def take(self, rows: Tensor) -> dict[str, Tensor]:
        """Every field at `rows` (any shape of row numbers; the field's own shape follows)."""
        if not self.fields:
            raise DataError("these clients are streams without rows: draw from them with a number of samples, "
                            "and use a problem whose sampling generates them")
        flat = rows.reshape(-1).to(self.device)
        return {name: field.index_select(0, flat).reshape(*rows.shape, *field.shape[1:]) for name, field in self.fields.items()}

    def views(self, client: int) -> dict[str, Tensor]:
        """One client's rows, not copied."""
        a, n = int(self.offsets[client]), int(self.sizes[client])
        return {name: field[a : a + n] for name, field in self.fields.items()}

    def part(self, *clients: int) -> Data:
        """Some of the clients; those that follow one another are not copied."""
        sizes = self.sizes[list(clients)]
        if clients == tuple(range(clients[0], clients[-1] + 1)):
            fields = {name: field.narrow(0, int(self.offsets[clients[0]]), int(sizes.sum())) for name, field in self.fields.items()}
        else:
            fields = {name: torch.cat([self._column(name, k) for k in clients]) for name in self.fields}
        return Data(fields, tuple(self.names[k] for k in clients), sizes, self._splits_of(clients))

    def _splits_of(self, clients: Sequence[int]) -> dict[str, Data | None]:
        """The splits at some of the clients."""
        names = {self.names[k] for k in clients}
        return {name: rows.of_clients(names) if rows is not None else None for name, rows in self.splits.items()}

    def of_clients(self, names: Collection[str]) -> Data | None:
        """The rows of those of the named clients who have any; None where nobody has."""
        kept = [k for k, name in enumerate(self.names) if name in names]
        return self.part(*kept) if kept else None

    def only(self, rows: NDArray[np.int64]) -> Data:
        """Some of the rows, by ascending numbers in the store; clients that keep none are left out."""
        sizes = np.bincount(self._owners(rows), minlength=len(self.names))
        names = tuple(name for name, size in zip(self.names, sizes, strict=True) if size)
        return Data(self.take(torch.from_numpy(rows)), names, sizes[sizes > 0])

    def to(self, device: torch.device | str) -> Data:
        """The same rows on another device."""
        return self._moved(found_device(device))

    def _moved(self, device: torch.device) -> Data:
        if all(column.device == device for column in self.fields.values()) and not self.splits:
            return self
        return Data({name: field.to(device) for name, field in self.fields.items()}, self.names, self.sizes,
                    {name: rows and rows._moved(device) for name, rows in self.splits.items()})

    def groups(self, field: str, least: int = 1) -> Groups:
        """The rows of each client grouped by a field's value (computed once a field), those of groups with fewer than `least` together."""
        cache: dict[tuple[str, int], Groups] = self.__dict__.setdefault("_groups", {})
        if (field, least) not in cache:
            forms = self.forms()
            if field not in forms:
                raise DataError(f"no field {field!r} to group by; the clients have {sorted(forms)}")
            if forms[field].shape:
                raise DataError(f"field {field!r} groups rows by one number each; it has rows of shape {forms[field].shape}")
            found = Groups.of(self.column(field).cpu().numpy(), self.sizes)
            cache[field, least] = found if least == 1 else found.merged(least, self.sizes)
        return cache[field, least]

    def fingerprint(self) -> list[str]:
        """Texts that are other ones where the rows are, for a checkpoint that goes on with the same rows only."""
        return [f"{name} {field.dtype} {tuple(field.shape)} {float(field.double().sum())!r}" for name, field in self.fields.items()]


class DatasetData(Data):
    """Rows that stay in the clients' datasets and are read when they are drawn, see `Data.from_datasets`."""

    in_memory: ClassVar[bool] = False
    _clients: tuple[DatasetRows, ...]
    _device: torch.device

    def __init__(self, clients: Sequence[DatasetRows], device: torch.device | None = None,
                 splits: Mapping[str, Data | None] | None = None) -> None:
        sizes = np.asarray([client.size for client in clients], dtype=np.int64)
        for name, value in (("names", tuple(client.name for client in clients)), ("sizes", sizes), ("_clients", tuple(clients)),
                            ("_device", device or torch.device("cpu")), ("splits", splits or {})):
            object.__setattr__(self, name, value)
        check_clients(self.names, self.sizes, clients[0].forms if clients else ())

    def __repr__(self) -> str:
        return f"Data.from_datasets({', '.join(f'{name}: {size} rows' for name, size in zip(self.names, self.sizes, strict=True))})"

    @property
    def fields(self) -> dict[str, Tensor]:
        raise DataError("the rows of these clients are in datasets, and no field of them is in memory: write data.take(rows) for some "
                        "rows, data.views(client) for all rows of a client, data.column(field, client) for a field with one number a row, "
                        "and data.forms() for names, shapes and dtypes")

    @property
    def device(self) -> torch.device:
        return self._device

    def forms(self) -> dict[str, Form]:
        return self._clients[0].forms

    def _column(self, field: str, client: int | None) -> Tensor:
        form = self.forms()[field]
        if form.shape:
            raise DataError(f"a column of rows that stay in a dataset has one number a row; field {field!r} is {form}: write "
                            "data.take(rows), or data.views(client) for all rows of a client")
        clients = self._clients if client is None else (self._clients[client],)
        return torch.cat([own.column(field) for own in clients]).to(self.device)

    def take(self, rows: Tensor) -> dict[str, Tensor]:
        flat = rows.reshape(-1).cpu().numpy()
        owners = self._owners(flat)
        found = gather(self._clients, owners, flat - self.offsets[owners], self.device)
        return {name: values.reshape(*rows.shape, *values.shape[1:]) for name, values in found.items()}

    def views(self, client: int) -> dict[str, Tensor]:
        """One client's rows, all of them read now."""
        fits_memory(self._clients[client].row_bytes, int(self.sizes[client]), f"client {self.names[client]!r}")
        return self.take(int(self.offsets[client]) + torch.arange(int(self.sizes[client])))

    def part(self, *clients: int) -> Data:
        return DatasetData([self._clients[k] for k in clients], self.device, self._splits_of(clients))

    def _with(self, splits: Mapping[str, Data | None]) -> Data:
        return DatasetData(self._clients, self.device, splits)

    def only(self, rows: NDArray[np.int64]) -> Data:
        each = np.split(rows - self.offsets[self._owners(rows)], np.searchsorted(rows, self.offsets[1:]))
        return DatasetData([client.only(own) for client, own in zip(self._clients, each, strict=True) if len(own)], self.device)

    def _moved(self, device: torch.device) -> Data:
        splits = {name: rows and rows._moved(device) for name, rows in self.splits.items()}
        return self if device == self.device and not splits else DatasetData(self._clients, device, splits)

    def fingerprint(self) -> list[str]:
        """Of the forms, and the first and last row of each client."""
        return [f"{name} {form}" for name, form in self.forms().items()] + self._ends

    @cached_property
    def _ends(self) -> list[str]:
        return [client.fingerprint() for client in self._clients]
