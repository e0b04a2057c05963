"""Plain supervised losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.store import Batch
from ..problem import Minimization
from ..vector import Model


def cross_entropy_losses(model: Model) -> Callable[[Tensor, Batch], Tensor]:
    """One cross-entropy per row, from `batch.inputs` and `batch.labels` (class numbers)."""
    return lambda x, b: F.cross_entropy(model(x, b.inputs), b.labels, reduction="none")


def cross_entropy(model: Model, weight: Tensor | None = None, **options: Any) -> Minimization:
    """Mean cross-entropy, optionally with one weight per class (a mean of weighted losses, not divided by the batch's weights)."""
    def f(x: Tensor, b: Batch) -> Tensor:
        scores = model(x, b.inputs)
        if weight is None:
            return F.cross_entropy(scores, b.labels)
        return (F.cross_entropy(scores, b.labels, reduction="none") * torch.index_select(weight, 0, b.labels)).mean()

    return Minimization(f, model=model, **options)
