"""AUC, average precision and partial AUC of two classes from histograms of scores, which clients send and the server adds up.

A histogram forgets the order of the rows within a bin. Each metric therefore comes with the smallest and the largest value that any order
of those rows, and any ties among them, could have: the exact metric of the rows lies between the two. A second histogram, on edges that
are fitted to a first one, brings them together.

McClish, "Analyzing a portion of the ROC curve", Medical Decision Making 1989, for the partial AUC.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, ProblemError

REACH = 64.0  # the default edges end here, on either side: a probability of 1 − 10⁻²⁸
GRID = 2.0**20  # default edges are multiples of 1 / GRID
BEYOND = 14.0  # an outer bin is split up to sinh(14) ≈ 600 000 beyond its edge


class Ranked(NamedTuple):
    """A metric of binned scores, and the bounds between which that of the scores themselves lies."""

    value: float
    low: float
    high: float


def default_edges(bins: int = 1024) -> Tensor:
    """The bins − 1 inner edges of a grid over logits: near-linear around 0, logarithmic towards ±64; beyond lie the two outer bins.

    They are a sinh of equal steps, rounded to multiples of 2⁻²⁰, so that they are the same numbers at every client, whatever its processor.

    >>> default_edges(6)
    tensor([-64.0000,  -5.6128,   0.0000,   5.6128,  64.0000], dtype=torch.float64)
    """
    _at_least_one(bins)
    steps = torch.linspace(-1, 1, bins - 1, dtype=torch.float64) if bins > 2 else torch.zeros(bins - 1, dtype=torch.float64)
    return torch.round(torch.sinh(steps * math.asinh(REACH)) * GRID) / GRID + 0.0  # no −0


def score_histogram(scores: Tensor, positive: Tensor, edges: Tensor) -> Tensor:
    """Counts of the rows by class and bin, (2, bins): the first row of the negatives, the second of the positives.

    scores:   a number for each row, larger for a row that seems positive; infinities fall into the outer bins
    positive: for each row whether it is positive: a truth value, or a number above 0
    edges:    the inner edges, sorted; bin i holds the scores in (edges[i − 1], edges[i]]

    >>> score_histogram(torch.tensor([-1.0, 0.5, 2.0]), torch.tensor([0, 1, 1]), torch.tensor([0.0, 1.0]))
    tensor([[1., 0., 0.],
            [0., 1., 1.]], dtype=torch.float64)
    """
    return histograms_by_client(scores, positive, torch.zeros(scores.shape, dtype=torch.long, device=scores.device), 1, edges)[0]


def histograms_by_client(scores: Tensor, positive: Tensor, owner: Tensor, clients: int, edges: Tensor) -> Tensor:
    """The histograms of many clients in one pass, (clients, 2, bins); `owner` is the number of each row's client, from 0.

    >>> histograms_by_client(torch.tensor([-1.0, 1.0]), torch.tensor([True, True]), torch.tensor([1, 0]), 2, torch.tensor([0.0]))
    tensor([[[0., 0.],
             [0., 1.]],
            [[0., 0.],
             [1., 0.]]], dtype=torch.float64)
    """
    if scores.ndim != 1 or positive.shape != scores.shape or owner.shape != scores.shape:
        raise DataError("scores, positive and owner must have one entry for each row; they have the shapes "
                        f"{tuple(scores.shape)}, {tuple(positive.shape)} and {tuple(owner.shape)}: index or reshape them to (rows,)")
    if owner.is_floating_point() or bool(((owner < 0) | (owner >= clients)).any()):
        raise DataError(f"owner must be whole numbers from 0 to {clients - 1}, one of the {clients} clients for each row; got {owner}")
    bins = len(edges) + 1
    place = owner.long() * 2 * bins + class_and_bin(scores, positive, edges)
    ones = torch.ones(len(scores), dtype=torch.float64, device=scores.device)
    return torch.bincount(place, ones, clients * 2 * bins).double().view(clients, 2, bins)  # without rows, bincount returns integers


def class_and_bin(scores: Tensor, positive: Tensor, edges: Tensor) -> Tensor:
    """The place of each row in a flat histogram: its bin, and for a positive further on by as many as there are bins."""
    if edges.ndim != 1 or not bool(torch.isfinite(edges).all()) or bool((edges[1:] < edges[:-1]).any()):
        raise ProblemError(f"edges must be finite numbers in a row, sorted; got {edges}: write default_edges(), or edges.sort().values")
    if nans := int(scores.isnan().sum()):
        raise DataError(f"scores must be numbers, but {nans} of {len(scores)} are NaN: take smaller steps, or leave those rows out")
    return (positive > 0) * (len(edges) + 1) + torch.bucketize(scores.double(), edges.double())


def auc(histogram: Tensor) -> Ranked | None:
    """The area under the ROC curve: the share of pairs of a positive and a negative in which the positive has the larger score.

    A pair within one bin is a tie, which counts half; `low` takes all of them for wrong, `high` for right. None where a class has no rows.

    >>> auc(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    Ranked(value=0.9166666666666666, low=0.8333333333333334, high=1.0)
    """
    n, p = _counts(histogram)
    pairs = float(n.sum() * p.sum())
    if not pairs:
        return None
    low, within = float((p * (n.cumsum(0) - n)).sum()), float((p * n).sum())
    return _ranked((low + within / 2) / pairs, low / pairs, (low + within) / pairs)


def average_precision(histogram: Tensor) -> Ranked | None:
    """Σ (recall − recall before) · precision over the bins from the top, as scikit-learn's `average_precision_score` of the binned scores.

    There a group of ties is one step, with the precision at its end. After TP positives and FP negatives, a bin of p positives and n
    negatives is worth most when its positives are all tied and stand before its negatives, p (TP + p) / (TP + p + FP), and least when they
    stand after its negatives one by one, Σ_j (TP + j) / (TP + j + FP + n). None where a class has no rows.

    >>> average_precision(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]))
    Ranked(value=0.8333333333333333, low=0.8333333333333333, high=1.0)
    """
    n, p = _counts(histogram)
    total = float(p.sum())
    if not total or not float(n.sum()):
        return None
    value, low, high = (float(terms.sum()) / total for terms in _precision_terms(n, p))
    return _ranked(value, low, high)


def partial_auc(histogram: Tensor, max_fpr: float) -> Ranked | None:
    """The mean true-positive rate over the false-positive rates up to max_fpr: (1 / max_fpr) ∫ TPR dFPR from 0 to max_fpr.

    In a bin the ROC curve is the diagonal for `value`, first right and then up for `low`, first up and then right for `high`. It is in
    [0, 1]; scikit-learn's `roc_auc_score(…, max_fpr=m)` is McClish's standardised one, ½ + ½ (value − m/2) / (1 − m/2). With max_fpr = 1 it
    is the AUC. None where a class has no rows.

    >>> partial_auc(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), 1 / 3)
    Ranked(value=0.75, low=0.5, high=1.0)
    """
    if not 0 < max_fpr <= 1:
        raise ProblemError(f"max_fpr is the largest false-positive rate that counts, above 0 and at most 1; got {max_fpr}")
    n, p = (counts.flip(0) for counts in _counts(histogram))
    limit = max_fpr * float(n.sum())
    area = limit * float(p.sum())
    if not area:
        return None
    wide = torch.minimum((limit - (n.cumsum(0) - n)).clamp_min(0), n)  # the part of a bin's negatives that is below the limit
    low, within = float(((p.cumsum(0) - p) * wide).sum()), p * wide
    half = float((within * wide / (2 * n.clamp_min(1))).sum())
    return _ranked((low + half) / area, low / area, (low + float(within.sum())) / area)


def refined_edges(histogram: Tensor, edges: Tensor, bins: int = 1024) -> Tensor:
    """Inner edges, at most bins − 1, fitted to a histogram on `edges`: a second one of the same rows has closer bounds.

    A bin of p positives and n negatives keeps p·n pairs in doubt, and p·n/k when it is cut into k; the doubt about average precision falls
    likewise. So the edges between bins without positives are given up, which costs nothing, all others stay, and what is left of `bins`
    cuts the bins such that the sum of both doubts, each as a share of its total, is smallest. A bin is cut into equal parts, an outer one
    on a sinh scale away from its edge. The bounds of the AUC, the partial AUC and average precision are then never wider, as long as `bins`
    is not smaller than the number of bins of the histogram; with fewer, the edges are quantiles of the doubts and of the rows. Rows with
    the very same score cannot be told apart by any edges.

    >>> refined_edges(torch.tensor([[5.0, 9.0, 4.0, 0.0], [0.0, 0.0, 4.0, 1.0]]), torch.tensor([-1.0, 0.0, 1.0]), 6)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000], dtype=torch.float64)
    """
    _at_least_one(bins)
    (n, p), edges = _counts(histogram), edges.double()
    if edges.shape != (len(n) - 1,):
        raise ProblemError(f"a histogram of {len(n)} bins has {len(n) - 1} inner edges; got {len(edges)}: give those that it was made with")
    if not len(edges) or not float((n + p).sum()):
        return default_edges(bins)
    _, low, high = _precision_terms(n, p)
    doubt = _share(p * n) + _share((high - low).clamp_min(0))
    kept = edges[(p[1:] > 0) | (p[:-1] > 0)]
    if len(kept) >= bins or not float(p.sum()) or not float(n.sum()):
        return _quantiles(_share(doubt.sqrt()) + _share(n) + _share(p), edges, bins)
    parts = _parts(doubt, bins - 1 - len(kept))
    below, above = (_fractions(int(k)) * BEYOND for k in (parts[0], parts[-1]))
    cuts = (parts[1:-1] - 1).clamp_min(0)
    start, step = edges[:-1].repeat_interleave(cuts), ((edges[1:] - edges[:-1]) / parts[1:-1]).repeat_interleave(cuts)
    place = torch.arange(len(start)) - (cuts.cumsum(0) - cuts).repeat_interleave(cuts) + 1
    return _distinct(torch.cat([edges[0] - below.sinh(), kept, start + step * place, edges[-1] + above.sinh()]))


def _parts(doubt: Tensor, spare: int) -> Tensor:
    """Into how many parts each bin is cut, by at most `spare` cuts, such that Σ doubt / parts is smallest.

    One part more of k takes doubt / (k (k + 1)) away; all cuts are made that take away at least a price, which bisection finds.
    """
    def at(price: float) -> Tensor:
        return (0.5 + (0.25 + doubt / price).sqrt()).floor().long()

    most = float(doubt.max())
    if not most:
        return torch.ones_like(doubt, dtype=torch.long)
    cheap, dear = math.log(most) - 2 * math.log(spare + 2), math.log(most)
    for _ in range(60):
        middle = (cheap + dear) / 2
        cuts = int((at(math.exp(middle)) - 1).sum())
        if cuts <= spare:
            dear = middle
        else:
            cheap = middle
        if cuts == spare:  # a lower price makes more cuts, or the same ones
            break
    return at(math.exp(dear))


def _fractions(parts: int) -> Tensor:
    return torch.arange(1, parts, dtype=torch.float64) / parts


def _quantiles(mass: Tensor, edges: Tensor, bins: int) -> Tensor:
    """Edges between which there is about the same mass, linear inside of a bin; that of an outer bin stands at its edge."""
    below = mass.cumsum(0)[:-1] / mass.sum()
    return _distinct(torch.from_numpy(np.interp(_fractions(bins).numpy(), below.numpy(), edges.numpy())))


def _distinct(x: Tensor) -> Tensor:
    x = x.sort().values
    return torch.cat([x[:1], x[1:][x[1:] > x[:-1]]])


def _share(x: Tensor) -> Tensor:
    return x / x.sum() if float(x.sum()) > 0 else x


def _precision_terms(n: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What each bin adds to average precision, times the number of positives: as one tie, at least, at most."""
    tp, fp = ((counts.sum() - counts.cumsum(0)) for counts in (p, n))  # above the bin
    tied = p * (tp + p) / (tp + p + fp + n).clamp_min(1)
    highest = p * (tp + p) / (tp + p + fp).clamp_min(1)
    lowest = p - (fp + n) * _harmonic(tp + fp + n, p)  # Σ_j (a + j) / (b + j) = p − (b − a) Σ_j 1 / (b + j)
    return tied, lowest, highest


