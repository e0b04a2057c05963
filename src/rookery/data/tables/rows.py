"""Rows of a table before they are encoded: which of them train and which test, what is predicted, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import DataError
from ..partition import by_column
from ..split import by_hash, fingerprint, hold_apart, split
from .kinds import demand_values, whole_texts
from .schema import Schema, demand_column
from .sheet import Sheet, pandas

OWN = frozenset({"inputs", "labels", "site", "group", "index", "key", "inner", "fields"})  # names of fields that tables use themselves


@dataclass(frozen=True, eq=False)
class Rows:
    """A table whose columns are not encoded yet: all its rows, in one sheet, and the numbers of those to train on and of those to test."""

    sheet: Sheet
    schema: Schema
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    name: str
    notes: tuple[str, ...] = ()  # what its owner should know

    def codes(self) -> tuple[dict[str, Tensor], dict[str, tuple[str, ...]]]:
        """Labels, sites, groups and kept columns of all rows as places among names, and these names."""
        schema, sheet = self.schema, self.sheet
        fields, names = dict[str, Tensor](), dict[str, tuple[str, ...]]()
        labels = np.asarray(whole_texts(sheet, schema.label), dtype=object)
        place = {name: i for i, name in enumerate(schema.classes)}
        unknown = np.asarray([label not in place for label in labels])
        if unknown.any():
            row = int(np.flatnonzero(unknown)[0])
            raise DataError(f"labels must be classes that the schema names ({', '.join(schema.classes)}), but {sheet.where(row)} of "
                            f"{sheet.file} has {labels[row]!r}: correct it, or add the class")
        fields["labels"] = torch.tensor([place[label] for label in labels], dtype=torch.int64)
        for field, column in (("site", schema.site), ("group", schema.group), *((name, name) for name in schema.keep)):
            if column is not None:
                values = (demand_values(sheet, column, field, schema.missing) if field in ("site", "group")
                          else np.asarray(sheet.texts(column), dtype=object))
                declared = schema.declared.get(field)
                found, own = np.unique(values.astype(str), return_inverse=True) if declared is None else (
                    np.asarray(declared), _places(sheet, column, values, declared))
                names[field], fields[field] = tuple(found.tolist()), torch.from_numpy(own.astype(np.int64))
        return fields, names


def _places(sheet: Sheet, column: str, values: NDArray[Any], declared: tuple[str, ...]) -> NDArray[np.int64]:
    """Each value's place among those that the schema declares, which are the same at every site."""
    place = {name: i for i, name in enumerate(declared)}
    unknown = np.flatnonzero(~np.isin(values.astype(str), declared))
    if len(unknown):
        raise DataError(f"the column {column!r}, which is kept, must have values that the schema declares ({', '.join(declared[:8])}), but "
                        f"{sheet.where(int(unknown[0]))} of {sheet.file} has {values[unknown[0]]!r}: correct it, or add it to categories")
    return np.asarray([place[str(value)] for value in values], dtype=np.int64)


def make_rows(sheet: Sheet, schema: Schema, *, name: str, test: Sheet | None = None, test_share: float = 0.25, seed: int = 0,
              notes: tuple[str, ...] = (), site: str | None = None) -> Rows:
    """Which rows train and which test: those of a file of their own, else a stratified share, or with groups a share of these by a hash.

    site: where every site chooses by itself, which depends on its own rows and name alone: the name of the site that has all rows, or ""
          where a column says whose they are
    """
    clash = OWN & {*schema.keep}
    if clash:
        raise DataError(f"the column {sorted(clash)[0]!r} cannot be kept under its name, which tables use themselves; rename it")
    schema.fit(sheet)
    if test is not None:
        both, own = _both(sheet, test, schema)
        common = [column for column in sheet.names if column in test.names]  # ids too
        stacked = pandas().concat([part.frame[common].astype(str) for part in (sheet, test)], ignore_index=True)
        again = np.asarray(stacked.duplicated(), dtype=bool)[own:]
        if again.any():
            notes = (*notes, f"{int(again.sum())} of {len(test)} test rows are the same as training rows or as other test rows: a model is "
                     "not tested on what it was trained on")
        return Rows(both, schema, np.arange(own), np.arange(own, len(both)), name, notes)
    if schema.group is not None:
        owners = demand_values(sheet, schema.group, "group", schema.missing)
        held = by_hash(fingerprint(owners), test_share, seed, "test")
        train, tested = np.flatnonzero(~held), np.flatnonzero(held)
        if not len(train) or not (len(tested) or site):  # a site's few groups may all be on one side
            raise DataError(f"{len(np.unique(owners.astype(str)))} values of {schema.group!r} are too few to set a share of {test_share:g} "
                            "aside for the test; give a file of test rows, or another share")
        return Rows(sheet, schema, train, tested, name, notes)
    labels = np.asarray(whole_texts(sheet, schema.label))
    if site is not None:
        owner = np.full(len(labels), site) if schema.site is None else by_column(
            demand_values(sheet, schema.site, "site", schema.missing))
        held = hold_apart(labels, owner, test_share, seed)
        return Rows(sheet, schema, np.flatnonzero(~held), np.flatnonzero(held), name, notes)
    parts = split(labels, test_share, seed=seed)
    return Rows(sheet, schema, parts.train, parts.test, name, notes)


def _both(sheet: Sheet, test: Sheet, schema: Schema) -> tuple[Sheet, int]:
    """Training and test rows under one another; both have the columns that the schema needs."""
    needed = [*schema.inputs, schema.label, *(c for c in (schema.site, schema.group) if c), *schema.keep]
    for name in needed:
        demand_column(test, name)
    _refuse_unknown_classes(test, schema)
    names = [name for name in sheet.names if name in needed]
    frames = [part.frame[names] for part in (sheet, test)]
    for name in names:
        if frames[0][name].dtype.kind != frames[1][name].dtype.kind and not all(f[name].dtype.kind in "iuf" for f in frames):
            frames = [frame.assign(**{name: part.texts(name)}) for frame, part in zip(frames, (sheet, test), strict=True)]
    origins = [part.origin if len(part.origin) else np.zeros(len(part), dtype=np.int64) for part in (sheet, test)]
    origin = np.concatenate([origins[0], origins[1] + len(sheet.files)])
    file = sheet.file if sheet.file == test.file else f"{sheet.file} and {test.file}"
    both = Sheet(pandas().concat(frames, ignore_index=True), file, (*sheet.files, *test.files), origin,
                 np.concatenate([sheet.rows, test.rows]), (*sheet.lines, *test.lines), sheet.dialect)
    return both, len(sheet)


def _refuse_unknown_classes(test: Sheet, schema: Schema) -> None:
    """Refuse test rows without a label, or with one that training rows do not have."""
    demand_values(test, schema.label, "label", schema.missing)
    labels = np.asarray(whole_texts(test, schema.label), dtype=object)
    unknown = ~np.isin(labels.astype(str), schema.classes)
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        raise DataError(f"test rows must have classes of the training rows ({', '.join(schema.classes)}), but {test.where(row)} of "
                        f"{test.file} has {labels[row]!r}; correct it, or drop these rows")
