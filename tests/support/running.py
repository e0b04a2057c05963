"""A description of a run that is right, changes to it, and the command line in this process."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from rookery.cli import main

GOOD: dict[str, dict[str, Any]] = {
    "data": {"name": "digits"}, "sites": {"how": "iid", "number": 4}, "model": {"name": "linear"},
    "algorithm": {"name": "FedAvg", "lr": 0.5, "local_steps": 3, "batch": 16}, "run": {"rounds": 4, "every": 2}}


def toml(tree: dict[str, dict[str, Any]]) -> str:
    return "\n".join(f"[{section}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in table.items()) for section, table in tree.items())


def changed(**sections: Any) -> dict[str, dict[str, Any]]:
    return {s: {k: v for k, v in {**GOOD.get(s, {}), **sections.get(s, {})}.items() if v is not ...} for s in {**GOOD, **sections}}


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """What `rookery …` exits with, in this process."""
    monkeypatch.setattr(sys, "argv", ["rookery", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)
