"""Mistakes and oddities that people bring to tables and commands, written by somebody who had not read the code: each gets a sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mistakes import CASES, apply_edits
from running import command

from rookery.cli import console as consoles


def takes_long(place: int, case: dict[str, Any]) -> bool:
    """Whether it is among the slow tests: all that train, and two of three looks."""
    return not case["name"].startswith("control") and (place % 3 > 0 or any(argv[0] == "run" for argv in case["commands"]))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"], marks=[pytest.mark.slow] * takes_long(place, case))
                                  for place, case in enumerate(CASES)])
def test_a_mistake_is_answered_by_a_sentence(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path / "no data"))
    for where in (consoles.console, consoles.errors):
        monkeypatch.setattr(where, "width", 400)
    for name, content in case["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, said = 0, ""
    for done, argv in enumerate(case["commands"], 1):
        code = command(monkeypatch, *argv)
        out = capsys.readouterr()
        said = out.out + out.err
        apply_edits(case, tmp_path, done)
    expected = case["expect"]
    assert {"zero": code == 0, "nonzero": code != 0, "any": True}[expected["exit"]], said
    for wanted in expected["says"]:
        assert re.search(wanted, said, re.IGNORECASE), f"{case['about']}\n{wanted}\n{said}"
    for unwanted in expected["not"]:
        assert not re.search(unwanted, said, re.IGNORECASE), f"{case['about']}\n{unwanted}\n{said}"
