"""The area under the part of the ROC curve with few false positives.

Zhu, Li, Wang, Wu, Yang, "When AUC meets DRO: Optimizing partial AUC for deep learning with non-convex convergence guarantee", ICML 2022:
the one-way partial AUC, by a worst case over negatives with a KL penalty.
    λ, ℓ, z⁺, z⁻  →  lam, ell, outer samples (positives), inner samples (negatives)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..data.positives import Positives
from ..data.sampling import Stratified
from ..data.store import Batch
from ..errors import ProblemError
from ..problems.base import Problem
from ..problems.kinds import Conditional
from ..problems.model import Model
from ..problems.pairwise import Pairwise
from .ap import Scores
from .declare import objective
from .dro import EDGE, bounded_exp, bounded_log
from .pairs import agreed_share, check_margin, choose, hinge, logits, positive, share_statistics, squashed, with_model


@objective(metric="AUC", two_classes=True)
def partial_auc(scores: Model | Scores, kind: type[Problem] = Conditional, lam: float = 1.0, margin: float = 1.0, squash: bool = True,
                label: str = "labels", **options: Any) -> Conditional | Pairwise:
    """The AUC at low false positive rates, smoothed: E₊ λ·log E₋ exp(ℓ/λ), with ℓ = max(margin − s₊ + s₋, 0)².

    Each positive is compared most with the negatives that come closest to it or lie above: λ → 0 leaves its worst negative, λ → ∞ all of
    them alike, which is the pair loss of `auc`. `scores` and `squash` are as in `auc`. `kind` is what the algorithm solves:

    - `Conditional`: positives are outer samples and negatives of the same client inner ones, as drawn by `Positives(label,
      inner="negatives")`. A client without one of the classes has value and gradient 0; in an equal mean it still holds x back, not so
      with weights by `positive_counts`. Pairs of rows of two clients do not count.
    - `Pairwise`: f(u) = c + λ·log u of ℓ' = exp((ℓ − c)/λ) over negatives of all clients. Estimates of u begin at a first value of ℓ', not
      at 0, where the logarithm has no slope to speak of. Batches have as many positives as negatives.

    The constant c keeps exponents between −60 and 60: half of the largest ℓ, (margin + 1)²/2, for squashed scores, which bound ℓ, and
    margin², the loss of a pair of equal scores, without `squash`. There exponents above 60 are possible, and the exponential goes on as
    its tangent, so that such pairs pull less than they should. A λ below c/60 is refused.

    Reference: Zhu, Li, Wang, Wu, Yang, "When AUC meets DRO", ICML 2022; Guo, Jin, Luo, Yang, "FeDXL", ICML 2023, for pairs of two clients.

    >>> problem = partial_auc(lambda x, b: x * b.inputs, squash=False)
    >>> rows = {"inputs": torch.tensor([2.0, 1.0, 0.0]), "labels": torch.tensor([1, 0, 0])}
    >>> problem.value(torch.zeros(1), problem.sampling.whole(rows))  # all scores equal: the margin's square
    tensor(1.)
    """
    form = choose(kind, (Conditional, Pairwise), "partial_auc")
    check_margin(margin)
    centre = 0.5 * (margin + 1) ** 2 if squash else margin**2
    if not centre / EDGE <= lam < math.inf:
        raise ProblemError(f"lam is a finite number, and with this margin at least {centre / EDGE:.4g}, where exponentials stay in range; "
                           f"got {lam}: there the worst negatives count alone, but for lam times the logarithm of their number")
    logit = logits(scores, "partial_auc")
    score, ell, floor = squashed(logit, squash), hinge(margin), math.exp(-centre / lam)

    def exponential(s: Tensor, t: Tensor) -> Tensor:
        return bounded_exp((ell(s, t) - centre) / lam)

    def outer(u: Tensor) -> Tensor:
        return centre + lam * bounded_log(u, floor)

    def g(x: Tensor, xi: Batch, eta: Batch) -> Tensor:
        """The exponential at negatives, and who is one."""
        first = positive(xi, label, x.dtype)
        both = score(x, Batch({name: torch.cat([field, eta.fields[name][0]]) for name, field in xi.fields.items()}))
        s, t = torch.split(both, [len(first), len(both) - len(first)])
        negative = (eta.fields[label] <= 0).to(s.dtype)
        if "importance" in eta.fields:
            negative = negative * eta.importance.to(s.dtype)
        loss = exponential(s[:, None], t[None, :]) * negative
        return torch.stack([loss, negative.expand_as(loss)], -1)

    def f(u: Tensor, xi: Batch) -> Tensor:
        some = u[:, 1] > 0  # whether there are negatives
        ratio = u[:, 0] / torch.where(some, u[:, 1], torch.ones_like(u[:, 1]))
        value = torch.where(some, outer(torch.where(some, ratio, torch.ones_like(ratio))), torch.zeros_like(ratio))
        of = positive(xi, label, u.dtype)  # all rows of a full batch, or none at a client without positives
        return value * of / of.mean().clamp_min(0.5 / len(of))

    if form is Conditional:
        return Conditional(f, g, **({"sampling": Positives(label, inner="negatives")} | with_model(scores, options)))
    pairwise = Pairwise(
        score, exponential, outer, label=label, statistics=share_statistics(label), weighted=True,
        finish=lambda total: replace(pairwise, share=agreed_share(total, label, "partial_auc"), statistics=None, finish=None),
        **({"sampling": Stratified(label, share=0.5, importance=True)} | with_model(scores, options)))
    return pairwise
