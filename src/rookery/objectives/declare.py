"""What an objective says about itself, once: from `@objective(…)` come its section of a description, its checks and its page in `show`.

A decorated function is called from Python as any other. In a description, its parameters are of two kinds, told apart by their names:

    model, losses, loss, scores, classes            the run gives these, see `given.SUPPLIED`
    groups beside field, features and width         and these
    kind, where it is annotated as type[Problem]    and this: what the algorithm solves, for objectives that have several forms
    all others that TOML can write                  entries of the section, with the signature's types and defaults

`field` and `label` name columns of the rows; `groups` is the number of values in the column `field`. A column `site` holds each row's
client. Parameters that TOML cannot write stay Python's. A function of one's own that is not decorated is taken as `@objective()` would.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from ..data.sampling import Sampler
from ..data.store import Data
from ..errors import ConfigError, ProblemError
from ..problems.base import Problem
from ..problems.model import Model
from .given import MODEL, REQUIRED, SUPPLIED, Column, Entry, Given, Start

RowScores = Callable[[Tensor, Mapping[str, Tensor], Mapping[str, Any]], dict[str, float]]


@dataclass(frozen=True)
class RowCounts:
    """An objective's own scores as sums, which clients add up: how many numbers a row has, these numbers, and the scores of their sum.

    The entries are those of the objective's section, and `groups` where it has a `field`.
    """

    width: Callable[[Mapping[str, Any]], int]
    rows: Callable[[Tensor, Mapping[str, Tensor], Mapping[str, Any]], Tensor]  # of outputs, fields and entries: (rows, width)
    finish: Callable[[Tensor, Mapping[str, Any]], dict[str, float]]  # what the sums do not define is absent


@dataclass(frozen=True, eq=False)
class Objective:
    """An objective with all that it says about itself; see `objective`."""

    function: Callable[..., Problem]
    metric: str = "loss"
    x: Start = MODEL
    y: Start | None = None
    trained: Literal["x", "y", "x and y"] = "x"
    columns: Sequence[Column] = ()
    two_classes: bool = False
    metrics: Sequence[str] = ()
    scores: RowScores | None = None
    counts: RowCounts | None = None
    report: Callable[..., dict[str, float]] | None = None
    through: Callable[..., Problem] | None = None
    net: Callable[[tuple[int, ...]], nn.Module] | None = None
    adapts: str | None = None

    @property
    def name(self) -> str:
        own = self.function.__module__.startswith("rookery.")
        return self.function.__name__ if own else f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def text(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def kinds(self) -> tuple[type[Problem], ...]:
        """The kinds of problem that it may return, from its annotation."""
        found = get_type_hints(self.function).get("return", Problem)
        return tuple(kind for kind in get_args(found) or (found,) if isinstance(kind, type) and issubclass(kind, Problem))

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """What its section of a description has."""
        inner = declared(self.through).entries if self.through is not None else {}
        made = {name: entry for column in self.columns for name, entry in column.entries.items()}
        own = inner | self._own | made
        if own.get("field", Entry(str)).default == "group":  # in a description that is the column which splits do not cut
            own["field"] = Entry(str)
        return own

    @cached_property
    def _own(self) -> dict[str, Entry]:
        return written(self.function, {*self._supplied, "sampling", "problem"})

    @property
    def _supplied(self) -> list[str]:
        """What a run gives; `groups` and `width` mean what they say beside the parameters that they belong to only, `kind` as a class."""
        lone = {name for name, beside in (("groups", "field"), ("width", "features")) if beside not in self.parameters}
        if "kind" in self.parameters and get_origin(get_type_hints(self.function).get("kind")) is not type:
            lone.add("kind")
        return [name for name in SUPPLIED if name not in lone]

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All entries, with defaults for those that were not given."""
        return {name: values.get(name, entry.default) for name, entry in self.entries.items()}

    def check_classes(self, classes: int) -> None:
        if self.two_classes and classes != 2:
            raise ConfigError(f"objective.name = \"{self.name}\" needs two classes, there are {classes}: name the positive ones in "
                              "[data] positive = [\"…\"]")

    def rows(self, data: Data, entries: Mapping[str, Any], seed: int, names: Sequence[str] | None = None) -> Data:
        """The clients' rows with the columns that it reads; `names` are those of all clients, also of those that are elsewhere."""
        made = {column.name: column.make(data, entries, seed) for column in self.columns if column.name not in data.fields}
        data = Data(data.fields | made, data.names, data.sizes) if made else data
        return with_site(data, names or data.names) if "site" in (entries.get("field"), entries.get("label")) else data

    def problem(self, given: Given, sampling: Sampler | None = None, batch: int | None = None) -> Problem:
        """The problem. `sampling` says how clients draw; `batch` is the number of rows that an algorithm will ask for, if it is known."""
        for named in {"field", "label"} & given.entries.keys() if given.data.fields else ():  # real sites look at their own
            given.column(given.entries[named], named)
        if sampling is None and batch is not None:
            sampling = next((column.sampler(given.data, batch) for column in self.columns if column.sampler is not None), None)
        arguments: dict[str, Any] = {name: SUPPLIED[name](given) for name in self._supplied if name in self.parameters}
        for name, entry in self._own.items():
            value = given.entries[name]
            arguments[name] = given.vector.new_tensor(value) if entry.vector and isinstance(value, tuple) else value
        if self.through is not None:
            # an entry of the same name is the outer one's
            inner = replace(given, entries=declared(self.through).complete({n: v for n, v in given.entries.items() if n not in self._own}))
            arguments["problem"], sampling = declared(self.through).problem(inner, sampling), None
        if sampling is not None:
            if "sampling" not in self.parameters and not self._options:
                raise ConfigError(f"{self.name} has no parameter `sampling` to hand on: give it one, or leave objective.sampling out")
            arguments["sampling"] = sampling
        if self._options and not {"model", "scores", "features"} & self.parameters.keys():
            arguments["model"] = given.model
        problem = self.function(**arguments)
        if not isinstance(problem, Problem):
            raise ConfigError(f"an objective returns a problem, such as Minimization(f); {self.name} returned {type(problem).__name__}")
        return _with_model(problem, given.model)

    @property
    def _options(self) -> bool:
        return any(p.kind is p.VAR_KEYWORD for p in self.parameters.values())

    def trained_parameters(self, x: Tensor, y: Tensor | None, size: int) -> Tensor:
        """The model's parameters in a state's x and y."""
        if self.trained == "x":
            return x[:size]
        if y is None:
            raise ConfigError(f"{self.name} trains its model in y, and the algorithm's state has no y")
        return y[:size] if self.trained == "y" else torch.cat([x, y])


