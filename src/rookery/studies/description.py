"""A run described in TOML: from a file to checked sections, and back."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from ..algorithms.base import Algorithm
from ..data.sampling import Sampler, Stratified
from ..errors import ConfigError, ProblemError
from ..federation.epochs import Epochs
from ..federation.program import PROGRAMS
from ..metrics.personal import Adaptation
from ..objectives.declare import declared, objectives, written
from ..objectives.given import Entry
from ..problems.base import Problem
from . import modules
from .assessment import DecisionSection
from .choices import SAMPLERS, ModelSection, ObjectiveSection, OwnModelSection, SamplingSection
from .datasection import DataSection
from .personal import PersonalSection
from .scores import OwnMetric
from .sections import FederationSection, RunSection, SitesSection, WarmUpSection
from .values import build_section, check_entries, nearest, plain, typed


@dataclass(frozen=True)
class Description:
    """What a file says about a run: a checked section for each of its tables, with defaults for those that are left out."""

    data: DataSection
    algorithm: Algorithm[Any]
    sites: SitesSection = field(default_factory=SitesSection)
    model: ModelSection | OwnModelSection = field(default_factory=ModelSection)
    objective: ObjectiveSection = field(default_factory=ObjectiveSection)
    federation: FederationSection = field(default_factory=FederationSection)
    warm_up: WarmUpSection = field(default_factory=WarmUpSection)
    personal: PersonalSection = field(default_factory=PersonalSection)
    decision: DecisionSection = field(default_factory=DecisionSection)
    run: RunSection = field(default_factory=RunSection)
    metrics: tuple[OwnMetric, ...] = ()  # what run.metrics names

    @property
    def adaptation(self) -> Adaptation | None:
        """How sites adapt the model to their own rows, where they do."""
        own = self.objective.declared.adapts
        return self.personal.adaptation(None if own is None else self.objective.entries[own])

    @property
    def own_files(self) -> list[Path]:
        """The files that what is one's own comes from."""
        names = [describe(self)["algorithm"]["name"], self.model.name, self.objective.name, *self.run.metrics]
        if self.objective.sampling is not None:
            names.append(self.objective.sampling.name)
        return sorted({path for name in names if modules.is_own(name) for path in modules.files(name)})


SECTIONS = {"data": DataSection, "sites": SitesSection, "federation": FederationSection, "warm_up": WarmUpSection,
             "personal": PersonalSection, "decision": DecisionSection, "run": RunSection}
_CHOICES = ("algorithm", "objective", "model")


def algorithms() -> dict[str, type[Algorithm[Any]]]:
    """Rookery's own algorithms, by the name that a paper prints. One's own have a module:name, whatever their title."""
    return {cls.title: cls for name, cls in PROGRAMS.items() if name.startswith("rookery.")
            and issubclass(cls, Algorithm) and vars(cls).get("title") and cls.solves is not Problem}


def read(path: Path | str, overrides: Sequence[str] = ()) -> Description:
    """The description in a file, with `section.key=value` overrides."""
    return parse(read_tree(path, overrides), Path(path).parent)


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
        slashes = "; a path with backslashes stands in single quotes, or has slashes instead" if _backslashes(path) else ""
        raise ConfigError(f"{path} is not TOML: {error}{slashes}") from None
    for said in overrides:
        override(tree, said)
    return tree


def _backslashes(path: Path | str) -> bool:
    """Whether a file has backslashes, as paths of Windows have, which TOML takes for something else."""
    return b"\\" in Path(path).read_bytes()


def parse(tree: dict[str, Any], folder: Path | None = None) -> Description:
    """The description in a tree of tables; modules of one's own are looked for in `folder` first."""
    known = [*SECTIONS, *_CHOICES]
    for section, table in tree.items():
        if section not in known:
            raise ConfigError(f"there is no section [{section}]; {nearest(section, known)}The sections are {', '.join(known)}")
        if not isinstance(table, dict):
            raise ConfigError(f"[{section}] is a section of its own with entries below it; it was given {table!r}")
    for needed in ("data", "algorithm"):
        if needed not in tree:
            raise ConfigError(f"a run needs a section [{needed}] with at least name = \"…\"")
    plain_ones: dict[str, Any] = {name: build_section(cls, tree.get(name, {}), name) for name, cls in SECTIONS.items()}
    return Description(algorithm=_algorithm(dict(tree["algorithm"]), folder), objective=_objective(dict(tree.get("objective", {})), folder),
                       model=model_section(dict(tree.get("model", {})), folder), metrics=_metrics(plain_ones["run"].metrics, folder),
                       **plain_ones)


