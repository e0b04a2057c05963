"""A trained net whose last layer is trained again, on rows that are drawn in balance.

Kirichenko, Izmailov, Wilson, "Last layer re-training is sufficient for robustness to spurious correlations", ICLR 2023.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..data.store import Batch
from ..problems.kinds import Minimization
from ..problems.model import Model
from .declare import objective
from .supervised import class_losses, scores


@objective(metric="worst class")
def last_layer(model: Model, **options: Any) -> Minimization:
    """Mean cross-entropy as a function of the net's last layer alone: the gradient is 0 everywhere else.

    It starts from a trained net, and with `sampling=Balanced(field)` its batches are balanced between classes or groups.

    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 2)))
    >>> x, batch = torch.ones(model.size, requires_grad=True), Batch({"inputs": torch.ones(3, 1), "labels": torch.tensor([0, 1, 1])})
    >>> torch.autograd.grad(last_layer(model).f(x, batch), x)[0]
    tensor([ 0.0000,  0.0000,  0.3333, -0.3333,  0.1667, -0.1667])
    """
    parts = model.parameters(model.vector())
    layer = list(parts)[-1].rpartition(".")[0]
    trained = torch.cat([torch.full((part.numel(),), name.rpartition(".")[0] == layer) for name, part in parts.items()])

    def f(x: Tensor, b: Batch) -> Tensor:
        return class_losses(scores(model, torch.where(trained.to(x.device), x, x.detach()), b), b.labels, "mean")

    return Minimization(f, **({"model": model} | options))
