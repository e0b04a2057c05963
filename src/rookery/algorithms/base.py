"""What an algorithm is: hyper-parameters in a frozen dataclass, state in a record, one `round`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import Tensor

from ..errors import AlgorithmError
from ..federation.program import PROGRAMS, Program, Schedule, value_at
from ..problems.base import Problem

if TYPE_CHECKING:
    from ..federation.epochs import Epochs
    from ..federation.federation import Federation

Number = float | Schedule

__all__ = ["Algorithm", "Number", "value_at"]


class Algorithm(Program):
    """Base of the algorithms.

    A subclass is a frozen dataclass of hyper-parameters with a `State` (a NamedTuple of tensors, values at the clients and ints),
    `init(fed, x)` and `round(fed, state)`. Its client functions are methods whose first parameter is `c`.
    """

    title: ClassVar[str] = ""  # as the paper prints it
    solves: ClassVar[type[Problem]] = Problem
    exact_with_local_steps: ClassVar[bool] = False  # whether full batches leave the optimum in place at any number of local steps
    plain_average: ClassVar[bool] = False  # whether x after a round of fewer local steps is the mean of the clients' points then
    State: ClassVar[Any]

    def init(self, fed: Federation, x: Tensor) -> Any:
        raise NotImplementedError

    def round(self, fed: Federation, s: Any) -> Any:
        raise NotImplementedError

    def validate(self, fed: Federation, x: Tensor) -> Tensor:
        """Refuse a problem of another kind, and say what would fit; the starting point, checked and projected."""
        if fed.problem.statistics is not None and fed.setting.constants is None:
            raise AlgorithmError("the clients have to agree on constants of this problem first: write fed.problem.prepare(fed, x)")
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
                             "Reductions of one kind to another are in rookery.problems.reductions")

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
    "Epochs": ("Epochs(…)", lambda v: type(v).__name__ == "Epochs"),  # of the module that imports this one
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


@dataclass(frozen=True)
class LocalSteps(Algorithm):
    """What methods with one vector and local steps have in common: the step size, the local work, and a state of x and t."""

    lr: Number
    local_steps: int | Epochs | tuple[int, ...] = 1  # a tuple: one number for each client
    batch: int | None = None  # None: all rows

    class State(NamedTuple):
        x: Tensor
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch)

    def init(self, fed: Federation, x: Tensor) -> Any:
        return self.State(self.validate(fed, x), 0)
