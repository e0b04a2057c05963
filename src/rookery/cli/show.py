"""The commands `rookery list` and `show`: what there is to name in a description, and what each says about itself."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..errors import RookeryError
from .console import app, console, escaped
from .named import entries, lines, named, without_examples

if TYPE_CHECKING:
    from ..algorithms.base import Algorithm
    from ..federation.ledger import Line
    from ..objectives.declare import Objective


@app.command(name="list")
def list_all() -> None:
    """What a description can name: algorithms, as their papers print them, objectives, data sets, nets, samplers, sections."""
    from ..objectives.declare import objectives
    from ..studies.description import algorithms

    table = Table("algorithm", "solves", "what it does")
    for title, cls in sorted(algorithms().items(), key=lambda item: item[0].lower()):
        table.add_row(title, cls.solves.__name__, escaped((inspect.getdoc(cls) or "").split("\n")[0]))
    console.print(table)
    table = Table("objective", "kind", "metric", "what it is")
    for name, objective in objectives().items():
        table.add_row(name, _kinds(objective), objective.metric, escaped(objective.text.split("\n")[0]))
    console.print(table)
    table = Table("also", "names")
    for what, own in named().items():
        if what != "keys":
            table.add_row(what, ", ".join(own))
    console.print(table)
    console.print("What is your own is named as module:name. `rookery show NAME` says more about each, `rookery show run.every` of a key.",
                  markup=False)


def _completions(incomplete: str) -> list[str]:
    """Names of algorithms and objectives, read from the sources: to import them takes seconds."""
    found = []
    for folder, pattern in (("algorithms", r'^    title: ClassVar\[str\] = "([^"]+)"$'), ("objectives", r"^@objective\(.*?^def (\w+)\(")):
        for file in (Path(__file__).parents[1] / folder).rglob("*.py"):
            found += re.findall(pattern, file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return sorted(name for name in found if name.startswith(incomplete))


@app.command()
def show(name: Annotated[str, typer.Argument(help="a name that `rookery list` prints, a key such as run.every, or module:name",
                                             autocompletion=_completions)]) -> None:
    """What is known of an algorithm, an objective, a data set, a net, a sampler, a section or a key of a description."""
    from ..algorithms.base import Algorithm
    from ..objectives.declare import declared, objectives
    from ..studies import modules
    from ..studies.description import algorithms, find_algorithm
    from ..studies.values import nearest

    if modules.is_own(name):
        found = modules.find(name, "show", Path())
        if isinstance(found, type) and issubclass(found, Algorithm):
            _algorithm(find_algorithm(name, Path()))
        elif inspect.isfunction(found):
            _objective(name, declared(found))
        else:
            console.print(name, style="bold")
            console.print(inspect.getdoc(found) or "", markup=False)
        return
    known: dict[str, Callable[[], None]] = {title: partial(_algorithm, cls) for title, cls in algorithms().items()}
    known |= {title: partial(_objective, title, objective) for title, objective in objectives().items()}
    for own in named().values():
        known |= own
    lower = {word.lower(): tell for word, tell in known.items()}
    if name.lower() in lower:
        lower[name.lower()]()
    elif not _owners(name):
        raise RookeryError(f"there is nothing called {name!r} to show; {nearest(name, list(known))}`rookery list` prints what there is")


def _owners(name: str) -> bool:
    """Print whose entry a key of [algorithm] or [objective] is; whether there is such a one."""
    from ..objectives.declare import objectives
    from ..studies.description import algorithms
    from ..studies.values import entries_of

    section, _, key = name.partition(".")
    whole = {"algorithm": lambda: {title: entries_of(cls) for title, cls in algorithms().items()},
             "objective": lambda: {title: dict(objective.entries) for title, objective in objectives().items()}}
    owners = {title: said[key] for title, said in whole.get(section, dict)().items() if key in said}
    if owners:
        console.print(f"{key} is an entry of these; `rookery show NAME` says what it does there", markup=False)
    entries(section, dict(sorted(owners.items(), key=lambda item: item[0].lower())))
    return bool(owners)


def _algorithm(found: type[Algorithm[Any]]) -> None:
    from ..studies.communication import communication
    from ..studies.values import entries_of

    console.print(found.title or found.__name__, style="bold")
    console.print(without_examples(inspect.getdoc(found) or ""), markup=False)
    console.print()
    console.print((inspect.getdoc(inspect.getmodule(found)) or "").strip(), style="dim", markup=False)
    entries("hyper-parameter", entries_of(found))
    try:
        algorithm, lines, sent = communication(found)
    except RookeryError as error:
        console.print(f"what crosses the network is not known: {error}", markup=False)
        return
    steps = f", {algorithm.local_steps} local steps" if hasattr(algorithm, "local_steps") else ""
    table = Table("exchange", "down to each client", "up from each client", title=f"one round{steps}; d and d_y are the lengths of x and y")
    for number, (_, group) in enumerate(groupby(lines, key=lambda line: line.exchange), 1):
        crossed = list(group)
        table.add_row(str(number), *(_side(crossed, direction) for direction in ("down", "up")))
    console.print(table)
    console.print(f"values = {json.dumps(sent)}  # under [may] in a site's file: what it sends with these hyper-parameters", markup=False,
                  soft_wrap=True)


def _objective(name: str, objective: Objective) -> None:
    from ..studies.description import algorithms

    console.print(f"{name} ({_kinds(objective)})", style="bold")
    console.print(without_examples(objective.text), markup=False)
    console.print()
    entries("entry of [objective]", objective.entries)
    fitting = sorted(title for title, cls in algorithms().items() if any(issubclass(kind, cls.solves) for kind in objective.kinds))
    lines({"x starts at": objective.x.text, "y starts at": objective.y.text if objective.y else "", "it is for": objective.metric,
           "its rows need": "two classes" if objective.two_classes else "",
           **{f"column {column.name}": column.text for column in objective.columns},
           "algorithms": ", ".join(fitting)})


def _kinds(objective: Objective) -> str:
    from ..problems import kinds, pairwise

    own = [base.__name__ for kind in objective.kinds for base in kind.__mro__ if base.__module__ in (kinds.__name__, pairwise.__name__)]
    return " or ".join(dict.fromkeys(own)) or "Problem"


def _side(lines: list[Line], direction: str) -> str:
    from ..studies.communication import as_formula

    return ", ".join(f"{as_formula(line.floats)} ({line.what})" for line in lines if line.direction == direction) or "–"
