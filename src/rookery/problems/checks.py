"""What is checked once, where a problem first runs at a client, and what an error there says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from .autodiff import grad
from .base import Problem

HINTS = {  # what torch says, and what mostly stands behind it
    r"out of bounds|out of range": "Class numbers lie between 0 and the number of outputs less 1, and groups between 0 and their "
                                "number less 1",
    r"dtype|scalar type|implemented for": "Inputs and parameters share one dtype (write inputs.float(), or module.double()), and class "
                                          "numbers are whole (write labels.long())",
    r"shape|size|dimension|channels|target": "The width of the rows must fit the module's first layer, and its outputs the labels",
    r"has the fields": "Give the data that field, or the loss another name"}


def failed(error: Exception, client: str, what: str, arguments: tuple[Any, ...]) -> ProblemError:
    """The error to raise for one that came out of a function of the user's at a client: with the client's name and what it was given."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
    hint = next((f" {words}." for pattern, words in HINTS.items() if re.search(pattern, text, re.IGNORECASE)), "")
    given = "; ".join(note for argument in arguments for note in _describe(argument))
    return ProblemError(f"client {client!r}: {what} failed with {type(error).__name__}: {text.rstrip('.')}.{hint} It was given {given}")


def _describe(value: Any, name: str = "a vector") -> Iterator[str]:
    if isinstance(value, Batch):
        for field, column in value.fields.items():
            yield from _describe(column, field if name == "a vector" else f"{name}.{field}")
        if value.inner is not None:
            yield from _describe(value.inner, "inner")
    elif isinstance(value, Tensor):
        whole = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool and value.numel() > 0
        span = f" from {int(value.min())} to {int(value.max())}" if whole else ""
        yield f"{name}: {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}{span}"


def refuse_matrices(problem: Problem, oracle: str, arguments: tuple[Any, ...]) -> None:
    """Refuse variables that are no vectors: a matrix may meet a batch row by row, and its derivative have a number for each row."""
    for letter, (place, _) in problem.variables(oracle).items():
        value = arguments[place] if place < len(arguments) else None
        if isinstance(value, Tensor) and value.dim() > 1:
            raise ProblemError(f"{letter} is one flat vector; the oracle {oracle!r} was given one of shape {tuple(value.shape)}")


def depends(problem: Problem, oracle: str, known: set[str], *arguments: Any) -> Tensor:
    """Refuse a problem none of whose functions depends on a variable: its gradient would be 0 everywhere, and nothing would move.

    The arguments are those of the oracle; `known` collects the variables that were found in use.
    """
    last = next((place for place, a in enumerate(arguments) if isinstance(a, Batch)), len(arguments) - 1) + 1
    for letter, (place, functions) in problem.variables(oracle).items():
        if f"{letter} is used" in known or not arguments[place].numel():
            continue
        if not any(_uses(problem, letter, name, fn, place, arguments[:last]) for name, fn in functions.items()):
            one = f"{' and '.join(functions)} {'do' if len(functions) > 1 else 'does'} not depend on {letter}"
            raise ProblemError(f"{one}, so its gradient would be 0 everywhere and {letter} never move: compute with {letter} itself, "
                               f"without detach(), .data, .item() or torch.no_grad(), and write model({letter}, batch.inputs) with "
                               "model = Model(module), not module(batch.inputs)")
        known.add(f"{letter} is used")
    return arguments[0]  # type: ignore[no-any-return]


def _uses(problem: Problem, letter: str, name: str, fn: Callable[..., Tensor], place: int, arguments: tuple[Any, ...]) -> bool:
    """Whether a function's value is connected to one of its arguments."""
    used = False

    def watch(z: Tensor) -> Tensor:
        nonlocal used
        leaves = _leaves(fn(*arguments[:place], z, *arguments[place + 1 :]))
        used = id(z) in leaves
        own = {id(p) for p in problem.model.net.parameters() if p.requires_grad} if problem.model is not None else set()
        if own & leaves:
            raise ProblemError(f"{name} computes with the module's own parameters, which stay as they are: write model({letter}, "
                               "batch.inputs) and not model.net(batch.inputs), or .detach() what is meant as a constant")
        return z.new_zeros(())

    grad(watch, arguments[place])  # inside a derivative, so that a function that takes derivatives itself keeps its graph
    return used


def _leaves(value: Tensor) -> set[int]:
    """The tensors that a value was computed from and that a derivative can be taken in."""
    found, seen = {id(value)}, set()
    nodes = [value.grad_fn]
    while nodes:
        node: Any = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found.add(id(getattr(node, "variable", None)))
        nodes += [before for before, _ in node.next_functions]
    return found
