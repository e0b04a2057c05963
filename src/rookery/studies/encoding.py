"""How the columns of tables become inputs: by a schema and an encoder that all sites agree on, in one place or at real sites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..data import Data
from ..data.tables.encoder import Category, Encoder, Say
from ..data.tables.kinds import spellings
from ..data.tables.rows import Rows
from ..data.tables.schema import Schema, read_schema
from ..errors import ConfigError
from ..federation.engine import choose
from ..federation.federation import Federation
from ..federation.ledger import Ledger
from .agreement import agree, raw_fields, raw_problem
from .description import Description


class Encoding:
    """All rows of a table encoded by what the sites agreed on; `say` is told about cells."""

    def __init__(self, encoder: Encoder, rows: Rows, say: Say) -> None:
        self.inputs = torch.from_numpy(encoder(rows.sheet, rows.schema, say))

    def of(self, data: Data) -> Data:
        """Rows whose inputs were their numbers."""
        splits = {name: None if rows is None else self.of(rows) for name, rows in data.splits.items()}
        return Data({**data.fields, "inputs": self.inputs[data.fields["inputs"]]}, data.names, data.sizes, splits)


def raw_rows(rows: Rows, data: Data, say: Say) -> Data:
    """The training rows before they are encoded; those that are held out are told of, and not used."""
    raw, at = raw_fields(rows.sheet, rows.schema, say), data.fields["inputs"]
    return Data({name: field[at] for name, field in raw.items()} | {"labels": data.fields["labels"]}, data.names, data.sizes, data.splits)


def agree_here(config: Description, rows: Rows, data: Data, ledger: Ledger) -> tuple[Encoder, list[str]]:
    """The sites' encoder: from sums over their training rows, and from names of categories; and what there is to say about cells."""
    section, notes = config.federation, list(rows.notes)
    own = raw_rows(rows, data, notes.append)
    fed = Federation(raw_problem(), own, engine=choose(section.engine), only_sums=section.only_sums, min_batch=section.min_batch,
                     seed=section.seed)
    return agreed_encoder(config, fed, rows.schema, ledger, notes), notes


def agreed_encoder(config: Description, fed: Federation[Any], schema: Schema, ledger: Ledger, notes: list[str]) -> Encoder:
    """What the clients of a federation over raw rows agree on; what there is to say about it is added to the notes."""
    encoder = agree(fed, schema, config.data.category_rows)
    ledger.absorb(fed.ledger)
    notes += [said for column in encoder.columns if isinstance(column, Category) and (said := spellings(column.name, column.categories))]
    shared = [column.name for column in encoder.columns if isinstance(column, Category) and column.other]
    if shared:
        notes.append(f"values of {', '.join(map(repr, shared[:6]))} that no site has {config.data.category_rows} training rows of share "
                     "one column each, \"other\": declare them under categories in the schema to tell them apart")
    empty = next((c for c in encoder.columns if isinstance(c, Category) and not c.categories), None)
    if empty is not None:
        notes.append(f"no site has {config.data.category_rows} training rows of any value of {empty.name!r}, which says nothing then: "
                     "declare its categories in the schema, or lower data.category_rows")
    return encoder


def agreed_schema(config: Description) -> Schema:
    """The schema that the server gives to all sites: with classes, and with the values of columns that are kept."""
    data = config.data
    if data.schema is None:
        raise ConfigError("real sites must read their tables alike, by a schema: write one with rookery look, correct it, and name it in "
                          "[data] schema = \"schema.toml\"")
    schema = read_schema(data.schema)
    if data.label not in (None, schema.label):
        raise ConfigError(f"[data] label = \"{data.label}\" is not what {data.schema} says, label = \"{schema.label}\", by which real "
                          "sites read their tables: correct one of them")
    schema = replace(schema, keep=(*schema.keep, *(name for name in data.keep if name not in schema.keep)),
                     group=data.group or schema.group, positive=tuple(map(str, data.positive)) or schema.positive)
    if len(schema.classes) < 2:
        raise ConfigError(f"real sites must agree on classes: write classes = [\"…\", \"…\"] into {data.schema}, those of {schema.label!r}")
    if len(schema.classes) == 2 and not schema.positive:
        raise ConfigError(f"which of {schema.classes[0]!r} and {schema.classes[1]!r} is the positive class? Write positive = "
                          f"[\"{schema.classes[1]}\"] into {data.schema}, or the other one")
    lacking = next((name for name in schema.keep if name not in schema.declared), None)
    if lacking is not None:
        raise ConfigError(f"the column {lacking!r} is kept, and its values are numbered alike at all sites: declare them in {data.schema}, "
                          f"as in [columns.{lacking}] categories = [\"…\"]")
    classes = tuple(sorted(schema.classes, key=lambda name: name in schema.positive)) if len(schema.classes) == 2 else schema.classes
    return replace(schema, classes=classes)
