"""What objectives over pairs of a positive and a negative row have in common: scores, the pair loss, agreed shares, forms by kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.base import Problem
from ..problems.kinds import Bilevel, Minimax
from ..problems.model import Model
from .ap import Scores, binary_scores
from .dro import per_row


def logits(scores: Model | Scores, name: str) -> Scores:
    """One number a row before any squashing: a model's output for the positive class, or what a function gives."""
    if isinstance(scores, nn.Module):
        raise ProblemError(f"scores are a function of x and a batch, or a Model: write {name}(Model(module))")
    return per_row(binary_scores(scores, squash=False) if isinstance(scores, Model) else scores, "scores")


def squashed(logit: Scores, squash: bool) -> Scores:
    return (lambda x, b: torch.sigmoid(logit(x, b))) if squash else logit


def with_model(scores: Model | Scores, options: dict[str, Any]) -> dict[str, Any]:
    """The problem's options with the model that engines read, where there is one."""
    return {"model": scores} | options if isinstance(scores, Model) else options


def hinge(margin: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss max(margin − s + t, 0)² of a positive's score s and a negative's score t."""
    return lambda s, t: (margin - s + t).clamp_min(0).square()


def positive(b: Batch, label: str, dtype: torch.dtype) -> Tensor:
    """1 for the positives of a batch, 0 for the others."""
    values: Tensor = getattr(b, label)
    if values.dim() != 1:
        raise ProblemError(f"field {label!r} holds one number a row, above 0 for positives; got rows of shape {tuple(values.shape[1:])}"
                           + (f": write {label}[:, 0]" if values.shape[1:] == (1,) else ""))
    return (values > 0).to(dtype)


def importance(b: Batch, like: Tensor) -> Tensor:
    """The weight of each row, 1 where the sampler gives none."""
    return b.importance.to(like.dtype) if "importance" in b.fields else torch.ones_like(like)


def share_statistics(label: str) -> Callable[[Tensor, Batch], Tensor]:
    """The set-up means from which `agreed_share` has the share of positives; batches of all rows have no importance."""
    return lambda x, b: torch.stack([positive(b, label, x.dtype).mean(), x.new_ones(())])


def agreed_share(total: Tensor, label: str, name: str) -> float:
    """The share of positives in the federation, refused where one class is missing."""
    share = float(total[0] / total[1])
    if not 0 < share < 1:
        raise ProblemError(f"{name} compares positives, the rows with {label!r} above 0, with the others, and needs rows of both at "
                           f"clients of positive weight; the share of positives is {share:g}: name the right column in label=…, or give "
                           "rows of the other class")
    return share


def choose(kind: type[Problem], forms: Sequence[type[Problem]], name: str) -> type[Problem]:
    """The first form that an algorithm for problems of this kind takes."""
    for form in forms:
        if isinstance(kind, type) and issubclass(form, kind):
            return form
    names = [form.__name__ for form in forms]
    more = f", or write as_bilevel({name}(…)), in a description reduce = \"bilevel\"" if kind is Bilevel and Minimax in forms else ""
    raise ProblemError(f"{name} has the forms {', '.join(names[:-1])} and {names[-1]}, by the kind of problem that the algorithm solves; "
                       f"got {kind.__name__ if isinstance(kind, type) else repr(kind)}: take an algorithm for one of these{more}. A plain "
                       "loss of each row is cross_entropy or balanced_cross_entropy")


def check_margin(margin: float) -> None:
    if not 0 < margin < math.inf:
        raise ProblemError(f"margin must be positive and finite, or pairs of equal scores would not count; got {margin}")