def _harmonic(b: Tensor, p: Tensor) -> Tensor:
    """Σ 1 / (b + j) over j = 1 … p, that is ψ(b + p + 1) − ψ(b + 1), to 13 digits.

    Of large arguments the two are nearly equal, so there the difference is taken term by term in ψ's asymptotic series.
    """
    x, y = b + 1, b + p + 1
    u, v, difference = 1 / x, 1 / y, p / x / y  # the last is u − v
    series = 1 / 12 - (u**2 + v**2) / 120 + (u**4 + u**2 * v**2 + v**4) / 252
    large = torch.log1p(p / x) + difference * (0.5 + (u + v) * series)
    return torch.where(x < 64, torch.special.digamma(y) - torch.special.digamma(x), large)


def _counts(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """Negatives and positives by bin, from the lowest scores to the highest; sums that came as means times clients are rounded."""
    if histogram.ndim != 2 or histogram.shape[0] != 2 or not histogram.shape[1]:
        raise ProblemError(f"a histogram is (2, bins), negatives and then positives; got {tuple(histogram.shape)}: sum the clients'")
    given = histogram.double()
    whole = given.round()
    if not bool(((given - whole).abs() < 1e-3).all()) or bool((whole < 0).any()):
        raise ProblemError("a histogram must hold counts of rows: whole numbers, none negative; sum the clients' counts, without weights")
    return whole[0], whole[1]


def _ranked(value: float, low: float, high: float) -> Ranked:
    """Within [0, 1], and in order where rounding has put them out of it."""
    value = min(max(value, 0.0), 1.0)
    return Ranked(value, max(min(low, value), 0.0), min(max(high, value), 1.0))


def _at_least_one(bins: int) -> None:
    if bins < 1:
        raise ProblemError(f"bins is the number of bins, at least 1; got {bins}")
