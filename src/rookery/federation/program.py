"""Client functions: methods of frozen dataclasses, so that they can be named on a network and hold no tensors."""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, get_args, get_origin

import torch
from torch import Tensor

from ..data.batch import Batch
from ..errors import PlacementError
from ..problems.base import Problem
from .oracles import Client

PROGRAMS: dict[str, type[Program]] = {}  # every program class this process has imported, by its full name


class Program:
    """Base of everything whose methods run at clients: algorithms, schedules, evaluations.

    Subclasses are frozen dataclasses of numbers. A remote site runs only classes that it has imported itself.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        PROGRAMS[f"{cls.__module__}.{cls.__qualname__}"] = cls


class Schedule(Program):
    """A hyper-parameter that changes with the round; subclasses define `at(t)`."""

    def at(self, t: int) -> float:
        """The value in round t, counted from 0."""
        raise NotImplementedError


def value_at(number: float | Schedule, t: int) -> float:
    """A hyper-parameter's value in round t: that of a schedule then, or the number itself."""
    return number.at(t) if isinstance(number, Schedule) else number


class RowSum(Program):
    """Base of client functions that are sums over the rows of a split at one point: `fed.sum(fed.map(it.total, fed.broadcast(x)))`.

    A subclass is a frozen dataclass with a field `split`, and says in `by_owner` what the rows' numbers are. As every row stands by
    itself, engines of this process take the rows of many clients in one pass.
    """

    split: str

    def by_owner(self, problem: Problem, b: Batch, owner: Tensor, owners: int, *values: Any) -> Tensor:
        """(owners, k): the sums of the rows' numbers, by the owner of each row, a number from 0 to owners − 1."""
        raise NotImplementedError

    def total(self, c: Client, *values: Any) -> Tensor:
        """The sums over the client's own rows."""
        b = c.rows(self.split)
        return self.by_owner(c.problem, b, torch.zeros_like(b.index), 1, *values)[0]  # type: ignore[arg-type]


@dataclass(frozen=True)
class SetUp(Program):
    """The client function of `Federation.prepare`."""

    def sums(self, c: Client, x: Tensor) -> Tensor:
        """The problem's `statistics` of all the client's rows at x."""
        assert c.problem.statistics is not None
        return c.evaluate(c.problem.statistics, x, c.draw())


@lru_cache(maxsize=4096)
def outputs(function: Callable[..., Any]) -> tuple[int, bool]:
    """The number of tensors a client function returns, from its annotation, and whether they stand in a tuple."""
    note: Any = function.__annotations__.get("return")
    if isinstance(note, str):
        tree = ast.parse(note, mode="eval").body
        if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) in ("tuple", "Tuple"):
            parts = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
            if any(isinstance(part, ast.Constant) and part.value is ... for part in parts):
                raise PlacementError(f"{function.__qualname__} must say how many tensors it returns: tuple[Tensor, Tensor], not {note}")
            return len(parts), True
        return 1, False
    if note is None:
        raise PlacementError(f"{function.__qualname__} needs a return annotation, -> Tensor or -> tuple[Tensor, Tensor]: "
                             "map is lazy, and must know how many values there will be")
    return (len(get_args(note)), True) if get_origin(note) is tuple else (1, False)


@lru_cache(maxsize=4096)
def _check_function(function: FunctionType) -> None:
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) < 2:
        raise PlacementError(f"the first parameter of a client function is the client; {function.__qualname__} takes none: write "
                             f"def {function.__name__}(self, c, …)")
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, Tensor):
            raise PlacementError(f"{function.__qualname__} captures a tensor from the function around it; pass it as fed.broadcast(tensor)")
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if isinstance(default, Tensor):
            raise PlacementError(f"{function.__qualname__} captures a tensor as a default argument; pass it as fed.broadcast(tensor)")
    for name in global_names(function.__code__):
        if isinstance(function.__globals__.get(name), Tensor):
            raise PlacementError(f"{function.__qualname__} captures the global tensor {name!r}; pass it as fed.broadcast({name})")


def global_names(code: CodeType) -> set[str]:
    """Names that a function, or a function inside it, reads from its module."""
    own = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return own.union(*(global_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def check_client_function(fn: Callable[..., Any]) -> MethodType:
    """The function, refused if it could not be named on a network, or smuggles tensors to the clients."""
    if not isinstance(fn, MethodType) or not isinstance(fn.__self__, Program):
        raise PlacementError(f"map takes a method of an algorithm (a frozen dataclass derived from Program), so that a remote client "
                             f"can find it by name; got {getattr(fn, '__qualname__', fn)!r}")
    owner = fn.__self__
    if not is_dataclass(owner) or not type(owner).__dataclass_params__.frozen:
        raise PlacementError(f"{type(owner).__name__} must be a frozen dataclass: write @dataclass(frozen=True) above it")
    for field in fields(owner):
        if isinstance(getattr(owner, field.name), Tensor):
            raise PlacementError(f"{type(owner).__name__}.{field.name} is a tensor: hyper-parameters are numbers; "
                                 f"keep it in the state and pass it as fed.broadcast(tensor)")
    assert isinstance(fn.__func__, FunctionType)
    _check_function(fn.__func__)
    return fn
