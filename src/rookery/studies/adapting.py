"""A trained model adapted to a few rows of somebody's own: what `rookery adapt` does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from .._version import __version__
from ..bundle import load
from ..data.batch import Batch
from ..data.readers import Table
from ..data.readers.more import more_rows
from ..errors import CheckpointError, ConfigError, Diverged
from ..metrics.personal import Adaptation
from ..models.norm import has_federated_norm
from ..objectives import adapt as steps_of
from ..objectives import cross_entropy
from ..problems.model import Model
from ..training import checkpoint
from ..training.files import aside, write_whole
from ..training.keeper import CHECKPOINT
from .build import build
from .choices import ModelSection
from .description import parse
from .job import Job
from .leaving import BUNDLE
from .scores import row_scores
from .trials import invocation

WEIGHTS, ABOUT = "model.safetensors", "about.json"


@dataclass(frozen=True)
class Adapted:
    """What an adaptation came to: where it is, and the scores of rows before and after it."""

    folder: Path
    how: Adaptation
    rows: int
    scores: dict[str, dict[str, float]]


def adapt(run: Path, rows: Path, out: Path, steps: int | None = None, lr: float | None = None, test: Path | None = None) -> Adapted:
    """Adapt the model of a run to labelled rows, by full-batch gradient steps on the cross-entropy, and write it to a folder.

    steps, lr: by default those of the run's [personal] section or of its objective, else 3 steps of 0.1
    test:      further labelled rows, which the model is scored on before and after, and not adapted to
    """
    job, vector = trained(run)
    if (out / WEIGHTS).exists():
        raise CheckpointError(f"{out} holds an adapted model already; take another folder with --out")
    if has_federated_norm(job.model.net):
        raise ConfigError(f"the net of {run} has batch norms, whose statistics are those of all sites and would not fit adapted weights: "
                          "train one without them (mlp, small_cnn, lenet)")
    own = job.description.adaptation or Adaptation()
    how = Adaptation(own.lr if lr is None else lr, own.steps if steps is None else steps)
    parts = {name: _rows(job, path) for name, path in (("rows", rows), ("test", test)) if path is not None}
    problem, device = cross_entropy(job.model), vector.device
    support = Batch({name: field.to(device) for name, field in parts["rows"].fields.items()})
    new = steps_of(problem.value, vector, support, how.lr, how.steps)
    if not bool(torch.isfinite(new).all()):
        raise Diverged(f"{how.steps} steps of {how.lr:g} lead to weights that are not finite: take a smaller --lr")
    scores = {f"{name}, {when}": row_scores(job.predict(at, table.fields["inputs"]), table.fields["labels"])
              for name, table in parts.items() for when, at in (("before", vector), ("after", new))}
    result = Adapted(out, how, len(parts["rows"]), scores)
    _write(job, new, result, {"run": str(run), "rows": str(rows), "test": None if test is None else str(test)})
    return result


def trained(run: Path) -> tuple[Job, Tensor]:
    """A run that has ended, built again from its description, and the model's parameters that it came to."""
    if not (run / "description.json").exists() and (run / BUNDLE).is_dir():  # a fit, which keeps one model of many
        job = build(parse(json.loads((run / "about.json").read_text(encoding="utf-8"))["config"]))
        return job, Model(load(run).net).vector()
    try:
        tree = json.loads((run / "description.json").read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{run} must be the folder of a run, as `rookery run` leaves it, but has no description.json that can be "
                              f"read ({error})") from None
    job = build(parse(tree))
    path = run / CHECKPOINT
    if path.exists() and checkpoint.extra(path).get("stage", 0) < len(job.stages) - 1:
        raise CheckpointError(f"{run} stopped in its warm-up; go on with rookery run … --resume first")
    return job, job.parameters(checkpoint.load(path, job.description.algorithm, job.fed))


def _rows(job: Job, path: Path) -> Table:
    """Rows as those of the run's data: encoded alike, with the same classes, or only whether these are positive."""
    section, own = job.description.data, job.test
    classes, _ = section.tables()
    like = Table({"inputs": own.fields["inputs"][:1], "labels": torch.zeros(1, dtype=torch.int64)}, classes.classes, own.name,
                 encoder=own.encoder, rows=own.rows)
    found, places = more_rows(path, like, section.label, section.delimiter), section.positives(classes)
    return found.binary(places) if places else found


def _write(job: Job, vector: Tensor, result: Adapted, about: dict[str, Any]) -> None:
    module, model = job.model.module(vector), job.description.model
    result.folder.mkdir(parents=True, exist_ok=True)
    with aside(result.folder / WEIGHTS) as beside:
        save_file({name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}, beside)
    told = {"adapted": about, "rows": result.rows, "steps": result.how.steps, "lr": result.how.lr, "scores": result.scores,
            "model": {"name": model.name, "hidden": list(model.hidden)} if isinstance(model, ModelSection) else model.describe(),
            "shape": list(job.test.fields["inputs"].shape[1:]),
            "classes": list(job.test.classes), "command": invocation(), "versions": {"rookery": __version__, "torch": torch.__version__}}
    write_whole(result.folder / ABOUT, json.dumps(told, indent=1))
