"""A site's file: who it is, where it listens, where its rows are, and what may run on them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.store import Data
from ..errors import ConfigError
from ..problems.base import Problem
from ..studies.description import read_tree
from ..studies.modules import find
from ..studies.values import build_section, nearest
from .files import Files, RowsSection
from .host import Host, Own, Owner
from .rules import Rules


@dataclass(frozen=True)
class SiteSection:
    """[site] who this is, and where it is reached.

    name:         the site's, as the server knows it and as its certificate says
    listen:       where it listens: "host:port", or "unix:path" for a relay on the same machine
    certificates: the folder that the federation's server made for this site with `rookery site invite`
    folder:       where it keeps each run's log, secrets and checkpoints
    modules:      modules of one's own with algorithms that may run here, beside this file or on Python's path
    """

    name: str
    listen: str = "0.0.0.0:7443"
    certificates: str | None = None
    folder: str = "rookery-site"
    modules: tuple[str, ...] = ()


SECTIONS: dict[str, type[Any]] = {"site": SiteSection, "rows": RowsSection, "may": Rules}
EXAMPLES = {"site": 'name = "north"', "rows": 'table = "rows.csv"', "may": 'algorithms = ["FedAvg"]'}


@dataclass(frozen=True)
class SiteFile:
    """What a site's file says; paths are meant from where it lies."""

    site: SiteSection
    rows: RowsSection
    may: Rules
    beside: Path

    @property
    def folder(self) -> Path:
        return self.beside / self.site.folder

    @property
    def certificates(self) -> Path | None:
        return None if self.site.certificates is None else self.beside / self.site.certificates

    def owner(self) -> Owner:
        """Who says what a run is about here."""
        if self.rows.own is None:
            return Files(self.site.name, self.rows, self.site.modules, self.beside)
        make = find(self.rows.own, "rows.own", self.beside)
        if not callable(make):
            raise ConfigError(f"rows.own is a function that returns a problem and data; {self.rows.own} is {type(make).__name__}")
        listens = bool(taken := inspect.signature(make).parameters)
        if len([each for each in taken.values() if each.default is each.empty]) > 1:
            raise ConfigError(f"rows.own takes nothing, or the server's words; {self.rows.own} takes {', '.join(taken)}")

        def made(asked: dict[str, Any]) -> tuple[Problem, Data]:
            found = make(asked) if listens else make()  # the words of its errors stay here
            if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Problem) and isinstance(found[1], Data)):
                raise ConfigError(f"rows.own returns a problem and data; {self.rows.own} returned {type(found).__name__}")
            return found[0], found[1]

        return Own(made)

    def host(self) -> Host:
        for module in self.site.modules:
            find(f"{module}:__name__", "site.modules", self.beside)
        self.may.check()
        return Host(self.site.name, self.owner(), self.may, self.folder, self.site.modules)


def read_site(file: Path) -> SiteFile:
    """A site's file, checked."""
    tree = read_tree(file)
    for name, table in tree.items():
        if name in SECTIONS and not isinstance(table, dict):
            raise ConfigError(f"{file} has {name} = {table!r}, and [{name}] is a section: write [{name}], and {EXAMPLES[name]} below it")
        if name not in SECTIONS:
            raise ConfigError(f"{file} has no section [{name}]; {nearest(name, list(SECTIONS))}It has {', '.join(SECTIONS)}")
    missing = [name for name in SECTIONS if name not in tree]
    if missing:
        raise ConfigError(f"{file} needs the section [{missing[0]}]: write [{missing[0]}], and {EXAMPLES[missing[0]]} below it")
    found = {name: build_section(cls, tree[name], name) for name, cls in SECTIONS.items()}
    return SiteFile(found["site"], found["rows"], found["may"], file.resolve().parent)
