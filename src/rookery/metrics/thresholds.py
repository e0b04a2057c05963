"""Thresholds of two classes for a goal about groups of rows, from histograms that clients add up: one for all, or one for each group.

Hardt, Price, Srebro, "Equality of opportunity in supervised learning", NeurIPS 2016, for one threshold a group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.placed import Placed
from ..federation.program import Program
from ..problems.base import Problem
from .federated import margin_of, outputs_of
from .groups import group_of, large_groups
from .histogram import default_edges, histograms_by_client

LEVELS = 101  # rates that groups are brought to, from 0 to 1


class Rates(NamedTuple):
    """Of each group, along the last axis: its negatives and positives, and the shares of them that are decided to be positive."""

    negatives: NDArray[np.float64]
    positives: NDArray[np.float64]
    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]


Score = Callable[[Rates], NDArray[np.float64]]
"""What a goal makes of rates: a number for each leading index, larger where it is better."""


@dataclass(frozen=True)
class HalfHistograms(Program):
    """Histograms of a client's rows of a split by half, group, class and bin; halves are every second row of a group and class.

    Every second client begins with the other half, so that both have rows where clients have a row or two of each. Rows of a group that has
    fewer than `min_batch` of them at the client are left out.
    """

    split: str
    field: str | None
    groups: int

    def total(self, c: Client, x: Tensor, edges: Tensor, first: float) -> Tensor:
        """(2 · groups · 2 · bins) counts."""
        b = c.rows(self.split)
        if not len(b.labels):
            return torch.zeros(4 * self.groups * (len(edges) + 1), dtype=torch.float64, device=b.labels.device)
        group = group_of(b, self.field, self.groups)
        margin = margin_of(outputs_of(c.problem, x, b.inputs, 2)).to(group.device).nan_to_num()
        kept = large_groups(group, c.min_batch)
        group, margin, labels = group[kept], margin[kept], b.labels[kept]
        cell, half = 2 * group + (labels > 0), torch.zeros_like(group)
        for number in np.unique(cell.cpu().numpy()).tolist():
            rows = (cell == number).nonzero()[:, 0]
            half[rows] = (torch.arange(len(rows), device=rows.device) + int(first)) % 2
        return histograms_by_client(margin, labels, half * self.groups + group, 2 * self.groups, edges).flatten()


def group_histograms(fed: Federation[Problem], x: Tensor | Placed, split: str, field: str | None, groups: int) -> NDArray[np.float64]:
    """All clients' rows of a split by half, group, class and bin of `default_edges`, (2, groups, 2, bins): one exchange of sums.

    field: the column of the groups, numbered from 0; None for one group of all rows
    """
    program = HalfHistograms(split, field, groups)
    with fed.phase("evaluation"):
        here = fed.present
        X, edges = x if isinstance(x, Placed) else here.broadcast(x), here.broadcast(default_edges())
        total = here.sum(here.map(program.total, X, edges, here.index % 2))
    return np.asarray(total.cpu().numpy(), dtype=np.float64).reshape(2, groups, 2, -1)


def rates_at(histogram: NDArray[np.float64], place: NDArray[np.int64]) -> Rates:
    """Rates of a histogram (groups, 2, bins) at thresholds: `place` (…, groups) numbers the edges above which a row is positive.

    >>> rates_at(np.array([[[3.0, 1.0], [1.0, 4.0]]]), np.array([0])).tpr
    array([0.8])
    """
    counts = histogram.sum(-1)
    above = (counts[..., None] - histogram.cumsum(-1))[..., :-1]  # of bins beyond each edge
    index = np.arange(histogram.shape[0])
    with np.errstate(invalid="ignore"):
        fpr, tpr = (above[index, k, place] / counts[:, k] for k in (0, 1))
    whole = np.broadcast_to(counts, (*place.shape, 2))
    return Rates(whole[..., 0], whole[..., 1], fpr, tpr)


def best_thresholds(histogram: NDArray[np.float64], score: Score, by_group: bool = False) -> tuple[NDArray[np.float64], float]:
    """The margins above which rows are decided to be positive, one for each group, that have the best score, and that score.

    Without `by_group` they are all the same. With it, the groups are brought to the same share of true positives, of false positives, and
    of positive decisions, at every level from 0 to 1, and each group to its own best balance of the two; the best of these is taken.
    """
    edges, groups = default_edges(histogram.shape[-1]).numpy(), histogram.shape[0]
    places = np.repeat(np.arange(len(edges))[:, None], groups, 1)
    if by_group:
        every = rates_at(histogram, places)
        above = np.nan_to_num(every.fpr) * every.negatives + np.nan_to_num(every.tpr) * every.positives
        share = above / np.maximum(every.negatives + every.positives, 1)
        levels = np.linspace(0, 1, LEVELS)
        matched = [_nearest(every.tpr, levels, highest=True), _nearest(every.fpr, levels), _nearest(share, levels)]
        own = np.nan_to_num(np.fmin(every.tpr, 1 - every.fpr), nan=-1.0).argmax(0)
        places = np.concatenate([places, *matched, own[None]])
    values = np.nan_to_num(score(rates_at(histogram, places)), nan=-np.inf)
    # of equals the middle one, which is the farthest from being worse
    place = places[_middle(values == values.max())]
    if by_group:
        below = histogram.cumsum(-1)[..., :-1]
        at = np.take_along_axis(below, place[:, None, None], -1)
        place = np.asarray([_middle(same) for same in (below == at).all(1)])
    return edges[place], float(values.max())


def _middle(wanted: NDArray[np.bool_]) -> int:
    """The middle one of the places that are wanted."""
    places = np.flatnonzero(wanted)
    return int(places[len(places) // 2])


def _nearest(rate: NDArray[np.float64], levels: NDArray[np.float64], highest: bool = False) -> NDArray[np.int64]:
    """For each level and group the edge, lowest or highest, at which the group's rate is nearest to it; without rows it has any."""
    off = np.abs(np.nan_to_num(rate, nan=0.0)[None] - levels[:, None, None])
    return np.asarray(len(rate) - 1 - off[:, ::-1].argmin(1) if highest else off.argmin(1))


def crossed(halves: NDArray[np.float64], score: Score, by_group: bool = False) -> float:
    """What thresholds are worth that are chosen on one half of the rows and scored on the other, in both ways.

    Where a half does not define the score, they are chosen and scored on both halves together.
    """
    edges, found = default_edges(halves.shape[-1]).numpy(), []
    for chosen, scored in ((halves[0], halves[1]), (halves[1], halves[0])):
        at, _ = best_thresholds(chosen, score, by_group)
        found.append(float(score(rates_at(scored, np.searchsorted(edges, at)))))
    return best_thresholds(halves.sum(0), score, by_group)[1] if np.isnan(found).any() else float(np.mean(found))
