"""A run described in TOML, checked against dataclasses: unknown keys and wrong types get a sentence with the nearest right one."""

from __future__ import annotations

import difflib
import tomllib
import types
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..algorithms.base import Algorithm
from ..errors import ConfigError, RookeryError
from ..federation.epochs import Epochs
from ..federation.program import PROGRAMS, Schedule
from ..problems.base import Problem
from ..training.schedules import SCHEDULES
from .goals import OBJECTIVES, CrossEntropy, Objective
from .sections import DataSection, FederationSection, ModelSection, RunSection, SitesSection, WarmUpSection


@dataclass(frozen=True)
class Description:
    """The whole description."""

    data: DataSection
    algorithm: Algorithm[Any]
    sites: SitesSection = field(default_factory=SitesSection)
    model: ModelSection = field(default_factory=ModelSection)
    objective: Objective = field(default_factory=CrossEntropy)
    federation: FederationSection = field(default_factory=FederationSection)
    warm_up: WarmUpSection = field(default_factory=WarmUpSection)
    run: RunSection = field(default_factory=RunSection)


_T = TypeVar("_T")
_SECTIONS = {"data": DataSection, "sites": SitesSection, "model": ModelSection, "federation": FederationSection, "warm_up": WarmUpSection,
             "run": RunSection}


def algorithms() -> dict[str, type[Algorithm[Any]]]:
    """Every algorithm this process has imported, by the name its paper prints."""
    return {cls.title: cls for cls in PROGRAMS.values()  # a title is a class's own: one that derives from FedAvg is not FedAvg
            if issubclass(cls, Algorithm) and vars(cls).get("title") and cls.solves is not Problem}


def nearest(word: str, words: Sequence[str]) -> str:
    """« did you mean …» for an unknown word."""
    lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), list(lower), 1, 0.5)
    return f"did you mean {lower[close[0]]!r}? " if close else ""


def read(path: Path | str, overrides: Sequence[str] = ()) -> Description:
    """The description in a file, with `section.key=value` overrides."""
    return parse(read_tree(path, overrides))


def read_tree(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """The tables of a file, not yet checked."""
    path = Path(path)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for override in overrides:
        _override(tree, override)
    return tree


def parse(tree: dict[str, Any]) -> Description:
    """The description in a tree of tables."""
    known = [*_SECTIONS, "algorithm", "objective"]
    for section, table in tree.items():
        if section not in known:
            raise ConfigError(f"there is no section [{section}]; {nearest(section, known)}The sections are {', '.join(known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"[{section}] is a section of its own with entries below it; it was given {table!r}")
    for needed in ("data", "algorithm"):
        if needed not in tree:
            raise ConfigError(f"a run needs a section [{needed}] with at least name = \"…\"")
    parts: dict[str, Any] = {name: _build(cls, tree.get(name, {}), name) for name, cls in _SECTIONS.items()}
    return Description(algorithm=_algorithm(dict(tree["algorithm"])), objective=_objective(dict(tree.get("objective", {}))), **parts)


def _objective(table: dict[str, Any]) -> Objective:
    name = _typed(table.pop("name", CrossEntropy.name), str, "objective.name")
    if name not in OBJECTIVES:
        raise ConfigError(f"objective.name is one of {', '.join(OBJECTIVES)}; {nearest(name, list(OBJECTIVES))}It was given {name!r}")
    return _build(OBJECTIVES[name], table, "objective")


def describe(config: Description) -> dict[str, dict[str, Any]]:
    """The description again as a tree of tables, without the entries that have their default."""
    tree: dict[str, dict[str, Any]] = {}
    for section in fields(config):
        part = getattr(config, section.name)
        name = part.title if isinstance(part, Algorithm) else part.name if isinstance(part, Objective) else None
        named = {} if name is None else {"name": name}
        values = {f.name: getattr(part, f.name) for f in fields(part)}
        tree[section.name] = named | {f.name: _plain(values[f.name]) for f in fields(part) if values[f.name] != f.default}
        if isinstance(values.get("local_steps"), Epochs):
            tree[section.name] |= tree[section.name].pop("local_steps")
    return {section: table for section, table in tree.items() if table}


def _plain(value: Any) -> Any:
    if isinstance(value, Schedule):
        kind = next(name for name, cls in SCHEDULES.items() if type(value) is cls)
        return {"kind": kind, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}  # type: ignore[arg-type]
    if isinstance(value, Epochs):
        return {"epochs": value.number}
    return list(value) if isinstance(value, tuple) else value


def _algorithm(table: dict[str, Any]) -> Algorithm[Any]:
    known = algorithms()
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"[algorithm] needs name = \"…\", one of {', '.join(sorted(known))}")
    found = {title.lower(): cls for title, cls in known.items()}.get(name.lower())
    if found is None:
        raise ConfigError(f"there is no algorithm {name!r}; {nearest(name, list(known))}Known are {', '.join(sorted(known))}")
    epochs = table.pop("epochs", None)
    if epochs is not None:
        if "local_steps" in table:
            raise ConfigError("[algorithm] has both epochs and local_steps; keep one of them")
        table["local_steps"] = Epochs(_typed(epochs, float, "algorithm.epochs"))
    for key, value in table.items():
        if isinstance(value, dict) and value.keys() == {"epochs"}:
            table[key] = Epochs(_typed(value["epochs"], float, f"algorithm.{key}.epochs"))
    return _build(found, table, "algorithm")


def _build(cls: type[_T], table: dict[str, Any], section: str) -> _T:
    hints = get_type_hints(cls, localns={"Epochs": Epochs})
    own = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in own:
            raise ConfigError(f"[{section}] has no entry {key!r}; {nearest(key, list(own))}It has {', '.join(own)}")
    for name, f in own.items():
        if name not in table and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"[{section}] needs {name} = …")
    values = {key: _typed(value, hints[key], f"{section}.{key}") for key, value in table.items()}
    try:
        return cls(**values)
    except RookeryError as error:
        raise ConfigError(f"[{section}]: {error}") from None


def _typed(value: Any, hint: Any, where: str) -> Any:
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
                return _typed(value, option, where)
            except ConfigError:
                continue
    elif origin is tuple:
        if isinstance(value, list | tuple):
            return tuple(_typed(v, get_args(hint)[0], where) for v in value)
    elif hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} must be {_words(hint)}; it was given {value!r}")


def _schedule(table: dict[str, Any], where: str) -> Schedule:
    kind = table.pop("kind", None)
    if kind not in SCHEDULES:
        raise ConfigError(f"{where} as a schedule has kind = one of {', '.join(SCHEDULES)}, as in {{kind = \"drop\", start = 0.1, "
                          f"rounds = [90]}}; {nearest(str(kind), list(SCHEDULES))}It was given {kind!r}")
    return _build(SCHEDULES[kind], table, where)


def _words(hint: Any) -> str:
    names = {float: "a number", int: "a whole number", str: "a text in quotes", bool: "true or false", type(None): "left out",
             Schedule: "a schedule"}
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(a) for a in get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {_words(get_args(hint)[0]).removeprefix('a ')}s"
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    section, dot, entry = key.strip().partition(".")
    if not equals or not dot:
        raise ConfigError(f"an override reads section.key=value, as in run.rounds=20; got {override!r}")
    try:
        parsed = tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a text
    if isinstance(tree.setdefault(section, {}), dict):  # what else it is, `parse` will refuse
        tree[section][entry] = parsed
