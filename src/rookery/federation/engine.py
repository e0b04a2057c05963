"""What the federation asks of an engine, and how it finds one by name."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from torch import Tensor

from ..errors import EngineError
from .client import Setting
from .operations import Flush, Index
from .reducer import Reducer


class Engine(Protocol):
    """What a federation asks of an engine, which runs client functions somewhere: in this process, or at remote sites."""

    name: str

    def bind(self, setting: Setting) -> None: ...

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        """Run the operations and hand uploads to the reducer. If it fails, nothing the engine holds has changed."""
        ...

    def export(self, id: int) -> tuple[Index, list[Tensor]]:
        """A stored value: the clients that hold it, and their tensors."""
        ...

    def restore(self, id: int, clients: Index, values: list[Tensor], pool: bool) -> None: ...


ENGINES = {"auto": "rookery.engines.auto:Auto", "loop": "rookery.engines.loop:Loop", "vectorised": "rookery.engines.vectorised:Vectorised",
           "wire": "rookery.engines.wire:Wire"}  # imported when they are asked for: an engine knows the federation, not the other way round


def choose(engine: str | Engine) -> Engine:
    """An engine by name, or the one given."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise EngineError(f"the engines are {', '.join(ENGINES)}; {engine!r} is not one of them")
    module, _, name = ENGINES[engine].partition(":")
    chosen: Engine = getattr(import_module(module), name)()
    return chosen
