"""One trial: a method at one step size on one split of the rows, and the model at the round where the goal was reached best."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import Diverged, NonFinite
from ..studies.build import Prepared, assemble
from ..studies.description import parse
from ..studies.evaluation import settle
from ..studies.job import Job
from ..training.loop import run_stages
from ..training.result import Metrics
from .goals import Method, Setting
from .measures import Measure, Measured

LOOKS = 5  # evaluations of a trial, after its start
Tree = dict[str, dict[str, Any]]


@dataclass
class Outcome:
    """What a trial came to: the goal's value on validation rows, None where training diverged; and the model, its margins and its past."""

    value: float | None
    vector: Tensor
    margins: tuple[float, ...] = ()
    round: int = 0
    seconds: float = 0.0
    history: list[Metrics] = field(default_factory=list)
    ledger: dict[str, Any] = field(default_factory=dict)
    traffic: list[dict[str, Any]] = field(default_factory=list)
    reason: str = "rounds"

    def told(self) -> dict[str, Any]:
        """All but the model, for a file of lines."""
        return {name: value for name, value in vars(self).items() if name != "vector"}


def tree_of(base: Tree, method: Method, setting: Setting, lr: float, seed: int) -> Tree:
    """The description of a trial: what all have in common, the method's sections, and the step size."""
    tree = {section: dict(table) for section, table in base.items()}
    sections = {**method.sections, "algorithm": {**method.sections["algorithm"], "lr": lr}}
    for section, table in sections.items():
        tree[section] = {**tree.get(section, {}), **table}
    tree["run"] = {**tree.get("run", {}), "rounds": setting.rounds, "max_fpr": setting.max_fpr}
    tree["federation"] = {**tree.get("federation", {}), "seed": seed}
    return tree


def train(tree: Tree, rows: Prepared, measure: Measure, start: Tensor | None = None, looks: int = LOOKS) -> Outcome:
    """Train, look at the goal a few times, and keep the model where it was reached best."""
    job = assemble(parse(tree), rows)
    if start is not None:
        job = replace(job, given=replace(job.given, vector=start))
    best = Outcome(None, job.given.vector)

    def look(state: Any) -> Metrics:
        vector = job.parameters(state)
        settle(job.fed, job.model, vector, job.description.algorithm)
        found = measure.at_sites(job, vector)
        if best.value is None or found.value > best.value:
            best.value, best.vector, best.margins = found.value, vector.clone(), found.margins
        return {**{f"validation {name}": value for name, value in found.scores.items()}, "validation goal": found.value}

    *before, last = job.stages
    result = run_stages([*(replace(stage, evaluate=None) for stage in before), replace(last, evaluate=look)],
                        max(1, -(-last.rounds // looks)), loss="validation loss")
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    if result.history:
        best.round = int(max(result.history, key=lambda row: row["validation goal"])["round"])
    if result.reason == "diverged" and best.round == 0:  # what it began with is not what it came to
        best.value = None
    best.history, best.seconds, best.reason = result.history, result.seconds, result.reason
    best.ledger, best.traffic = job.fed.ledger.to_json(), [asdict(line) for line in result.traffic]
    return best


def decide(job: Job, vector: Tensor, measure: Measure, by_group: bool) -> Measured:
    """The goal of a trained model with thresholds of the wanted kind."""
    try:
        settle(job.fed, job.model, vector, job.description.algorithm)
        return measure.at_sites(job, vector, by_group)
    except (Diverged, NonFinite):
        return Measured(-torch.inf)
