"""Decisions of two classes from histograms of scores, which clients send and the server adds up: thresholds, what they get right, and
whether the probabilities behind them come true.

A row counts as positive where its margin is above a threshold, as bin i of a histogram holds the margins in (edges[i − 1], edges[i]].

Vickers, Elkin, "Decision curve analysis: a novel method for evaluating prediction models", Medical Decision Making 2006.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..errors import DataError, ProblemError
from .calibration import Calibrator
from .histogram import _counts
from .intervals import Interval, auc_interval, wilson

Rule = Literal["f1"] | tuple[Literal["sensitivity", "probability"], float] | tuple[Literal["cost"], float, float]

FACTOR, APART = 1.25, 0.02  # a mean probability that is off by no more than both is not worth a word


class Confusion(NamedTuple):
    """How many rows a decision gets right and wrong, and the shares that follow, with Wilson's intervals; None where a share is of no rows.

    >>> Confusion(tp=8, fp=5, fn=2, tn=85).sensitivity.value
    0.8
    >>> Confusion(tp=0, fp=0, fn=2, tn=85).ppv is None
    True
    """

    tp: int
    fp: int
    fn: int
    tn: int

    @property
    def sensitivity(self) -> Interval | None:
        """The share of the positives that are found."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> Interval | None:
        """The share of the negatives that are left alone."""
        return _share(self.tn, self.tn + self.fp)

    @property
    def ppv(self) -> Interval | None:
        """The positive predictive value: the share of positives among the rows that count as positive."""
        return _share(self.tp, self.tp + self.fp)

    @property
    def npv(self) -> Interval | None:
        """The negative predictive value: the share of negatives among the rows that count as negative."""
        return _share(self.tn, self.tn + self.fn)

    @property
    def accuracy(self) -> Interval | None:
        """The share of the rows that are right."""
        return _share(self.tp + self.tn, sum(self))

    @property
    def f1(self) -> float | None:
        """2 tp / (2 tp + fp + fn), the harmonic mean of sensitivity and positive predictive value, which is no share of rows."""
        return 2 * self.tp / (2 * self.tp + self.fp + self.fn) if self.tp + self.fp + self.fn else None


class Decision(NamedTuple):
    """A threshold of the margin, what it gets right, and how many rows of a bin that it cuts may lie on the other side of it."""

    threshold: float
    confusion: Confusion
    doubt: int = 0


def decide(histogram: Tensor, edges: Tensor, threshold: float) -> Decision:
    """What a threshold of the margin gets right; one between two edges has the counts of the nearer one, and the rows between in doubt.

    >>> decide(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), torch.tensor([-1.0, 1.0]), 0.9)
    Decision(threshold=0.9, confusion=Confusion(tp=1, fp=0, fn=1, tn=3), doubt=2)
    """
    n, p = _of_bins(histogram, edges)
    if math.isnan(threshold):
        raise ProblemError("a threshold is a margin, which may be infinite; got NaN")
    cuts = [-math.inf, *edges.tolist(), math.inf]
    at = bisect_left(cuts, threshold)
    doubt = 0 if cuts[at] == threshold else int(n[at - 1] + p[at - 1])
    if doubt and threshold - cuts[at - 1] < cuts[at] - threshold:
        at -= 1
    return Decision(threshold, _confusion(n, p, at), doubt)


