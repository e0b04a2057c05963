"""The keys of a description as Markdown tables, from the package itself: the page reference/keys.md has a mark where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MARK = "<!-- the keys, from the code -->"


def with_keys(markdown: str) -> str:
    """A page with the tables in the place of its mark."""
    return markdown.replace(MARK, "\n\n".join(_parts())) if MARK in markdown else markdown


def _parts() -> list[str]:
    # only here: the other pages do without torch
    from rookery.objectives import objectives
    from rookery.studies import algorithms
    from rookery.studies.choices import SAMPLERS
    from rookery.studies.keys import sections
    from rookery.studies.values import entries_of
    from rookery.training.schedules import SCHEDULES

    parts = []
    for section in sections().values():
        rows = [(f"`{key.name}`", key.what, f"`{key.default}`", key.sentence) for key in section.keys.values()]
        parts += [f"## {section.name}", f"`[{section.name}]` {section.about}",
                  _table(("key", "what it is", "default", "what it does"), rows)]
    for title, owners in (("Hyper-parameters of the algorithms", {name: entries_of(cls) for name, cls in algorithms().items()}),
                          ("Entries of the objectives", {name: dict(one.entries) for name, one in objectives().items()}),
                          ("Numbers of the samplers", {name: entries_of(cls) for name, cls in SAMPLERS.items()}),
                          ("Numbers of the schedules", {name: entries_of(cls) for name, cls in SCHEDULES.items()})):
        rows = [(name, _entries(own)) for name, own in sorted(owners.items(), key=lambda item: item[0].lower())]
        parts += [f"## {title}", _table(("name", "entries, what each may be, and its default"), rows)]
    return parts


def _entries(own: Mapping[str, Any]) -> str:
    from rookery.studies.keys import as_toml, what_it_is

    return "; ".join(f"`{name}`: {what_it_is(entry)}, `{as_toml(entry.default)}`" for name, entry in own.items()) or "none"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
