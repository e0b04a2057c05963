"""The house's own rules: imports without a cycle, oracles that a type checker knows, classes that are abstract or final, short files."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import rookery
from rookery import Algorithm, Problem
from rookery.federation import oracles
from rookery.federation.program import PROGRAMS
from rookery.objectives import fastdro
from rookery.problems import kinds, pairwise

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "rookery"
PROTOCOLS: dict[type[Problem], Any] = {
    kinds.Minimization: oracles.MinimizationClient, kinds.Conditional: oracles.ConditionalClient,
    kinds.Compositional: oracles.CompositionalClient, kinds.Minimax: oracles.MinimaxClient,
    kinds.CompositionalMinimax: oracles.CompositionalMinimaxClient, kinds.Bilevel: oracles.BilevelClient,
    pairwise.Pairwise: oracles.PairwiseClient,
    fastdro.WorstCase: fastdro.WorstCaseClient}


# imports


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    return {name_of(file): file for file in PACKAGE.rglob("*.py")}


def imported(module: str, file: Path) -> Iterator[str]:
    """The modules of the package that a module imports anywhere: at its top, for types only, or inside a function."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - max(0, node.level - 1)] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield from (found for found in (f"{base}.{alias.name}", base) if found in modules() and (
                    found != base or f"{base}.{alias.name}" not in modules()))


def cycle(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: set(imported(module, file)) - {module} for module, file in modules().items()}
    assert sum(map(len, graph.values())) > 300  # it has been read
    assert cycle(graph) is None


def test_a_cycle_of_types_would_be_found() -> None:
    graph = {module: set(imported(module, file)) - {module} for module, file in modules().items()}
    graph["rookery.problems.base"] |= {"rookery.federation.federation"}
    assert {"rookery.problems.base", "rookery.federation.federation"} <= set(cycle(graph) or ())


@pytest.mark.parametrize("file", sorted((PACKAGE / "algorithms").rglob("*.py")), ids=lambda file: name_of(file).removeprefix("rookery."))
def test_algorithms_import_plainly_and_ignore_no_type(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"TYPE_CHECKING|type: ignore|\bcast\(", text)
    assert not re.search(r"\bc: Any\b|Federation\[Any\]|isinstance\(.*[Ee]ngine", text)


def test_no_problem_knows_of_federations_and_nobody_asks_which_engine_it_is() -> None:
    for module, file in modules().items():
        text = file.read_text(encoding="utf-8")
        if module.startswith("rookery.problems"):
            assert not any(found.startswith(("rookery.federation", "rookery.engines", "rookery.algorithms"))
                           for found in imported(module, file)), module
        if not module.startswith("rookery.engines"):
            assert not re.search(r"isinstance\([^)]*\bWire\b", text), module


# oracles


@pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.__name__)
def test_a_protocol_has_the_oracles_of_its_kind_with_their_signatures(kind: type[Problem]) -> None:
    protocol = PROTOCOLS[kind]
    own = {name for base in protocol.__mro__ if base not in oracles.Client.__mro__ for name, value in vars(base).items()
           if inspect.isfunction(value) and not name.startswith("_")}
    assert own == set(kind.ORACLES)
    assert get_type_hints(protocol.problem.fget)["return"] is kind
    for name in own:
        said, made = inspect.signature(getattr(protocol, name)), getattr(kind, name, None)
        if made is None:  # a field of the problem: a function that its user writes
            assert name in ("f", "g", "s")
            continue
        meant = inspect.signature(made)
        assert [(p.name, p.annotation, p.default) for p in said.parameters.values()] == [
            (p.name, p.annotation, p.default) for p in meant.parameters.values()], name
        assert said.return_annotation == meant.return_annotation, name


def test_every_kind_of_problem_has_a_protocol() -> None:
    def below(kind: type[Problem]) -> Iterator[type[Problem]]:
        for other in kind.__subclasses__():
            yield from (other, *below(other))

    # a kind without oracles of its own has its parent's
    own = {kind for kind in below(Problem) if "ORACLES" in vars(kind) and kind.__module__.startswith("rookery.")}
    assert own == set(PROTOCOLS)


