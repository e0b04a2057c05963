"""Fairness between groups of rows, as a penalty on soft rates in training and as hard gaps in evaluation.

Hardt, Price, Srebro, "Equality of opportunity in supervised learning", NeurIPS 2016, for the three kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Compositional
from ..problems.model import Model
from .ap import Scores, binary_scores
from .declare import RowCounts, objective
from .dro import Losses, per_row
from .groups import members, refuse_empty

Kind = Literal["equality of opportunity", "equalised odds", "demographic parity"]


def _gap(outputs: Tensor, fields: Mapping[str, Tensor], entries: Mapping[str, Any]) -> dict[str, float]:
    """The hard gap, where there are rows that count: a small client may have none, and test rows are of no site."""
    if entries["field"] not in fields:
        return {}
    labels, groups = fields[entries["label"]].numpy(), fields[entries["field"]].numpy()
    try:
        return {"gap": fairness_gap(outputs.argmax(1).numpy(), labels, groups, entries["kind"])}
    except ProblemError:
        return {}


def _conditions(labels: Tensor, kind: Kind) -> Tensor:
    """(rows, conditions): which rows count for each rate."""
    positive = labels > 0
    some = {"equality of opportunity": [positive], "equalised odds": [positive, ~positive],
            "demographic parity": [torch.ones_like(positive)]}[kind]
    return torch.stack(some, 1)


def _gap_rows(outputs: Tensor, fields: Mapping[str, Tensor], entries: Mapping[str, Any]) -> Tensor:
    """For each condition, of all rows and of each group: whether the row counts, and whether it is predicted as positive then."""
    groups = members(fields[entries["field"]], entries["groups"], torch.float64)
    of = torch.cat([torch.ones_like(groups[:, :1]), groups], 1)
    counts = (_conditions(fields[entries["label"]], entries["kind"])[:, :, None].double() * of[:, None]).flatten(1)
    return torch.cat([counts, counts * outputs.argmax(1).double()[:, None]], 1)


def _gap_width(entries: Mapping[str, Any]) -> int:
    return 2 * (2 if entries["kind"] == "equalised odds" else 1) * (1 + int(entries["groups"]))


def _gap_of_sums(total: Tensor, entries: Mapping[str, Any]) -> dict[str, float]:
    counts, hits = total.reshape(2, -1, 1 + entries["groups"])
    rates = hits / counts  # NaN where nobody counts
    gaps = (rates[:, 1:] - rates[:, :1]).abs()
    known = gaps[~gaps.isnan()]
    return {"gap": float(known.max())} if len(known) else {}


GAP = RowCounts(_gap_width, _gap_rows, _gap_of_sums)


@objective(metric="gap", two_classes=True, metrics=("gap",), scores=_gap, counts=GAP)
def fair(loss: Losses, scores: Model | Scores, groups: int, kind: Kind = "equality of opportunity", rho: float = 1.0, slack: float = 0.0,
         field: str = "group", label: str = "labels", **options: Any) -> Compositional:
    """loss + (ρ/2) Σ_j max(0, |g_j| − slack)², g_j the gap between the mean score of all rows and of group j's, among certain rows.

    kind:   which rows: "equality of opportunity", the positives (`label` > 0); "equalised odds", the positives and, as further gaps,
            the negatives; "demographic parity", all
    loss:   (x, batch) → one a row, or their mean; it becomes h
    scores: (x, batch) → one a row in (0, 1); of a model they are `binary_scores(model)`
    groups, field: their number, and the field with each row's group, from 0; a row with another number is of none

    Numerators are means over a batch, denominators are shares of the whole federation, which `prepare` agrees on with the federation's
    weights: a batch or a client without a group, or without positives, is no exception. Reference: FedDRO, section 6.

    >>> fair(lambda x, b: x, lambda x, b: x, 2, rho=4.0, slack=0.1).f(torch.tensor([0.3, -0.1]))
    tensor(0.0800)
    """
    _check(kind)
    if not (rho >= 0 and slack >= 0):
        raise ProblemError(f"rho and slack must not be negative; got {rho} and {slack}")
    if groups < 2:
        raise ProblemError(f"groups is the number of groups, at least 2; got {groups}")
    score = per_row(binary_scores(scores) if isinstance(scores, Model) else scores, "scores")
    if isinstance(scores, Model):
        options = {"model": scores} | options

    def columns(b: Batch, dtype: torch.dtype) -> Tensor:
        """(rows, conditions, 1 + groups): who counts for each rate; the first of each condition is that of all groups."""
        some = _conditions(getattr(b, label), kind).to(dtype)
        of = torch.cat([torch.ones_like(some[:, :1]), members(getattr(b, field), groups, dtype)], 1)
        return some[:, :, None] * of[:, None]

    def statistics(x: Tensor, b: Batch) -> Tensor:
        return torch.cat([columns(b, x.dtype).mean(0).reshape(-1), x.new_ones(1)])

    def unprepared(x: Tensor, b: Batch) -> Tensor:
        raise ProblemError("fair divides by shares of the whole federation: write fed.prepare(x) first")

    def f(z: Tensor) -> Tensor:
        return rho / 2 * (z.abs() - slack).clamp_min(0).square().sum()

    def finish(total: Tensor) -> Compositional:
        shares = (total[:-1] / total[-1]).reshape(-1, 1 + groups)
        for rows in shares:
            refuse_empty(rows[1:], f"groups of field {field!r}, among the rows of {kind},")

        def g(x: Tensor, b: Batch) -> Tensor:
            s = score(x, b)
            rates = (s[:, None, None] * columns(b, s.dtype)).mean(0) / shares.to(s)
            return (rates[:, :1] - rates[:, 1:]).reshape(-1)

        return replace(problem, g=g, statistics=None, finish=None)

    problem = Compositional(f, unprepared, lambda x, b: loss(x, b).mean(), statistics=statistics, finish=finish, weighted=True, **options)
    return problem


def group_rates(predicted: ArrayLike, labels: ArrayLike, groups: ArrayLike, kind: Kind = "equality of opportunity") -> NDArray[np.float64]:
    """Mean of `predicted` (0 or 1, or a score), for each condition of `kind` a row: of all rows, then of each group from 0 on.

    A group without rows of the condition has no rate: NaN.

    >>> group_rates([1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1])  # true positives: 2 of 3; 1 of 2; 1 of 1
    array([[0.66666667, 0.5       , 1.        ]])
    """
    _check(kind)
    hit, positive, group = np.asarray(predicted, dtype=np.float64), np.asarray(labels) > 0, np.asarray(groups)
    some = {"equality of opportunity": [positive], "equalised odds": [positive, ~positive],
            "demographic parity": [np.ones_like(positive)]}[kind]
    sides = [np.ones_like(positive), *(group == j for j in range(int(group.max()) + 1))]
    return np.asarray([[hit[rows & side].mean() if (rows & side).any() else np.nan for side in sides] for rows in some])


def fairness_gap(predicted: ArrayLike, labels: ArrayLike, groups: ArrayLike, kind: Kind = "equality of opportunity") -> float:
    """The largest |rate of all − rate of a group|, over the groups that have one; with hard predictions, the hard gap to report.

    >>> fairness_gap([1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1])
    0.25
    """
    rates = group_rates(predicted, labels, groups, kind)
    gaps = np.abs(rates[:, 1:] - rates[:, :1])
    if np.isnan(gaps).all():
        raise ProblemError(f"no group has rows that count for {kind}; give labels with positives")
    return float(np.nanmax(gaps))


def _check(kind: str) -> None:
    if kind not in get_args(Kind):
        raise ProblemError(f"kind is one of {', '.join(map(repr, get_args(Kind)))}; got {kind!r}")
