"""The experiments' files as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[2] / "experiments"


def module(experiment: str, name: str) -> ModuleType:
    """A file of an experiment; the files beside it and those that all share are found while it is read."""
    folder = FOLDER / experiment
    spec = importlib.util.spec_from_file_location(f"{experiment}-{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # dataclasses look their module up
    before = list(sys.path)
    sys.path[:0] = [str(folder), str(FOLDER)]
    try:
        spec.loader.exec_module(found)
    finally:
        sys.path[:] = before
    return found
