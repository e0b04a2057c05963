"""Three hospitals with a table each, the same rows in one table, and hosts that answer for them in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rookery.engines.transport import InProcess
from rookery.sites import Host, Rules
from rookery.sites.files import Files, RowsSection
from rookery.studies.federating import Reached

NAMES = ("north", "south", "west")
SCHEMA = """label = "outcome"
classes = ["ill", "well"]
positive = ["ill"]
keep = ["sex"]

[columns.age]
kind = "number"

[columns.sex]
kind = "category"
categories = ["f", "m"]

[columns.dose]
kind = "category"

[columns.patient]
kind = "id"
"""
HEAD = "age,sex,dose,patient,outcome"


def lines(seed: int = 0, rows: int = 300) -> list[tuple[str, str]]:
    """The hospital and the line of every row."""
    r = np.random.default_rng(seed)
    found = []
    for site in r.choice(NAMES, rows, p=[0.5, 0.3, 0.2]):
        age, sex, dose = round(float(r.normal(60, 10)), 1), r.choice(["f", "m"]), r.choice(["low", "high", ""])
        outcome = "ill" if age + 5 * (sex == "m") + r.normal(0, 8) > 68 else "well"
        found.append((str(site), f"{age},{sex},{dose},{r.integers(0, 60)},{outcome}"))
    return found


def write(folder: Path, schema: str = SCHEMA) -> Path:
    """A file for each hospital, one of all with a column of hospitals, and the schema."""
    made = lines()
    (folder / "schema.toml").write_text(schema)
    (folder / "all.csv").write_text("\n".join([f"hospital,{HEAD}", *(f"{site},{line}" for site, line in made), ""]))
    for name in NAMES:
        (folder / f"{name}.csv").write_text("\n".join([HEAD, *(line for site, line in made if site == name), ""]))
    return folder


def rules(**changes: Any) -> Rules:
    known = {"algorithms": ("FedAvg", "SCAFFOLD", "FedDRO", "FCSG-M"),
             "objectives": ("cross_entropy", "balanced_cross_entropy", "kl_dro", "ap_surrogate", "group_dro"),
             "min_batch": 5, "salt": "none"}
    return Rules(**(known | changes))  # type: ignore[arg-type]


def host(folder: Path, name: str, may: Rules | None = None, modules: tuple[str, ...] = (), **rows: Any) -> Host:
    section = RowsSection(**(rows or {"table": f"{name}.csv"}))
    return Host(name, Files(name, section, modules, folder), may or rules(), folder / f"{name}-runs", modules)


def reached(folder: Path, run: str = "a run", quorum: int | None = None, **hosts: Host) -> Reached:
    """The three hospitals, some of them by hosts that are given."""
    every = {name: hosts.get(name) or host(folder, name) for name in NAMES}
    return Reached(InProcess({name: one.answer for name, one in every.items()}), NAMES[::-1], run, quorum=quorum)


def description(folder: Path, **sections: dict[str, Any]) -> dict[str, Any]:
    """A run over the hospitals."""
    return {"data": {"schema": str(folder / "schema.toml"), "test_at": "sites"}, "model": {"hidden": [8]},
            "federation": {"min_batch": 5, "seed": 3}, "run": {"rounds": 4, "every": 2},
            "algorithm": {"name": "FedAvg", "lr": 0.1, "local_steps": 2, "batch": 16}, **sections}


def simulated(folder: Path, tree: dict[str, Any]) -> dict[str, Any]:
    """The same run over one table in one place, each hospital behind frames as a real one is."""
    return tree | {"data": {**tree["data"], "table": str(folder / "all.csv"), "site": "hospital"},
                   "federation": {**tree["federation"], "engine": "wire"}}
