"""The notebooks run from the first cell to the last, import public names only, and are stored without outputs.

Their cells are plain Python, so that they need no kernel to be run: what a cell shows is asked for its text, and nothing more.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rookery.federation.program import PROGRAMS

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def code(notebook: dict[str, Any]) -> dict[str, ast.Module]:
    """The code cells by their ids."""
    return {cell["id"]: ast.parse("".join(cell["source"])) for cell in notebook["cells"] if cell["cell_type"] == "code"}


def run(cells: dict[str, ast.Module], names: dict[str, Any]) -> None:
    """Run cells one after the other in one namespace, and show the values of their expressions as a kernel shows the last one."""
    for name, tree in cells.items():
        exec(compile(ast.Interactive(tree.body), f"cell {name}", "single"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    module = ModuleType(f"notebook_{path.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look up the names in annotations
    monkeypatch.setattr(sys, "displayhook", repr)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    try:
        run(code(json.loads(path.read_text(encoding="utf-8"))), module.__dict__)
        for number in pyplot.get_fignums():
            pyplot.figure(number).canvas.draw()
    finally:
        pyplot.close("all")
        for name in [name for name in PROGRAMS if name.startswith(f"{module.__name__}.")]:
            del PROGRAMS[name]  # a notebook's algorithm is not one of the package's


def test_a_cell_that_fails_or_warns_or_cannot_be_shown_fails_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "displayhook", repr)
    before = ast.parse("import warnings\nclass Odd:\n    def __repr__(self):\n        return 1 / 0\n")
    for last, error in (("1 / 0", ZeroDivisionError), ("warnings.warn('old', DeprecationWarning)", DeprecationWarning),
                        ("x = Odd()\nx", ZeroDivisionError)):
        with pytest.raises(error):
            run({"before": before, "last": ast.parse(last)}, {"__name__": "notebook"})


def test_there_are_notebooks() -> None:
    assert {"own-algorithm", "own-problem", "own-table"} <= {path.stem for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_for_any_kernel(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        assert not cell["metadata"]
        assert cell["cell_type"] == "markdown" or (not cell["outputs"] and cell["execution_count"] is None), cell["id"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_public_names_only(path: Path) -> None:
    for name, tree in code(json.loads(path.read_text(encoding="utf-8"))).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not [alias.name for alias in node.names if alias.name.startswith("rookery.")], name
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rookery":
                public = import_module(node.module or "").__all__
                assert {alias.name for alias in node.names} <= set(public), f"cell {name}: {node.module}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_pages_that_a_notebook_links_to_exist(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", "".join(cell["source"])) if cell["cell_type"] == "markdown" else ():
            assert (path.parent / target).exists(), f"{cell['id']}: {target}"
