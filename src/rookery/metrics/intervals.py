"""Confidence intervals of metrics of one owner's rows: DeLong's for the AUC, the bootstrap for any metric, Wilson's for a share.

DeLong, DeLong, Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating characteristic curves", Biometrics
1988; by midranks as in Sun, Xu, "Fast implementation of DeLong's algorithm", IEEE Signal Processing Letters 2014.
Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from ..errors import DataError, ProblemError

Array = NDArray[np.float64]


class Interval(NamedTuple):
    """A metric and its confidence interval."""

    value: float
    low: float
    high: float


class AucDifference(NamedTuple):
    """The difference of two AUCs on the same rows, its standard error and the two-sided p-value; None where the rows do not define them."""

    value: float
    error: float | None
    p: float | None


def delong(scores: ArrayLike, positive: ArrayLike) -> tuple[float, float | None] | None:
    """The AUC, ties counting half, and its standard error by DeLong.

    None where a class has no rows. Where a class has one row, its variance cannot be told from the rows: the error is None.

    >>> auc, error = delong([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> auc, round(error, 4)
    (0.75, 0.3536)
    """
    found = _placements(scores, positive)
    return None if found is None else (float(found[0].mean()), _error(*found))


def auc_interval(scores: ArrayLike, positive: ArrayLike, level: float = 0.95) -> Interval | None:
    """The AUC and DeLong's interval on the logit scale, which stays within (0, 1). None where a class has no rows.

    Where DeLong's error is 0 (an AUC of exactly 0 or 1, or all scores the same) or not defined (a class of one row), an interval from it
    would have no width. There it is Clopper and Pearson's of k trials, AUC · k of them successes, with k the rows of the smaller class. So
    many pairs share no row, hence are independent, and if the AUC is 1 all of them are right: the interval is then ((½ − level/2)^(1/k),
    1), which no number of rows of the larger class makes narrower. It is exact at 0 and 1 without ties, and wide rather than narrow.

    >>> [round(x, 4) for x in auc_interval([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1])]
    [1.0, 0.2924, 1.0]
    """
    _check(level)
    found = _placements(scores, positive)
    if found is None:
        return None
    value, error, tail = float(found[0].mean()), _error(*found), (1 - level) / 2
    if error and 0 < value < 1:
        reach = -float(special.ndtri(tail)) * error / (value * (1 - value))
        low, high = special.expit(special.logit(value) + np.asarray([-reach, reach]))
        return Interval(value, float(low), float(high))
    k = min(map(len, found))
    right = value * k
    low = float(stats.beta.ppf(tail, right, k - right + 1)) if right > 0 else 0.0
    high = float(stats.beta.isf(tail, right + 1, k - right)) if right < k else 1.0
    return Interval(value, low, high)


def delong_test(a: ArrayLike, b: ArrayLike, positive: ArrayLike) -> AucDifference | None:
    """AUC of a − AUC of b on the same rows, its standard error by DeLong, and the p-value of "they are equal" by the normal law.

    None where a class has no rows; error and p are None where a class has one row, and p is None where the error is 0, as of two scores
    that order all pairs alike.

    >>> [round(x, 4) for x in delong_test([1, 2, 3, 4], [2, 1, 3, 4], [0, 1, 0, 1])]
    [0.25, 0.3536, 0.4795]
    """
    first, second = _placements(a, positive), _placements(b, positive)
    if first is None or second is None:
        return None
    differences = first[0] - second[0], first[1] - second[1]
    value, error = float(differences[0].mean()), _error(*differences)
    return AucDifference(value, error, float(2 * special.ndtr(-abs(value) / error)) if error else None)


def bootstrap_interval(metric: Callable[[NDArray[Any], NDArray[Any]], float | None], scores: ArrayLike, labels: ArrayLike,
                       level: float = 0.95, draws: int = 1000, seed: int = 0) -> Interval | None:
    """A metric and its percentile interval over draws of the rows with replacement, as many of each class as there are.

    metric: (scores, labels) → a number; None or NaN where it is undefined
    scores: an entry, or a row of entries, for each row
    labels: each row's class

    Draws on which the metric is undefined are left out. None where it is undefined on the rows themselves, or on all draws.

    >>> bootstrap_interval(lambda s, y: float(s[y == 1].max()), [0.0, 1.0, 2.0, 3.0], [0, 1, 1, 1])
    Interval(value=3.0, low=1.0, high=3.0)
    """
    _check(level)
    if draws < 1:
        raise ProblemError(f"draws is the number of draws, at least 1; got {draws}")
    s, y = np.asarray(scores), np.asarray(labels)
    if y.ndim != 1 or s.shape[:1] != y.shape:
        raise DataError(f"scores and labels must have an entry for each row; they have the shapes {s.shape} and {y.shape}")
    value = _defined(metric(s, y))
    if value is None:
        return None
    rng, strata = np.random.default_rng(seed), [np.flatnonzero(y == c) for c in np.unique(y)]
    found = []
    for _ in range(draws):
        rows = np.concatenate([rng.choice(stratum, len(stratum)) for stratum in strata])
        drawn = _defined(metric(s[rows], y[rows]))
        if drawn is not None:
            found.append(drawn)
    if not found:
        return None
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def wilson(successes: float, rows: float, level: float = 0.95) -> Interval:
    """A share of rows, such as an accuracy, and Wilson's interval, which has a width and stays in [0, 1] also for few rows.

    >>> [round(x, 4) for x in wilson(9, 10)]
    [0.9, 0.5958, 0.9821]
    """
    _check(level)
    if not (rows > 0 and 0 <= successes <= rows and math.isfinite(rows)):
        raise ProblemError(f"successes are some of the rows, of which there is at least one; got {successes} of {rows}: without rows there "
                           "is no share")
    share, z = successes / rows, -float(special.ndtri((1 - level) / 2))
    centre, scale = share + z * z / (2 * rows), 1 + z * z / rows
    reach = z * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    return Interval(share, max((centre - reach) / scale, 0.0) if successes else 0.0,
                    min((centre + reach) / scale, 1.0) if successes < rows else 1.0)


def _placements(scores: ArrayLike, positive: ArrayLike) -> tuple[Array, Array] | None:
    """For each positive the share of negatives below it, for each negative the share of positives above it; None where a class is missing.

    Both are differences of midranks: a row's among all rows, less its own among its class.
    """
    s, y = np.asarray(scores, dtype=np.float64), np.asarray(positive) > 0
    if s.ndim != 1 or y.shape != s.shape:
        raise DataError(f"scores and positive must have one entry for each row; they have the shapes {s.shape} and {y.shape}")
    if np.isnan(s).any():
        raise DataError(f"scores must be numbers, but {np.isnan(s).sum()} of {len(s)} are NaN: leave those rows out")
    p, n = int(y.sum()), int((~y).sum())
    if not p or not n:
        return None
    ranks = stats.rankdata(s)
    return (ranks[y] - stats.rankdata(s[y])) / n, 1 - (ranks[~y] - stats.rankdata(s[~y])) / p


def _error(of_positives: Array, of_negatives: Array) -> float | None:
    """√(S₁₀ / positives + S₀₁ / negatives), with sample variances; 0 where they are nothing but rounding."""
    if min(len(of_positives), len(of_negatives)) < 2:
        return None
    error = math.sqrt(of_positives.var(ddof=1) / len(of_positives) + of_negatives.var(ddof=1) / len(of_negatives))
    return error if error > 1e-14 else 0.0


def _defined(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _check(level: float) -> None:
    if not 0 < level < 1:
        raise ProblemError(f"level is the probability of the interval, between 0 and 1, such as 0.95; got {level}")
