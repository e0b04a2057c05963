"""How the command line begins: what it imports, what it says without its extra, and that the package's names are all there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from running import command

import rookery

HEAVY = ("torch", "numpy", "sklearn", "scipy", "matplotlib", "safetensors")


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_help_and_version_wait_for_nothing_heavy() -> None:
    program = f"""
import sys
import rookery.cli, rookery.cli.commands
for words in (["--help"], ["run", "--help"], ["compare", "--help"], ["--version"]):
    sys.argv = ["rookery", *words]
    try:
        rookery.cli.main()
    except SystemExit as end:
        assert not end.code, words
found = [name for name in {HEAVY!r} if name in sys.modules]
assert not found, found
"""
    done = python(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"rookery {rookery.__version__}\n")
    assert "Usage: rookery run" in done.stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_a_sentence_says_what_to_install(missing: str) -> None:
    done = python(f"import sys; sys.modules[{missing!r}] = None\nfrom rookery.cli import main; main()", "list")
    assert done.returncode == 2
    assert done.stderr == "rookery: the command line needs typer and rich, which are not installed: pip install 'rookery[cli]'\n"


def test_every_public_name_is_there_when_it_is_asked_for() -> None:
    from rookery.algorithms import FedAvg
    assert rookery.FedAvg is FedAvg
    assert {name for name in rookery.__all__ if not hasattr(rookery, name)} == set()
    assert set(rookery.__all__) <= set(dir(rookery))
    everything: dict[str, object] = {}
    exec("from rookery import *", everything)
    assert set(rookery.__all__) <= set(everything)
    with pytest.raises(AttributeError, match="no attribute 'FedAverage'"):
        _ = rookery.FedAverage
    done = python("import rookery; rookery.algorithms, rookery.errors, rookery.data, rookery.federation, rookery.engines, rookery.theory")
    assert done.returncode == 0, done.stderr


def test_the_version_can_be_read_without_running_the_package() -> None:
    source = ast.parse((Path(rookery.__file__).with_name("_version.py")).read_text(encoding="utf-8"))
    values = {ast.unparse(node.targets[0]): node.value for node in source.body if isinstance(node, ast.Assign)}
    assert ast.literal_eval(values["__version__"]) == rookery.__version__


def test_the_version_on_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"rookery {rookery.__version__}\n"
