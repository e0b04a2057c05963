"""The documents hold: their Python blocks run as they stand, import public names only, name files that exist; the reference is complete.

That the site builds without a warning is for `make docs`.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module, util
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rookery.cli import main
from rookery.federation.program import PROGRAMS
from rookery.studies import read
from rookery.studies.build import build

ROOT = Path(__file__).resolve().parents[2]


def blocks(page: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """The page's blocks in these languages, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(rf"^```(?:{'|'.join(languages)})\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, block.start(1)), block[1]


def program(page: Path) -> str:
    """The page's Python blocks on their own lines, so that a traceback names the line of the page."""
    lines = [""] * (page.read_text(encoding="utf-8").count("\n") + 1)
    for first, block in blocks(page, "python"):
        for number, line in enumerate(block.splitlines(), first):
            lines[number] = line
    return "\n".join(lines)


def files(page: Path) -> dict[str, str]:
    """The files of a page: blocks that begin with a comment of the file's name, joined where it comes again."""
    found: dict[str, str] = {}
    for _, block in blocks(page, "python", "toml"):
        name, text = re.fullmatch(r"(?:# (\S+\.(?:toml|py))\n)?(.*)", block, re.DOTALL).groups()  # type: ignore[union-attr]
        if name is not None:
            found[name] = found.get(name, "") + text
    return found


PROCESSES = {"real-sites", "flare"}  # run with processes of their own, by test_grpc.py and test_flare.py
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if "```python" in page.read_text(encoding="utf-8")]
MIXED = {  # pages whose Python needs what their commands have left, and some of what they leave themselves
    "fit": {"predictions.csv", "runs/fit-visits-ap/report.html"}, "tables": {"predictions.csv", "visits-torch", "visits.schema.toml"}}
FOLDERS = [f"rookery.{name}" for name in (
    "algorithms", "bundle", "data", "data.tables", "engines", "errors", "federation", "fitting", "metrics", "models", "objectives",
    "problems", "report", "sites", "sklearn", "studies", "testing", "training")]
DOCUMENTS = [path for pattern in ("*.md", "docs/*.md", "docs/decisions/*.md") for path in sorted(ROOT.glob(pattern))
             if path.name != "CHANGELOG.md"]  # which names what was


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in {*MIXED, *PROCESSES}], ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = program(page)
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look up the names in annotations
    try:
        exec(compile(source, str(page), "exec"), module.__dict__)
    finally:
        for name in [name for name in PROGRAMS if name.startswith(f"{module.__name__}.")]:
            del PROGRAMS[name]  # a page's algorithm is not one of the package's


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_imports_public_names_only(page: Path) -> None:
    for node in ast.walk(ast.parse(program(page))):
        if isinstance(node, ast.Import):
            assert not [alias.name for alias in node.names if alias.name.startswith("rookery.")], "write from rookery.folder import name"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rookery":
            assert node.module == "rookery" or node.module in FOLDERS, f"{node.module} is not a folder of public names"
            private = {alias.name for alias in node.names} - set(import_module(node.module).__all__)
            assert not private, f"{node.module} does not name {private} in __all__"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_files_that_a_document_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|docs|experiments|examples|benchmarks)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    assert not [name for name in named if not (ROOT / name).exists()]


def public(folder: str) -> Iterator[tuple[str, Any]]:
    """The public names of a folder, each with what it stands for."""
    module = import_module(folder)
    yield from ((name, getattr(module, name)) for name in getattr(module, "__all__", ()))


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_reference_has_every_public_name(folder: str) -> None:
    shown: dict[str, set[str]] = {}
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        for found in re.finditer(r"^::: (\S+)\n((?:    .*\n)*)", page.read_text(encoding="utf-8"), re.MULTILINE):
            members = re.search(r"members: (?:\[(.*)\]|false)", found[2])
            if members is None or members[1]:
                shown[found[1]] = set(members[1].split(", ")) if members else set()
    for name, value in public(folder):
        own = {folder, f"{folder}.{name}", f"{folder}.{name}.{name}"} & shown.keys()  # the last where a module has the same name
        elsewhere = name in shown.get(getattr(value, "__module__", ""), ()) or (isinstance(value, ModuleType) and value.__name__ in shown)
        assert own or elsewhere, f"docs/reference/ lacks ::: {folder}.{name}"


