"""What the federation asks of an engine, and how it finds one by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from torch import Tensor

from ..errors import EngineError
from .client import Setting
from .operations import Flush
from .reducer import Reducer


class Engine(Protocol):
    """What a federation asks of an engine, which runs client functions somewhere: in this process, or at remote sites."""

    name: str
    folder: Path | None  # where its sites keep what they save; an engine of this process needs none

    def bind(self, setting: Setting) -> None: ...

    def flush(self, flush: Flush, reducer: Reducer) -> None:
        """Run the operations and hand uploads to the reducer. If it fails, nothing the engine holds has changed."""
        ...

    def save(self, tag: str, ids: Sequence[int]) -> dict[str, Tensor]:
        """Keep the values of these numbers under `tag`. What it returns is the caller's to store; sites that keep their own return none."""
        ...

    def load(self, tag: str, ids: Mapping[int, int], tensors: Mapping[str, Tensor]) -> set[str]:
        """Take back what was saved under `tag`: the values of the old numbers under new ones; `tensors` holds what `save` returned.

        Returns the clients whose part nobody has, who stay away.
        """
        ...

    def forget(self, tags: Sequence[str]) -> None:
        """Nobody will load what was saved under these tags."""
        ...

    def roll_call(self, away: set[str]) -> set[str]:
        """The clients that are not there, of those who were away; the others take part again.

        `StateLost` where one has come back without values that are still in use.
        """
        ...

    def wait(self, away: set[str], gone: set[str], most: int) -> set[str]:
        """Wait until at most so many clients are gone, where that may help and there is time left: who is gone then.

        `away` are those who were so before. `StateLost` as in a roll call.
        """
        ...


# imported when they are asked for: an engine knows the federation, not the other way round
ENGINES = {"auto": "rookery.engines.auto:Auto", "loop": "rookery.engines.loop:Loop", "vectorised": "rookery.engines.vectorised:Vectorised",
           "wire": "rookery.engines.wire:Wire", "ray": "rookery.engines.ray:Ray"}


def choose(engine: str | Engine) -> Engine:
    """An engine by name, or the one given."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise EngineError(f"the engines are {', '.join(ENGINES)}; {engine!r} is not one of them")
    module, _, name = ENGINES[engine].partition(":")
    chosen: Engine = getattr(import_module(module), name)()
    return chosen
