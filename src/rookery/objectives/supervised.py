"""Plain supervised losses, and what they ask of a model's outputs and of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Minimization
from ..problems.model import Model
from .declare import objective
from .given import SUPPLIED
from .regularised import with_weight_decay

NEVER = -(2**62)  # torch leaves out rows with the label -100; here such a label is a mistake like any other


def scores(model: Model, x: Tensor, b: Batch, classes: int | None = None) -> Tensor:
    """The model's output on `batch.inputs`, refused where it is not a score for each of at least two classes, or x not of its length."""
    if len(x) != model.size:
        more = ". An objective with a coordinate of its own begins with torch.cat([x, x.new_zeros(1)])" if len(x) == model.size - 1 else ""
        raise ProblemError(f"x has {model.size} numbers, the model's parameters; got {len(x)}{more}")
    out = model(x, b.inputs)
    if not isinstance(out, Tensor):
        raise ProblemError(f"the model must put out a tensor of scores; it gave {type(out).__name__}: write Model(module, forward=…) "
                           "with a function that picks them, such as lambda module, inputs: module(inputs).logits")
    if out.dim() < 2 or out.shape[1] < 2 or out.shape[1] != (classes or out.shape[1]):
        raise ProblemError(f"the model must put out a score for each of {classes or 'at least 2'} classes in every row; its output has "
                           f"shape {tuple(out.shape)}: give its last layer that many outputs")
    return out


def class_losses(out: Tensor, labels: Tensor, reduction: str = "none") -> Tensor:
    """Cross-entropy of scores and class numbers of any whole dtype, or of scores and a probability for each class."""
    if labels.is_floating_point():
        if labels.shape != out.shape:
            raise ProblemError(f"labels are whole class numbers, one a row; got {labels.dtype} of shape {tuple(labels.shape)}: "
                               "write labels.long()")
        return F.cross_entropy(out, labels, reduction=reduction)
    if labels.shape != out.shape[:1] + out.shape[2:]:
        raise ProblemError(f"labels hold one class number for each of the {len(out)} rows; got shape {tuple(labels.shape)}"
                           + (": write labels[:, 0]" if labels.shape[1:] == (1,) else ""))
    return F.cross_entropy(out, labels.long(), reduction=reduction, ignore_index=NEVER)


def weight_of(labels: Tensor, weight: Tensor, losses: Tensor) -> Tensor:
    """Each row's weight by its class."""
    if labels.shape != losses.shape:
        raise ProblemError(f"weights by class need class numbers, one a row; got labels of shape {tuple(labels.shape)}")
    return torch.index_select(weight.to(losses), 0, labels.long().reshape(-1)).view(losses.shape)


def cross_entropy_losses(model: Model) -> Callable[[Tensor, Batch], Tensor]:
    """One cross-entropy per row, from `batch.inputs` and `batch.labels` (class numbers)."""
    return lambda x, b: class_losses(scores(model, x, b), b.labels)


SUPPLIED["losses"] = SUPPLIED["loss"] = lambda given: cross_entropy_losses(given.model)


@objective(metric="accuracy")
def cross_entropy(model: Model, weight: Tensor | None = None, weight_decay: float = 0.0, **options: Any) -> Minimization:
    """Mean cross-entropy.

    `weight` holds one number for each class (the mean is of weighted losses, not divided by the batch's weights); `weight_decay` adds
    (weight_decay/2)‖x‖².
    """
    if weight is not None:
        weight = torch.as_tensor(weight)
        if weight.dim() != 1 or not bool((torch.isfinite(weight) & (weight >= 0)).all()):
            raise ProblemError(f"weight holds one finite number for each class, none negative; got {weight!r}")

    def f(x: Tensor, b: Batch) -> Tensor:
        out = scores(model, x, b, None if weight is None else len(weight))
        if weight is None:
            return class_losses(out, b.labels, "mean")
        losses = class_losses(out, b.labels)
        return (losses * weight_of(b.labels, weight, losses)).mean()

    problem = Minimization(f, model=model, **options)
    return with_weight_decay(problem, weight_decay) if weight_decay else problem
