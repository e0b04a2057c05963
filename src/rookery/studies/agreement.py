"""How sites agree on an encoder before training: sums over their rows, and the names of categories, through the federation's own verbs.

What leaves a site: how many numbers of each column it has, their sum, the sum of their squared distances from the common mean, the names
of categories that it has at least ten rows of, and whether `min_batch` of its cells are missing, or none of the names that all agreed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.batch import Batch
from ..data.tables.cells import is_missing
from ..data.tables.encoder import Category, Encoder, Number, Say, values_of
from ..data.tables.kinds import order, spellings
from ..data.tables.schema import ColumnSchema, Schema
from ..data.tables.sheet import Sheet
from ..errors import ConfigError, DataError, ProblemError
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.program import Program
from ..metrics.groups import group_of
from ..problems.kinds import Minimization
from .cells import Tally

LEAST = 10  # rows of a category at one site, for its name to leave that site
WIDEST = 200  # bytes of a category's name
LARGEST = 1e150  # whose square is a number too
SAME = ({"1", "true", "yes"}, {"0", "false", "no"})  # ways to write one class of two
MOST = 1000  # categories of a column


@dataclass(frozen=True)
class Agreement(Program):
    """The client functions. A client's rows have `values` and `there`, of numbers and dates, and `texts`, the bytes of categories.

    A column that has fewer than `min_batch` numbers at a client counts there as one that has none.
    """

    least: int = LEAST

    def totals(self, c: Client, nothing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How often each number is there, the sum of it, and 1 for each category that at least `min_batch` rows miss."""
        b = c.rows()
        there = self._there(c, b)
        return there.sum(0), (b.values * there).sum(0), ((b.texts[:, :, 0] == 0).sum(0) >= c.min_batch).double()

    def squares(self, c: Client, mean: Tensor) -> Tensor:
        """The sum of the squared distances of each number from the mean."""
        b = c.rows()
        if mean.shape != b.values.shape[1:]:  # which would be compared row by row
            raise ProblemError(f"there is a mean for each of {b.values.shape[1]} columns; got the shape {tuple(mean.shape)}")
        return ((b.values - mean).square() * self._there(c, b)).sum(0)

    def sizes(self, c: Client, nothing: Tensor) -> Tensor:
        """For each category how many names this client has often enough, and the bytes of the longest of them."""
        found = self._names(c)
        return torch.tensor([[len(names), max(map(len, names), default=0)] for names in found], dtype=torch.int64).reshape(-1)

    def names(self, c: Client, room: Tensor) -> Tensor:
        """These names, as bytes, each column's in the room that the largest client needs."""
        numbers, width = room[::2].tolist(), int(room[1::2].max()) if len(room) else 0
        out = torch.zeros(sum(numbers), width, dtype=torch.uint8)
        start = 0
        for names, number in zip(self._names(c), numbers, strict=True):
            for i, name in enumerate(names):
                out[start + i, : len(name)] = torch.tensor(list(name), dtype=torch.uint8)
            start += number
        return out

    def others(self, c: Client, agreed: Tensor, column: Tensor) -> Tensor:
        """For each category 1 where at least `min_batch` of this client's cells are none of the agreed names."""
        texts = c.rows().texts
        out = torch.zeros(texts.shape[1], dtype=torch.float64)
        for k in range(texts.shape[1]):
            known = {bytes(row.tolist()).rstrip(b"\0") for row in agreed[column == k]}
            own, counts = _unique(texts[:, k])
            out[k] = sum(count for name, count in zip(own, counts, strict=True) if name and name not in known) >= c.min_batch
        return out

    def form(self, c: Client, nothing: Tensor) -> Tensor:
        """The shape of an input that is an array, which fills eight places."""
        shape = c.rows().inputs.shape[1:]
        return torch.tensor([len(shape), *shape, *[0] * (7 - len(shape))], dtype=torch.int64)

    def _there(self, c: Client, b: Batch) -> Tensor:
        """Where there are numbers that count."""
        there = b.there.double()
        return there * (there.sum(0) >= c.min_batch)

    def _names(self, c: Client) -> list[list[bytes]]:
        texts = c.rows().texts
        found = []
        for k in range(texts.shape[1]):
            names, counts = _unique(texts[:, k])
            found.append([name for name, count in zip(names, counts, strict=True) if name and count >= self.least])
        return found


def _unique(texts: Tensor) -> tuple[list[bytes], list[int]]:
    """The different rows of bytes, without the zeros that fill them up, in order, and how often each comes."""
    if not len(texts):
        return [], []
    rows = np.ascontiguousarray(texts.numpy())
    names, counts = np.unique(rows.view(f"S{rows.shape[1]}").reshape(-1), return_counts=True)
    return [bytes(name) for name in names], counts.tolist()


