"""What a run leaves in its folder: predictions of the test rows, what there is to know about it, and the model, ready for use."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .._version import __version__
from ..bundle import Bundle
from ..data.readers import Table
from ..federation.federation import Federation
from ..metrics.federated import margin_of
from ..problems.base import Problem
from ..problems.model import Model
from ..training.files import write_whole
from ..training.result import Run
from .assessment import Assessment, assess
from .description import Description, describe
from .evaluation import settle
from .folder import digest
from .trials import invocation, machine

BUNDLE = "bundle"  # in the run's folder


class Trained(Protocol):
    """What is asked of the job whose model it is."""

    @property
    def description(self) -> Description: ...
    @property
    def fed(self) -> Federation[Problem]: ...
    @property
    def model(self) -> Model: ...
    @property
    def test(self) -> Table: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def algorithm_name(self) -> str: ...
    def predict(self, vector: Tensor, inputs: Tensor) -> Tensor: ...
    def sites(self, vector: Tensor) -> list[dict[str, Any]]: ...


def leave(job: Trained, folder: Path, label: str, result: Run, vector: Tensor, about: dict[str, Any], bundle: bool,
          margins: Mapping[str, float] | float | None = None) -> None:
    """Write what a report is made of into a folder, for the model with these parameters.

    margins: above which a row is decided to be positive, one for all or one for each value of the column that `about` names as
             "sensitive"; without them a threshold is chosen as the section [decision] says
    """
    settle(job.fed, job.model, vector, job.description.algorithm)
    if "test" not in job.fed.data.splits:
        logits, saved = job.predict(vector, job.test.fields["inputs"]).double(), io.BytesIO()
        scores = margin_of(logits) if logits.shape[1] == 2 else logits
        np.savez(saved, labels=job.test.fields["labels"].numpy(), scores=scores.numpy())
        write_whole(folder / "predictions.npz", saved.getvalue())
    versions = {"rookery": __version__, "torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()}
    told = {"label": label, "title": f"{job.description.objective.name} by {job.algorithm_name}",
            "seed": job.description.federation.seed, "command": invocation(), "config": describe(job.description),
            "versions": versions, "machine": machine(), "engine": job.fed.engine.name, "reason": result.reason,
            "failure": result.failure, "iterate": "last" if result.output is None else "uniform",
            "rounds": result.rounds, "seconds": result.seconds, "ledger": job.fed.ledger.to_json(),
            "sites": job.sites(vector), "traffic": [asdict(line) for line in result.traffic], "notes": list(job.notes), **about}
    if bundle and result.reason != "diverged" and job.description.objective.declared.net is None:
        common = margins if isinstance(margins, float) else None if margins is None else fmean(margins.values())
        assessment = assess(job.fed, vector, job.test, job.description.decision, common)
        by_group = None if not isinstance(margins, Mapping) else {"column": about["sensitive"], "thresholds": {
            value: assessment.calibrator.probability_at(margin) for value, margin in margins.items()}}
        _bundle(job, vector, assessment, told, by_group).save(folder / BUNDLE)
        told |= {"assessment": assessment.found | {"threshold": assessment.threshold, "calibrator": assessment.calibrator.to_json()},
                 "ledger": job.fed.ledger.to_json()}
    write_whole(folder / "about.json", json.dumps(told, indent=1))


def _bundle(job: Trained, vector: Tensor, assessment: Assessment, told: dict[str, Any], by_group: Mapping[str, Any] | None) -> Bundle:
    """The model with all that using it takes."""
    config, rows = job.description, job.test.rows
    about = {"title": told["title"], "data": config.data.source, "data digest": digest(job.fed.data),
             "rows": int(job.fed.data.sizes.sum()), "sites": len(job.fed.data.names), "algorithm": job.algorithm_name,
             "objective": config.objective.name, "rounds": told["rounds"], "seed": told["seed"], "command": told["command"],
             **told["versions"], "date": datetime.now(UTC).date().isoformat(), "description": told["config"]}
    schema, shape = None if rows is None else rows.schema, tuple(job.test.fields["inputs"].shape[1:])
    return Bundle(job.model.module(vector).cpu(), config.model.describe(), shape, job.test.classes, assessment.calibrator,
                  assessment.threshold, schema, job.test.encoder, assessment.found, about, by_group)
