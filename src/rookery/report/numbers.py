"""Means and spreads over the seeds of a method: of last values, of curves, of ROC and PR curves."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from ..studies.statistics import paired_ttest
from .record import Record, ReportError

Array = NDArray[np.float64]
POINTS = 81  # of a drawn line, at most: finer than a screen shows
HUGE = 1e100  # beyond this a value has diverged, and its square may not exist


class Stat(NamedTuple):
    """Mean and standard deviation (divisor n − 1; NaN for one) of the n values that are finite."""

    mean: float
    std: float
    n: int


class Curve(NamedTuple):
    """A mean line and its standard deviation over `n` seeds; `std` is None for one seed."""

    x: Array
    mean: Array
    std: Array | None
    n: int


@dataclass(frozen=True)
class Method:
    """The runs of one label, and their place among the methods, which is their colour."""

    label: str
    place: int
    records: tuple[Record, ...]

    def last(self, name: str) -> Stat | None:
        return stat(record.history[-1].get(name) for record in self.records)

    def first(self, key: str) -> Any:
        """The first run's entry of about.json that is not empty."""
        return next((record.about[key] for record in self.records if record.about.get(key)), None)


def methods(records: Sequence[Record]) -> list[Method]:
    """Runs of the same label are seeds of one method; the same seed twice would make the spread too small."""
    groups: dict[str, list[Record]] = {}
    seen: dict[tuple[str, object], Record] = {}
    for record in records:
        key = record.label, record.folder.resolve() if record.seed is None else record.seed
        if key in seen:
            raise ReportError(f"each seed of a method may come once; {record.label!r} has seed {record.seed} in {seen[key].folder} "
                              f"and in {record.folder}: leave one out, or run one with another --label")
        seen[key] = record
        group = groups.setdefault(record.label, [])
        if group and group[0].about.get("config", {}).get("data") != record.about.get("config", {}).get("data"):
            raise ReportError(f"runs of one label are seeds of one method on the same data, but {group[0].folder} and {record.folder}, "
                              f"both {record.label!r}, are of different data: write a page for each, or run one with another --label")
        group.append(record)
    return [Method(label, place, tuple(group)) for place, (label, group) in enumerate(groups.items())]


def stat(values: Iterable[float | None]) -> Stat | None:
    """Mean and sample standard deviation of the values that are there.

    >>> stat([1.0, 3.0, None])
    Stat(mean=2.0, std=1.4142135623730951, n=2)
    """
    finite = [float(value) for value in values if value is not None and abs(value) < HUGE]
    if not finite:
        return None
    return Stat(float(np.mean(finite)), float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan, len(finite))


def paired_p(method: Method, first: Method, metric: str) -> float | None:
    """The p of the paired t-test of two methods on the seeds that both have; None where there are too few, or nothing varies."""
    found = [{record.seed: value for record in one.records
              if record.seed is not None and abs(value := record.history[-1].get(metric, math.nan)) < HUGE} for one in (method, first)]
    seeds = [seed for seed in found[0] if seed in found[1]]
    p = paired_ttest(*([one[seed] for seed in seeds] for one in found)).p if len(seeds) > 1 else math.nan
    return None if math.isnan(p) else p


def metrics(rows: Iterable[Iterable[str]], but: Sequence[str] = ()) -> list[str]:
    """The names in the order of their first appearance, without those that are no metrics."""
    return list(dict.fromkeys(name for row in rows for name in row if name not in but))


def direction(metric: str) -> int:
    """+1 where larger is better, −1 where smaller is, 0 where nobody knows.

    >>> direction("test AUC"), direction("validation loss"), direction("worst gap"), direction("shape")
    (1, -1, -1, 0)
    """
    words = set(re.findall(r"[a-z]+", metric.lower()))
    return -1 if words & {"loss", "gap", "brier", "ece"} else 1 if words & {"accuracy", "auc", "ap", "worst", "goal"} else 0


def _thin(x: Array) -> Array:
    return x if len(x) <= POINTS else x[np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(int))]


def _over_seeds(x: Array, lines: Sequence[Array]) -> Curve:
    return Curve(x, np.mean(lines, axis=0), np.std(lines, axis=0, ddof=1) if len(lines) > 1 else None, len(lines))


def curve(records: Sequence[Record], metric: str, axis: str) -> Curve | None:
    """The mean of a metric along an axis: seeds are joined at every point where one was evaluated, over the range they share."""
    lines = []
    for record in records:
        points = np.array(sorted((row[axis], row[metric]) for row in record.history if abs(row.get(metric, math.nan)) < HUGE))
        if len(points):
            lines.append((points[:, 0], points[:, 1]))
    if not lines:
        return None
    low, high = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    grid = np.unique(np.concatenate([x for x, _ in lines]))
    grid = _thin(grid[(grid >= low) & (grid <= high)])
    return _over_seeds(grid, [np.interp(grid, x, y) for x, y in lines]) if len(grid) else None


class Ranking(NamedTuple):
    """How scores rank two classes: ROC and PR curves averaged vertically, AUC and AP over seeds, the share of positives."""

    roc: Curve
    pr: Curve
    auc: Stat
    ap: Stat
    positives: float


def ranking(records: Sequence[Record]) -> Ranking | None:
    """None where no run has finite scores of rows of exactly two classes."""
    grid = np.linspace(0.0, 1.0, POINTS)
    roc, pr, auc, ap, share = [], [], [], [], []
    for record in records:
        if record.labels is None or record.scores is None or len(np.unique(record.labels)) != 2 or not np.isfinite(record.scores).all():
            continue
        if record.scores.ndim == 2 and record.scores.shape[1] != 2:
            continue
        scores = record.scores if record.scores.ndim == 1 else record.scores[:, 1] - record.scores[:, 0]
        positive = record.labels == record.labels.max()
        false, true, _ = roc_curve(positive, scores)
        precision, recall, _ = precision_recall_curve(positive, scores)
        roc.append(np.interp(grid, false, true))
        # precision is a step in recall, as in AP = Σ (R_n − R_{n−1}) P_n: a straight line between its points would flatter
        pr.append(precision[::-1][np.searchsorted(recall[::-1], np.maximum(grid, 1e-12))])
        auc.append(float(roc_auc_score(positive, scores)))
        ap.append(float(average_precision_score(positive, scores)))
        share.append(float(positive.mean()))
    first, second = stat(auc), stat(ap)
    if first is None or second is None:
        return None
    return Ranking(_over_seeds(grid, roc), _over_seeds(grid, pr), first, second, float(np.mean(share)))
