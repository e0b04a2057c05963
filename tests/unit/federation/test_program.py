"""What may run at clients: methods of frozen dataclasses that capture no tensor and say what they return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from verbs import Work, engines, federation, ones, scale, work

from rookery import Program
from rookery.errors import EngineError, PlacementError
from rookery.federation import Client


def test_a_tensor_captured_from_a_function_is_refused() -> None:
    captured = torch.ones(2)

    @dataclass(frozen=True)
    class Capture(Program):
        def add(self, c: Client, x: Tensor) -> Tensor:
            return x + captured

    fed = federation()
    with pytest.raises(PlacementError, match=r"Capture\.add captures a tensor from the function around it; pass it as fed\.broadcast"):
        fed.map(Capture().add, fed.broadcast(ones()))


def test_a_tensor_captured_by_a_function_inside_is_refused() -> None:
    captured = torch.ones(2)

    @dataclass(frozen=True)
    class Capture(Program):
        def add(self, c: Client, x: Tensor) -> Tensor:
            return sum((captured * i for i in range(2)), x)

    fed = federation()
    with pytest.raises(PlacementError, match="captures a tensor"):
        fed.map(Capture().add, fed.broadcast(ones()))


@pytest.mark.parametrize("method", ["takes_global", "takes_global_inside"])
def test_a_global_tensor_is_refused_by_name(method: str) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=rf"Work\.{method} captures the global tensor 'GLOBAL'; pass it as fed\.broadcast\(GLOBAL\)"):
        fed.map(getattr(work, method), fed.broadcast(ones()))


def test_a_tensor_as_a_default_is_refused() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="takes_default"):
        fed.map(work.takes_default, fed.broadcast(ones()))


def test_a_field_may_have_the_name_of_a_global_tensor() -> None:
    fed = federation()
    assert scale.tolist() == [3.0, 3.0]
    assert fed.mean(fed.map(work.takes_field, fed.broadcast(ones()))).tolist() == [2.0, 2.0]


def test_a_tensor_as_a_hyper_parameter_is_refused() -> None:
    @dataclass(frozen=True)
    class Holds(Program):
        weight: Tensor

        def add(self, c: Client, x: Tensor) -> Tensor:
            return x + self.weight

    fed = federation()
    with pytest.raises(PlacementError, match=r"Holds\.weight is a tensor: hyper-parameters are numbers"):
        fed.map(Holds(torch.ones(2)).add, fed.broadcast(ones()))


def free(c: Client, x: Tensor) -> Tensor:
    return x


class NoProgram:
    def method(self, c: Client, x: Tensor) -> Tensor:
        return x


STRANGERS = {"lambda": lambda c, x: x, "function": free, "method": NoProgram().method, "unbound": Work.increment, "builtin": print}


@pytest.mark.parametrize("function", STRANGERS.values(), ids=STRANGERS)
def test_only_methods_of_programs_run_at_clients(function: Any) -> None:
    fed = federation()
    with pytest.raises(PlacementError, match="map takes a method of an algorithm"):
        fed.map(function, fed.broadcast(ones()))


def test_a_program_is_a_frozen_dataclass() -> None:
    @dataclass
    class Thawed(Program):
        def same(self, c: Client, x: Tensor) -> Tensor:
            return x

    class Bare(Program):
        def same(self, c: Client, x: Tensor) -> Tensor:
            return x

    fed = federation()
    for owner in (Thawed(), Bare()):
        with pytest.raises(PlacementError, match=rf"{type(owner).__name__} must be a frozen dataclass: write @dataclass\(frozen=True\)"):
            fed.map(owner.same, fed.broadcast(ones()))


def test_a_return_annotation_is_needed() -> None:
    fed = federation()
    with pytest.raises(PlacementError, match=r"Work\.no_annotation needs a return annotation, -> Tensor or -> tuple"):
        fed.map(work.no_annotation, fed.broadcast(ones()))


def test_the_client_may_have_any_name_but_must_be_there() -> None:
    fed = federation()
    torch.testing.assert_close(fed.mean(fed.map(work.not_c, fed.broadcast(ones()))), ones())
    with pytest.raises(PlacementError, match=r"first parameter of a client function is the client; Work\.nothing_at_all takes none"):
        fed.map(work.nothing_at_all)


@engines
@pytest.mark.parametrize(("method", "words"), [("wrong_number", r"promises 2 tensor\(s\).*\['Tensor', 'Tensor', 'Tensor'\]"),
                                               ("no_tensor", r"promises 1 tensor\(s\).*\['float'\]")])
def test_results_must_be_what_the_annotation_promises(engine: str, method: str, words: str) -> None:
    fed = federation(engine)
    made = fed.map(getattr(work, method), fed.broadcast(ones()))
    with pytest.raises(EngineError, match=words):
        fed.mean(*(made if isinstance(made, tuple) else (made,)))
