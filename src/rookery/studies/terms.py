"""What a server says of a run to real sites: everything that their rows and their problem are made by, and nothing about where rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args, get_type_hints

from ..errors import ConfigError, RookeryError
from . import modules
from .description import Description, describe, parse
from .values import typed

PARTS = ("columns", "rows", "warm-up", "personal")
SECTIONS = {"data": ("validation", "test_share", "split_seed"), "federation": ("seed",), "algorithm": None, "objective": None,
            "model": None}
"""The sections of a description that sites are told of, and which of their entries."""


@dataclass(frozen=True)
class Terms:
    """The terms of a run, or of a part of it that has a federation of its own.

    part:    "columns" are rows before they are encoded, for what sites agree on; "rows" the run itself; "warm-up" and "personal" what
             goes before and after it
    run:     sections of the run's description
    seed, split: which rows are held out; all trials of a fit have the same, whatever seed they train with
    schema:  of tables: what the columns are, as JSON
    label:   of arrays: the array that is predicted
    size:    of pictures: the height and width that they are brought to
    encoder: of tables: what the sites have agreed on, as JSON
    classes: of arrays and pictures: the classes that the sites have agreed on
    names:   those of all clients
    sensitive, cells: of a fit about groups: their column, and what some training row has of class and group, which a column then numbers
    """

    part: str
    run: Mapping[str, Any]
    seed: int = 0
    split: int = 0
    schema: Mapping[str, Any] | None = None
    label: str | None = None
    size: int | None = None
    positive: tuple[int | str, ...] = ()
    encoder: Mapping[str, Any] | None = None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    sensitive: str | None = None
    cells: tuple[int, ...] = ()

    @classmethod
    def of(cls, config: Description, part: str, **more: Any) -> Terms:
        """Those of a description."""
        tree = describe(config)
        told = {section: {name: value for name, value in tree.get(section, {}).items() if names is None or name in names}
                for section, names in SECTIONS.items()}
        return cls(part, {section: table for section, table in told.items() if table}, **more)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Terms:
        """Those that came over a network."""
        hints = get_type_hints(cls)
        if told.keys() != hints.keys():
            raise ConfigError(f"the terms of a run are {', '.join(hints)}; got {', '.join(sorted(map(str, told)))}: install the same "
                              "version at the server and at the sites")
        values = {}
        for name, hint in hints.items():
            mapping = Mapping[str, Any] in (hint, *get_args(hint))
            if mapping and not (isinstance(told[name], dict) or (told[name] is None and hint != Mapping[str, Any])):
                raise ConfigError(f"{name} of a run's terms is a table; got {type(told[name]).__name__}")
            values[name] = told[name] if mapping else typed(told[name], hint, f"{name} of a run's terms")
        found = cls(**values)
        if found.part not in PARTS:
            raise ConfigError(f"the part of a run is one of {', '.join(PARTS)}; got {found.part!r}")
        for section, names in SECTIONS.items():
            table = found.run.get(section, {})
            if not isinstance(table, dict) or (names is not None and not table.keys() <= {*names}):
                raise ConfigError(f"[{section}] of a run's terms has {', '.join(names or ('entries',))}; got {table!r}")
        if odd := sorted(found.run.keys() - SECTIONS.keys()):
            raise ConfigError(f"a run's terms have the sections {', '.join(SECTIONS)}; got [{odd[0]}]")
        return found

    def own(self) -> list[str]:
        """What its description names as `module:name`, which is neither looked for nor imported here."""
        return sorted({word for word in _words(dict(self.run)) if modules.is_own(word)})

    def config(self) -> Description:
        """The description that sites go by; where their rows are, it does not say."""
        tree = {section: dict(table) for section, table in self.run.items()}
        tree["data"] = {**tree.get("data", {}), "schema": "the server's", "test_at": "sites"}
        try:
            return parse(tree)
        except RookeryError as error:
            raise ConfigError(f"the terms of this run: {error}") from None


def _words(value: Any) -> list[str]:
    """All texts of a table, whatever they are for."""
    if isinstance(value, dict | list):
        return [word for one in (value.values() if isinstance(value, dict) else value) for word in _words(one)]
    return [value] if isinstance(value, str) else []
