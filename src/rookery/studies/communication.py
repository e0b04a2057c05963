"""What an algorithm sends in a round, found by running it on a small problem of its kind and reading the ledger."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from itertools import product
from typing import Any, NamedTuple

from ..algorithms.base import Algorithm
from ..errors import AlgorithmError
from ..federation.federation import Federation
from ..federation.ledger import Line
from ..objectives.fastdro import WorstCase, fast_dro
from ..problems import testproblems as known
from ..problems.base import Problem
from ..problems.kinds import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization
from ..problems.pairwise import Pairwise
from ..problems.testproblems import TestProblem
from .modules import call

D, DY = 7, 3  # the lengths of x and y


class Communication(NamedTuple):
    """What an algorithm sends, with its defaults and two local steps."""

    algorithm: Algorithm[Any]
    lines: list[Line]  # the values that cross the network in its second round
    sent: list[str]  # results of its client functions that come up in its start and two rounds, as a site's file names them


def communication(cls: type[Algorithm[Any]]) -> Communication:
    """Found by running an algorithm on a small problem of its kind."""
    own = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    without = [f for f in own.values() if f.default is MISSING and f.default_factory is MISSING]
    needed = {f.name: DY if "int" in str(f.type) else 0.01 for f in without}
    usual = {name: value for name, value in {"local_steps": 2, "weights": DY}.items() if name in own}
    algorithm = call(cls, cls.__name__, **needed, **usual)
    for problem in small_problems(cls.solves):
        fed = Federation(problem.problem, problem.data, engine="loop")
        start = (problem.x0, problem.y0) if "y" in inspect.signature(algorithm.init).parameters else (problem.x0,)
        with fed.ledger.recording() as before:
            try:
                state = call(algorithm.init, cls.__name__, fed, *start)
            except AlgorithmError:  # of its kind, but not the right one
                continue
            state = call(algorithm.round, cls.__name__, fed, state)
        with fed.ledger.recording() as lines:
            algorithm.round(fed, state)
        up = dict.fromkeys(f"{cls.title or cls.__name__}.{line.what}" for line in [*before, *lines] if line.direction == "up")
        return Communication(algorithm, lines, list(up))
    raise AlgorithmError(f"none of the small problems fits {cls.title or cls.__name__}")


def small_problems(kind: type[Problem]) -> Iterator[TestProblem]:
    """Small problems of a kind: over two clients, with inner maps of the clients' own, of one client."""
    makers: dict[type[Problem], Callable[[tuple[int, ...]], TestProblem]] = {
        Minimization: lambda sizes: known.minimization(d=D, sizes=sizes), Conditional: lambda sizes: known.conditional(d=D, sizes=sizes),
        Compositional: lambda sizes: known.compositional(d=D, dg=DY, sizes=sizes),
        Minimax: lambda sizes: known.minimax(d=D, dy=DY, sizes=sizes), Bilevel: lambda sizes: known.bilevel(d=D, dy=DY, sizes=sizes),
        WorstCase: lambda sizes: replace(known.minimization(d=D, sizes=sizes), problem=fast_dro(
            lambda x, b: 0.5 * (b.a @ x - b.b).square(), "cvar", 0.5)),
        CompositionalMinimax: lambda sizes: known.compositional_minimax(d=D, dy=DY, sizes=sizes),
        Pairwise: lambda sizes: known.pairwise(d=D, sizes=sizes)}
    if kind not in makers:
        return
    two = makers[kind]((4, 4))
    yield two
    if isinstance(two.problem, Compositional):
        f = two.problem.f
        yield replace(two, problem=replace(two.problem, shared=False, f=lambda z, b: f(z)))
    yield makers[kind]((4,))


def as_formula(floats: int) -> str:
    """A number of floats in the lengths of x and y.

    >>> as_formula(7), as_formula(6), as_formula(31), as_formula(1)
    ('d', '2·d_y', 'd·d_y + d + d_y', '1')
    """
    sizes = {"d·d_y": D * DY, "d": D, "d_y": DY}
    for amounts in sorted(product(range(3), repeat=3), key=sum):
        if any(amounts) and sum(a * size for a, size in zip(amounts, sizes.values(), strict=True)) == floats:
            return " + ".join(name if a == 1 else f"{a}·{name}" for a, name in zip(amounts, sizes, strict=True) if a)
    return str(floats)
