"""The sections of a description that choose something by name, Rookery's or one's own: [objective], its sampling, and [model]."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import prod
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from ..data import Balanced, Episodes, PerTask, Positives, Replacement, Shuffled, Stored, Stratified
from ..data.sampling import Sampler
from ..data.store import Data
from ..errors import ConfigError, RookeryError
from ..models import conv4, densenet121, federated_norm, lenet, mlp, resnet20, small_cnn
from ..objectives import cross_entropy
from ..objectives.declare import Objective, declared
from ..objectives.given import Given
from ..problems.base import Problem
from ..problems.kinds import Conditional
from ..problems.model import Model
from ..problems.reductions import as_bilevel, conditional_as_compositional
from . import modules
from .values import plain

SAMPLERS: dict[str, type[Sampler]] = {
    cls.__name__: cls for cls in (Balanced, Episodes, PerTask, Positives, Replacement, Shuffled, Stored, Stratified)}


@dataclass(frozen=True)
class SamplingSection:
    """objective.sampling: a sampler with its numbers, as they were written."""

    name: str
    values: Mapping[str, Any]
    sampler: Sampler = field(compare=False)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **{name: plain(value) for name, value in self.values.items()}}


@dataclass(frozen=True)
class ObjectiveSection:
    """[objective] what is minimised: an objective by name with its entries, as `rookery show NAME` prints them.

    name:     an objective by its name, as `rookery list` prints them, or one's own as module:name
    sampling: how clients draw, a sampler of rookery.data by name, or one of one's own by module:name; with its numbers in a table:
              {name = "Stratified", label = "labels", positives = 8}
    reduce:   "bilevel" embeds a minimax, a shared composition or a plain minimisation in the bilevel form, for FedNest;
              "compositional" reads a conditional objective as a composition with a local inner map, for ComFedL and Local-SCGD. Where
              the inner samples depend on the outer one, as in ap_surrogate, that is another problem
    """

    name: str = "cross_entropy"
    declared: Objective = field(default_factory=lambda: declared(cross_entropy))
    values: Mapping[str, Any] = field(default_factory=dict)
    sampling: SamplingSection | None = None
    reduce: Literal["bilevel", "compositional"] | None = None

    @property
    def entries(self) -> dict[str, Any]:
        """All entries of the objective's own, with their defaults."""
        return self.declared.complete(self.values)

    def rows(self, data: Data, classes: int, seed: int, names: Sequence[str] = ()) -> Data:
        """The clients' training rows with the columns that the objective reads; `names` has clients that are elsewhere, too."""
        self.declared.check_classes(classes)
        return self.declared.rows(data, self.entries, seed, names) if data.fields else data

    def given(self, model: Model, data: Data, classes: int, kind: type[Problem] = Problem,
              counts: Mapping[str, int] | None = None) -> Given:
        """What the objective is given; `kind` is what the algorithm solves. One that is reduced to that kind has its own first form."""
        return Given(model, model.vector(), data, classes, self.entries, Problem if self.reduce is not None else kind, counts or {})

    def problem(self, given: Given, batch: int | None) -> Problem:
        try:
            problem = modules.call(self.declared.problem, "[objective]", given,
                                   None if self.sampling is None else self.sampling.sampler, batch)
            match self.reduce:
                case "bilevel":
                    return as_bilevel(problem)
                case "compositional":
                    if not isinstance(problem, Conditional):
                        raise ConfigError(f"reduce = \"compositional\" is for conditional objectives, such as ap_surrogate; {self.name} "
                                          f"gives a {type(problem).__name__}: leave it out")
                    return conditional_as_compositional(problem)
        except ConfigError:
            raise
        except RookeryError as error:
            raise ConfigError(f"[objective]: {error}") from None
        return problem

    def start(self, given: Given) -> tuple[Tensor, Tensor | None]:
        """Where x starts, and y where the objective has one."""
        y = None if self.declared.y is None else self.declared.y.make(given).clone()
        return self.declared.x.make(given).clone(), None if y is None or not len(y) else y  # some forms of an objective have no y

    def describe(self) -> dict[str, Any]:
        """The section again as a table."""
        said: dict[str, Any] = {name: plain(value) for name, value in self.values.items()
                                if value != self.declared.entries[name].default}
        if self.sampling is not None:
            said["sampling"] = self.sampling.describe()
        return {"name": self.name} | said | ({} if self.reduce is None else {"reduce": self.reduce})


@dataclass(frozen=True)
class ModelSection:
    """[model] the net; its inputs and outputs follow from the data.

    name:   a net by its name, or a class or a function of one's own by module:name, whose parameters are further entries
    hidden: of "mlp": the widths of its hidden layers
    """

    name: Literal["linear", "mlp", "small_cnn", "lenet", "conv4", "resnet20", "densenet121"] = "mlp"
    hidden: tuple[int, ...] = (32,)

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.hidden):
            raise ConfigError(f"hidden layers have at least one unit; got {list(self.hidden)}")

    def describe(self) -> dict[str, Any]:
        """The section again as a table."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default}

    def net(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        flat = prod(shape)
        match self.name:
            case "linear":
                return nn.Sequential(nn.Flatten(), *mlp(flat, classes))
            case "mlp":
                return nn.Sequential(nn.Flatten(), *mlp(flat, *self.hidden, classes))
        if len(shape) != 3:
            raise ConfigError(f"model.name = {self.name!r} takes images; these rows have the shape {shape}: write \"mlp\"")
        images: dict[str, Callable[[], nn.Module]] = {
            "small_cnn": lambda: small_cnn(shape[0], classes, shape[1]), "lenet": lambda: lenet(shape[0], classes, shape[1]),
            "conv4": lambda: conv4(classes, shape[0], shape[1]), "resnet20": lambda: resnet20(classes, shape[0]),
            "densenet121": lambda: densenet121(classes, shape[0])}
        net = images[self.name]()
        return federated_norm(net) if any(isinstance(m, nn.BatchNorm2d) for m in net.modules()) else net


@dataclass(frozen=True)
class OwnModelSection:
    """[model] a net of one's own: a class of torch.nn or a function that returns one, by module:name.

    It is called with those of `shape` (of one row), `inputs` (how many numbers a row has) and `classes` that it has parameters for; its
    other parameters are entries of the section.
    """

    SUPPLIED: ClassVar = ("shape", "inputs", "classes")

    name: str
    function: Callable[..., nn.Module]
    values: Mapping[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **{name: plain(value) for name, value in self.values.items()}}

    def net(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        supplied = {"shape": shape, "inputs": prod(shape), "classes": classes}
        wanted = {name: supplied[name] for name in inspect.signature(self.function).parameters if name in supplied}
        net = modules.call(self.function, f"model.name = {self.name!r}", **wanted, **self.values)
        if not isinstance(net, nn.Module):
            raise ConfigError(f"model.name = {self.name!r} must give a torch.nn.Module; it gave {type(net).__name__}")
        return net
