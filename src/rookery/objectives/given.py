"""What a run gives to an objective, what an objective may ask of the rows, and where its variables may start."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..data.sampling import Sampler
from ..data.store import Data
from ..errors import ConfigError
from ..problems.base import Problem
from ..problems.model import Model

REQUIRED = inspect.Parameter.empty  # the default of an entry that has none


@dataclass(frozen=True)
class Entry:
    """An entry of a section: what it may be, and what it is where it is left out."""

    hint: Any
    default: Any = REQUIRED
    vector: bool = False  # whether the list that was written is handed on as a tensor


@dataclass(frozen=True, eq=False)
class Given:
    """What a run gives to an objective: the model and its parameters at the start, the clients' rows, the section's entries, and the
    kind of problem that the algorithm solves, `Problem` where any will do.
    """

    model: Model
    vector: Tensor
    data: Data
    classes: int
    entries: Mapping[str, Any] = field(default_factory=dict)
    kind: type[Problem] = Problem
    counts: Mapping[str, int] = field(default_factory=dict)  # how many values columns have, of those that everybody agrees on

    def count(self, column: str) -> int:
        """How many values a column of whole numbers has, counted from 0."""
        if column in self.counts:
            return self.counts[column]
        if not self.data.fields:
            raise ConfigError(f"objective.field is {column!r}, whose values real sites must agree on: keep the column in the schema, and "
                              f"declare them there under categories; those that are, are {', '.join(sorted(self.counts))}")
        values = self.column(column)
        if values.dim() != 1 or values.is_floating_point():
            raise ConfigError(f"objective.field is {column!r}, which must number groups: one whole number a row, from 0; it holds "
                              f"{values.dtype} of shape {tuple(values.shape)}")
        return self.classes if column == "labels" else int(values.max()) + 1

    def column(self, name: str, entry: str = "field") -> Tensor:
        if name not in self.data.fields or name == "inputs":
            have = ", ".join(sorted({*self.data.fields, "site"} - {"inputs"}))
            raise ConfigError(f"objective.{entry} is {name!r}, which the rows do not have; they have {have}. Further columns of a csv file "
                              "are named in [data] keep = [\"…\"]")
        return self.data.fields[name]

    @cached_property
    def body(self) -> tuple[Model, nn.Linear]:
        """The net without its last layer, and that layer."""
        layers = list(self.model.net) if isinstance(self.model.net, nn.Sequential) else []
        if not layers or not isinstance(layers[-1], nn.Linear) or layers[-1].bias is None:
            raise ConfigError("an objective on features and a head cuts off the net's last layer: the net must be an nn.Sequential that "
                              "ends in nn.Linear with a bias")
        body = nn.Sequential(*layers[:-1])
        if not any(p.requires_grad for p in body.parameters()):
            raise ConfigError("an objective on features and a head needs parameters in both, and this net has one layer: write "
                              "[model] name = \"mlp\", hidden = [32]")
        return Model(body), layers[-1]


SUPPLIED: dict[str, Callable[[Given], Any]] = {  # by a parameter's name: what a run gives for it; `supervised` adds the losses
    "model": lambda given: given.model, "scores": lambda given: given.model, "classes": lambda given: given.classes,
    "groups": lambda given: given.count(given.entries["field"]),
    "features": lambda given: given.body[0], "width": lambda given: given.body[1].in_features, "kind": lambda given: given.kind}


@dataclass(frozen=True)
class Start:
    """Where a variable starts, in words and as a vector."""

    text: str
    make: Callable[[Given], Tensor]


MODEL = Start("the model's parameters", lambda given: given.vector)
"""The start at the model's parameters, which x has unless an objective says otherwise."""


def with_zeros(number: Callable[[Given], int], what: str) -> Start:
    """A start at the model's parameters, and at 0 for `number` further coordinates; `what` says what these are."""
    return Start(f"the model's parameters, then {what} from 0",
                 lambda given: torch.cat([given.vector, given.vector.new_zeros(number(given))]))


def constant(value: Callable[[Given], float], number: Callable[[Given], int], text: str) -> Start:
    """A start at one number for all of `number` coordinates; `text` says it in words."""
    return Start(text, lambda given: given.vector.new_full((number(given),), value(given)))


@dataclass(frozen=True)
class Column:
    """A column of the rows that an objective reads beside inputs and labels, and that a run makes where the rows do not have it."""

    name: str
    text: str
    make: Callable[[Data, Mapping[str, Any], int], Tensor]  # from the rows, the section's entries and the seed
    entries: Mapping[str, Entry] = field(default_factory=dict)
    sampler: Callable[[Data, int], Sampler] | None = None  # how to draw batches of so many rows, unless the section says it
