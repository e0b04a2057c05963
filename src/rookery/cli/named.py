"""What a description can name besides algorithms and objectives, each with what is printed about it: data sets, nets, samplers, keys."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, get_args, get_type_hints

from rich.table import Table

from .console import console, escaped

if TYPE_CHECKING:
    from ..objectives.given import Entry
    from ..studies.keys import Key, Section


def named() -> dict[str, dict[str, Callable[[], None]]]:
    """By what they are and by their names: functions that print what is known about them."""
    from ..data.readers.facts import FACTS
    from ..studies.choices import SAMPLERS, ModelSection
    from ..studies.keys import sections
    from ..training.schedules import SCHEDULES

    nets = get_args(get_type_hints(ModelSection)["name"])
    found = sections()
    return {"data sets": {name: partial(data_set, name) for name in sorted(FACTS)},
            "nets": {name: partial(net, name) for name in nets},
            "samplers": {name: partial(chosen, name, cls, "a sampler") for name, cls in SAMPLERS.items()},
            "schedules": {name: partial(chosen, name, cls, "a schedule of step sizes") for name, cls in SCHEDULES.items()},
            "sections": {name: partial(section, one) for name, one in found.items()},
            "keys": {f"{one.section}.{one.name}": partial(key, one) for own in found.values() for one in own.keys.values()}}


def lines(said: Mapping[str, str]) -> None:
    """What there is to say, each after its name."""
    for what, text in said.items():
        if text:
            console.print(f"{what}: {text}", markup=False, soft_wrap=True)


def without_examples(text: str) -> str:
    """A docstring without its lines of Python."""
    return "\n\n".join(part for part in text.split("\n\n") if not part.lstrip().startswith(">>>"))


def entries(first: str, said: Mapping[str, Entry]) -> None:
    """A table of entries, what they may be, and their defaults."""
    from ..studies.keys import as_toml, what_it_is

    table = Table(escaped(first), "what it is", "default")
    for name, entry in said.items():
        table.add_row(name, escaped(what_it_is(entry)), escaped(as_toml(entry.default)))
    if said:
        console.print(table)


def data_set(name: str) -> None:
    from ..data.folder import folder
    from ..data.readers.facts import FACTS

    facts = FACTS[name]
    console.print(f"{name} (a data set)", style="bold", markup=False)
    how = {"scikit-learn": "it comes with scikit-learn", "download": "it is downloaded from its publisher at its first use",
           "hand": "get it from its publisher and put it there by hand; ROOKERY_DATA names another folder to look in"}[facts.how]
    lines({"what it is": facts.about, "rows": facts.rows, "sites of its own": "" if facts.sites is None else str(facts.sites),
           "licence": facts.licence, "publisher": facts.publisher,
           "looked for": ", ".join(f"{folder() / file}{'' if (folder() / file).exists() else ' (not there)'}" for file in facts.files),
           "how to get it": how, "in a description": f'[data] name = "{name}"'})


def net(name: str) -> None:
    from .. import models
    from ..studies.choices import ModelSection
    from ..studies.description import model_section
    from ..studies.values import entries_of

    console.print(f"{name} (a net)", style="bold", markup=False)
    console.print(without_examples(inspect.getdoc(getattr(models, name, None)) or "One linear layer on the flattened input."), markup=False)
    flat = name in ("linear", "mlp")
    shape = (20,) if flat else (3, 32, 32)
    size = sum(parameter.numel() for parameter in model_section({"name": name}).net(shape, 10).parameters())
    if name == "mlp":
        entries("entry of [model]", {"hidden": entries_of(ModelSection)["hidden"]})
    lines({"inputs": "rows of any shape, which are flattened" if flat else "pictures, of channels × height × width",
           "parameters": f"{size} for {'20 numbers a row' if flat else 'pictures of 3 × 32 × 32'} and 10 classes",
           "in a description": f'[model] name = "{name}"'})


def chosen(name: str, cls: type, what: str) -> None:
    """A class of Rookery's that is chosen by name, with its numbers."""
    from ..studies.values import entries_of

    console.print(f"{name} ({what})", style="bold", markup=False)
    console.print(without_examples(inspect.getdoc(cls) or ""), markup=False)
    entries("entry", entries_of(cls))
    lines({"in a description": f'[objective] sampling = {{name = "{name}", …}}' if what == "a sampler" else
           f'[algorithm] lr = {{kind = "{name}", …}}'})


def section(one: Section) -> None:
    console.print(f"[{one.name}]", style="bold", markup=False)
    console.print(one.about, markup=False)
    table = Table("key", "what it is", "default", "what it does")
    for own in one.keys.values():
        table.add_row(own.name, escaped(own.what), escaped(own.default), escaped(own.sentence))
    console.print(table)


def key(one: Key) -> None:
    console.print(f"{one.section}.{one.name}", style="bold", markup=False)
    lines({"what it does": one.sentence, "what it is": one.what, "default": one.default})
