"""The Python blocks of the documentation run, one after the other, as they stand on the page."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rookery.program import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]


def program(page: Path) -> str:
    """The page's Python blocks on their own lines, so that a traceback names the line of the page."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(), first):
            lines[number] = line
    return "\n".join(lines)


def pages() -> list[Path]:
    readme = ROOT / "README.md"
    return [ROOT / "docs" / "adding-an-algorithm.md", *([readme] if readme.exists() and program(readme).strip() else [])]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = program(page)
    assert source.strip()
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look up the names in annotations
    try:
        exec(compile(source, str(page), "exec"), module.__dict__)
    finally:
        for name in [name for name in PROGRAMS if name.startswith(f"{module.__name__}.")]:
            del PROGRAMS[name]  # a page's algorithm is not one of the package's
