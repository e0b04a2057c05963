"""Objectives over groups of rows, with shares and counts that the clients agree on before training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Compositional, Minimization
from ..problems.model import Model
from .declare import objective
from .dro import Losses, per_row
from .supervised import class_losses, scores, weight_of


def members(values: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """(rows, groups): 1 where a row is of that group."""
    if values.dim() != 1:
        raise ProblemError(f"a group or a class is one number a row; got a field of shape {tuple(values.shape)}: write field[:, 0]")
    return (values[:, None] == torch.arange(groups, device=values.device)).to(dtype)


def refuse_empty(shares: Tensor, what: str) -> None:
    """Every group needs rows somewhere; a client may well lack some."""
    empty = (shares <= 0).nonzero()
    if len(empty):
        raise ProblemError(f"every one of the {len(shares)} {what} needs rows at some client; number {int(empty[0])} has none: "
                           "give the number that the data have, counted from 0")


@objective(metric="worst class")
def group_dro(losses: Losses, groups: int, lam: float = 1.0, field: str = "labels", **options: Any) -> Compositional:
    """Smoothed worst group: f(g) = λ·log mean_j exp(g_j/λ) of the groups' mean losses g_j; it lies between their mean and the largest.

    `losses(x, batch)` → one a row; `batch.field` has the group of each row, a number from 0 to groups − 1: the label or another field.
    g_j = mean ℓ·1_j / q_j with q_j the share of group j in the whole federation, agreed by `prepare`: no batch divides by its own
    count, so a batch or a client without the group adds 0 and the mean is unbiased. Shares are means with the federation's weights.
    Reference: Sagawa, Koh, Hashimoto, Liang, "Distributionally robust neural networks", ICLR 2020, here with the maximum smoothed.

    >>> group_dro(lambda x, b: x, 2, lam=1e-3).f(torch.tensor([0.0, 1.0]))  # the larger one, less λ·log 2
    tensor(0.9993)
    """
    if not lam > 0:
        raise ProblemError(f"lam must be positive; got {lam}")
    if groups < 1:
        raise ProblemError(f"groups is the number of groups, at least 1; got {groups}")

    each = per_row(losses)

    def statistics(x: Tensor, b: Batch) -> Tensor:
        return torch.cat([members(getattr(b, field), groups, x.dtype).mean(0), x.new_ones(1)])

    def mean_losses(x: Tensor, b: Batch) -> Tensor:
        raise ProblemError("group_dro divides by the groups' shares in the federation: write fed.prepare(x) first")

    def f(z: Tensor) -> Tensor:
        return lam * (torch.logsumexp(z / lam, 0) - math.log(groups))

    def finish(total: Tensor) -> Compositional:
        shares = total[:-1] / total[-1]
        refuse_empty(shares, f"groups of field {field!r}")
        if float(shares.sum()) < 1 - 1e-5:
            raise ProblemError(f"field {field!r} must number the groups from 0 to {groups - 1}; a share of {1 - float(shares.sum()):.4f} "
                               "of the rows has other values: give the right number of groups")

        def g(x: Tensor, b: Batch) -> Tensor:
            ell = each(x, b)
            return (ell[:, None] * members(getattr(b, field), groups, ell.dtype)).mean(0) / shares.to(ell)

        return replace(problem, g=g, statistics=None, finish=None)

    problem = Compositional(f, mean_losses, statistics=statistics, finish=finish, weighted=True, **options)
    return problem


@objective(metric="worst class")
def balanced_cross_entropy(model: Model, classes: int | None = None, **options: Any) -> Minimization:
    """Mean of w_c·ℓ with class weights w_c = n/(C·n_c), from the counts of all clients that `prepare` sums: class-weighted FedAvg.

    `classes` is their number C, by default what the model puts out. The counts are over rows, whatever the federation's weights; with
    `weights="samples"` every class has the same part of the objective. A client may lack a class; one without rows anywhere is refused.

    >>> model = Model(torch.nn.Linear(1, 2))
    >>> batch = Batch({"inputs": torch.zeros(4, 1), "labels": torch.tensor([0, 0, 0, 1])})
    >>> balanced_cross_entropy(model).finish(torch.tensor([3.0, 1.0])).f(torch.zeros(model.size), batch)
    tensor(0.6931)
    """
    return weighted_by_counts(model, classes, lambda total: total.sum() / (len(total) * total), "balanced_cross_entropy", options)


def weighted_by_counts(model: Model, classes: int | None, weights: Callable[[Tensor], Tensor], name: str,
                       options: dict[str, Any]) -> Minimization:
    """Cross-entropy with a weight for each class, from the classes' counts that `prepare` sums over the clients."""

    def statistics(x: Tensor, b: Batch) -> Tensor:
        return members(b.labels, classes or model.predict(x, b.inputs[:1]).shape[-1], x.dtype).sum(0)

    def unweighted(x: Tensor, b: Batch) -> Tensor:
        raise ProblemError(f"{name} needs the classes' counts in the federation: write fed.prepare(x) first")

    def finish(total: Tensor) -> Minimization:
        refuse_empty(total, "classes")
        weight = weights(total)

        def f(x: Tensor, b: Batch) -> Tensor:
            ell = class_losses(scores(model, x, b, len(weight)), b.labels)
            return (ell * weight_of(b.labels, weight, ell)).mean()

        return replace(problem, f=f, statistics=None, finish=None)

    problem = Minimization(unweighted, statistics=statistics, finish=finish, **({"model": model} | options))
    return problem
