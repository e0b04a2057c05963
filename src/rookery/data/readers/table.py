"""A user's own table: CSV or Parquet, one file or one for each site, with texts, gaps, a label column and perhaps a site column."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ...errors import DataError
from ..folder import locate
from ..tables.encoder import Encoder
from ..tables.files import read_sheets
from ..tables.look import look
from ..tables.rows import Rows, make_rows
from ..tables.schema import Schema
from ..tables.sheet import ANY, Dialect, Sheet
from .base import NoRows, Table


def read_csv(path: str | Path | Sequence[str | Path], label: str | int, *, test: str | Path | None = None, test_share: float = 0.25,
             seed: int = 0, site: str | None = None, group: str | None = None, keep: Collection[str] = (), drop: Collection[str] = (),
             text: Collection[str] = (), header: bool | Sequence[str] | None = None, delimiter: str | None = None,
             comment: str | None = None) -> tuple[Table, Table]:
    """The training and test rows of a table, encoded by what the training rows say; a run from a description has its sites agree instead.

    path: a CSV file of any dialect or a Parquet file, or one for each site, with the same columns in any order
    test: a file of test rows; without one they are a stratified share, and with `group` no group has rows in both parts
    site, group, keep: columns that become fields of that name, whose numbers `Table.values` names; site and group are no inputs
    drop, text: columns to leave out, and to take for categories though they are numbers
    header, delimiter, comment: found out where they are not given; without a header line columns are called "0", "1", …, and a label of −1
                        is the last; lines that begin with `comment` are skipped; a delimiter of " " stands for any number of blanks

    What each column is, is found as by `rookery look`: numbers are standardised, categories one-hot encoded, dates counted in days, ids and
    free texts left out. A few cells that are no numbers in a column of numbers are taken for missing (see `Encoder`).
    """
    rows = read_table(path, label, test=test, test_share=test_share, seed=seed, site=site, group=group, keep=keep, drop=drop, text=text,
                      dialect=Dialect(delimiter, None, tuple(header) if isinstance(header, Sequence) else header, comment))
    return encoded(rows)


def read_table(path: str | Path | Sequence[str | Path], label: str | int, *, test: str | Path | None = None, test_share: float = 0.25,
               seed: int = 0, site: str | None = None, group: str | None = None, keep: Collection[str] = (), drop: Collection[str] = (),
               text: Collection[str] = (), positive: Sequence[str | int] = (), schema: Schema | None = None,
               dialect: Dialect = ANY, apart: bool = False) -> Rows:
    """The rows of a table with the schema that is given, or that a look at them finds; nothing is encoded yet.

    apart: whether every site chooses its test rows by itself
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    if schema is not None:
        dialect = Dialect(dialect.delimiter or schema.delimiter, dialect.encoding or schema.encoding,
                          schema.header if dialect.header is None else dialect.header, dialect.comment)
    sheet = read_sheets([locate(one) for one in paths], dialect, site or (schema.site if schema and schema.site else "site"))
    if isinstance(label, int):
        if not -len(sheet.names) <= label < len(sheet.names):
            raise DataError(f"{sheet.file} has {len(sheet.names)} columns, so the label cannot be column {label}; write -1 for the last "
                            "one")
        label = sheet.names[label]
    site = site or (schema.site if schema is not None else None) or ("site" if len(paths) > 1 else None)
    if schema is None:
        seen = look(sheet, label, site=site, group=group, keep=keep, drop=drop, text=text, positive=positive)
        found, notes = seen.certain, seen.warnings
    else:
        seen = look(sheet, label, site=site, group=group or schema.group, keep=(*schema.keep, *keep), drop=drop, text=text,
                    positive=positive or schema.positive, given=schema)
        own = seen.certain
        classes = schema.classes or own.classes
        if len(classes) == 2:  # whatever their order in the schema, the positive one comes second
            classes = tuple(sorted(classes, key=lambda name: name in own.positive))
        found = replace(own, classes=classes)
        notes = [column.warning for column in seen.columns.values() if column.warning]
    later = None if test is None else read_sheets([locate(test)], dialect)
    return make_rows(sheet, found, name=Path(paths[0]).stem, test=later, test_share=test_share, seed=seed, notes=tuple(notes),
                     site="" if apart and found.site is not None else None)


def encoded(rows: Rows, encoder: Encoder | None = None) -> tuple[Table, Table]:
    """Training and test rows as tables of numbers, by an encoder, or by that of the training rows."""
    encoder = encoder or Encoder.fit(rows.sheet.take(rows.train), rows.schema)
    inputs = torch.from_numpy(encoder(rows.sheet, rows.schema))
    train, test = unencoded(rows)
    return train.with_inputs(inputs, encoder), test.with_inputs(inputs, encoder)


def unencoded(rows: Rows) -> tuple[Table, Table]:
    """Training and test rows as tables whose inputs are the rows' numbers, until the sites have agreed on an encoder."""
    fields, names = rows.codes()
    whole = Table({"inputs": torch.arange(len(rows.sheet)), **fields}, rows.schema.classes, rows.name, names, rows=rows)
    return whole.take(rows.train), whole.take(rows.test) if len(rows.test) else NoRows.of(whole)


def read_publishers(path: Path, header: bool | Sequence[str] = True, delimiter: str = ",", comment: str | None = None) -> Sheet:
    """A publisher's file, whose dialect is known."""
    return read_sheets([path], Dialect(delimiter, None, tuple(header) if isinstance(header, Sequence) else header, comment))
