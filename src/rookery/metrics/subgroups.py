"""Scores of two classes by groups of rows, such as sexes or age bands, over all clients: the server gets sums, none of a small group."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ProblemError
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.placed import Placed
from ..federation.program import Program
from ..problems.base import Problem
from .calibration import Calibrator
from .decisions import Confusion, auc_interval_from_histogram, probabilities_off
from .federated import margin_of, outputs_of
from .groups import group_of
from .histogram import auc, default_edges, histograms_by_client
from .intervals import Interval, wilson


class Group(NamedTuple):
    """What the rows of one group say; None is what they do not define, such as the AUC of a group without positives.

    value:     the group's number in the field
    rows, positives: of the clients that show them
    withheld:  how many clients have rows of the group, but too few to show
    auc:       with DeLong's interval, of binned scores
    doubt:     how far the AUC of the scores themselves may lie from it
    confusion: what the threshold gets right, from which sensitivity, specificity and predictive values follow, with Wilson's intervals
    predicted: the mean probability of the positive class
    observed:  the share of positives, with Wilson's interval
    """

    value: int
    rows: int
    positives: int
    withheld: int
    auc: Interval | None
    doubt: float | None
    confusion: Confusion
    predicted: float | None
    observed: Interval | None

    @property
    def off(self) -> str | None:
        """A sentence where the mean probability and the share of positives do not go together, by `probabilities_off`."""
        if self.predicted is None or self.observed is None:
            return None
        return probabilities_off(self.predicted, self.observed.value, self.rows)


@dataclass(frozen=True)
class GroupSums(Program):
    """The client function of `by_group`. What a group shows depends on how many rows a client has of it, so it is not a sum over rows."""

    split: str
    field: str
    groups: int
    threshold: float
    calibrator: Calibrator
    least: int

    def total(self, c: Client, x: Tensor, edges: Tensor) -> Tensor:
        """For each group its histogram, negatives and positives above the threshold, the sum of probabilities, whether it is withheld."""
        b = c.rows(self.split)
        if not len(b.labels):
            return torch.zeros(self.groups * (2 * len(edges) + 6), dtype=torch.float64, device=b.labels.device)
        group = group_of(b, self.field, self.groups)
        margin = margin_of(outputs_of(c.problem, x, b.inputs, 2)).to(group.device)
        score = margin.nan_to_num()  # of a NaN the sum of probabilities tells
        histograms = histograms_by_client(score, b.labels, group, self.groups, edges)
        above = histograms_by_client(score, b.labels, group, self.groups, edges.new_tensor([self.threshold]))[:, :, 1]
        predicted = torch.bincount(group, self.calibrator.positive(margin), self.groups)
        rows = histograms.sum((1, 2))
        withheld = (rows > 0) & (rows < self.least)
        sums = torch.cat([histograms.flatten(1), above, predicted[:, None]], 1)
        sums[withheld] = 0
        return torch.cat([sums, withheld.double()[:, None]], 1).flatten()


def by_group(fed: Federation[Problem], x: Tensor | Placed, split: str, field: str, groups: int, *, threshold: float = 0.0,
             calibrator: Calibrator | None = None, least: int = 10) -> list[Group]:
    """Scores of all clients' rows of a split by the values 0 … groups − 1 of a field, at the parameters x: one exchange of sums.

    threshold:  of the margin, above which a row counts as positive; `choose_threshold` finds one
    calibrator: by which outputs are probabilities; as they are without one
    least:      a client that has fewer rows of a group than this leaves them out of its sums and counts as one that withholds them

    What is left out is missing from the group's scores, which `withheld` tells. It is no secret from a server that also knows sums over
    all rows, as `evaluate` gives: where one client withholds one group, the difference of the two is that group's. It is booked in the
    ledger's phase `evaluation`, and a client with fewer rows than `min_batch` shows none.

    >>> from rookery import Data, Model
    >>> from rookery.objectives import cross_entropy
    >>> rows = Data.from_parts({"a": {"inputs": [[-3.0], [3.0], [1.0]], "labels": [0, 1, 0], "sex": [0, 0, 1]}})
    >>> fed = Federation(cross_entropy(Model(torch.nn.Linear(1, 2, bias=False))), rows.with_splits(validation=rows))
    >>> first, second = by_group(fed, torch.tensor([0.0, 2.0]), "validation", "sex", 2, least=2)
    >>> first.rows, first.auc.value, first.confusion.sensitivity.value
    (2, 1.0, 1.0)
    >>> second.rows, second.withheld, second.auc
    (0, 1, None)
    """
    if groups < 1 or least < 1 or threshold != threshold:
        raise ProblemError(f"there is a group or more, a client shows one of a row or more, and the threshold is a number; got "
                           f"groups={groups}, least={least} and threshold={threshold}")
    far = sys.float_info.max  # no frame holds infinities, and no finite margin lies beyond
    program = GroupSums(split, field, groups, min(max(threshold, -far), far), calibrator or Calibrator(), least)
    with fed.phase("evaluation"):
        here = fed.present
        X = x if isinstance(x, Placed) else here.broadcast(x)
        total = here.sum(here.map(program.total, X, here.broadcast(default_edges()))).cpu()
    return [_group(value, sums) for value, sums in enumerate(total.view(groups, -1))]


def _group(value: int, sums: Tensor) -> Group:
    histogram, (fp, tp, predicted, withheld) = sums[:-4].reshape(2, -1), sums[-4:].tolist()
    negatives, positives = (round(count) for count in histogram.sum(1).tolist())
    rows, ranked = negatives + positives, auc(histogram)
    confusion = Confusion(tp=round(tp), fp=round(fp), fn=positives - round(tp), tn=negatives - round(fp))
    return Group(value, rows, positives, round(withheld), auc_interval_from_histogram(histogram),
                 None if ranked is None else ranked.high - ranked.value, confusion,
                 predicted / rows if rows else None, wilson(positives, rows) if rows else None)