def describe(config: Description) -> dict[str, dict[str, Any]]:
    """The description again as a tree of tables, without the entries that have their default."""
    tree: dict[str, dict[str, Any]] = {"algorithm": _describe_algorithm(config.algorithm), "model": config.model.describe(),
                                       "objective": config.objective.describe()}
    for section in SECTIONS:
        own = getattr(config, section)
        tree[section] = {f.name: plain(getattr(own, f.name)) for f in fields(own) if getattr(own, f.name) != f.default}
    return {section: tree[section] for section in ("data", *tree) if tree[section]}


def _describe_algorithm(algorithm: Algorithm[Any]) -> dict[str, Any]:
    cls, values = type(algorithm), {f.name: f.default for f in fields(algorithm)}  # type: ignore[arg-type]
    name = cls.title if cls.__module__.startswith("rookery.") else f"{cls.__module__}:{cls.__qualname__}"
    table = {n: plain(getattr(algorithm, n)) for n, default in values.items() if getattr(algorithm, n) != default}
    if isinstance(getattr(algorithm, "local_steps", None), Epochs):
        table |= table.pop("local_steps")
    return {"name": name} | table


def _algorithm(table: dict[str, Any], folder: Path | None) -> Algorithm[Any]:
    known = algorithms()
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"[algorithm] needs name = \"…\", one of {', '.join(sorted(known))}")
    found = find_algorithm(name, folder) if modules.is_own(name) else {title.lower(): cls for title, cls in known.items()}.get(name.lower())
    if found is None:
        raise ConfigError(f"there is no algorithm {name!r}; {nearest(name, list(known))}Known are {', '.join(sorted(known))}, "
                          "and one's own as module:name")
    epochs = table.pop("epochs", None)
    if epochs is not None:
        if "local_steps" in table:
            raise ConfigError("[algorithm] has both epochs and local_steps; keep one of them")
        table["local_steps"] = Epochs(typed(epochs, float, "algorithm.epochs"))
    for key, value in table.items():
        if isinstance(value, dict) and value.keys() == {"epochs"}:
            table[key] = Epochs(typed(value["epochs"], float, f"algorithm.{key}.epochs"))
    return build_section(found, table, "algorithm")


def find_algorithm(name: str, folder: Path | None = None) -> type[Algorithm[Any]]:
    """An algorithm of one's own."""
    found = modules.find(name, "algorithm.name", folder)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ConfigError(f"algorithm.name is {name!r}, which is {_what(found)}; an algorithm is a class derived from rookery.Algorithm, "
                          "as in class Mine(Algorithm[Minimization])")
    if not is_dataclass(found) or not found.__dataclass_params__.frozen:
        raise ConfigError(f"algorithm.name is {name!r}, whose class must be a frozen dataclass of hyper-parameters: write "
                          "@dataclass(frozen=True) above it")
    missing = [n for n in ("init", "round") if getattr(found, n) is getattr(Algorithm, n)]
    if missing or not hasattr(found, "State"):
        raise ConfigError(f"algorithm.name is {name!r}, which has no {(missing or ['State'])[0]}; an algorithm has State, init and round")
    return found


def _objective(table: dict[str, Any], folder: Path | None) -> ObjectiveSection:
    name = typed(table.pop("name", "cross_entropy"), str, "objective.name")
    if modules.is_own(name):
        function = modules.find(name, "objective.name", folder)
        if not inspect.isfunction(function):
            raise ConfigError(f"objective.name is {name!r}, which is {_what(function)}; an objective is a function that returns a problem")
        found = declared(function)
    elif name in objectives():
        found = objectives()[name]
    else:
        raise ConfigError(f"objective.name is one of {', '.join(objectives())}, or one's own as module:name; "
                          f"{nearest(name, list(objectives()))}It was given {name!r}")
    sampling = table.pop("sampling", None)
    common = {"sampling": Entry(str, None), "reduce": Entry(Literal["bilevel", "compositional"] | None, None)}
    try:
        entries = found.entries
    except (ProblemError, NameError) as error:
        raise ConfigError(f"objective.name is {name!r}: {error}") from None
    if "groups" in found.parameters and "groups" in table and "groups" not in entries:
        raise ConfigError("[objective] has no entry 'groups': it is the number of values in the column that `field` names, and counted "
                          f"there; write field = {table['groups']!r}")
    values = check_entries(entries | common, table, "objective")
    reduce = values.pop("reduce", None)
    return ObjectiveSection(name, found, values, None if sampling is None else _sampling(sampling, folder), reduce)


