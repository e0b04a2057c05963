"""A run described in TOML, checked against dataclasses: unknown keys and wrong types get a sentence with the nearest right one."""

from __future__ import annotations

import difflib
import tomllib
import types
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .algorithms.base import Algorithm
from .errors import RookeryError
from .fed import Epochs
from .problem import Problem
from .program import PROGRAMS


class ConfigError(RookeryError):
    """A run's description is not right; the message names the entry."""


@dataclass(frozen=True)
class DataPart:
    """[data] what to train on, by its name in `rookery.data.sets`. `validation` is the share of its rows that each site holds out."""

    name: str
    validation: float = 0.2


@dataclass(frozen=True)
class SitesPart:
    """[sites] how rows are spread over sites."""

    how: Literal["iid", "dirichlet", "shards", "quantity"] = "dirichlet"
    number: int = 8
    alpha: float = 1.0
    per_site: int = 2


@dataclass(frozen=True)
class ModelPart:
    """[model] the net; its inputs and outputs follow from the data."""

    name: Literal["linear", "mlp", "small_cnn", "resnet20"] = "mlp"
    hidden: tuple[int, ...] = (32,)


@dataclass(frozen=True)
class ObjectivePart:
    """[objective] what is minimised."""

    name: Literal["cross_entropy", "kl_dro"] = "cross_entropy"
    lam: float = 1.0
    weight_decay: float = 0.0


@dataclass(frozen=True)
class FederationPart:
    """[federation] how the sites work together."""

    engine: Literal["auto", "loop", "vectorised", "wire"] = "auto"
    weights: Literal["equal", "samples"] = "samples"
    participate: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # what NumPy and scikit-learn take
            raise ConfigError(f"seed must be a whole number from 0 to 2**32 - 1; got {self.seed}")


@dataclass(frozen=True)
class RunPart:
    """[run] how long, and how often to look."""

    rounds: int = 50
    every: int | None = None
    minutes: float | None = None
    save_every: int | None = None


@dataclass(frozen=True)
class Config:
    """The whole description."""

    data: DataPart
    algorithm: Algorithm
    sites: SitesPart = field(default_factory=SitesPart)
    model: ModelPart = field(default_factory=ModelPart)
    objective: ObjectivePart = field(default_factory=ObjectivePart)
    federation: FederationPart = field(default_factory=FederationPart)
    run: RunPart = field(default_factory=RunPart)


_T = TypeVar("_T")
_SECTIONS = {"data": DataPart, "sites": SitesPart, "model": ModelPart, "objective": ObjectivePart, "federation": FederationPart,
             "run": RunPart}


def algorithms() -> dict[str, type[Algorithm]]:
    """Every algorithm this process has imported, by the name its paper prints."""
    return {cls.title: cls for cls in PROGRAMS.values() if issubclass(cls, Algorithm) and cls.title and cls.solves is not Problem}


def nearest(word: str, words: Sequence[str]) -> str:
    """« did you mean …» for an unknown word."""
    lower = {w.lower(): w for w in words}
    close = difflib.get_close_matches(word.lower(), list(lower), 1, 0.5)
    return f"did you mean {lower[close[0]]!r}? " if close else ""


def read(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The description in a file, with `section.key=value` overrides."""
    path = Path(path)
    try:
        tree = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    for override in overrides:
        _override(tree, override)
    return parse(tree)


def parse(tree: dict[str, Any]) -> Config:
    """The description in a tree of tables."""
    known = [*_SECTIONS, "algorithm"]
    for section, table in tree.items():
        if section not in known:
            raise ConfigError(f"there is no section [{section}]; {nearest(section, known)}The sections are {', '.join(known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"[{section}] is a section of its own with entries below it; it was given {table!r}")
    for needed in ("data", "algorithm"):
        if needed not in tree:
            raise ConfigError(f"a run needs a section [{needed}] with at least name = \"…\"")
    parts: dict[str, Any] = {name: _build(cls, tree.get(name, {}), name) for name, cls in _SECTIONS.items()}
    return Config(algorithm=_algorithm(dict(tree["algorithm"])), **parts)


def _algorithm(table: dict[str, Any]) -> Algorithm:
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


def _words(hint: Any) -> str:
    names = {float: "a number", int: "a whole number", str: "a text in quotes", bool: "true or false", type(None): "left out"}
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
    tree.setdefault(section, {})[entry] = parsed
