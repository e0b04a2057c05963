"""What an algorithm is: hyper-parameters in a frozen dataclass, state in a record, one `round`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor

from ..errors import AlgorithmError
from ..federation.epochs import Epochs
from ..federation.federation import Federation
from ..federation.program import PROGRAMS, Program, Schedule, value_at
from ..problems.base import Problem

Number = float | Schedule
"""The type of a hyper-parameter that is a number or a schedule of numbers; `value_at` reads it."""
P = TypeVar("P", bound=Problem)

__all__ = ["Algorithm", "Number", "check_fraction", "check_positive", "check_start", "value_at"]


class Algorithm(Program, Generic[P]):
    """Base of the algorithms on problems of the kind P: `class Mine(Algorithm[Minimization])`.

    A subclass is a frozen dataclass of hyper-parameters with a `State` (a NamedTuple of tensors, values at the clients and ints),
    `init(fed, x)` and `round(fed, state)`. Its client functions are methods that take the client first.
    """

    title: ClassVar[str] = ""  # as the paper prints it
    solves: ClassVar[type[Problem]] = Problem  # P, as far as it has been said
    exact_with_local_steps: ClassVar[bool] = False  # whether full batches leave the optimum in place at any number of local steps
    plain_average: ClassVar[bool] = False  # whether x after a round of fewer local steps is the mean of the clients' points then
    pools: ClassVar[bool] = False  # whether what clients collect goes back to all of them, so that it grows with their number
    State: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        kinds = [kind for base in vars(cls).get("__orig_bases__", ()) for kind in get_args(base) if isinstance(kind, type)]
        if kinds and "solves" not in vars(cls):
            cls.solves = kinds[0]

    def init(self, fed: Federation[P], x: Tensor) -> Any:
        """The first state, from a starting point."""
        raise NotImplementedError

    def round(self, fed: Federation[P], s: Any) -> Any:
        """The state after one more round."""
        raise NotImplementedError

    def validate(self, fed: Federation[P], x: Tensor) -> Tensor:
        """Refuse a problem of another kind, and say what would fit; the starting point, checked and projected."""
        if fed.problem.statistics is not None and fed.setting.constants is None:
            raise AlgorithmError("the clients have to agree on constants of this problem first: write fed.prepare(x)")
        if not isinstance(x, Tensor) or x.dim() != 1 or not x.is_floating_point():
            what = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise AlgorithmError(f"a starting point is one flat vector of floating-point numbers; got {what}")
        self.check_types()
        if isinstance(fed.problem, self.solves):
            return fed.project_x(x.detach())
        fitting = sorted(cls.title for cls in PROGRAMS.values() if issubclass(cls, Algorithm) and cls.title
                         and cls.solves is not Problem and isinstance(fed.problem, cls.solves))
        raise AlgorithmError(f"{self.title or type(self).__name__} solves {self.solves.__name__} problems, "
                             f"this is {type(fed.problem).__name__}. Algorithms that fit: {', '.join(fitting) or 'none'}. "
                             "Reductions of one kind to another are in rookery.problems")

    def check_types(self) -> None:
        """Refuse hyper-parameters that are not what their annotations say; annotations with other words than these are not looked at."""
        if not is_dataclass(self):
            return
        for field in fields(self):
            value, words = getattr(self, field.name), [word.strip() for word in str(field.type).split("|")]
            if all(word in _WORDS for word in words) and not any(_WORDS[word][1](value) for word in words):
                allowed = ", or ".join(_WORDS[word][0] for word in words)
                raise AlgorithmError(f"{field.name} of {self.title or type(self).__name__} is {allowed}; got {value!r}")


_WORDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", lambda v: isinstance(v, Integral) and not isinstance(v, bool)),
    "float": ("a number", lambda v: isinstance(v, Real) and not isinstance(v, bool)),
    "Number": ("a number or a schedule", lambda v: isinstance(v, Real | Schedule) and not isinstance(v, bool)),
    "bool": ("True or False", lambda v: isinstance(v, bool)),
    "None": ("None", lambda v: v is None),
    "Epochs": ("Epochs(…)", lambda v: isinstance(v, Epochs)),
    "tuple[int, ...]": ("a tuple with a whole number for each client", lambda v: isinstance(v, tuple))}


def check_positive(**numbers: Any) -> None:
    """Check that the named hyper-parameters are positive numbers (schedules are taken on trust)."""
    for name, value in numbers.items():
        if isinstance(value, int | float) and not value > 0:
            raise AlgorithmError(f"{name} must be positive; got {value}")


def check_fraction(**numbers: Any) -> None:
    """Check that the named hyper-parameters lie in (0, 1]."""
    for name, value in numbers.items():
        if isinstance(value, int | float) and not 0 < value <= 1:
            raise AlgorithmError(f"{name} must lie in (0, 1]; got {value}")


def check_start(x: Tensor, y: Tensor | None) -> Tensor:
    """The starting point of the second variable, checked beside that of the first."""
    if y is None:
        raise AlgorithmError("this problem has an inner variable: give its starting point, init(fed, x, y)")
    if not isinstance(y, Tensor) or y.dim() != 1 or not y.is_floating_point():
        what = f"{y.dtype} of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise AlgorithmError(f"the starting point of y is one flat vector of floating-point numbers; got {what}")
    if y.dtype != x.dtype:
        raise AlgorithmError(f"x and y start with one dtype; got {x.dtype} and {y.dtype}: write y.to(x.dtype)")
    return y.detach()


def check_beside(y: Tensor, v: Tensor | None, name: str) -> Tensor:
    """A third variable as long as y, from 0 unless it is given."""
    if v is None:
        return torch.zeros_like(y)
    if not isinstance(v, Tensor) or v.shape != y.shape or v.dtype != y.dtype:
        what = f"{v.dtype} of shape {tuple(v.shape)}" if isinstance(v, Tensor) else type(v).__name__
        raise AlgorithmError(f"{name} starts as a vector like y, {y.dtype} of shape {tuple(y.shape)}; got {what}: leave it out for 0")
    return v.detach()


def one_machine_only(algorithm: Algorithm[P], fed: Federation[P], instead: str) -> None:
    """Refuse a federation of several clients, for methods of one machine."""
    if fed.population != 1:
        raise AlgorithmError(f"{algorithm.title} runs on one machine, and this federation has {fed.population} clients: pool their rows "
                             f"into one client, or take {instead}, which average over clients")


@dataclass(frozen=True)
class LocalSteps(Algorithm[P]):
    """What methods with one vector and local steps have in common: the step size, the local work, and a state of x and t."""

    lr: Number
    local_steps: int | Epochs | tuple[int, ...] = 1  # a tuple: one number for each client
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)

    def init(self, fed: Federation[P], x: Tensor) -> Any:
        return self.State(self.validate(fed, x), 0)


@dataclass(frozen=True)
class OneGradient(Algorithm[P]):
    """What methods with one gradient a round have in common: the step size, the batch, and a state of x and t."""

    lr: Number
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, batch=self.batch)

    def init(self, fed: Federation[P], x: Tensor) -> Any:
        return self.State(self.validate(fed, x), 0)
