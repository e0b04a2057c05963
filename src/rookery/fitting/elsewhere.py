"""A fit over real sites: trials that train there, and test rows that are scored there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import ConfigError, Refused
from ..metrics.histogram import auc, average_precision, default_edges, partial_auc
from ..metrics.resampling import BINS, resampled
from ..studies.build import Prepared, assemble
from ..studies.description import parse
from ..studies.federating import Reached, prepare_at
from ..studies.job import Job
from .bench import ANY, Folder, made_trial
from .measures import Measure
from .options import Ready
from .training import Outcome, Tree
from .verdict import DRAWS, Tested, ends

GOALS = ("accuracy", "auc", "ap", "partial_auc")  # whose value is a sum over test rows, or of a histogram


class SitesFolder(Folder):
    """Trials one after the other at real sites, whose rows this process never has."""

    def __init__(self, folder: Path, measure: Measure, base: Tree, digest: str, rows: Rows) -> None:
        super().__init__(folder, measure, base, digest, jobs=1)
        self._rows = rows

    def rows(self, split: int) -> Prepared:
        return self._rows(self.base, split)

    def work(self) -> Any:
        return partial(made_trial, lambda trial: self.rows(trial["split"]))


class Rows:
    """The rows of sites with those of a split held out; they agree once on each."""

    def __init__(self, reached: Reached) -> None:
        self.reached, self._kept = reached, lru_cache(8)(self._prepared)

    def __call__(self, base: Tree, split: int) -> Prepared:
        return self._kept(json.dumps(base), split)

    def _prepared(self, base: str, split: int) -> Prepared:
        return prepare_at(parse({**ANY, **json.loads(base)}), self.reached, split)


def refuse_goal(goal: str) -> None:
    if goal not in GOALS:
        raise ConfigError(f"a fit over real sites has the goals {', '.join(GOALS)}, which sums over test rows tell; got {goal!r}: simulate "
                          "it, or train one method with rookery federate")


def refuse_closed(rows: Prepared, goal: str, trees: Sequence[Tree]) -> None:
    """Ask the sites for everything that a fit will train before anything is trained; where one refuses, say what all of it is."""
    try:
        for tree in trees:
            assemble(parse(tree), rows)
    except Refused as error:
        needed = {section: sorted({tree.get(section, {}).get("name", "cross_entropy") for tree in trees})
                  for section in ("algorithm", "objective")}
        raise Refused(f"{error}. A fit for {goal} needs, under [may] at every site, algorithms = {json.dumps(needed['algorithm'])} and "
                      f"objectives = {json.dumps(needed['objective'])}") from None


def tested_at_sites(start: Ready, jobs: Mapping[str, Job], outcomes: Mapping[str, Outcome]) -> Tested:
    """Every model's value on the sites' test rows, with intervals and differences from rows that are drawn anew where they are."""
    values, draws = {}, {}
    for label, outcome in outcomes.items():
        job = jobs[label]
        name = {"auc": "AUC", "ap": "AP", "partial_auc": "partial AUC"}.get(start.goal.name, "accuracy")
        value = job.evaluation.at_clients(job.fed, outcome.vector, "test").get(name, float("nan"))
        draws[label] = np.asarray([_value(start.measure, one) for one in
                                   resampled(job.fed, outcome.vector, "test", start.measure.classes, DRAWS, start.seed)])
        values[label] = (value, *ends(draws[label]))
    return Tested(values, draws)


def _value(measure: Measure, sums: Tensor) -> float:
    """The goal's value of one draw."""
    match measure.goal.name:
        case "auc" | "ap" | "partial_auc":
            metric = partial(partial_auc, max_fpr=measure.max_fpr) if measure.goal.name == "partial_auc" else (
                auc if measure.goal.name == "auc" else average_precision)
            found = metric(sums)
            return float("nan") if found is None else found.value
        case _ if measure.classes == 2:  # the likelier class: a margin above 0
            below = int((default_edges(BINS) <= 0).sum())
            return float((sums[0, :below].sum() + sums[1, below:].sum()) / sums.sum())
        case _:
            return float(sums[1] / sums.sum())