def raw_fields(sheet: Sheet, schema: Schema, say: Say | None = None) -> dict[str, Tensor]:
    """The rows before they are encoded, as the client functions have them.

    Declared categories need no agreement, and only their gaps count.
    """
    numbers = [name for name in schema.inputs if schema.columns[name].kind != "category"]
    values = np.stack([values_of(sheet, name, schema, say) for name in numbers], 1) if numbers else np.zeros((len(sheet), 0))
    there = np.isfinite(values)
    far = np.argwhere(there & (np.abs(values) > LARGEST))
    if len(far):
        row, place = far[0]
        raise DataError(f"column {numbers[place]!r} of {sheet.file} must hold numbers that can be standardised, but "
                        f"{sheet.where(int(row))} has {values[row, place]:g}; correct it, or drop the column")
    texts = [_bytes(sheet, name, schema) for name in schema.inputs if schema.columns[name].kind == "category"]
    width = max((column.shape[1] for column in texts), default=1)
    padded = np.zeros((len(sheet), len(texts), width), dtype=np.uint8)
    for place, column in enumerate(texts):
        padded[:, place, : column.shape[1]] = column
    return {"values": torch.from_numpy(np.where(there, values, 0.0)), "there": torch.from_numpy(there.astype(np.uint8)),
            "texts": torch.from_numpy(padded)}


def _bytes(sheet: Sheet, name: str, schema: Schema) -> NDArray[np.uint8]:
    cells = sheet.texts(name)
    gone = is_missing(cells, schema.columns[name].missing, schema.missing)
    names = [str(value) for value in cells.unique()]
    longest = max((len(name.encode()) for name in names), default=1)
    if longest > WIDEST:
        raise DataError(f"a category's name may have {WIDEST} bytes, but column {name!r} of {sheet.file} has one of {longest}; write "
                        "kind = \"text\" for it in the schema, or drop it")
    table, place = name_bytes(["", *names]), {name: 1 + i for i, name in enumerate(names)}
    return table[np.where(gone, 0, cells.map(place).to_numpy(dtype=np.int64))]


def name_bytes(names: Sequence[str]) -> NDArray[np.uint8]:
    """Names as rows of bytes, filled up with zeros.

    >>> name_bytes(["a", "bc"]).tolist()
    [[97, 0], [98, 99]]
    """
    raw = [name.encode() for name in names]
    width = max((len(name) for name in raw), default=1) or 1
    return np.asarray(raw, dtype=f"S{width}").view(np.uint8).reshape(len(raw), width)


def agree(fed: Federation[Any], schema: Schema, least: int = LEAST) -> Encoder:
    """The encoder that all clients of a federation over `raw_fields` agree on: two exchanges of sums, and three for categories.

    Numbers are standardised as if the rows were pooled. Categories are those that the schema declares, or else the names that some client
    has at least `least` rows of, each sent by `collect`.
    """
    program, nothing = Agreement(least), torch.zeros(1)
    numbers = [name for name in schema.inputs if schema.columns[name].kind != "category"]
    texts = [name for name in schema.inputs if schema.columns[name].kind == "category"]
    undeclared = [name for name in texts if not schema.columns[name].categories]
    if undeclared and fed.only_sums:
        raise ConfigError(f"only sums may leave the sites, and the names of categories are none: declare the values of {undeclared[0]!r} "
                          f"in the schema, as in [columns.{undeclared[0]}] categories = [\"…\"]")
    sizes, needed = fed.data.sizes, fed.setting.min_batch
    if int(sizes.max()) < needed:
        raise ConfigError(f"nothing is computed from fewer than min_batch = {needed} rows, and no site has so many to train on: "
                          f"{fed.data.names[int(sizes.argmax())]!r} has most, {int(sizes.max())}; lower min_batch in [federation]")
    with fed.phase("setup"):
        count, total, gone = fed.sum(*fed.map(program.totals, fed.broadcast(nothing)))
        mean = total / count.clamp_min(1)
        square = fed.sum(fed.map(program.squares, fed.broadcast(mean)))
        names = _agree_names(fed, program, texts, schema) if texts else []
        other = _any_others(fed, program, names) if texts else torch.zeros(0)
    rows = int(fed.data.sizes.sum())
    deviation = (square / count.clamp_min(1)).sqrt()
    found = dict[str, Number | Category]()
    for place, name in enumerate(numbers):
        if not int(count[place]):
            raise DataError(f"column {name!r} must have a value in some training row, but all are missing; leave it out with drop = "
                            f"[{name!r}], or kind = \"drop\" in the schema")
        if not np.isfinite(float(mean[place])) or not np.isfinite(float(deviation[place])):
            raise DataError(f"column {name!r} must hold numbers that can be standardised, but their sum is beyond what a number can hold; "
                            "correct it, or drop it")
        found[name] = Number(name, float(mean[place]), float(deviation[place]) or 1.0, int(count[place]) < rows, schema.columns[name].kind)
    for place, name in enumerate(texts):
        found[name] = Category(name, tuple(names[place]), float(other[place]) > 0, float(gone[place]) > 0)
    return Encoder(tuple(found[name] for name in (*numbers, *texts)))


