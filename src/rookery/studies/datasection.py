"""The section [data] of a run's description: which rows, what is predicted, and which of them test."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..data.imbalance import drop_positives, long_tail, step
from ..data.readers import DATASETS, ROWS, Table, load, read_images, read_npz
from ..data.readers.table import read_table, unencoded
from ..data.tables import Dialect, read_schema
from ..data.tables.rows import Rows
from ..errors import ConfigError


@dataclass(frozen=True)
class DataSection:
    """[data] what to train on: a data set by `name`, or your own file or folder under `table`, `npz` or `images`.

    name:           a data set by its name, as `rookery list` prints them
    table:          your own CSV or Parquet file, or a list of them, one for each site
    csv:            the same as table, for one file
    schema:         a file that says what the columns are, as `rookery look` wrote it and you corrected it; without one that is found anew
    npz:            your own NPZ file: an array of inputs, one of labels, and others with an entry for each row
    images:         your own folder of pictures, with a folder for each class below it
    label:          the column to predict; in an NPZ file the array, "labels" where nothing is said
    site:           the column that says whose a row is: its values are the federation
    group:          the column of what stays together, such as the patient: its rows are on one side of every split, at all sites
    keep:           columns to keep as fields as well, such as a protected attribute
    drop:           columns to leave out
    text:           columns to take for categories though they are numbers, such as a code
    delimiter:      the character between the values of a CSV file; it is found out where nothing is said
    category_rows:  how many rows of a category one site must have for its name to be told to the others
    test:           a file of test rows
    test_share:     the share of the rows that become test rows, where they are in no file of their own; else a quarter
    test_at:        who has the test rows: the "server", which scores them itself, or the "sites", which send sums of their scores, and of a
                    table with a site column choose them each by itself, as real sites do
    split_seed:     which rows become test rows depends on this number alone
    size:           the height and width that pictures are brought to
    positive:       classes that become label 1, where all others become 0
    keep_positives: the share of the positive training rows that is kept, to make them rare
    positive_share: the share of positives among the training rows after so many of them are dropped, to make them rare
    long_tail:      the share of its training rows that the last class keeps; the first keeps all, and from one to the next it falls alike
    minority:       classes of which only the share minority_keep of the training rows is kept
    minority_keep:  the share of the training rows of the minority classes that is kept
    validation:     the share of its rows that each site holds out, to choose and to stop by
    """

    name: str | None = None
    table: str | tuple[str, ...] | None = None
    csv: str | None = None
    schema: str | None = None
    npz: str | None = None
    images: str | None = None
    label: str | None = None
    site: str | None = None
    group: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    delimiter: str | None = None
    category_rows: int = 10
    test: str | None = None
    test_share: float | None = None
    test_at: Literal["server", "sites"] = "server"
    split_seed: int = 0
    size: int | None = None
    positive: tuple[int | str, ...] = ()
    keep_positives: float | None = None
    positive_share: float | None = None
    long_tail: float | None = None
    minority: tuple[int | str, ...] = ()
    minority_keep: float | None = None
    validation: float = 0.2

    def __post_init__(self) -> None:
        sources = [s for s in ("name", "table", "csv", "npz", "images") if getattr(self, s)]
        if len(sources) > 1 or not (sources or self.schema):  # a schema alone is of rows that are at real sites
            raise ConfigError(f"give one of name, table, npz and images; got {', '.join(sources) or 'none of them'}")
        if self.path and self.label is None and self.schema is None:
            raise ConfigError(f"{sources[0]} needs label = \"the column to predict\"")
        own = [k for k in ("label", "site", "group", "test", "keep", "drop", "text", "schema") if getattr(self, k)]
        if own and sources and not self.path and self.npz is None:
            raise ConfigError(f"{own[0]} names a column or file of your own table; it goes with table or npz")
        kept = self.keep and not (self.schema and not sources)  # a schema's columns may be kept where it has no rows here
        if not sources and (odd := next((name for name in ("drop", "text", "delimiter") if getattr(self, name)), None)):
            raise ConfigError(f"{odd} is about a table here; for the rows of real sites it is said in the schema ({self.schema}), as the "
                              "kind of a column, and a site's files may be written in a way of their own")
        if (kept or self.drop or self.text or self.delimiter is not None or (self.schema and sources)) and not self.path:
            raise ConfigError("keep, drop, text and schema are about the columns of a table, and delimiter is of one; an npz file has the "
                              "arrays you put into it")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ConfigError(f"delimiter is the one character between the values of a csv file; got {self.delimiter!r}")
        if self.size is not None and self.images is None:
            raise ConfigError("size is the height and width that pictures are brought to; it goes with images")
        if self.category_rows < 1:
            raise ConfigError(f"category_rows is a number of rows, at least 1; got {self.category_rows}")
        for name in ("validation", "test_share"):
            if (share := getattr(self, name)) is not None and not 0 < share < 1:
                raise ConfigError(f"{name} is the share of the rows that is held out, between 0 and 1; got {share}")
        thinned = [k for k in ("keep_positives", "positive_share", "long_tail", "minority") if getattr(self, k)]
        if len(thinned) > 1:
            raise ConfigError(f"{thinned[0]} and {thinned[1]} both make classes rare; keep one of them")
        if bool(self.minority) != (self.minority_keep is not None):
            raise ConfigError("minority = [classes] and minority_keep = share go together")

    @property
    def path(self) -> str | tuple[str, ...]:
        """Where one's own table is; nothing where the rows are no such table."""
        return self.table or self.csv or ()

    @property
    def source(self) -> str:
        """What to call it."""
        several = f"{len(self.path)} files" if self.path else str(self.schema)
        own = self.name or self.npz or self.images or (self.path if isinstance(self.path, str) else several)
        return own if self.name else Path(str(own)).name

    def read(self, seed: int) -> tuple[Table, NDArray[np.int64], Table]:
        """Training rows, the class that each of them had at first, and test rows. Those of a table are not encoded yet."""
        train, test = self.tables()
        if train.fields["labels"].dim() != 1:
            raise ConfigError(f"{self.source!r} has several labels a row; a run from a file needs one")
        classes, number = train.fields["labels"].numpy(), len(train.classes)
        if number < 2:
            where = f" in the label column {self.label!r}" if self.label else " as their label"
            raise ConfigError(f"there must be two classes at least; all rows of {self.source!r} have {train.classes[0]!r}{where}: "
                              "name another column, or add rows of another class")
        places = self.positives(train)
        if places:
            train, test = train.binary(places), test.binary(places)
        keep = self._thinning(train, seed)
        return (train, classes, test) if keep is None else (train.take(keep), classes[keep], test)

    def tables(self) -> tuple[Table, Table]:
        """Training and test rows as they are read, with all their classes; those of a table of columns are not encoded yet."""
        said: dict[str, Any] = {} if self.test_share is None else {"test_share": self.test_share}
        options: dict[str, Any] = {**said, "seed": self.split_seed}
        if self.path:
            return unencoded(self._own(options))
        if self.npz is not None:
            apart = "" if self.test_at == "sites" and self.site is not None else None
            return read_npz(self.npz, self.label or "labels", site=self.site, group=self.group, test=self.test, apart=apart, **options)
        if self.images is not None:
            return read_images(self.images, self.size, **options)
        if self.name is None:
            raise ConfigError("[data] has a schema and no rows, which are at real sites then: write rookery federate, or name a table")
        options = options if self.split_seed else said
        reader = ROWS.get(self.name) or DATASETS.get(self.name)
        if reader is not None and (given := [name for name in options if name not in inspect.signature(reader).parameters]):
            entries = " and ".join(sorted({"seed": "split_seed"}.get(name, name) for name in given))
            raise ConfigError(f"{self.name} has test rows of its own, which its publisher chose: leave {entries} out")
        return unencoded(ROWS[self.name](**options)) if self.name in ROWS else load(self.name, **options)

    def _own(self, options: dict[str, Any]) -> Rows:
        schema = None if self.schema is None else read_schema(self.schema)
        label = self.label if self.label is not None else schema.label if schema is not None else ""
        rows = read_table(self.path, label, site=self.site, group=self.group, test=self.test, keep=self.keep, drop=self.drop,
                          text=self.text, positive=self.positive, schema=schema, dialect=Dialect(self.delimiter),
                          apart=self.test_at == "sites", **options)
        classes = rows.schema.classes
        if len(classes) == 2 and not rows.schema.positive:
            raise ConfigError(f"which of the two classes of {label!r}, {classes[0]!r} and {classes[1]!r}, is the positive one? Write "
                              f"positive = [\"{classes[1]}\"] in [data], or the other one")
        return rows

    def positives(self, train: Table) -> list[int]:
        """The places of the positive classes, where classes are to become two; of one's own table the schema has them, in their order."""
        if self.path and train.rows is not None:
            return [] if len(train.classes) == 2 else [train.classes.index(one) for one in train.rows.schema.positive]
        return [self._class(train, one) for one in self.positive]

    def _thinning(self, train: Table, seed: int) -> NDArray[np.bool_] | None:
        labels = train.fields["labels"].numpy()
        if self.long_tail is not None:
            return long_tail(labels, self.long_tail, seed)
        if self.minority_keep is not None:
            places = [self._class(train, one) for one in self.minority]
            return step(labels, places, self.minority_keep, seed)
        if self.keep_positives is not None or self.positive_share is not None:
            return drop_positives(labels, self.keep_positives, self.positive_share, seed)
        return None

    def _class(self, train: Table, one: int | str) -> int:
        """The place of a class: by its name, which may be a number, or else by its place."""
        if str(one) in train.classes:
            return train.classes.index(str(one))
        if isinstance(one, str) or not 0 <= one < len(train.classes):
            raise ConfigError(f"{one!r} is not a class of {self.source!r}; the classes are {', '.join(train.classes)}")
        return one
