"""The commands `rookery list` and `show`: what there is to name in a description, and what each says about itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..errors import RookeryError
from .console import app, console, escaped

if TYPE_CHECKING:
    from ..algorithms.base import Algorithm
    from ..federation.ledger import Line
    from ..objectives.declare import Objective


@app.command(name="list")
def list_all() -> None:
    """The algorithms, as their papers print them, and the objectives a description can name."""
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
    console.print("What is your own is named as module:name. `rookery show NAME` says more about each.", markup=False)


@app.command()
def show(name: Annotated[str, typer.Argument(help="an algorithm or objective, as `rookery list` prints it, or module:name")]) -> None:
    """What an algorithm or an objective says about itself: formula, paper, entries; what crosses the network, what it needs of the rows."""
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
    known = {title.lower(): cls for title, cls in algorithms().items()}
    if name.lower() in known:
        _algorithm(known[name.lower()])
    elif name in objectives():
        _objective(name, objectives()[name])
    else:
        words = [*algorithms(), *objectives()]
        raise RookeryError(f"there is no algorithm or objective {name!r}; {nearest(name, words)}`rookery list` prints them")


def _algorithm(found: type[Algorithm[Any]]) -> None:
    from ..studies.communication import communication

    console.print(found.title or found.__name__, style="bold")
    console.print(inspect.getdoc(found) or "", markup=False)
    console.print()
    console.print((inspect.getdoc(inspect.getmodule(found)) or "").strip(), style="dim", markup=False)
    table = Table("hyper-parameter", "type", "default")
    for f in fields(found):  # type: ignore[arg-type]
        written = f.type if isinstance(f.type, str) else getattr(f.type, "__name__", str(f.type))
        table.add_row(f.name, escaped(written), "needed" if f.default is MISSING else str(f.default))
    console.print(table)
    try:
        algorithm, lines = communication(found)
    except RookeryError as error:
        console.print(f"what crosses the network is not known: {error}", markup=False)
        return
    steps = f", {algorithm.local_steps} local steps" if hasattr(algorithm, "local_steps") else ""
    table = Table("exchange", "down to each client", "up from each client", title=f"one round{steps}; d and d_y are the lengths of x and y")
    for number, (_, group) in enumerate(groupby(lines, key=lambda line: line.exchange), 1):
        crossed = list(group)
        table.add_row(str(number), *(_side(crossed, direction) for direction in ("down", "up")))
    console.print(table)


def _objective(name: str, objective: Objective) -> None:
    from ..objectives.given import REQUIRED
    from ..studies.description import algorithms
    from ..studies.values import in_words

    console.print(f"{name} ({_kinds(objective)})", style="bold")
    console.print(_without_examples(objective.text), markup=False)
    console.print()
    table = Table(escaped("entry of [objective]"), "what it is", "default")
    for entry, said in objective.entries.items():
        table.add_row(entry, escaped(in_words(said.hint)), "needed" if said.default is REQUIRED else str(said.default))
    if objective.entries:
        console.print(table)
    fitting = sorted(title for title, cls in algorithms().items() if any(issubclass(kind, cls.solves) for kind in objective.kinds))
    _lines({"x starts at": objective.x.text, "y starts at": objective.y.text if objective.y else "", "it is for": objective.metric,
            "its rows need": "two classes" if objective.two_classes else "",
            **{f"column {column.name}": column.text for column in objective.columns},
            "algorithms": ", ".join(fitting)})


def _without_examples(text: str) -> str:
    """A docstring without its lines of Python."""
    return "\n\n".join(part for part in text.split("\n\n") if not part.lstrip().startswith(">>>"))


def _lines(said: Mapping[str, str]) -> None:
    for what, text in said.items():
        if text:
            console.print(f"{what}: {text}", markup=False)


def _kinds(objective: Objective) -> str:
    from ..problems import kinds, pairwise

    own = [base.__name__ for kind in objective.kinds for base in kind.__mro__ if base.__module__ in (kinds.__name__, pairwise.__name__)]
    return " or ".join(dict.fromkeys(own)) or "Problem"


def _side(lines: list[Line], direction: str) -> str:
    from ..studies.communication import as_formula

    return ", ".join(f"{as_formula(line.floats)} ({line.what})" for line in lines if line.direction == direction) or "–"
