"""Every section and key of a description: what it may be, what holds where it is left out, and what it does.

All of it is read from the sections' own classes: types and defaults from their fields, the rest from their docstrings.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..objectives.given import REQUIRED, Entry
from .choices import ModelSection, ObjectiveSection
from .description import SECTIONS
from .values import entries_of, in_words, plain

ENTRY = re.compile(r"^(\w+):\s+(\S.*(?:\n\s+\S.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Key:
    """One key of a section: what it may be and its default, in words for people who write TOML, and what it does."""

    section: str
    name: str
    what: str
    default: str
    sentence: str


@dataclass(frozen=True)
class Section:
    """A section of a description: what it is about, and its keys by name."""

    name: str
    about: str
    keys: Mapping[str, Key]


@dataclass(frozen=True)
class AlgorithmSection:
    """[algorithm] the method by its name, with its hyper-parameters, as `rookery show NAME` prints them.

    name:   an algorithm by the name that its paper prints, or one's own as module:name
    epochs: local work as passes over a site's rows, in the place of local_steps where a method has these
    """

    name: str
    epochs: float | None = None


def sections() -> dict[str, Section]:
    """All sections, in the order in which a description is usually written.

    >>> key = sections()["run"].keys["rounds"]
    >>> key.what, key.default, key.sentence
    ('a whole number', '50', 'the number of rounds, those of the warm-up with them')
    """
    own = {"model": ModelSection, "objective": ObjectiveSection, "algorithm": AlgorithmSection}
    first = ("data", "sites", *own)
    classes = {**SECTIONS, **own}
    return {name: _section(name, classes[name]) for name in (*first, *(name for name in SECTIONS if name not in first))}


def as_toml(default: Any) -> str:
    """A default as a description would have it.

    >>> as_toml((32,)), as_toml(None), as_toml(REQUIRED), as_toml("last")
    ('[32]', 'left out', 'needed', '"last"')
    """
    if default is REQUIRED or default is None:
        return "left out" if default is None else "needed"
    return json.dumps(plain(default), ensure_ascii=False, default=str)


def _section(name: str, cls: type) -> Section:
    text = inspect.getdoc(cls) or ""
    sentences = {found[1]: " ".join(found[2].split()) for found in ENTRY.finditer(text)}
    about = ENTRY.sub("", text).removeprefix(f"[{name}] ").strip()
    entries = entries_of(cls)
    if cls is ObjectiveSection:  # what the name stands for is no entry of its own
        entries = {key: entry for key, entry in entries.items() if key in sentences}
    return Section(name, about, {key: Key(name, key, what_it_is(entry), as_toml(entry.default), sentences.get(key, ""))
                                 for key, entry in entries.items()})


def what_it_is(entry: Entry) -> str:
    """What an entry may be, in words; that it may be left out is said by its default."""
    words = in_words(entry.hint).removesuffix(" or left out")
    return "a sampler's name, or a table of its name and numbers" if words == "SamplingSection" else words
