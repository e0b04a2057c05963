"""The Python blocks of the documentation run, one after the other, as they stand on the page."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rookery.cli import main
from rookery.federation.program import PROGRAMS
from rookery.studies.build import build
from rookery.studies.description import read

ROOT = Path(__file__).resolve().parents[2]


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
    own = [ROOT / "docs" / f"{name}.md" for name in ("adding-an-algorithm", "your-data")]
    return [*own, *([readme] if readme.exists() and program(readme).strip() else [])]


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


def test_the_commands_of_the_five_minutes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are written down as they stand, its commands given one after the other."""
    text = (ROOT / "docs" / "five-minutes.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for block in re.finditer(r"^```toml\n# (\S+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        Path(block[1]).write_text(block[2])
    commands = [shlex.split(line) for block in re.finditer(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
                for line in block[1].splitlines()]
    assert len(commands) == 6
    for command in commands:
        jobs = ["--jobs", "1"] if command[1] == "compare" else []
        monkeypatch.setattr(sys, "argv", [*command, *jobs])
        with pytest.raises(SystemExit) as caught:
            main()
        assert not caught.value.code, command
    assert Path("rare.html").exists()
    assert Path("runs/compare/report.html").exists()


def test_a_table_of_ones_own_as_the_five_minutes_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "five-minutes.md").read_text(encoding="utf-8")
    found = re.search(r"^```toml\n# ours.toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    rows = [f"{40 + i % 50},{'f' if i % 3 else ''},{'north' if i % 2 else 'south'},p{i // 2},{'yes' if i % 50 > 25 else 'no'}"
            for i in range(120)]
    Path("patients.csv").write_text("\n".join(["age,sex,hospital,patient,readmitted", *rows]))
    Path("ours.toml").write_text(found[1])
    job = build(read("ours.toml"))
    assert job.fed.data.names == ("north", "south")
    state = job.initial_state()
    for _ in range(30):
        state = job.description.algorithm.round(job.fed, state)
    assert job.scores(state)["test accuracy"] > 0.8
