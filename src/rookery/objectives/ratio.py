"""The ratio loss: cross-entropy with larger weights for classes that are rare.

Wang, Xu, Wang, Zhu, "Addressing class imbalance in federated learning", AAAI 2021. α, β, R  →  alpha, beta, ratios of counts
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ..errors import ProblemError
from ..problems.kinds import Minimization
from ..problems.model import Model
from .declare import objective
from .groups import weighted_by_counts


@objective(metric="worst class")
def ratio_loss(model: Model, alpha: float = 1.0, beta: float = 0.1, classes: int | None = None, **options: Any) -> Minimization:
    """Mean of (α + β·R_c)·ℓ, the ratio loss, with R_c the mean count of the other classes over the count of class c.

    In the paper the server estimates R_c in training, from gradients on auxiliary rows of one class each. Here `prepare` sums the classes'
    counts over the clients, once, and R_c is their ratio: a simplification of ours, which needs no auxiliary rows and is exact where the
    paper estimates. `classes` is their number, by default what the model puts out. A client may lack a class; one without rows anywhere
    is refused. Wang, Xu, Wang, Zhu, "Addressing class imbalance in federated learning", AAAI 2021.

    >>> import torch
    >>> from rookery.data import Batch
    >>> model = Model(torch.nn.Linear(1, 2))
    >>> batch = Batch({"inputs": torch.zeros(4, 1), "labels": torch.tensor([0, 0, 0, 1])})
    >>> ratio_loss(model, beta=0.3).finish(torch.tensor([3.0, 1.0])).f(torch.zeros(model.size), batch)  # log 2 · (3·1.1 + 1.9)/4
    tensor(0.9011)
    """
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not 0 <= value < math.inf:
            raise ProblemError(f"{name} must be a finite number and not negative; got {value}")
    if alpha == beta == 0:
        raise ProblemError("alpha and beta are both 0, and so would be the loss: give one of them")
    if classes is not None and classes < 2:
        raise ProblemError(f"classes is the number of classes, at least 2; got {classes}")

    def weights(total: Tensor) -> Tensor:
        return alpha + beta * (total.sum() - total) / ((len(total) - 1) * total)

    return weighted_by_counts(model, classes, weights, "ratio_loss", options)
