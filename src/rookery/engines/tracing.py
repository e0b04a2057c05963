"""Client functions as graphs: tracing under vmap, and what a trace depends on beyond its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from ..errors import EngineError, RookeryError
from ..federation.operations import Map
from ..federation.program import global_names
from ..problems.autodiff import functional
from ..problems.base import Problem
from .fusing import fuse

Graph = Callable[..., tuple[Tensor, ...]]


class ProgramKey:
    """A program as a part of a key: by value where it can be hashed, else by identity."""

    def __init__(self, program: Any) -> None:
        self.program = program
        try:
            self.hash = hash(program)
        except TypeError:
            self.hash = id(program)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramKey) and type(self.program) is type(other.program) and bool(self.program == other.program)


PLAIN = bool | int | float | str | None


class Guards:
    """What a problem's functions read from around them: a graph has it written into it, and is good for these values only.

    Seen are plain values, tensors, and lists, tuples and dicts of plain values; attributes of other objects are not.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.cells: list[CellType] = []
        self.globals: list[tuple[dict[str, Any], str]] = []
        self.seen: set[int] = set()
        for field in fields(problem):
            self._walk(getattr(problem, field.name))
        for oracle in problem.oracles.values():
            self._walk(oracle)

    def values(self) -> tuple[Any, ...]:
        around = [cell.cell_contents for cell in self.cells] + [space.get(name) for space, name in self.globals]
        model = self.problem.model
        return (*(_mark(value) for value in around), None if model is None else model.net.training)

    def _walk(self, value: Any) -> None:
        function = value.__func__ if isinstance(value, MethodType) else value
        if not isinstance(function, FunctionType) or id(function) in self.seen:
            return
        self.seen.add(id(function))
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            self._walk(content)
            if not isinstance(content, FIXED):
                self.cells.append(cell)
        for name in global_names(function.__code__):
            content = function.__globals__.get(name)
            self._walk(content)
            if not isinstance(content, FIXED):
                self.globals.append((function.__globals__, name))


FIXED = (ModuleType, FunctionType, BuiltinFunctionType, MethodType, type)  # what nobody rebinds in the middle of a run


def _mark(value: Any) -> Any:
    """Something that differs when the value does."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return id(value), value._version
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    return repr(value) if all(isinstance(part, PLAIN) for part in parts) else None


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Fused normalisations, whose derivatives TorchScript cannot record, in plain operations."""
    aten = torch.ops.aten
    return get_decompositions([aten.native_batch_norm, aten.native_batch_norm_backward, aten.native_group_norm,
                               aten.native_group_norm_backward, aten.native_layer_norm, aten.native_layer_norm_backward])


def trace(op: Map, one: Callable[..., tuple[Tensor, ...]], tensors: list[Tensor], owned: Sequence[int] = ()) -> Graph:
    """The function over all clients as a TorchScript graph of plain tensor operations, derivatives included.

    The graph may overwrite the tensors at the places `owned`; its first results take their places.
    """
    # zero-dimensional inputs are the numbers of the server; everything else has a row per client
    dims = tuple(0 if t.dim() else None for t in tensors)
    tensors = [_copy(t) for t in tensors]  # the function runs on them several times, and might change them
    dense = [t.is_contiguous() for t in tensors]
    try:
        with functional(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # without a mode to find, make_fx makes one for every node's shape, each with a copy of the Python stack
            with tracing(TracingContext(FakeTensorMode())):
                graph = make_fx(torch.func.vmap(one, in_dims=dims), decomposition_table=_decompositions())(*tensors)
            tidy(graph)
            fuse(graph, owned)
            script = _script(graph, tensors)
    except RookeryError:
        raise
    except Exception as error:
        raise EngineError(f"{op.fn.__qualname__} does not vectorise over clients "
                          f"({str(error).splitlines()[0] if str(error) else type(error).__name__}); "
                          'multiply by masks instead of indexing by a condition, or write engine="loop"') from error
    # views of a dense input are views of dense inputs only, and one value for all clients is not dense
    return lambda *given: script(*(t.contiguous() if d else t for t, d in zip(given, dense, strict=True)))


def _copy(t: Tensor) -> Tensor:
    return t[:1].clone().expand(t.shape) if t.dim() and t.stride(0) == 0 else t.clone()


def tidy(module: GraphModule) -> None:
    """Drop what computes nothing: views of the same shape, factors of 1, what was computed before. Small models cost by the operation."""
    aten = torch.ops.aten
    shaping = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
    neutral = {aten.mul.Scalar: 1, aten.mul.Tensor: 1, aten.div.Tensor: 1, aten.sub.Tensor: 0}  # + 0 would change −0
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    # a value that is changed in place is not the same as its equal
    pure = not any(isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable for node in nodes)
    known: dict[Any, Node] = {}
    for node in nodes:
        same: Any = None
        if node.target is aten.detach.default:
            same = node.args[0]
        elif node.target in shaping or (pure and node.target in neutral and node.args[1] == neutral[node.target]):
            same = node.args[0] if _form(node) is not None and _form(node) == _form(node.args[0]) else None
        elif node.target is aten.transpose.int and node.args[0].target is node.target and node.args[0].args[1:] == node.args[1:]:
            same = node.args[0].args[0]
        elif pure:
            key = repr((node.target, node.args, sorted(node.kwargs.items())))  # nodes by their names, which are unique; 1 is not 1.0
            same = known.setdefault(key, node)
        if same is not None and same is not node:
            node.replace_all_uses_with(same)
    module.graph.eliminate_dead_code()
    module.recompile()


def _form(node: Any) -> object:
    value = node.meta.get("tensor_meta") if isinstance(node, Node) else None
    return value and (value.shape, value.stride, value.dtype)


def _script(graph: Graph, tensors: list[Tensor]) -> Graph:
    """The graph as TorchScript, which replays it without Python; where TorchScript cannot, the graph itself."""
    try:
        traced: Graph = torch.jit.trace(graph, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]
        traced(*tensors)  # what it cannot run shows here
        return traced
    except (RuntimeError, NotImplementedError, AttributeError):
        graph(*tensors)
        return graph
