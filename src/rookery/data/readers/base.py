"""What every reader returns: a table of rows."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import DataError
from ..tables.encoder import Encoder
from ..tables.kinds import order
from ..tables.rows import Rows


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of one data set before they have owners.

    `fields` has at least `inputs` and `labels`; a label is a place in `classes`, or for several labels a row one 0 or 1 per class.
    `names` says what the numbers of other fields mean (`names["site"]`), and what the columns of `inputs` are. `encoder` made these of
    `rows`.

    >>> table = Table({"inputs": torch.zeros(3, 2), "labels": torch.tensor([0, 1, 1])}, ("no", "yes"), "toy")
    >>> len(table), table.values("labels").tolist()
    (3, ['no', 'yes', 'yes'])
    """

    fields: dict[str, Tensor]
    classes: tuple[str, ...]
    name: str
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    encoder: Encoder | None = None  # of a table of texts and numbers: how its columns became inputs
    rows: Rows | None = None  # of such a table: its rows before that; without an encoder, inputs are their numbers

    def __post_init__(self) -> None:
        for needed in ("inputs", "labels"):
            if needed not in self.fields:
                raise DataError(f"table {self.name!r} needs a field {needed!r}; it has {sorted(self.fields)}")
        rows = {name: len(column) for name, column in self.fields.items()}
        if len(set(rows.values())) > 1:
            raise DataError(f"the fields of table {self.name!r} must have equally many rows, but have {rows}")
        if len(self) == 0:
            raise DataError(f"table {self.name!r} has no rows; check the file, or what was taken from it")
        for name, column in self.fields.items():
            if column.is_floating_point() and not bool(torch.isfinite(column).all()):
                place = (~torch.isfinite(column)).nonzero()[0].tolist()
                which = f"column {self._column(place[1])} of " if name == "inputs" and column.dim() == 2 else ""
                raise DataError(f"{which}field {name!r} of table {self.name!r} must be finite, but row {place[0]} is not; "
                                "drop the column or fill it in")
        labels, several = self.fields["labels"], self.fields["labels"].dim() == 2
        if labels.dtype != torch.int64 or labels.dim() > 2 or (several and labels.shape[1] != len(self.classes)):
            raise DataError(f"labels of table {self.name!r} must be int64 of shape (rows,) or (rows, {len(self.classes)}), but are "
                            f"{labels.dtype} of shape {tuple(labels.shape)}")
        last = 1 if several else len(self.classes) - 1
        if int(labels.min()) < 0 or int(labels.max()) > last:
            raise DataError(f"labels of table {self.name!r} must lie between 0 and {last}, but go from {int(labels.min())} to "
                            f"{int(labels.max())}")

    def __len__(self) -> int:
        return len(self.fields["labels"])

    def _column(self, place: int) -> str:
        return repr(self.names["inputs"][place]) if "inputs" in self.names else str(place)

    def take(self, rows: NDArray[Any] | Tensor) -> Table:
        """Some rows: their numbers, or a mask."""
        where = torch.as_tensor(rows)
        return replace(self, fields={name: column[where] for name, column in self.fields.items()})

    def with_inputs(self, inputs: Tensor, encoder: Encoder) -> Table:
        """The same rows with the inputs that their numbers, which `inputs` are so far, have in a table of all rows."""
        return replace(self, fields={**self.fields, "inputs": inputs[self.fields["inputs"]]}, encoder=encoder,
                       names={**self.names, "inputs": encoder.names})

    def values(self, field: str) -> NDArray[np.str_]:
        """The name behind each number of a field, such as the site of each row."""
        names = self.classes if field == "labels" else self.names.get(field, ())
        if field == "inputs" or field not in self.fields or self.fields[field].dim() != 1 or not names:
            known = ["labels", *(name for name in self.names if name in self.fields and name != "inputs")]
            raise DataError(f"table {self.name!r} has no names for the field {field!r}; it has them for {known}")
        return np.asarray([names[place] for place in self.fields[field].tolist()])

    def binary(self, positive: Iterable[int | str]) -> Table:
        """The same rows with label 1 for the `positive` classes (numbers or names) and 0 for the others; two classes keep their names."""
        places = set()
        for one in positive:
            if (one not in self.classes) if isinstance(one, str) else not 0 <= one < len(self.classes):
                raise DataError(f"{one!r} is not a class of table {self.name!r}; the classes are {self.classes}")
            places.add(self.classes.index(one) if isinstance(one, str) else one)
        if not places or len(places) == len(self.classes):
            raise DataError(f"some classes must be positive and some not, but {len(places)} of {len(self.classes)} were named")
        if self.fields["labels"].dim() == 2:
            raise DataError(f"table {self.name!r} has several labels a row; choose one column of its labels instead")
        labels = torch.isin(self.fields["labels"], torch.tensor(sorted(places))).long()
        names = ("negative", "positive")
        if len(self.classes) == 2:
            names = (self.classes[1 - min(places)], self.classes[min(places)])
        return replace(self, fields={**self.fields, "labels": labels}, classes=names)


class NoRows(Table):
    """A table without rows, for its columns and classes: those are elsewhere, or there are none."""

    def __post_init__(self) -> None:
        """Nothing has to hold of rows."""

    @classmethod
    def of(cls, like: Table) -> NoRows:
        fields = {name: column[:0] for name, column in like.fields.items()}
        return cls(fields, like.classes, like.name, like.names, like.encoder, like.rows)


def codes(*parts: Sequence[str]) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """The different texts of all parts, sorted (as numbers if they are), and each part as places among them."""
    found = sorted({value for part in parts for value in part}, key=order)
    place = {value: i for i, value in enumerate(found)}
    return tuple(found), [np.asarray([place[value] for value in part], dtype=np.int64) for part in parts]


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Bytes of shape (n, c, h, w) as float32 in [0, 1]."""
    return torch.from_numpy(np.divide(images, 255, dtype=np.float32, order="C"))


def arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file; Python objects in it are refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} must be an NPZ file of plain arrays, without Python objects, but {error}; save numbers and texts "
                        "with numpy.savez") from None


def numbers(labels: Any) -> Tensor:
    """Whole numbers as int64."""
    return torch.from_numpy(np.array(labels, dtype=np.int64))
