"""Scores of a run's rows: those of the clients computed where they are and merged, those of the server's test rows there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..algorithms.base import Algorithm
from ..errors import Diverged
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.placed import Placed
from ..federation.program import Program
from ..metrics.federated import ClientScores, by_client, evaluate, outputs_of
from ..models.norm import has_federated_norm, sum_moments
from ..objectives.declare import find_objective
from ..problems.base import Problem
from ..problems.model import Model
from ..training.result import Metrics
from . import modules
from .choices import ObjectiveSection
from .scores import OwnMetric, row_scores


@dataclass(frozen=True)
class OwnScores(Program):
    """Scores of a site's rows that are no sums over rows: those of an objective, and of metrics of one's own."""

    split: str
    classes: int
    objective: str = ""
    entries: tuple[tuple[str, Any], ...] = ()
    metrics: tuple[str, ...] = ()  # module:name

    @property
    def own(self) -> list[OwnMetric]:
        return [OwnMetric(name, modules.find(name, "run.metrics")) for name in self.metrics]

    @property
    def names(self) -> list[str]:
        return [*(find_objective(self.objective).metrics if self.objective else ()), *(metric.name for metric in self.own)]

    def of_rows(self, outputs: Tensor, fields: Mapping[str, Tensor]) -> dict[str, float]:
        scores = find_objective(self.objective).scores if self.objective else None
        found = {} if scores is None else dict(scores(outputs, fields, dict(self.entries)))
        for metric in self.own:
            found |= metric.score(outputs, fields)
        return found

    def sums(self, c: Client, x: Tensor) -> Tensor:
        """Each score times the number of rows, and that number where it is defined."""
        b, names = c.rows(self.split), self.names
        total = torch.zeros(len(names), 2, dtype=torch.float64)
        if len(b.labels):
            outputs = outputs_of(c.problem, x, b.inputs, self.classes).cpu()
            for name, value in self.of_rows(outputs, {field: column.cpu() for field, column in b.fields.items()}).items():
                if math.isfinite(value):
                    total[names.index(name)] = torch.tensor([len(outputs) * value, len(outputs)])
        return total


@dataclass(frozen=True)
class SiteScores(ClientScores):
    """A site's own scores, with those of the objective and of one's own metrics."""

    objective: str = ""
    entries: tuple[tuple[str, Any], ...] = ()
    metrics: tuple[str, ...] = ()  # module:name

    @property
    def _more(self) -> OwnScores:
        return OwnScores(self.split, self.classes, self.objective, self.entries, self.metrics)

    @property
    def names(self) -> list[str]:
        return [*super().names, *self._more.names]

    def of_rows(self, outputs: Tensor, fields: Mapping[str, Tensor]) -> dict[str, float]:
        return super().of_rows(outputs, fields) | self._more.of_rows(outputs, fields)


def settle(fed: Federation[Any], model: Model, vector: Tensor, algorithm: Algorithm[Any]) -> None:
    """Where the net has batch norms: give them their statistics at these parameters, summed over the sites, before anything is scored."""
    if has_federated_norm(model.net):
        batch = getattr(algorithm, "batch", None) or getattr(algorithm, "outer", None)
        sum_moments(fed, model, vector, batch if batch is None or batch > 1 else None, phase="evaluation")


class Evaluation:
    """What a run's history has of the rows: by split, and by metric."""

    def __init__(self, objective: ObjectiveSection, own: tuple[OwnMetric, ...], classes: int, groups: int | None,
                 max_fpr: float | None) -> None:
        self.objective, self.own, self.classes, self.max_fpr = objective, own, classes, max_fpr
        entries = objective.entries | ({} if groups is None else {"groups": groups})
        self.entries = tuple(sorted((name, value) for name, value in entries.items()))

    @property
    def _counts(self) -> str:
        """The objective by the name that its sums are found by, where it has any."""
        return self.objective.declared.name if self.objective.declared.counts is not None else ""

    @property
    def _scores(self) -> str:
        """The objective by its name, where it scores rows itself."""
        return self.objective.declared.name if self.objective.declared.scores is not None else ""

    def _scored(self, objective: str) -> tuple[str, tuple[tuple[str, Any], ...], tuple[str, ...]]:
        return objective, self.entries if objective else (), tuple(metric.written for metric in self.own)

    def at_clients(self, fed: Federation[Problem], vector: Tensor | Placed, split: str) -> Metrics:
        """Scores of the clients' rows of a split, from sums; one that is no sum is the mean of the clients' values, by their rows."""
        scores = evaluate(fed, vector, split, self.classes, max_fpr=self.max_fpr, objective=self._counts, entries=self._entries)
        found = dict(scores.values)
        for name, value in found.items():
            if not math.isfinite(value):
                raise Diverged(f"the {split} {name} is {value}: lower the learning rate")
        program = OwnScores(split, self.classes, *self._scored("" if self._counts else self._scores))
        if program.names:
            with fed.phase("evaluation"):
                here = fed.present
                sums = here.sum(here.map(program.sums, vector if isinstance(vector, Placed) else here.broadcast(vector)))
            found |= {name: float(total / rows) for name, (total, rows) in zip(program.names, sums, strict=True) if float(rows) > 0}
        return found | {f"{name} bound": bound for name, bound in scores.bounds.items()}

    @property
    def _entries(self) -> tuple[tuple[str, Any], ...]:
        return self.entries if self._counts else ()

    def of_rows(self, outputs: Tensor, fields: dict[str, Tensor], which: str) -> Metrics:
        """Scores of rows that are in one place, exactly."""
        finite = torch.isfinite(outputs).all(1)
        if not bool(finite.all()):
            raise Diverged(f"the model's outputs for {int((~finite).sum())} of {len(outputs)} {which} rows are not finite: "
                           "lower the learning rate")
        found = row_scores(outputs, fields["labels"], self.max_fpr)
        if self.objective.declared.scores is not None:
            found |= self.objective.declared.scores(outputs, fields, self.objective.entries)
        for name, value in found.items():
            if not math.isfinite(value):
                raise Diverged(f"the {which} {name} is {value}: lower the learning rate")
        for metric in self.own:
            found |= metric.score(outputs, fields)
        return found

    def by_site(self, fed: Federation[Problem], vector: Tensor, split: str) -> list[dict[str, Any]]:
        """Every site's rows, and its own scores on those of a split; where only sums leave the sites, their names and rows alone."""
        if fed.only_sums:
            return [{"site": name, "rows": int(size)} for name, size in zip(fed.data.names, fed.data.sizes, strict=True)]
        return [{"site": row.pop("client"), "rows": row.pop("rows"), "positives": row.pop("positives", None),
                 f"{split} rows": row.pop("scored rows"), **row} for row in self._by_client(fed, vector, split)]

    def site_scores(self, fed: Federation[Problem], vector: Tensor | Placed, split: str) -> list[dict[str, float]]:
        """Every site's own scores on its rows of a split, by one model or by the site's own."""
        facts = ("client", "rows", "positives", "scored rows")
        return [{name: value for name, value in row.items() if name not in facts} for row in self._by_client(fed, vector, split)]

    def _by_client(self, fed: Federation[Problem], vector: Tensor | Placed, split: str) -> list[dict[str, Any]]:
        return by_client(fed, vector, split, self.classes, SiteScores(split, self.classes, *self._scored(self._scores)))