_DECLARED: dict[Callable[..., Problem], Objective] = {}
F = TypeVar("F", bound=Callable[..., Problem])


def objective(*, metric: str = "loss", x: Start = MODEL, y: Start | None = None, trained: Literal["x", "y", "x and y"] = "x",
              columns: Sequence[Column] = (), two_classes: bool = False, metrics: Sequence[str] = (), scores: RowScores | None = None,
              counts: RowCounts | None = None, report: Callable[..., dict[str, float]] | None = None,
              through: Callable[..., Problem] | None = None, net: Callable[[tuple[int, ...]], nn.Module] | None = None,
              adapts: str | None = None) -> Callable[[F], F]:
    """Declare a function that returns a problem as an objective; the function stays as it is.

    metric:      the score of validation and test rows that it is for
    x, y:        where the variables start; y where the problem has a second one
    trained:     which of them holds the model's parameters, by which rows are scored
    columns:     what it reads of the rows beside inputs and labels
    two_classes: whether it is for two classes only
    metrics, scores: further scores of rows with the model's outputs, by name, and the function that gives those it can
    counts:      the same scores from sums that clients add up; without them, the clients' scores of their own rows are averaged
    report:      numbers of the whole federation for every evaluation, from (fed, x, y)
    through:     another objective, whose problem is this one's parameter `problem`; its entries come along
    net:         the net that it needs instead of the description's, from the shape of a row
    adapts:      for a start that clients adapt to their own rows: the entry that holds the size of their steps
    """
    def keep(function: F) -> F:
        _DECLARED[function] = Objective(function, metric, x, y, trained, columns, two_classes, metrics, scores, counts, report, through,
                                        net, adapts)
        return function

    return keep


def declared(function: Callable[..., Problem]) -> Objective:
    """What a function says about itself, decorated or not."""
    return _DECLARED.setdefault(function, Objective(function))


def objectives() -> dict[str, Objective]:
    """Rookery's own objectives by name."""
    return {o.name: o for o in sorted(_DECLARED.values(), key=lambda o: o.name) if ":" not in o.name}


def find_objective(name: str) -> Objective:
    """An objective by its name, Rookery's or one's own that has been imported."""
    found = next((o for o in _DECLARED.values() if o.name == name), None)
    if found is None:
        raise ProblemError(f"there is no objective {name!r} here; import its module first")
    return found


def _with_model(problem: Problem, model: Model) -> Problem:
    """The problem with the model that rows are scored by, and that engines read from what they may do, unless it has another for that."""
    finish = problem.finish
    return replace(problem, model=problem.model or model, predictor=model,
                   finish=None if finish is None else lambda total: _with_model(finish(total), model))


def with_site(data: Data, names: Sequence[str]) -> Data:
    """The rows with a column `site`: the place of their client's name among `names`."""
    place = np.repeat([names.index(name) for name in data.names], data.sizes)
    return Data(data.fields | {"site": torch.from_numpy(place)}, data.names, data.sizes)


def written(function: Callable[..., Any], given: set[str]) -> dict[str, Entry]:
    """The parameters of a function that TOML can write, without those that are given: by annotation, or else by their default's type."""
    hints = get_type_hints(vars(function).get("__init__", function) if isinstance(function, type) else function)
    found = dict[str, Entry]()
    for name, parameter in inspect.signature(function).parameters.items():
        if name in given or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        hint = hints.get(name, type(parameter.default) if parameter.default not in (REQUIRED, None) else None)
        vector, hint = Tensor in (hint, *get_args(hint)), _writable(hint)
        if hint is None and parameter.default is REQUIRED:
            raise ProblemError(f"{function.__qualname__}: the parameter {name!r} is neither what a run gives ({', '.join(sorted(given))}) "
                               f"nor something that a description can say: annotate it, as in {name}: float, or give it a default")
        if hint is not None:
            found[name] = Entry(hint, parameter.default, vector)
    return found


def _writable(hint: Any) -> Any:
    """The part of a type that TOML can write, a vector as a list of numbers; None where there is none."""
    if hint is Tensor:
        return tuple[float, ...]
    if get_origin(hint) in (Union, types.UnionType):
        some = [part for part in map(_writable, get_args(hint)) if part is not None]
        return Union[tuple(some)] if any(part is not types.NoneType for part in some) else None  # noqa: UP007
    plain = hint in (float, int, bool, str, types.NoneType) or get_origin(hint) is Literal
    return hint if plain or (get_origin(hint) is tuple and _writable(get_args(hint)[0]) is not None) else None
