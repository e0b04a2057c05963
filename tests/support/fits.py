"""Small rows with sites and groups, prepared as a description would have them, for what fits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rookery.data import Data, Table, hold_out
from rookery.fitting.bench import with_cells
from rookery.fitting.search import Search
from rookery.studies.build import Prepared, assemble
from rookery.studies.description import parse
from rookery.studies.job import Job

BASE: dict[str, dict[str, Any]] = {"data": {"name": "rows of a test"}, "model": {"hidden": [4]}, "federation": {"engine": "loop"}}


def table(rows: int = 200, sites: int = 2, classes: int = 2, positives: Callable[[Any], Any] | None = None, rare_group: int | None = None,
          seed: int = 0) -> tuple[Table, list[str]]:
    """Rows whose first input goes with the label, less so for one of two groups, and whose they are.

    rare_group: the positives of the second group
    """
    r = np.random.default_rng(seed)
    labels = r.integers(0, classes, rows) if positives is None else positives(np.arange(rows)).astype(np.int64)
    sex = r.integers(0, 2, rows)
    if rare_group is not None:
        sex[np.flatnonzero(sex & labels)[rare_group:]] = 0
    inputs = r.normal(0, 1, (rows, 3)) + np.stack([labels * (2.0 - sex), labels * 0.0, sex], 1)
    fields = {"inputs": torch.from_numpy(inputs).float(), "labels": torch.from_numpy(labels), "sex": torch.from_numpy(sex)}
    return Table(fields, tuple("abcdef"[:classes]), "rows of a test", {"sex": ("f", "m")}), [f"s{k}" for k in r.integers(0, sites, rows)]


def prepared(split: int = 0, sensitive: str | None = "sex", grouped: bool = False, **options: Any) -> Prepared:
    """The rows with those of a split held out, three of a group together if told; they are the server's test rows as well."""
    whole, owners = table(**options)
    fields = whole.fields | ({"group": torch.arange(len(owners)) // 3} if grouped else {})
    train, held = hold_out(Data.by_site(fields, owners), 0.3, split, "group" if grouped else None)
    return with_cells(Prepared(train.with_splits(validation=held), whole), sensitive)


def job_of(rows: Prepared, sections: dict[str, Any] | None = None) -> Job:
    """FedAvg on rows, for its model and evaluation."""
    return assemble(parse({**BASE, "algorithm": {"name": "FedAvg", "lr": 0.1}, **(sections or {})}), rows)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits try two step sizes on two splits: what they do is the same with more of them."""
    monkeypatch.setattr("rookery.fitting.search.GROWTH", 0)
    monkeypatch.setattr(sys.modules["rookery.fitting.fit"], "Search", partial(Search, lrs=(0.3, 1.0), splits=2))
    monkeypatch.setattr("rookery.fitting.finishing.LRS", (0.3,))


def csv(path: Path, rows: int = 200, seed: int = 0, **options: Any) -> Path:
    """The rows of `table` in a file, with their sites."""
    whole, owners = table(rows, seed=seed, **options)
    lines = [f"{','.join(f'{value:.3f}' for value in own)},{'fm'[sex]},{owner},{whole.classes[label]}" for own, sex, owner, label in
             zip(whole.fields["inputs"].tolist(), whole.fields["sex"].tolist(), owners, whole.fields["labels"].tolist(), strict=True)]
    path.write_text("\n".join(["u,v,w,sex,site,y", *lines]))
    return path


def described(path: Path, **data: Any) -> dict[str, dict[str, Any]]:
    """The sections of a fit on such a file."""
    return {"data": {"table": str(path), "label": "y", "site": "site", "positive": ["b"], "keep": ["sex"], **data},
            "model": {"name": "linear"}, "federation": {"engine": "loop"}}