def _agree_names(fed: Federation[Any], program: Agreement, texts: Sequence[str], schema: Schema) -> list[list[str]]:
    declared = [list(schema.columns[name].categories) for name in texts]
    if all(declared):
        return declared
    sizes = fed.collect(fed.map(program.sizes, fed.broadcast(torch.zeros(1))))
    room = sizes.reshape(len(sizes), -1).max(0).values
    for name, number in zip(texts, room[::2].tolist(), strict=True):
        if number > MOST and not schema.columns[name].categories:
            raise DataError(f"column {name!r} must be numbers or a few categories, but a site has {number} values of it with "
                            f"{program.least} rows or more; leave it out with drop = [{name!r}], or declare its categories in the schema")
    sent = fed.collect(fed.map(program.names, fed.broadcast(room)))
    found, start = [], 0
    for own, number in zip(declared, room[::2].tolist(), strict=True):
        seen = {bytes(row.tolist()).rstrip(b"\0").decode() for block in sent[:, start : start + number] for row in block} - {""}
        found.append(own or sorted(seen))
        start += number
    return found


def _any_others(fed: Federation[Any], program: Agreement, names: Sequence[Sequence[str]]) -> Tensor:
    every = [(k, name) for k, own in enumerate(names) for name in own]
    agreed = torch.from_numpy(name_bytes([name for _, name in every]))
    column = torch.tensor([k for k, _ in every], dtype=torch.int64)
    return fed.sum(fed.map(program.others, *fed.broadcast(agreed, column)))


def agree_on_arrays(fed: Federation[Any], least: int = LEAST) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The classes that clients with arrays or pictures have, and the shape of an input, which is the same at all."""
    program = Agreement(least)
    labels = agree(fed, Schema("labels", (), {"labels": ColumnSchema("category")}), least).columns[0]
    assert isinstance(labels, Category)
    if labels.other or labels.missing:
        raise DataError(f"every class needs {least} training rows at some site, for its name to be told to the others; lower "
                        "data.category_rows, or leave the rows of other classes out")
    alike = spellings("labels", labels.categories)
    for same in SAME:
        if len(both := [name for name in labels.categories if name.lower() in same]) > 1:
            alike = alike or f"{' and '.join(map(repr, both))} are different classes, as sites write them"
    if alike:
        raise DataError(f"labels must be written alike at all sites: {alike}")
    with fed.phase("setup"):
        forms = fed.collect(fed.map(program.form, fed.broadcast(torch.zeros(1))))
    for name, form in zip(fed.data.names, forms, strict=True):
        if not torch.equal(form, forms[0]):
            one, other = (tuple(shape[1 : 1 + int(shape[0])].tolist()) for shape in (forms[0], form))
            raise DataError(f"inputs must have the same shape at all sites; {fed.data.names[0]!r} has {one} and {name!r} {other}")
    return tuple(sorted(labels.categories, key=order)), tuple(forms[0][1 : 1 + int(forms[0][0])].tolist())


@dataclass(frozen=True)
class Counting(Program):
    """How many of a client's rows of a split are of each group and class; without a field all are of one group."""

    split: str
    classes: int
    field: str | None = None
    groups: int = 1

    def counts(self, c: Client, nothing: Tensor) -> Tensor:
        """(groups, classes)."""
        b = c.rows(self.split)
        cell = group_of(b, self.field, self.groups) * self.classes + b.labels
        return torch.bincount(cell.cpu(), minlength=self.groups * self.classes).double().reshape(self.groups, self.classes)

    def positives(self, c: Client, nothing: Tensor) -> Tensor:
        """How many of this client's rows are positive."""
        return (c.rows(self.split).labels > 0).double().sum()[None]


def count_rows(fed: Federation[Any], classes: int, field: str | None, groups: int, by_site: bool) -> Tally:
    """How many rows the clients of a federation have; by group and class from sums, of validation rows by client where it is wanted."""
    nothing = torch.zeros(1)
    with fed.phase("setup"):
        train = fed.sum(fed.map(Counting("train", classes, field, groups).counts, fed.broadcast(nothing)))
        held = fed.map(Counting("validation", classes).counts, fed.broadcast(nothing))
        own = fed.collect(held) if by_site else fed.sum(held)
    return Tally(train.cpu().numpy().astype(np.int64), own.cpu().numpy().astype(np.int64).reshape(-1, classes))


def count_positives(fed: Federation[Any]) -> list[float]:
    """How many positive training rows every client has."""
    with fed.phase("setup"):
        return [float(number) for number in fed.collect(fed.map(Counting("train", 2).positives, fed.broadcast(torch.zeros(1))))]


def raw_problem() -> Minimization:
    """Nothing to minimise: what a federation over raw rows is made with."""
    return Minimization(_nothing)


def _nothing(x: Tensor, b: Any) -> Tensor:
    return x.sum()