def choose_threshold(histogram: Tensor, edges: Tensor, rule: Rule, calibrator: Calibrator | None = None) -> Decision:
    """The threshold of the margin that a rule asks for, and what it gets right on the rows of the histogram.

    "f1":                     the largest F1
    ("sensitivity", 0.9):     the highest threshold that finds at least this share of the positives
    ("cost", 1.0, 20.0):      the least cost, of a false positive and of a false negative
    ("probability", 0.1):     where the positive class has this probability, by the calibrator; of outputs as they are without one

    All but the last take an edge, or ∓inf where all rows or none had better count as positive, and of several that are equally good the
    middle one ("sensitivity": the highest). They need rows of both classes.

    >>> choose_threshold(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), torch.tensor([-1.0, 1.0]), ("sensitivity", 0.9))
    Decision(threshold=-1.0, confusion=Confusion(tp=2, fp=1, fn=0, tn=2), doubt=0)
    """
    name, *numbers = (rule,) if isinstance(rule, str) else rule
    lengths = {"f1": 0, "sensitivity": 1, "cost": 2, "probability": 1}
    if name not in lengths or len(numbers) != lengths[name] or not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ProblemError('a rule is "f1", ("sensitivity", share), ("cost", of a false positive, of a false negative) or ("probability", '
                           f"p), with numbers that are not negative; got {rule!r}")
    if name == "probability":
        return decide(histogram, edges, (calibrator or Calibrator()).margin_at(numbers[0]))
    n, p = _of_bins(histogram, edges)
    if not float(n.sum()) or not float(p.sum()):
        raise DataError(f"a threshold is chosen by rows of both classes; the histogram has {float(p.sum()):.0f} positives and "
                        f'{float(n.sum()):.0f} negatives: add up more clients, or write ("probability", 0.5)')
    # an outer edge is as good as infinity where no row lies beyond it
    cuts = [-math.inf, *edges.tolist(), math.inf]
    tried = range(0 if float(n[0] + p[0]) else 1, len(cuts) if float(n[-1] + p[-1]) else len(cuts) - 1)
    found = {at: _confusion(n, p, at) for at in tried}
    if name == "sensitivity":
        if not 0 < numbers[0] <= 1:
            raise ProblemError(f"a sensitivity is a share of the positives, above 0 and at most 1; got {numbers[0]}")
        at = max(at for at, c in found.items() if c.tp / (c.tp + c.fn) >= numbers[0])
    else:
        worth = {at: c.f1 or 0.0 if name == "f1" else -(numbers[0] * c.fp + numbers[1] * c.fn) for at, c in found.items()}
        most = max(worth.values())
        best = [at for at, value in worth.items() if value == most]
        at = best[(len(best) - 1) // 2]
    return Decision(cuts[at], found[at])


class Predicted(NamedTuple):
    """Rows whose probabilities are alike: the mean of these, the share that is positive with Wilson's interval, and their number."""

    predicted: float
    observed: Interval
    rows: int


def reliability(histogram: Tensor, edges: Tensor, calibrator: Calibrator | None = None, bins: int = 10) -> list[Predicted]:
    """What came of the rows by their probability of the positive class, in bins (i / bins, (i + 1) / bins] of it that have rows.

    A row's probability is that in the middle of its bin of the histogram, or at the edge of an outer one, so the edges must lie close
    wherever there are rows, as `default_edges` do: `refined_edges` do not where all rows are negative.

    >>> reliability(torch.tensor([[6.0, 0.0, 1.0], [2.0, 0.0, 3.0]]), torch.tensor([-1.0, 1.0]), bins=2)[1].observed.value
    0.75
    """
    if bins < 1:
        raise ProblemError(f"bins is the number of bins of probabilities, at least 1; got {bins}")
    n, p = _of_bins(histogram, edges)
    probability = (calibrator or Calibrator()).positive(torch.cat([edges[:1], (edges[:-1] + edges[1:]) / 2, edges[-1:]]))
    place = torch.bucketize(probability, torch.arange(1, bins, dtype=torch.float64) / bins)
    rows, positives, total = (torch.bincount(place, value, bins).tolist() for value in (n + p, p, (n + p) * probability))
    return [Predicted(t / k, wilson(successes, k), int(k)) for k, successes, t in zip(rows, positives, total, strict=True) if k]


def expected_calibration_error(table: Sequence[Predicted]) -> float | None:
    """Σ rows · |mean probability − share of positives| / Σ rows, of the positive class (that of `evaluate` is of the likelier class).

    >>> expected_calibration_error([Predicted(0.25, wilson(1, 2), 2), Predicted(0.75, wilson(6, 6), 6)])
    0.25
    """
    rows = sum(entry.rows for entry in table)
    return sum(entry.rows * abs(entry.predicted - entry.observed.value) for entry in table) / rows if rows else None


class NetBenefit(NamedTuple):
    """The net benefit of deciding at a probability: of the model, of taking every row for positive, and of taking none."""

    probability: float
    model: float
    treat_all: float
    treat_none: float = 0.0


def decision_curve(histogram: Tensor, edges: Tensor, calibrator: Calibrator | None, probabilities: Iterable[float]) -> list[NetBenefit]:
    """The net benefit TP / rows − FP / rows · p / (1 − p) at each probability p from which on one would act.

    The odds p / (1 − p) are how many needless actions one would accept for a needed one. Empty without rows.

    >>> decision_curve(torch.tensor([[6.0, 2.0], [0.0, 2.0]]), torch.tensor([0.0]), None, [0.5])
    [NetBenefit(probability=0.5, model=0.0, treat_all=-0.6, treat_none=0.0)]
    """
    found = []
    for probability in probabilities:
        tp, fp, fn, tn = decide(histogram, edges, (calibrator or Calibrator()).margin_at(probability)).confusion
        rows, odds = tp + fp + fn + tn, probability / (1 - probability)
        if rows:
            found.append(NetBenefit(probability, (tp - fp * odds) / rows, (tp + fn - (fp + tn) * odds) / rows))
    return found


def auc_interval_from_histogram(histogram: Tensor, level: float = 0.95) -> Interval | None:
    """The AUC of binned scores and DeLong's interval, as `auc_interval` of rows whose scores are the numbers of their bins.

    A pair within a bin is a tie, which counts half. None where a class has no rows.

    >>> [round(x, 4) for x in auc_interval_from_histogram(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))]
    [0.9167, 0.3484, 0.9956]
    """
    counts = torch.cat(_counts(histogram)).long()
    place = torch.arange(len(counts)).repeat_interleave(counts)
    bins = len(counts) // 2
    return auc_interval((place % bins).numpy(), (place >= bins).numpy(), level)


def probabilities_off(mean_predicted: float, observed: float, rows: float) -> str | None:
    """A sentence where a model's mean probability cannot be the share of positives, and None where it may be or is close enough.

    It cannot where it lies outside of Wilson's 95 % interval of the share. It is close enough where it is off by 0.02 at most and by a
    factor of 1.25 at most: among frequent positives the first is the stricter one, among rare ones the second.

    >>> probabilities_off(0.21, 0.03, 500)
    'the model says 0.21 on average where 0.03 of the rows are positive: calibrate before you read its outputs as probabilities'
    """
    if not rows > 0:
        return None
    share, low, high = wilson(round(observed * rows), rows)
    small, large = sorted((mean_predicted, share))
    if low <= mean_predicted <= high or (large - small <= APART and large <= FACTOR * small):
        return None
    return (f"the model says {mean_predicted:.2g} on average where {share:.2g} of the rows are positive: calibrate before you read its "
            "outputs as probabilities")


def _of_bins(histogram: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """Negatives and positives by bin, of a histogram that has these edges."""
    n, p = _counts(histogram)
    if not len(edges) or edges.shape != (len(n) - 1,) or bool((edges[1:] < edges[:-1]).any()):
        raise ProblemError(f"a histogram of {len(n)} bins has {len(n) - 1} inner edges, at least one, sorted; got {edges}: give those that "
                           "it was made with")
    return n, p


def _confusion(n: Tensor, p: Tensor, at: int) -> Confusion:
    """Where the bins from number `at` on count as positive."""
    return Confusion(tp=int(p[at:].sum()), fp=int(n[at:].sum()), fn=int(p[:at].sum()), tn=int(n[:at].sum()))


def _share(part: int, rows: int) -> Interval | None:
    return wilson(part, rows) if rows else None
