"""Values of TOML checked against types: unknown entries and wrong values get a sentence with the nearest right one."""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import ConfigError, RookeryError
from ..federation.epochs import Epochs
from ..federation.program import Schedule
from ..objectives.given import REQUIRED, Entry
from ..training.schedules import SCHEDULES

T = TypeVar("T")


def nearest(word: str, words: Sequence[str]) -> str:
    """« did you mean …» for an unknown word."""
    lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), list(lower), 1, 0.5)
    return f"did you mean {lower[close[0]]!r}? " if close else ""


def entries_of(cls: type) -> dict[str, Entry]:
    """The fields of a dataclass as the entries of a section."""
    try:
        hints = get_type_hints(cls, localns={"Epochs": Epochs})
    except NameError as error:
        raise ConfigError(f"the annotations of {cls.__module__}:{cls.__qualname__} cannot be read: {error}; import it where the class is") \
            from None
    return {f.name: Entry(hints[f.name], REQUIRED if f.default is MISSING and f.default_factory is MISSING else f.default)
            for f in fields(cls) if f.init}


def check_entries(entries: Mapping[str, Entry], table: Mapping[str, Any], section: str) -> dict[str, Any]:
    """The values of a section, each as the type that its entry has."""
    for key in table:
        if key not in entries:
            raise ConfigError(f"[{section}] has no entry {key!r}; {nearest(key, list(entries))}It has {', '.join(entries) or 'none'}")
    for name, entry in entries.items():
        if name not in table and entry.default is REQUIRED:
            raise ConfigError(f"[{section}] needs {name} = …, {in_words(entry.hint)}")
    return {key: typed(value, entries[key].hint, f"{section}.{key}") for key, value in table.items()}


def build_section(cls: type[T], table: Mapping[str, Any], section: str) -> T:
    """A dataclass from the values of its section."""
    values = check_entries(entries_of(cls), table, section)
    try:
        return cls(**values)
    except RookeryError as error:
        raise ConfigError(f"[{section}]: {error}") from None


def typed(value: Any, hint: Any, where: str) -> Any:
    """The value as the type its entry has, or a sentence."""
    origin = get_origin(hint)
    if origin is Literal:
        if value in get_args(hint):
            return value
        choices = [str(a) for a in get_args(hint)]
        raise ConfigError(f"{where} is one of {', '.join(choices)}; {nearest(str(value), choices)}It was given {value!r}")
    if origin in (Union, types.UnionType):
        if isinstance(value, dict) and Schedule in get_args(hint):
            return _schedule(dict(value), where)
        for option in get_args(hint):
            try:
                return typed(value, option, where)
            except ConfigError:
                continue
        named = next((option for option in get_args(hint) if get_origin(option) is Literal), None)
        if named is not None and isinstance(value, str):  # its sentence has the nearest word
            return typed(value, named, where)
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(typed(v, get_args(hint)[0], where) for v in value)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} must be {in_words(hint)}; it was given {value!r}")


def _schedule(table: dict[str, Any], where: str) -> Schedule:
    kind = table.pop("kind", None)
    if kind not in SCHEDULES:
        raise ConfigError(f"{where} as a schedule has kind = one of {', '.join(SCHEDULES)}, as in {{kind = \"drop\", initial = 0.1, "
                          f"rounds = [90]}}; {nearest(str(kind), list(SCHEDULES))}It was given {kind!r}")
    return build_section(SCHEDULES[kind], table, where)


def in_words(hint: Any) -> str:
    """A type for people who write TOML.

    >>> in_words(int | None), in_words(tuple[int, ...]), in_words(Literal["a", "b"])
    ('a whole number or left out', 'a list of whole numbers', '"a" or "b"')
    """
    names = {float: "a number", int: "a whole number", str: "a text in quotes", bool: "true or false", types.NoneType: "left out",
             Schedule: "a schedule", Epochs: "{epochs = a number}"}
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(in_words(a) for a in get_args(hint)))
    if get_origin(hint) is tuple:
        several = {"a whole number": "whole numbers", "a number": "numbers", "a text": "texts"}
        words = in_words(get_args(hint)[0])
        for one, many in several.items():
            words = words.replace(one, many)
        return f"a list of {words}"
    if get_origin(hint) is Literal:
        return " or ".join(f'"{a}"' for a in get_args(hint))
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def plain(value: Any) -> Any:
    """A value as TOML and JSON can write it."""
    if isinstance(value, Schedule):
        kind = next(name for name, cls in SCHEDULES.items() if type(value) is cls)
        return {"kind": kind, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}  # type: ignore[arg-type]
    if isinstance(value, Epochs):
        return {"epochs": value.number}
    return list(value) if isinstance(value, tuple) else value