def explained(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The docstrings of a class, a function or a module, and those of a class's own public methods, where they have one."""
    own = value.__doc__ or ""
    yield name, "" if own.startswith((f"{name}(", ">>>")) else inspect.cleandoc(own)  # a dataclass without one gets its signature
    for key, method in vars(value).items() if isinstance(value, type) else ():
        if inspect.isfunction(method) and method.__doc__ and not key.startswith("_"):
            yield f"{name}.{key}", inspect.cleandoc(method.__doc__)


@pytest.mark.parametrize("folder", ["rookery", *FOLDERS])
def test_every_public_name_is_explained_in_a_sentence(folder: str) -> None:
    for name, value in public(folder):
        if isinstance(value, type | ModuleType) or inspect.isfunction(value):
            for what, text in explained(name, value):
                first = text.partition("\n\n")[0]
                assert first.endswith((".", ":", ".)")), f"{folder}.{what} begins with no full sentence: {first!r}"


def docstrings() -> ModuleType:
    """The extension that writes docstrings as Markdown for the reference."""
    pytest.importorskip("griffe", reason="the site's tools are not installed: pip install 'rookery[docs]'")
    spec = util.spec_from_file_location("docstrings", ROOT / "docs" / "_mkdocs" / "docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_docstrings_become_markdown() -> None:
    text = """FedDRO: x_k* ← [x_k]₊, `beta` as `x_0`.

    lr:   a step size,
          one for all
    *fs, g: functions; h* too

    Where

    - one_thing holds;
    - another
      does, then
        x_k ← x_k

    Reference: nobody.

    >>> 1 * 1
    1
    """
    assert docstrings().markdown(inspect.cleandoc(text)) == inspect.cleandoc(r"""
    FedDRO: x\_k\* ← \[x\_k\]₊, `beta` as `x_0`.

    - `lr`: a step size, one for all

    - `*fs`, `g`: functions; h\* too

    Where

    - one\_thing holds;

    - another does, then x\_k ← x\_k

    Reference: nobody.

    ```pycon
    >>> 1 * 1
    1
    ```
    """)


@pytest.mark.parametrize("name", ["adding-an-algorithm", "five-minutes", "writing-an-objective"])
def test_the_commands_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are written down as they stand, its commands given one after the other."""
    page = ROOT / "docs" / f"{name}.md"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which a module beside a description is added
    for file, text in files(page).items():
        Path(file).write_text(text)
        monkeypatch.delitem(sys.modules, Path(file).stem, raising=False)
    commands = [shlex.split(line) for _, block in blocks(page, "console") for line in block.splitlines()]
    assert commands
    for command in commands:
        jobs = ["--jobs", "1"] if command[1] == "compare" else []
        monkeypatch.setattr(sys, "argv", [*command, *jobs])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code, command
        written = dict(pairwise(command)).get("--out")
        assert written is None or Path(written).exists()
    for name in [name for name, cls in PROGRAMS.items() if f"{cls.__module__}.py" in files(page)]:
        del PROGRAMS[name]


@pytest.mark.parametrize("name", MIXED)
def test_python_files_and_commands_of_a_page_run_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / f"{name}.md"
    monkeypatch.chdir(tmp_path)
    for file, text in files(page).items():
        Path(file).write_text(text)
    steps = sorted((line, block, language) for language in ("python", "console") for line, block in blocks(page, language))
    names: dict[str, Any] = {}
    for _, block, language in steps:
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
        for line in block.splitlines() if language == "console" else ():
            command = shlex.split(line)
            monkeypatch.setattr(sys, "argv", [*command, *(["--jobs", "1"] if command[1] == "fit" else [])])
            with pytest.raises(SystemExit) as caught:
                main()
            assert not caught.value.code, line
    assert not [name for name in MIXED[name] if not Path(name).exists()]


def test_a_table_of_ones_own_as_the_five_minutes_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{40 + i % 50},{'f' if i % 3 else ''},{'north' if i % 2 else 'south'},p{i // 2},{'yes' if i % 50 > 25 else 'no'}"
            for i in range(120)]
    Path("patients.csv").write_text("\n".join(["age,sex,hospital,patient,readmitted", *rows]))
    Path("ours.toml").write_text(files(ROOT / "docs" / "five-minutes.md")["ours.toml"])
    job = build(read("ours.toml"))
    assert job.fed.data.names == ("north", "south")
    state = job.initial_state()
    for _ in range(30):
        state = job.description.algorithm.round(job.fed, state)
    assert job.scores(state)["test accuracy"] > 0.8