def _sampling(said: Any, folder: Path | None) -> SamplingSection:
    where = "objective.sampling"
    table = {"name": said} if isinstance(said, str) else dict(said) if isinstance(said, dict) else {}
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{where} is a sampler's name, or a table of its name and numbers, as in {{name = \"Stratified\", label = "
                          f"\"labels\", positives = 8}}; it was given {said!r}")
    if modules.is_own(name):
        found = modules.find(name, where, folder)
        if not isinstance(found, type) and _samples(found) and not table:
            return SamplingSection(name, {}, found)
        if not isinstance(found, type) or not _samples(found):
            raise ConfigError(f"{where} is {name!r}, which is {_what(found)}; a sampler is a class with select, fetch and whole, as those "
                              "of rookery.data.sampling")
        values = check_entries(written(found, set()), table, where)
        return SamplingSection(name, values, modules.call(found, where, **values))
    if name not in SAMPLERS:
        raise ConfigError(f"{where} is one of {', '.join(SAMPLERS)}, or one's own as module:name; {nearest(name, list(SAMPLERS))}"
                          f"It was given {name!r}")
    sampler: Sampler = build_section(SAMPLERS[name], table, where)
    if isinstance(sampler, Stratified) and not sampler.positives and sampler.share is None:
        raise ConfigError(f"[{where}] needs positives, their number in a batch, or share, their share of it")
    return SamplingSection(name, table, sampler)


def _samples(found: Any) -> bool:
    return all(callable(getattr(found, method, None)) for method in ("select", "fetch", "whole"))


def model_section(table: dict[str, Any], folder: Path | None = None) -> ModelSection | OwnModelSection:
    """The section [model] in a table of its entries."""
    name = table.get("name", "")
    if not (isinstance(name, str) and modules.is_own(name)):
        return build_section(ModelSection, table, "model")
    found = modules.find(name, "model.name", folder)
    is_class = isinstance(found, type)
    if not (issubclass(found, nn.Module) if is_class else inspect.isfunction(found)):
        raise ConfigError(f"model.name is {name!r}, which is {_what(found)}; a net is a class derived from torch.nn.Module, or a function "
                          "that returns one")
    try:
        entries = written(found, set(OwnModelSection.SUPPLIED))
    except (ProblemError, NameError) as error:
        raise ConfigError(f"model.name is {name!r}: {error}") from None
    return OwnModelSection(name, found, check_entries(entries, {k: v for k, v in table.items() if k != "name"}, "model"))


def _metrics(names: tuple[str, ...], folder: Path | None) -> tuple[OwnMetric, ...]:
    for name in names:
        if not modules.is_own(name):
            raise ConfigError(f"run.metrics names functions of one's own, as in [\"mymodule:f1\"]; it was given {name!r}. Loss, accuracy, "
                              "worst class and, of two classes, AUC and AP come by themselves")
    found = tuple(OwnMetric(name, modules.find(name, "run.metrics", folder)) for name in names)
    for metric in found:
        if [m.name for m in found].count(metric.name) > 1:
            raise ConfigError(f"run.metrics has two functions called {metric.name!r}; rename one of them")
    return found


def _what(found: Any) -> str:
    return f"a class derived from {found.__mro__[1].__name__}" if isinstance(found, type) else f"a {type(found).__name__}"


def override(tree: dict[str, Any], said: str) -> None:
    """Put what is said as section.key=value into a tree of tables."""
    key, equals, value = said.partition("=")
    section, dot, entry = key.strip().partition(".")
    if not equals or not dot:
        raise ConfigError(f"an override reads section.key=value, as in run.rounds=20; got {said!r}")
    try:
        parsed = tomllib.loads(f"v = {value.strip()}")["v"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()  # a bare word is a text
    if isinstance(tree.setdefault(section, {}), dict):  # what else it is, `parse` will refuse
        tree[section][entry] = parsed
