"""How far a goal is reached: on the sites' validation rows from what these send, and on test rows, with weights for a bootstrap."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data import Data
from ..errors import ConfigError, DataError
from ..federation.federation import Federation
from ..federation.placed import Placed
from ..metrics.federated import margin_of
from ..metrics.histogram import default_edges, histograms_by_client
from ..metrics.resampling import ByClient, decided_cells, resampled_by_client
from ..metrics.thresholds import Rates, Score, best_thresholds, crossed, group_histograms
from ..metrics.weighted import ranked
from ..studies.job import Job
from .goals import Goal

TENTH = 0.1  # of the sites, those where the score is lowest
LEAST = 5  # rows of each class that a site needs for an AUC that says something
MANY = 50  # values of a column beyond which they are no groups
MORE = "Give more rows, a larger share of them to validation with data.validation, or another seed"
METRICS = {"auc": "AUC", "ap": "AP", "partial_auc": "partial AUC"}  # by goal, of those that an evaluation has
Numbers = NDArray[np.float64]


class Measured(NamedTuple):
    """A value on validation rows, larger where it is better, the margins that rows are decided by, a number a group, and other scores."""

    value: float
    margins: tuple[float, ...] = ()
    scores: dict[str, float] = {}  # noqa: RUF012 (never changed)


@dataclass(frozen=True)
class Scored:
    """Rows with a model's outputs: margins of two classes, and what is decided; `site` and `group` number theirs from 0."""

    margin: Numbers
    decided: NDArray[np.int64]
    labels: NDArray[np.int64]
    site: NDArray[np.int64]
    group: NDArray[np.int64]

    @classmethod
    def of(cls, outputs: Tensor, labels: Tensor, site: NDArray[np.int64], group: NDArray[np.int64],
           margins: Sequence[float] = ()) -> Scored:
        """From outputs of each class; rows of two classes are decided by the margins of their groups, where these are given."""
        found = outputs.double().numpy()
        margin = found[:, 1] - found[:, 0]
        decided = found.argmax(1) if not margins else (margin > np.asarray(margins)[group if len(margins) > 1 else 0]).astype(np.int64)
        return cls(margin, decided, labels.numpy(), site, group)


