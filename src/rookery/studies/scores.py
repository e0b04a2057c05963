"""Scores of rows from a model's outputs, Rookery's and one's own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from ..errors import ConfigError
from ..metrics import class_sums, from_sums, partial_auc, score_histogram
from ..metrics.federated import margin_of
from .modules import call

PLAIN, RANKING = ("loss", "accuracy", "balanced accuracy", "worst class", "Brier", "ECE"), ("AUC", "AP", "partial AUC")
BESIDE = (" bound", " exact")  # endings of what a history has beside a metric from a histogram, and that are no metrics themselves
SMALLER = ("loss", "gap", "Brier", "ECE")  # metrics that are better when they are smaller


def row_scores(outputs: Tensor, labels: Tensor, max_fpr: float | None = None) -> dict[str, float]:
    """The scores of rows that are in one place, exactly; what they do not define, such as the AUC of one class, is absent."""
    classes = outputs.shape[1]
    found = from_sums(class_sums(outputs, labels, classes).sum(0), classes)
    if classes == 2 and 0 < int((labels > 0).sum()) < len(labels):
        margin, positive = margin_of(outputs), labels > 0
        found |= {"AUC": float(roc_auc_score(positive, margin)), "AP": float(average_precision_score(positive, margin))}
        if max_fpr is not None:
            edges = torch.from_numpy(np.unique(margin.numpy())[:-1])  # a bin for every distinct score leaves nothing to doubt
            partial = partial_auc(score_histogram(margin, positive, edges), max_fpr)
            found |= {} if partial is None else {"partial AUC": partial.value}
    return found


@dataclass(frozen=True)
class OwnMetric:
    """A score of one's own: a function of the model's outputs, (rows, classes), and of the rows' labels, or of all their columns.

    It is called by the function's name. NaN or None says nothing about these rows. Which way is better is said by an attribute of the
    function, `larger_is_better`, and asked for where a comparison chooses by it.
    """

    written: str  # module:name
    function: Callable[[Tensor, Any], Any]

    def __post_init__(self) -> None:
        where = f"run.metrics has {self.written!r}"
        if not inspect.isfunction(self.function):
            raise ConfigError(f"{where}, which is a {type(self.function).__name__}; a metric is a function of outputs and labels")
        needed = [p for p in inspect.signature(self.function).parameters.values() if p.default is p.empty]
        if len(needed) != 2 or any(p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in needed):
            raise ConfigError(f"{where}, which takes ({', '.join(p.name for p in needed)}); a metric takes (outputs, labels), or "
                              "(outputs, fields) for all columns of the rows")
        if self.name in (*PLAIN, *RANKING, *SMALLER):
            raise ConfigError(f"{where}, but every run has a metric {self.name!r} already: give the function another name")

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def larger_is_better(self) -> bool | None:
        return getattr(self.function, "larger_is_better", None)

    def score(self, outputs: Tensor, fields: Mapping[str, Tensor]) -> dict[str, float]:
        """The score by its name; nothing where it says nothing."""
        second = list(inspect.signature(self.function).parameters)[1]
        found = call(self.function, f"the metric {self.written!r}", outputs, dict(fields) if second == "fields" else fields["labels"])
        try:
            value = math.nan if found is None else float(found)
        except (TypeError, ValueError, RuntimeError):
            raise ConfigError(f"the metric {self.written!r} must return a number; it returned {type(found).__name__}") from None
        return {self.name: value} if math.isfinite(value) else {}


def larger_is_better(metric: str, own: Sequence[OwnMetric] = ()) -> bool | None:
    """Whether a larger value is better; None where a metric of one's own does not say.

    >>> larger_is_better("test AP"), larger_is_better("validation loss"), larger_is_better("validation adapted loss")
    (True, False, False)
    """
    name = metric.partition(" ")[2].removeprefix("adapted ")
    return next((m.larger_is_better for m in own if m.name == name), name not in SMALLER)
