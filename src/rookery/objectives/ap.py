"""Average precision as a conditional problem.

Wu, Sun, Hu, Li, Zhang, Huang, "Federated conditional stochastic optimization", NeurIPS 2023, section 5.3, after Qi, Luo, Xu, Ji, Yang,
"Stochastic optimization of areas under precision-recall curves with provable convergence", NeurIPS 2021.
    h(x; z), s, ξ⁺, ξ  →  scores, margin, outer samples, inner samples
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..data.positives import Positives
from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Conditional
from ..problems.model import Model
from .declare import objective

Scores = Callable[[Tensor, Batch], Tensor]


def binary_scores(model: Model, squash: bool = True) -> Scores:
    """One score a row for the positive class from `batch.inputs`: the logit, or the difference of two, through a sigmoid if `squash`.

    >>> model = Model(torch.nn.Linear(2, 2))
    >>> binary_scores(model)(torch.zeros(model.size), Batch({"inputs": torch.ones(3, 2)}))
    tensor([0.5000, 0.5000, 0.5000])
    """
    def scores(x: Tensor, b: Batch) -> Tensor:
        if len(x) != model.size:
            raise ProblemError(f"x has {model.size} numbers, the model's parameters; got {len(x)}")
        out: Tensor = model(x, b.inputs)
        out = out[:, None] if out.dim() == 1 else out
        if out.dim() != 2 or out.shape[1] > 2:
            raise ProblemError(f"a binary score needs a net with one output, or two for the two classes; it gave {tuple(out.shape)}")
        logit = out[:, 0] if out.shape[1] == 1 else out[:, 1] - out[:, 0]
        return torch.sigmoid(logit) if squash else logit

    return scores


@objective(metric="AP", two_classes=True)
def ap_surrogate(scores: Model | Scores, margin: float = 1.0, sampling: Positives | None = None, **options: Any) -> Conditional:
    """Minus the average precision, smoothed: mean_k E_{ξ⁺} f(E_ξ g), with ℓ = max(margin − score(ξ⁺) + score(ξ), 0)².

    g = (1[ξ positive]·ℓ, ℓ) and f(u) = −u₁/u₂, for ξ⁺ a positive and ξ any row of the same client. `scores(x, batch)` → one a row; of
    a model they are `binary_scores(model)`. `sampling=Positives(label, …)` names the label and may enrich the inner samples with
    positives, whose means are then reweighted to the client's true share. b + m rows are scored, once.

    Where a positive is far above all inner samples but one, u₂ is small and the slope of −u₁/u₂ large: with a small margin single steps
    were seen to undo much. `Positives(enrich=k, among=True)` draws the outer samples among the inner ones: u₂ is then at least
    margin²/m times the importance of a positive, and m rows are scored. It is the safer choice for margins below 1.

    The mean over clients is the federation's: with equal weights the objective is equation (6) of the paper, one AP a client; with
    `Federation(weights=positive_counts(data))` every positive counts the same. A client without positives has value and gradient 0; in
    the equal mean it still holds x back, with those weights it does not. In both, ξ is compared with its own client's rows only.

    Scores from a sigmoid lie in (0, 1), where margin=1 keeps all pairs in play; a smaller one ignores pairs that are far enough apart.
    From random parameters all scores are alike and the ratio is flat: start from some rounds of `balanced_cross_entropy`.

    >>> problem = ap_surrogate(lambda x, b: x * b.inputs, margin=1.0)
    >>> rows = {"inputs": torch.tensor([2.0, 1.0, 0.0]), "labels": torch.tensor([1, 0, 0])}
    >>> problem.value(torch.zeros(1), Positives().whole(rows))  # all scores equal: the share of positives
    tensor(-0.3333)
    """
    if not margin > 0:
        raise ProblemError(f"margin must be positive, or pairs of equal scores would not count; got {margin}")
    if isinstance(scores, torch.nn.Module):
        raise ProblemError("scores are a function of x and a batch, or a Model: write ap_surrogate(Model(module))")
    model = scores if isinstance(scores, Model) else None
    score: Scores = binary_scores(scores) if isinstance(scores, Model) else scores
    sampling = sampling or Positives()
    label = sampling.label

    def g(x: Tensor, xi: Batch, eta: Batch) -> Tensor:
        if getattr(xi, label).dim() != 1:
            raise ProblemError(f"field {label!r} holds one number a row; got rows of shape {tuple(getattr(xi, label).shape[1:])}")
        rows, others = xi.fields[label].shape[0], {name: eta.fields[name][0] for name in xi.fields}
        if sampling.among:  # the outer samples are the first of the inner ones
            every = score(x, Batch(others))
            own = every[:rows]
        else:
            both = score(x, Batch({name: torch.cat([field, others[name]]) for name, field in xi.fields.items()}))
            own, every = both[:rows], both[rows:]
        loss = (margin - own[:, None] + every[None]).clamp_min(0).square()
        if "importance" in eta.fields:
            loss = loss * eta.importance.to(loss.dtype)
        return torch.stack([(eta.fields[label] > 0) * loss, loss], -1)

    def f(u: Tensor, xi: Batch) -> Tensor:
        # no inner sample within the margin: nothing stands before this positive. In few digits 1e-8 is 0, and 0/0 has no gradient
        guard = max(1e-8 * margin**2, torch.finfo(u.dtype).tiny)
        ratio = torch.where(u[:, 1] > guard, u[:, 0] / u[:, 1].clamp_min(guard), torch.ones_like(u[:, 0]))
        positive = (xi.fields[label] > 0).to(u.dtype)  # all rows of a full batch, or none at a client without positives
        return -ratio * positive / positive.mean().clamp_min(0.5 / len(positive))

    return Conditional(f, g, sampling=sampling, **({"model": model} | options))
