"""An owner whose rows are in files: a table, arrays or pictures, from which a run's terms make the problem and the clients of this site."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.partition import by_column
from ..data.readers import Table, read_images, read_npz
from ..data.readers.table import unencoded
from ..data.store import Data
from ..data.tables import schema as schemas
from ..data.tables.encoder import Encoder
from ..data.tables.files import read_sheets
from ..data.tables.rows import make_rows
from ..data.tables.sheet import Dialect
from ..errors import ConfigError, DataError, Refused
from ..objectives import balanced_cross_entropy, cross_entropy
from ..problems.base import Problem
from ..studies.agreement import name_bytes, raw_problem
from ..studies.build import divide, pose, sites_fields
from ..studies.cells import CELLS, number_cells
from ..studies.choices import ModelSection
from ..studies.encoding import Encoding, raw_rows
from ..studies.modules import find_allowed
from ..studies.terms import Terms
from .apart import Apart, many
from .audit import shown
from .rules import Rules

LOG = logging.getLogger(__name__)
ANY = {"name": "FedAvg", "lr": 1.0}
KEPT = 8  # runs whose rows are kept: those of one fit have the same


@dataclass(frozen=True)
class RowsSection:
    """[rows] where the rows are, and what may be asked of them: one of `table`, `npz`, `images` and `own`.

    table:   a CSV or Parquet file, or a list of them; the server's schema says what its columns are
    npz:     an NPZ file of inputs, labels and others with an entry for each row
    images:  a folder of pictures, with a folder for each class below it
    test:    a file of test rows; else every site sets a share of its rows aside
    site:    the column or array that says which client's a row is, where there are several here; else all are this site's
    label:   what may be predicted; where nothing is said, any column that the server names, if its values have `min_batch` rows on average
    group:   the column of what must stay on one side of every split, such as the patient
    columns: of a table: the columns that may be used, for inputs or otherwise; where nothing is said, all
    header:  of a table whose files have no line of names: the names of its columns
    own:     a function module:name of one's own, which returns a problem and its clients' rows, as a `Problem` and `Data`; one that takes
             an argument is given the words in which the server describes the problem, a dict
    """

    table: str | tuple[str, ...] | None = None
    npz: str | None = None
    images: str | None = None
    test: str | None = None
    site: str | None = None
    label: str | None = None
    group: str | None = None
    columns: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    own: str | None = None

    def __post_init__(self) -> None:
        sources = [name for name in ("table", "npz", "images", "own") if getattr(self, name)]
        if len(sources) != 1:
            raise ConfigError(f"give one of table, npz, images and own; got {' and '.join(sources) or 'none of them'}")
        beside = [name for name in ("test", "site", "label", "group", "columns", "header") if getattr(self, name)]
        if beside and (self.own or (self.images and beside != ["label"])):
            raise ConfigError(f"{beside[0]} is about the columns of a table or of arrays; leave it out beside {sources[0]}")
        if about := next((name for name in ("columns", "header") if getattr(self, name) and not self.table), None):
            raise ConfigError(f"{about} is about a table; an npz file has the arrays that you put into it")

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,) if isinstance(self.table, str) else self.table or ()

    @property
    def kind(self) -> str:
        return "a table" if self.table else "arrays" if self.npz else "pictures"


class Files:
    """The owner of the rows that a section says.

    name:    the site's
    modules: modules of one's own that a run may name
    beside:  the folder that paths are meant from
    """

    def __init__(self, name: str, section: RowsSection, modules: tuple[str, ...], beside: Path) -> None:
        self.name, self.section, self.modules, self.beside = name, section, modules, beside
        self.divided, self.reading = lru_cache(KEPT)(self._divided), threading.Lock()
        for path in self._paths():
            if not path.exists():
                raise ConfigError(f"[rows] names {path}, which is not there: correct it, or bring the rows")

    def _paths(self) -> list[Path]:
        section = self.section
        return [self.beside / path for path in (*section.tables, section.npz, section.images, section.test) if path]

    def prepare(self, asked: dict[str, Any], rules: Rules) -> tuple[Problem, Data]:
        """The problem that a server's words describe, and this site's clients with their rows."""
        terms = Terms.from_json(asked)
        for word in terms.own():
            find_allowed(word, "the run", self.modules, self.beside)
        config = terms.config()
        minimised = {"rows": config.objective.name, "warm-up": "balanced_cross_entropy", "personal": "cross_entropy"}.get(terms.part)
        if minimised is not None and minimised not in rules.objectives:
            raise Refused(f"{minimised} is not among the objectives that may be minimised here (may.objectives)")
        if terms.part == "rows" and not rules.knows(type(config.algorithm)):
            raise Refused(f"{terms.run['algorithm']['name']} is not among the algorithms that may run here (may.algorithms)")
        self._refuse_other_rows(terms)
        # rows do not depend on the rest of the terms
        key = replace(terms, run={"data": terms.run.get("data", {}), "federation": {"seed": terms.seed}, "algorithm": ANY}, names=(),
                      sensitive=None, cells=(), part="columns" if terms.part == "columns" else "rows")
        with self.reading:
            data, classes, counts, values = self.divided(_Key(key, self._stamps()))
        rows = int(data.sizes.sum()) + sum(int(part.sizes.sum()) for part in data.splits.values() if part is not None)
        if self.section.label is None and not self.section.images and many(values, rows, rules.min_batch):
            raise Refused(f"what is to be predicted has many values here, of fewer than min_batch={rules.min_batch} rows on average: where "
                          "that is meant, the owner names it as label in [rows]")
        kept = () if terms.schema is None else schemas.from_tree(terms.schema).keep
        _refuse_single_rows(data, (*kept, terms.sensitive or ""), rules)
        if terms.part == "columns":
            return raw_problem(), data
        if terms.sensitive is not None and terms.cells:
            data, counts = number_cells(data, terms.sensitive, classes, terms.cells), counts | {CELLS: len(terms.cells)}
        sampling = config.objective.sampling
        _refuse_single_rows(data, (*config.objective.entries.values(), *(() if sampling is None else sampling.values.values())), rules)
        counts, shape = counts | {"labels": classes, "site": len(terms.names)}, tuple(data.forms()["inputs"].shape)
        if isinstance(config.model, ModelSection):
            with torch.device("meta"):  # nothing is allocated
                size = sum(parameter.nbytes for parameter in config.model.net(shape, classes).parameters())
            if size > 2**20 * rules.frame_megabytes:
                raise Refused(f"a net of {size / 2**20:.0f} MB does not fit into a frame, which may have {rules.frame_megabytes:g} here")
        data, given, problem = pose(config, data, shape, classes, terms.names, counts)
        match terms.part:
            case "warm-up":
                return balanced_cross_entropy(given.model), data
            case "personal":
                return cross_entropy(given.model), data
            case _:
                return problem, data

    def _refuse_other_rows(self, terms: Terms) -> None:
        """What the owner does not let be predicted, split or used."""
        section, told = self.section, None if terms.schema is None else schemas.from_tree(terms.schema, "the server's schema")
        if (told is None) != (not section.table):
            raise Refused(f"the rows of this site are {section.kind}, and the run is about {'a table' if told else 'arrays or pictures'}")
        label = terms.label if told is None else told.label
        if section.label is not None and label != section.label:
            raise Refused(f"{label!r} is not what may be predicted here")
        if told is None:
            return
        if isinstance(told.header, tuple):
            raise Refused("the schema names columns by their places (header), and files have their own order here: leave header out; where "
                          "they have no line of names, their owner gives them as header in [rows]")
        if section.group is not None and told.group != section.group:
            raise Refused(f"rows of one {section.group!r} stay together here: write group = \"{section.group}\" in the schema")
        encoded = {column.name for column in Encoder.from_json(terms.encoder).columns} if terms.encoder else set[str]()
        if strange := sorted(encoded - {*told.inputs}):
            raise Refused(f"the column {strange[0]!r} is encoded, and the schema does not have it among the inputs")
        used = {*told.inputs, told.label, *told.keep, *filter(None, (told.group,))}
        if section.columns and (strange := sorted(used - {*section.columns})):
            raise Refused(f"the column {strange[0]!r} is not among those that may be used here")

    def _divided(self, key: _Key) -> tuple[Data, int, dict[str, int], int]:
        """This site's rows as clients have them, the number of classes, how many values columns have, and the label before it is binary."""
        terms, config = key.terms, key.terms.config()
        options: dict[str, Any] = {"seed": config.data.split_seed}
        if config.data.test_share is not None:
            options["test_share"] = config.data.test_share
        train, test, values = self._table(terms, options) if self.section.table else self._arrays(terms, options)
        owner, later = self._owners(train), self._owners(test) if len(test) else None
        rest = None if later is None else Data.by_site(sites_fields(test), later.tolist())
        data = divide(config, train, owner, terms.split, {"test": rest if rest is None else rest.of_clients({*owner.tolist()})},
                      all_here=False)
        if terms.part == "columns":
            data = raw_rows(train.rows, data, _say) if train.rows is not None else _raw_labels(data, train.classes)
        elif train.rows is not None:
            data = Encoding(Encoder.from_json(terms.encoder or {}), train.rows, _say).of(data)
        declared = {} if train.rows is None else train.rows.schema.declared
        return data, len(train.classes), {name: len(own) for name, own in declared.items()}, values

    def _stamps(self) -> tuple[tuple[str, int, int], ...]:
        files = [file for path in self._paths() for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()]
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)

    def _owners(self, table: Table) -> NDArray[np.str_]:
        return by_column(table.values("site")) if "site" in table.fields else np.full(len(table), self.name)

    def _table(self, terms: Terms, options: dict[str, Any]) -> tuple[Table, Table, int]:
        schema, section = schemas.from_tree(terms.schema or {}, "the server's schema"), self.section
        schema = replace(schema, site=section.site)
        own = Dialect(header=section.header or (None if schema.header is True else schema.header))  # files are written in ways of their own
        sheet = read_sheets([self.beside / path for path in section.tables], own, "file")
        later = None if section.test is None else read_sheets([self.beside / section.test], own)
        rows = make_rows(sheet, schema, name=Path(section.tables[0]).stem, test=later, site=self.name, **options)
        for note in (*sheet.notes, *rows.notes):
            _say(note)
        train, test = unencoded(rows)
        values = len(train.classes)
        if len(train.classes) > 2 and schema.positive:
            train, test = train.binary(schema.positive), test.binary(schema.positive)
        return train, test, values

    def _arrays(self, terms: Terms, options: dict[str, Any]) -> tuple[Table, Table, int]:
        section = self.section
        if section.npz is not None:
            test = None if section.test is None else self.beside / section.test
            train, later = read_npz(self.beside / section.npz, terms.label or "labels", site=section.site, group=section.group, test=test,
                                    apart=self.name, **options)
        else:
            train, later = read_images(self.beside / (section.images or ""), terms.size, apart=self.name, **options)
        values = len(train.classes)
        if terms.classes:
            train, later = (_recoded(table, terms.classes) for table in (train, later))
            if terms.positive:
                train, later = (table.binary(_known(terms)) for table in (train, later))
        return train, later, values


