"""Every key of a description: explained, with the type and the default that reading a description has."""

from __future__ import annotations

import runpy
from dataclasses import fields
from pathlib import Path

import pytest
from running import GOOD, changed

from rookery.errors import ConfigError
from rookery.objectives import objectives
from rookery.studies import algorithms, parse
from rookery.studies.choices import SAMPLERS
from rookery.studies.description import SECTIONS, Description
from rookery.studies.keys import ENTRY, Key, sections

KEYS = [key for section in sections().values() for key in section.keys.values()]


def test_every_section_of_a_description_is_there() -> None:
    assert set(sections()) == {f.name for f in fields(Description)} - {"metrics"}
    assert all(section.about and section.keys for section in sections().values())


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.section}.{key.name}")
def test_every_key_has_a_sentence_and_is_known_where_descriptions_are_read(key: Key) -> None:
    assert len(key.sentence.split()) >= 3
    assert key.what
    with pytest.raises(ConfigError) as caught:  # of a type that no key has
        parse(changed(**{key.section: {key.name: {"a": [{}]}}}))
    assert "has no entry" not in str(caught.value)


def test_a_docstring_explains_no_key_that_is_not_there() -> None:
    for name, cls in SECTIONS.items():
        assert {found[1] for found in ENTRY.finditer(cls.__doc__ or "")} <= set(sections()[name].keys)


def test_defaults_are_those_of_a_description_that_says_nothing() -> None:
    config = parse(GOOD)
    for key in sections()["federation"].keys.values():
        value = getattr(config.federation, key.name)
        assert key.default == ("left out" if value is None else f'"{value}"' if isinstance(value, str) else str(value).lower())
    assert "FedAvg" in algorithms()
    assert sections()["algorithm"].keys["name"].default == "needed"


def test_the_page_of_the_reference_has_every_key_and_name() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs"
    writer = runpy.run_path(str(folder / "_mkdocs" / "toml_keys.py"))
    page = (folder / "reference" / "keys.md").read_text(encoding="utf-8")
    assert page.count(writer["MARK"]) == 1
    written = writer["with_keys"](page)
    for key in KEYS:
        assert f"| `{key.name}` | {key.what} | `{key.default}` | {key.sentence} |" in written
    assert not [name for name in (*algorithms(), *objectives(), *SAMPLERS) if f"| {name} | " not in written]
    assert writer["with_keys"]("another page") == "another page"
