"""What the federation hands to an engine, and what an engine hands back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import AlgorithmError, DataError, EngineError, PlacementError
from ..federation.client import ClientContext, Setting
from ..federation.drawing import Drawing
from ..federation.generators import generators
from ..federation.operations import Map
from ..federation.reducer import Work

CPU = torch.device("cpu")


def results(op: Map, value: Any) -> tuple[Tensor, ...]:
    """What a client function returned, as the tensors its annotation promises."""
    values = value if isinstance(value, tuple) else (value,)
    if len(values) != len(op.out) or not all(isinstance(v, Tensor) for v in values):
        raise EngineError(f"{op.fn.__qualname__} promises {len(op.out)} tensor(s) in its return annotation and returned "
                          f"{[type(v).__name__ for v in values]}; make the two agree")
    return values


def run_one(setting: Setting, op: Map, client: int, times: int, arguments: list[Any],
            drew: Callable[[], None] | None = None) -> tuple[tuple[Tensor, ...], Work, ClientContext]:
    """Run one operation at one client, plainly. Returns results, their cost, and the client object of the last repetition."""
    drawing = Drawing(setting, client, op.phase, op.call, times, drew)
    calls: Counter[str] = Counter()
    samples = 0
    c = None
    device = next((a.device for a in arguments if isinstance(a, Tensor)), CPU)
    states = generators(device)
    for step in range(times):
        drawing.step = step
        c = ClientContext(setting, times, drawing, client=client)
        versions = [a._version for a in arguments if isinstance(a, Tensor)]
        out = results(op, op.fn(c, *arguments))
        if versions != [a._version for a in arguments if isinstance(a, Tensor)]:
            raise PlacementError(f"{op.fn.__qualname__} changed an argument in place; values are shared: write x = x + y, not x += y")
        arguments = [*out, *arguments[len(out):]]
        if c.calls:
            calls.update(c.calls)
        samples += sum(c.samples[op.known:]) + c.looked_at
    c = c or ClientContext(setting, times, drawing, client=client)
    if drawing.changed():
        raise DataError(f"{op.fn.__qualname__} at client {setting.data.names[client]!r} changed its batch in place, "
                        "and a full batch is the data itself: "
                        "write batch.field.clone(), or inplace=False in the first layer, and load the data again")
    if states != generators(device):
        raise AlgorithmError(f"{op.fn.__qualname__} used torch's global generator, so its results would depend on the order of the "
                             "clients, and a resumed run would differ: write c.noise(x) for random numbers of the client's own, and "
                             "stochastic=True in the problem for a loss that is random")
    return tuple(arguments[: len(op.out)]), Work(calls, samples, len(c.requests)), c
