"""Programs and hyper-parameters as notes in JSON, which cross a network, and back: nothing is built but what this process has imported."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any

from ..errors import FrameError
from ..federation.program import PROGRAMS, Program

_DEEPEST = 8


def describe(value: Any) -> Any:
    """A hyper-parameter, or a program with its hyper-parameters, as JSON."""
    if isinstance(value, Program):
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        return {"program": name, "fields": {f.name: describe(getattr(value, f.name)) for f in fields(value)}}  # type: ignore[arg-type]
    if isinstance(value, tuple | list):
        return [describe(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise FrameError(f"a hyper-parameter that crosses the network is a number, a text, or a list of them; got {type(value).__name__}")


def named(note: Any) -> set[str]:
    """The full names of the programs in what `describe` made."""
    if isinstance(note, list):
        return set().union(*map(named, note))
    if not isinstance(note, dict):
        return set()
    own = {note["program"]} if isinstance(note.get("program"), str) else set()
    return own.union(*map(named, note.values()))


@lru_cache
def digest_of(name: str) -> str:
    """What tells a program from another of the same name: a digest of its source and its bases', or of their code where there is none."""
    texts = [_text(cls) for cls in PROGRAMS[name].__mro__ if issubclass(cls, Program)]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


def _text(cls: type) -> str:
    try:
        return inspect.getsource(cls)
    except (OSError, TypeError):  # it was made in a session
        return "".join(f"{key}{fn.__code__.co_code.hex()}" for key, fn in sorted(vars(cls).items()) if isinstance(fn, FunctionType))


def build(note: Any, depth: int = 0) -> Any:
    """The inverse of `describe`, for programs this process has imported."""
    if depth > _DEEPEST:
        raise FrameError(f"a value may be nested {_DEEPEST} deep")
    if isinstance(note, list):
        return tuple(build(v, depth + 1) for v in note)
    if not isinstance(note, dict):
        return note
    name, values = note.get("program"), note.get("fields")
    cls = PROGRAMS.get(name) if isinstance(name, str) else None
    if cls is None or not is_dataclass(cls) or not isinstance(values, dict):
        raise FrameError(f"unknown program {name!r}; import its module at this site")
    if set(values) != {f.name for f in fields(cls)}:
        raise FrameError(f"{name} has the hyper-parameters {[f.name for f in fields(cls)]}; the frame has {sorted(values)}")
    try:
        return cls(**{key: build(value, depth + 1) for key, value in values.items()})
    except FrameError:
        raise
    except Exception as error:
        raise FrameError(f"{name} refuses its hyper-parameters: {error}") from None


@dataclass(frozen=True)
class Built:
    """What a note describes, the programs in it by name, and its client functions that were asked for, with how many values they return."""

    value: Any
    classes: dict[str, type[Program]]
    functions: dict[str, tuple[MethodType, int]]


_BUILT: dict[str, Built] = {}  # by their notes
_KEPT, _LONGEST = 256, 10_000  # so many of them, of so many characters at most


def built(note: Any) -> Built:
    """What a note describes; what was built last is kept, as most frames say the same again."""
    key = repr(note)
    found = _BUILT.get(key)
    if found is None or any(PROGRAMS.get(name) is not cls for name, cls in found.classes.items()):
        found = Built(build(note), {name: PROGRAMS[name] for name in named(note)}, {})
        if len(key) <= _LONGEST:
            if len(_BUILT) >= _KEPT:
                _BUILT.clear()
            _BUILT[key] = found
    return found
