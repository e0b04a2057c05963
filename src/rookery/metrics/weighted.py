"""Rankings of rows in one place that count more or less than once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def ranked(margin: Numbers, labels: NDArray[np.int64], w: Numbers, which: str = "auc", max_fpr: float = 1.0) -> float:
    """AUC, average precision or partial AUC of rows with weights; NaN where a class has none.

    >>> ranked(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1]), np.ones(4))
    0.75
    """
    _, place = np.unique(-margin, return_inverse=True)  # from the top
    return ranked_places(place, labels, w, which, max_fpr)


def ranked_places(place: NDArray[np.int64], labels: NDArray[np.int64], w: Numbers, which: str = "auc", max_fpr: float = 1.0) -> float:
    """The same of rows whose places from the top are known, equal ones for equal scores."""
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