@dataclass(frozen=True)
class Measure:
    """The number that a goal is chosen by.

    classes, sensitive, groups: how many classes, the column of the groups, and their number
    """

    goal: Goal
    classes: int
    sensitive: str | None = None
    groups: int = 1
    kind: str = "equality of opportunity"
    gap: float = 0.05
    max_fpr: float = 0.1

    @property
    def decides(self) -> bool:
        """Whether the goal depends on a threshold, which is then chosen with it."""
        return self.goal.name in ("worst_group", "fair") and self.classes == 2

    # validation rows, at the sites

    def at_sites(self, job: Job, vector: Tensor, by_group: bool = False) -> Measured:
        """The goal on the sites' validation rows, from what they send; thresholds are chosen on one half and scored on the other."""
        evaluation, fed = job.evaluation, job.fed
        if self.decides:
            halves = group_histograms(fed, vector, "validation", self.sensitive, self.groups)
            margins, whole = best_thresholds(halves.sum(0), self._score, by_group)
            if not np.isfinite(whole):
                raise DataError(f"the sites' validation rows have no {self.goal.metric}: they lack a class. {MORE}")
            return Measured(crossed(halves, self._score, by_group), tuple(margins.tolist()))
        found = evaluation.at_clients(fed, vector, "validation")
        if self.goal.name == "worst_site":
            sites = resampled_by_client(fed, vector, "validation", self.classes)
            if self.classes == 2 and not sites.rows.sum(0).all():
                raise DataError(f"the sites' validation rows have no AUC: they lack a class. {MORE}")
            return Measured(float(self.of_sites(sites)[0]), scores=found)
        if self.goal.name == "worst_group":
            cells = decided_cells(fed, vector, "validation", self.classes, field=self.sensitive, groups=self.groups)
            value = self.of_cells(cells[0].numpy())
            if np.isnan(value):
                raise DataError(f"the sites' validation rows have no {self.goal.metric}: they lack a class. {MORE}")
            return Measured(value, scores=found)
        if self.goal.name == "personal" and job.personal is not None:
            found |= job.personal.scores(evaluation, vector, "validation", fed.ledger)
            return Measured(found["adapted accuracy"], scores=found)
        name = METRICS.get(self.goal.name, "accuracy")
        if name not in found:
            raise DataError(f"the sites' validation rows have no {name}: they lack a class. {MORE}")
        return Measured(found[name], scores=found)

    def margins(self, outputs: Tensor, held: Data) -> tuple[float, ...]:
        """Above which rows are decided to be positive: the best for the goal on validation rows with these outputs, one for all groups."""
        if not self.decides:
            return ()
        labels = held.fields["labels"].cpu()
        group = labels * 0 if self.sensitive is None else held.fields[self.sensitive].cpu()
        histogram = histograms_by_client(margin_of(outputs), labels, group, self.groups, default_edges())
        return tuple(best_thresholds(histogram.numpy(), self._score)[0].tolist())

    def margins_at(self, fed: Federation[Any], x: Tensor | Placed) -> tuple[float, ...]:
        """The same where the validation rows are at the sites, by one model or by each site's own."""
        if not self.decides:
            return ()
        histogram = group_histograms(fed, x, "validation", self.sensitive, self.groups).sum(0)
        return tuple(best_thresholds(histogram, self._score)[0].tolist())

    # rows in one place

    def of_rows(self, rows: Scored, weight: Numbers | None = None) -> float:
        """The goal on rows that are in one place, each as often as its weight says; NaN where they do not define it."""
        w = np.ones(len(rows.labels)) if weight is None else weight
        match self.goal.name:
            case "auc" | "ap" | "partial_auc":
                return ranked(rows.margin, rows.labels, w, self.goal.name, self.max_fpr)
            case "worst_site":
                return float(self.of_sites(self._by_site(rows, w))[0])
            case _:
                cell = (rows.group * self.classes + rows.labels) * 2 + (rows.decided == rows.labels)
                counts = np.bincount(cell, w, 2 * self.classes * self.groups).astype(np.float64)
                return self.of_cells(counts.reshape(-1, self.classes, 2))

    def _by_site(self, rows: Scored, w: Numbers) -> ByClient:
        """The sites' scores, of those that are looked at."""
        sites, right = [rows.site == site for site in np.unique(rows.site)], (rows.decided == rows.labels).astype(float)
        counts = np.asarray([np.bincount(rows.labels[own], minlength=self.classes) for own in sites], dtype=np.float64)
        found = ByClient(counts, *np.full((2, len(sites), 1), np.nan))
        able = self._able(counts)
        for place in able if len(able) else range(len(sites)):
            own = sites[place]
            if len(able):
                found.auc[place] = ranked(rows.margin[own], rows.labels[own], w[own])
            else:
                found.accuracy[place] = _mean(right[own], w[own])
        return found

    def _able(self, counts: Numbers) -> NDArray[np.int64]:
        """The sites with enough rows of either class for an AUC; of more than two classes there are none."""
        return able_sites(counts) if self.classes == 2 else np.zeros(0, dtype=np.int64)

    # from what sites send

    def of_sites(self, sites: ByClient) -> Numbers:
        """The goal worst_site of every draw: among sites that have enough rows of either class, or by accuracy where none has."""
        able = self._able(sites.rows)
        each = sites.auc[able] if len(able) else sites.accuracy
        return np.asarray([lowest(draw[~np.isnan(draw)]) for draw in each.T])

    def of_cells(self, cells: Numbers) -> float:
        """A goal about decisions, from counts by group, class, and whether they are right; NaN where these do not define it."""
        size = cells.sum(-1)
        match self.goal.name:
            case "worst_group":
                return float((cells[..., 1][size > 0] / size[size > 0]).min()) if size.sum(0).all() else float("nan")
            case "fair":
                with np.errstate(invalid="ignore"):
                    return float(self._score(Rates(size[:, 0], size[:, 1], cells[:, 0, 0] / size[:, 0], cells[:, 1, 1] / size[:, 1])))
            case _:
                return float(cells[..., 1].sum() / size.sum()) if size.any() else float("nan")

    @property
    def _score(self) -> Score:
        return self._worst_rates if self.goal.name == "worst_group" else self._fair_rates

    def _worst_rates(self, rates: Rates) -> Numbers:
        found = np.fmin.reduce(np.concatenate([rates.tpr, 1 - rates.fpr], -1), -1)
        return np.asarray(np.where((rates.negatives.sum(-1) > 0) & (rates.positives.sum(-1) > 0), found, np.nan))

    def _fair_rates(self, rates: Rates) -> Numbers:
        """Balanced accuracy of all rows, less the excess of the largest difference between a group's rate and that of all."""
        tpr, fpr = _pooled(rates.tpr, rates.positives), _pooled(rates.fpr, rates.negatives)
        gaps = {"tpr": np.abs(rates.tpr - tpr[..., None]), "fpr": np.abs(rates.fpr - fpr[..., None])}
        match self.kind:
            case "equalised odds":
                found = np.concatenate([gaps["tpr"], gaps["fpr"]], -1)
            case "demographic parity":
                rows = rates.negatives + rates.positives
                share = (np.nan_to_num(rates.tpr) * rates.positives + np.nan_to_num(rates.fpr) * rates.negatives) / np.maximum(rows, 1e-12)
                found = np.where(rows > 0, np.abs(share - _pooled(share, rows)[..., None]), np.nan)
            case _:
                found = gaps["tpr"]
        excess = np.maximum(0.0, np.fmax.reduce(found, -1) - self.gap)
        return np.asarray((tpr + 1 - fpr) / 2 - excess)