@dataclass(frozen=True)
class _Key:
    """What rows are kept by: the terms, and when the files that they are in were written."""

    terms: Terms
    stamps: tuple[tuple[str, int, int], ...]

    def __hash__(self) -> int:
        return hash((repr(self.terms), self.stamps))


def _say(said: str) -> None:
    """What there is to say about cells is said here, to their owner, and not to the server."""
    LOG.warning("%s", shown(said))


def _refuse_single_rows(data: Data, named: tuple[Any, ...], rules: Rules) -> None:
    """Refuse columns of groups with many values of fewer than `min_batch` rows on average: what is told of a group would be of a row."""
    if found := Apart(data, rules.min_batch).among(named):
        raise Refused(f"the column {found[0]!r} is not one of groups here: its values have fewer than min_batch={rules.min_batch} rows "
                      "on average")


def _known(terms: Terms) -> Collection[str]:
    return [str(one) if str(one) in terms.classes else terms.classes[int(one)] for one in terms.positive]


def _recoded(table: Table, classes: tuple[str, ...]) -> Table:
    """The rows with their labels as places among the classes that all sites have."""
    strange = [name for name in table.classes if name not in classes]
    if strange:
        raise DataError(f"labels must be classes that the sites have agreed on ({', '.join(classes)}), but this one has {strange[0]!r}")
    place = torch.tensor([classes.index(name) for name in table.classes])
    return replace(table, fields={**table.fields, "labels": place[table.fields["labels"]]}, classes=classes)


def _raw_labels(data: Data, classes: tuple[str, ...]) -> Data:
    """The rows of arrays as those who agree on classes and on the form of inputs have them."""
    names = name_bytes(classes)
    texts = torch.from_numpy(names)[data.fields["labels"]][:, None]
    nothing = torch.zeros(len(texts), 0, dtype=torch.float64)
    return Data({"values": nothing, "there": nothing.to(torch.uint8), "texts": texts, "inputs": data.fields["inputs"],
                 "labels": data.fields["labels"]}, data.names, data.sizes, data.splits)
