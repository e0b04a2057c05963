"""A table of patients' rows in a file, and the description of a run on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from running import changed


def csv(path: Path, rows: int = 120, seed: int = 0) -> Path:
    r = np.random.default_rng(seed)
    lines = [f"{r.normal():.3f},{c},p{i // 3}" for i, c in enumerate(r.integers(1, 4, rows))]
    path.write_text("\n".join(["age,kind,patient", *lines]))
    return path


def own(path: Path, **data: Any) -> dict[str, dict[str, Any]]:
    return changed(data={"name": ..., "csv": str(path), "label": "kind", **data}, run={"rounds": 2, "every": 1})
