"""How far a goal is reached: on the sites' validation rows from what these send, and on test rows, with weights for a bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data import Data
from ..errors import ConfigError, DataError
from ..metrics.federated import margin_of
from ..metrics.histogram import default_edges, histograms_by_client
from ..metrics.thresholds import Rates, Score, best_thresholds, crossed, group_histograms
from ..studies.job import Job
from .goals import Goal

TENTH = 0.1  # of the sites, those where the score is lowest
LEAST = 5  # rows of each class that a site needs for an AUC that says something
MANY = 50  # values of a column beyond which they are no groups
MORE = "Give more rows, a larger share of them to validation with data.validation, or another seed"
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
            return Measured(self._worst(job, vector), scores=found)
        if self.goal.name == "worst_group":
            value = self._worst_cell(self._predicted(job, vector), None)
            if np.isnan(value):
                raise DataError(f"the sites' validation rows have no {self.goal.metric}: they lack a class. {MORE}")
            return Measured(value, scores=found)
        if self.goal.name == "personal" and job.personal is not None:
            found |= job.personal.scores(evaluation, vector, "validation", fed.ledger)
            return Measured(found["adapted accuracy"], scores=found)
        name = {"auc": "AUC", "ap": "AP", "partial_auc": "partial AUC"}.get(self.goal.name, "accuracy")
        if name not in found:
            raise DataError(f"the sites' validation rows have no {name}: they lack a class. {MORE}")
        return Measured(found[name], scores=found)

    def _worst(self, job: Job, vector: Tensor) -> float:
        held, metric = job.held, "AUC" if self.classes == 2 else "accuracy"
        scores = dict(zip(job.fed.data.names, job.evaluation.site_scores(job.fed, vector, "validation"), strict=True))
        labels = held.column("labels").cpu().numpy()
        if self.classes == 2 and len(np.unique(labels)) < 2:
            raise DataError(f"the sites' validation rows have no AUC: they lack a class. {MORE}")
        able = able_sites(np.repeat(np.arange(len(held.names)), held.sizes), labels, self.classes)
        known = [scores[held.names[place]] for place in able]
        values = [own[metric] for own in known if metric in own] or [own["accuracy"] for own in scores.values() if "accuracy" in own]
        return lowest(np.asarray(values))

    def _predicted(self, job: Job, vector: Tensor) -> Scored:
        """The validation rows of more than two classes, which a simulation has at hand."""
        held = job.held
        site = np.repeat(np.arange(len(held.names)), held.sizes)
        group = held.fields["labels"] * 0 if self.sensitive is None else held.fields[self.sensitive]
        return Scored.of(job.predict(vector, held.fields["inputs"]), held.fields["labels"].cpu(), site, group.cpu().numpy())

    def margins(self, outputs: Tensor, held: Data) -> tuple[float, ...]:
        """Above which rows are decided to be positive: the best for the goal on validation rows with these outputs, one for all groups."""
        if not self.decides:
            return ()
        labels = held.fields["labels"].cpu()
        group = labels * 0 if self.sensitive is None else held.fields[self.sensitive].cpu()
        histogram = histograms_by_client(margin_of(outputs), labels, group, self.groups, default_edges())
        return tuple(best_thresholds(histogram.numpy(), self._score)[0].tolist())

    # rows in one place

    def of_rows(self, rows: Scored, weight: Numbers | None = None) -> float:
        """The goal on rows that are in one place, each as often as its weight says; NaN where they do not define it."""
        w = np.ones(len(rows.labels)) if weight is None else weight
        right = (rows.decided == rows.labels).astype(float)
        match self.goal.name:
            case "auc" | "ap" | "partial_auc":
                return ranked(rows.margin, rows.labels, w, self.goal.name, self.max_fpr)
            case "worst_site":
                able = able_sites(rows.site, rows.labels, self.classes)
                each = [ranked(rows.margin[own], rows.labels[own], w[own], "auc") if self.classes == 2 and len(able)
                        else _mean(right[own], w[own])
                        for site in (able if len(able) else np.unique(rows.site)) for own in [rows.site == site]]
                return lowest(np.asarray([value for value in each if not np.isnan(value)]))
            case "worst_group":
                return self._worst_cell(rows, w)
            case "fair":
                return float(self._score(self._rates(rows, w)))
            case _:
                return _mean(right, w)

    def _worst_cell(self, rows: Scored, weight: Numbers | None) -> float:
        w = np.ones(len(rows.labels)) if weight is None else weight
        if not np.bincount(rows.labels, w, self.classes).all():
            return float("nan")
        cell = rows.group * self.classes + rows.labels
        size = np.bincount(cell, w)
        hits = np.bincount(cell, w * (rows.decided == rows.labels))
        return float((hits[size > 0] / size[size > 0]).min())

    def _rates(self, rows: Scored, w: Numbers) -> Rates:
        (negatives, positives), (false, true) = (
            [np.bincount(rows.group[own], by[own], self.groups).astype(np.float64) for own in (rows.labels == 0, rows.labels == 1)]
            for by in (w, w * rows.decided))
        with np.errstate(invalid="ignore"):
            return Rates(negatives, positives, false / negatives, true / positives)

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


def able_sites(site: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """The sites that have enough rows of either class for an AUC; of more than two classes, all."""
    if classes != 2:
        return np.unique(site)
    sites = int(site.max()) + 1 if len(site) else 0
    counts = np.stack([np.bincount(site[labels == k], minlength=sites) for k in (0, 1)])
    for least in (LEAST, 1):
        if (able := np.flatnonzero((counts >= least).all(0))).size:
            return able
    return able


def about_sites(data: Data, classes: int) -> str | None:
    """What there is to say of sites that have too few validation rows for the worst one to be looked for among them."""
    held = data.split("validation")
    assert held is not None
    labels, site = held.column("labels").cpu().numpy(), np.repeat(np.arange(len(held.names)), held.sizes)
    enough = int((np.stack([np.bincount(site[labels == k], minlength=len(held.names)) for k in range(2)]) >= LEAST).all(0).sum())
    if classes != 2 or enough == len(data.names):
        return None
    if not enough:
        return f"No site has {LEAST} validation rows of either class, so that which site is the worst is not known well."
    return f"{enough} of {len(data.names)} sites have {LEAST} validation rows of either class, and the worst is looked for among these."


def lowest(values: Numbers) -> float:
    """The mean of the tenth of some values that is lowest, of one value at least.

    >>> lowest(np.array([0.9, 0.5, 0.7]))
    0.5
    """
    if not len(values):
        return float("nan")
    number = max(1, round(TENTH * len(values)))
    return float(np.sort(values)[:number].mean())


def ranked(margin: Numbers, labels: NDArray[np.int64], w: Numbers, which: str = "auc", max_fpr: float = 1.0) -> float:
    """AUC, average precision or partial AUC of rows with weights; NaN where a class has none.

    >>> ranked(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]), np.ones(4))
    0.75
    """
    _, place = np.unique(-margin, return_inverse=True)  # from the top
    p, n = (np.bincount(place, w * (labels == k)) for k in (1, 0))
    if not p.sum() or not n.sum():
        return float("nan")
    tp, fp = p.cumsum(), n.cumsum()
    if which == "ap":
        kept = p > 0
        return float((p[kept] * tp[kept] / (tp + fp)[kept]).sum() / p.sum())
    tpr, fpr = np.concatenate([[0.0], tp / p.sum()]), np.concatenate([[0.0], fp / n.sum()])
    if which == "auc":
        return _area(tpr, fpr)
    inside = fpr <= max_fpr  # of a step at the bound the lower end closes the area
    x, y = np.append(fpr[inside], max_fpr), np.append(tpr[inside], np.interp(max_fpr, fpr, tpr))
    return _area(y, x) / max_fpr


def _area(y: Numbers, x: Numbers) -> float:
    return float(((y[1:] + y[:-1]) * np.diff(x)).sum() / 2)


def make_measure(goal: Goal, data: Data, classes: int, names: Any, sensitive: str | None, **options: Any) -> Measure:
    """The measure of a goal on some rows; `names` are those of the sensitive column's values."""
    if sensitive is not None and (sensitive not in data.fields or sensitive not in names):
        have = sorted(set(names) & set(data.fields) - {"inputs", "labels", "site", "group"})
        raise ConfigError(f"the sensitive column {sensitive!r} must be one of categories that the rows have; they have "
                          f"{', '.join(have) or 'none'}")
    if sensitive is not None and len(names[sensitive]) > MANY:
        raise ConfigError(f"the sensitive column {sensitive!r} has {len(names[sensitive])} values, and groups are {MANY} at most: bring it "
                          "into ranges, or name another one")
    found = Measure(goal, classes, **options)
    return found if sensitive is None else replace(found, sensitive=sensitive, groups=len(names[sensitive]))


def lacking_group(measure: Measure, data: Data) -> int | None:
    """A group without training rows of those whose rates fairness compares; None where every group has some."""
    if measure.goal.name != "fair" or measure.sensitive is None:
        return None
    group, labels = (data.column(name).cpu().numpy() for name in (measure.sensitive, "labels"))
    negatives, positives = (np.bincount(group[labels == k], minlength=measure.groups) for k in (0, 1))
    rows = {"equalised odds": np.minimum(negatives, positives), "demographic parity": negatives + positives}.get(measure.kind, positives)
    return None if rows.all() else int(rows.argmin())