RIGHT = """
from dataclasses import dataclass
from torch import Tensor
from rookery import Algorithm, Bilevel, Federation, Minimization
from rookery.federation import BilevelClient, MinimizationClient

@dataclass(frozen=True)
class Mine(Algorithm[Minimization]):
    lr: float

    def round(self, fed: Federation[Minimization], s: Tensor) -> Tensor:
        mean: Tensor = fed.mean(fed.map(self.step, fed.broadcast(s)))
        return mean

    def step(self, someone: MinimizationClient, x: Tensor) -> Tensor:
        return x - self.lr * someone.gradient(x, someone.draw())

@dataclass(frozen=True)
class Nested(Algorithm[Bilevel]):
    def hessian(self, c: BilevelClient, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return c.g_yy(x, y, c.draw(), v) if c.problem.inner else v
"""


WRONG = {
    "oracle": ("someone.gradient(x, ", "someone.graddient(x, ", '"MinimizationClient" has no attribute "graddient"'),
    "argument": ("someone.gradient(x, someone.draw())", 'someone.gradient(x, someone.draw(), "nonsense")', "Too many arguments"),
    "kind": ("someone.gradient(x, someone.draw())", "someone.g_vjp(x, someone.draw(), x)", 'has no attribute "g_vjp"'),
    "order": ("c.g_yy(x, y, c.draw(), v)", "c.g_yy(x, c.draw(), y, v)", 'Argument 2 to "g_yy"'),
    "problem": ("c.problem.inner", "c.problem.shared", '"Bilevel" has no attribute "shared"'),
    "algorithm": ("class Mine(Algorithm[Minimization])", "class Mine(Algorithm[Bilevel])", "incompatible with supertype")}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What a type checker says of the right file and of each wrong one, in one run, with what `make check` has left in its cache."""
    folder = tmp_path_factory.mktemp("typed")
    texts = {"right": RIGHT} | {name: RIGHT.replace(right, wrong) for name, (right, wrong, _) in WRONG.items()}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    done = subprocess.run([sys.executable, "-m", "mypy", *(str(folder / f"{name}.py") for name in texts)], capture_output=True, text=True,
                          check=False, cwd=ROOT, env={"PATH": "", "MYPYPATH": "src", "HOME": str(folder)})
    assert done.stdout, done.stderr
    lines = done.stdout.splitlines()
    return {name: [line for line in lines if f"/{name}.py:" in line and "error:" in line] for name in texts}


def test_a_type_checker_accepts_an_algorithm_of_ones_own(said: dict[str, list[str]]) -> None:
    assert said["right"] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_type_checker_refuses_a_misspelt_oracle(name: str, said: dict[str, list[str]]) -> None:
    right, _, words = WRONG[name]
    assert right in RIGHT
    assert any(words in line for line in said[name])


# classes and files


def test_an_algorithm_is_abstract_or_final() -> None:
    """One with a title is complete: no other derives from it, so that what it does is read in one place."""
    own = {cls for cls in PROGRAMS.values() if issubclass(cls, Algorithm) and cls.__module__.startswith("rookery.")}
    named = {cls for cls in own if vars(cls).get("title")}
    assert len(named) >= 43
    for cls in named:
        assert not [base.__name__ for base in cls.__mro__[1:] if base in named], cls.__name__
    assert not [cls.__name__ for cls in own - named if cls.title]


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_a_long_file_says_why(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if text.count("\n") > 300:
            assert "One file, because" in (ast.get_docstring(ast.parse(text)) or ""), f"{file}: {text.count(chr(10))} lines"


def test_every_public_name_is_found_where_its_folder_says() -> None:
    for name in (*rookery.__all__, *rookery._FOLDERS):
        assert getattr(rookery, name) is not None