def _pooled(rate: Numbers, rows: Numbers) -> Numbers:
    with np.errstate(invalid="ignore"):
        return np.asarray((np.nan_to_num(rate) * rows).sum(-1) / rows.sum(-1))


def _mean(values: Numbers, w: Numbers) -> float:
    return float((values * w).sum() / w.sum()) if w.sum() > 0 else float("nan")


def able_sites(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """The sites that have enough rows of either class for an AUC, from the rows of each, (sites, 2).

    >>> able_sites(np.array([[9.0, 5.0], [9.0, 1.0]])), able_sites(np.array([[9.0, 0.0], [9.0, 1.0]]))
    (array([0]), array([1]))
    """
    for least in (LEAST, 1):
        if (able := np.flatnonzero((rows >= least).all(1))).size:
            return able
    return able


def about_sites(held: NDArray[np.int64], sites: int) -> str | None:
    """What there is to say of sites that have too few validation rows for the worst one to be looked for among them.

    held: the validation rows of each site and class
    """
    enough = int((held >= LEAST).all(1).sum())
    if held.shape[1] != 2 or enough == sites:
        return None
    if not enough:
        return f"No site has {LEAST} validation rows of either class, so that which site is the worst is not known well."
    return f"{enough} of {sites} sites have {LEAST} validation rows of either class, and the worst is looked for among these."


def lowest(values: Numbers) -> float:
    """The mean of the tenth of some values that is lowest, of one value at least.

    >>> lowest(np.array([0.9, 0.5, 0.7]))
    0.5
    """
    if not len(values):
        return float("nan")
    number = max(1, round(TENTH * len(values)))
    return float(np.sort(values)[:number].mean())


def make_measure(goal: Goal, columns: Collection[str], classes: int, names: Any, sensitive: str | None, **options: Any) -> Measure:
    """The measure of a goal on rows with some columns; `names` are those of the sensitive column's values."""
    if sensitive is not None and (sensitive not in columns or sensitive not in names):
        have = sorted(set(names) & set(columns) - {"inputs", "labels", "site", "group"})
        raise ConfigError(f"the sensitive column {sensitive!r} must be one of categories that the rows have; they have "
                          f"{', '.join(have) or 'none'}: keep it, with keep = [{json.dumps(sensitive)}] in [data]")
    if sensitive is not None and len(names[sensitive]) > MANY:
        raise ConfigError(f"the sensitive column {sensitive!r} has {len(names[sensitive])} values, and groups are {MANY} at most: bring it "
                          "into ranges, or name another one")
    found = Measure(goal, classes, **options)
    return found if sensitive is None else replace(found, sensitive=sensitive, groups=len(names[sensitive]))


def lacking_group(measure: Measure, cells: NDArray[np.int64]) -> int | None:
    """A group without training rows of those whose rates fairness compares; None where every group has some.

    cells: the training rows of each group and class
    """
    if measure.goal.name != "fair" or measure.sensitive is None:
        return None
    negatives, positives = cells.T
    rows = {"equalised odds": np.minimum(negatives, positives), "demographic parity": negatives + positives}.get(measure.kind, positives)
    return None if rows.all() else int(rows.argmin())
