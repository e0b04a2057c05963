"""Where client functions run."""

from __future__ import annotations

from ..errors import EngineError
from .auto import Auto
from .base import Engine
from .loop import Loop
from .vectorised import Vectorised
from .wire import Wire

ENGINES: dict[str, type] = {"auto": Auto, "loop": Loop, "vectorised": Vectorised, "wire": Wire}

__all__ = ["ENGINES", "Auto", "Engine", "Loop", "Vectorised", "Wire", "choose"]


def choose(engine: str | Engine) -> Engine:
    """An engine by name, or the one given."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        raise EngineError(f"the engines are {', '.join(ENGINES)}; {engine!r} is not one of them")
    chosen: Engine = ENGINES[engine]()
    return chosen
