"""The area under the ROC curve, in a form for each kind of method.

Zhang, Zhang, Yang, Souvenir, Gao, "Federated compositional deep AUC maximization", NeurIPS 2023, section 3.
    h(w; a), b, p, w̃₁, w̃₂, w̃₃, ρ  →  scores, label, p, x[-2], x[-1], y, rho;  the margin is 1 in the paper
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..data.sampling import Stratified
from ..data.store import Batch
from ..errors import ProblemError
from ..problems.autodiff import grad
from ..problems.base import Problem
from ..problems.kinds import CompositionalMinimax, Minimax, Minimization
from ..problems.model import Model
from ..problems.pairwise import Pairwise
from .ap import Scores
from .declare import objective
from .given import Given, Start, constant
from .pairs import agreed_share, check_margin, choose, hinge, importance, logits, positive, share_statistics, squashed, with_model

FORMS = (Minimax, CompositionalMinimax, Pairwise, Minimization)


def _is_saddle(given: Given) -> bool:
    return choose(given.kind, FORMS, "auc") in (Minimax, CompositionalMinimax)


def _first_x(given: Given) -> Tensor:
    """w₁ and w₂ are mean scores: from 0, far below the first squashed ones, single runs were seen to end with all scores at a bound."""
    return torch.cat([given.vector, given.vector.new_full((2 * _is_saddle(given),), 0.5 if given.entries["squash"] else 0.0)])


@objective(metric="AUC", two_classes=True,
           x=Start("the model's parameters, then in the minimax forms w₁ and w₂, at ½ with squashed scores and else at 0", _first_x),
           y=constant(lambda given: 0.0, lambda given: int(_is_saddle(given)), "0, one number, in the minimax forms"))
def auc(scores: Model | Scores, kind: type[Problem] = Minimax, margin: float = 1.0, rho: float = 0.1, hessian: bool = True,
        squash: bool = True, positives: float = 0.5, label: str = "labels",
        **options: Any) -> Minimax | CompositionalMinimax | Pairwise | Minimization:
    """One minus the AUC, smoothed: E (margin − s₊ + s₋)² for scores s₊ of positives and s₋ of negatives, as the algorithm can take it.

    `scores(x, batch)` → one number a row, a logit; of a model it is the output, or the difference of two. `squash` puts it through a
    sigmoid. Positives are the rows with `label` > 0. `kind` is what the algorithm solves; in a description it follows from its name:

    - `Minimax`: equation (1) of the reference, below, over x = (w, w₁, w₂) and y = (w₃), with the share p of positives in the federation,
      on which `prepare` agrees with the federation's weights. At the best w₁, w₂ and w₃ it is p(1−p)(E(margin − s₊ + s₋)² − margin²), pairs
      of rows of two clients included, which no client has to form. `project_y=lambda y: y.clamp_min(-margin)` makes it the margin loss of
      Yuan, Yan, Sonka, Yang, ICCV 2021, which asks no more of the mean scores than the margin.
    - `CompositionalMinimax`: the same at g(x) = (w − ρ∇L(w), w₁, w₂), with the cross-entropy L of the logits on a batch. `hessian=False`
      takes ∇L for a constant in derivatives of g, which are then the identity; that leaves out the term −ρ∇²L·v.
    - `Pairwise`: max(margin − s₊ + s₋, 0)² over all pairs, also of two clients, by methods that exchange scores.
    - `Minimization`: the same over the pairs within each batch: pairs of rows of two clients do not count. A batch of one class has value
      and gradient 0. n rows make n² pairs: give the algorithm a batch.

    Equation (1), a mean over the rows:

        (1−p)(s−w₁)²1₊ + p(s−w₂)²1₋ + 2(margin+w₃)(p·s·1₋ − (1−p)·s·1₊) − p(1−p)w₃²

    positives: the share of positives in batches, drawn by Stratified(label, share=positives, importance=True); 0: uniform rows, as by
               default elsewhere; `sampling=` goes before it

    Where batches have the field `importance`, rows are weighed by it before means are taken. Stratified batches without it have another
    share of positives than p, and estimate another loss.

    References: Ying, Wen, Lyu, "Stochastic online AUC maximization", NeurIPS 2016; Yuan, Guo, Chawla, Yang, "Compositional training for
    end-to-end deep AUC maximization", ICLR 2022; Zhang, Zhang, Yang, Souvenir, Gao, "Federated compositional deep AUC maximization",
    NeurIPS 2023, equations (1) and (2).

    >>> problem = auc(lambda x, b: x[0] * b.inputs, squash=False).finish(torch.tensor([0.5, 1.0]))  # half of the rows are positives
    >>> rows = Batch({"inputs": torch.tensor([1.0, 0.0]), "labels": torch.tensor([1, 0])})
    >>> problem.f(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([-1.0]), rows)  # s₊ − s₋ is the margin: p(1−p)(0 − 1)
    tensor(-0.2500)
    """
    form = choose(kind, FORMS, "auc")
    check_margin(margin)
    if not rho >= 0:
        raise ProblemError(f"rho is the step size of the cross-entropy's step and must not be negative; got {rho}")
    if not 0 <= positives < 1:
        raise ProblemError(f"positives is their share of a batch, at least 0 (uniform rows) and below 1; got {positives}")
    logit = logits(scores, "auc")
    score, ell = squashed(logit, squash), hinge(margin)
    own = {"sampling": Stratified(label, share=positives, importance=True)} if positives else {}
    options = own | with_model(scores, options)

    def unprepared(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        raise ProblemError("auc needs the share of positives in the federation: write fed.prepare(x) first")

    def apart(x: Tensor) -> tuple[Tensor, Tensor]:
        """The model's parameters, and w₁ and w₂."""
        size = scores.size if isinstance(scores, Model) else max(len(x) - 2, 0)
        if len(x) != size + 2:
            raise ProblemError(f"x holds the {size} parameters of the scores and then w₁ and w₂, so {size + 2} numbers; got {len(x)}: "
                               "begin with torch.cat([model.vector(), torch.full((2,), 0.5)])")
        first, last = torch.split(x, [size, 2])
        return first, last

    def saddle(p: float, x: Tensor, y: Tensor, b: Batch) -> Tensor:
        """The mean of equation (1) over the rows of a batch."""
        if y.shape != (1,):
            raise ProblemError(f"y holds one number, w₃; got shape {tuple(y.shape)}: begin with torch.zeros(1)")
        w, means = apart(x)
        s = score(w, b)
        of, w3 = positive(b, label, s.dtype), y[0]
        rest = 1 - of
        each = ((1 - p) * (s - means[0]).square() * of + p * (s - means[1]).square() * rest
                + 2 * (margin + w3) * s * (p * rest - (1 - p) * of) - p * (1 - p) * w3.square())
        return (each * importance(b, each)).mean()

    def sums(x: Tensor, b: Batch) -> Tensor:
        """Of negatives and of positives, their scores and their number, as means over the rows of a batch."""
        s = score(apart(x)[0], b)
        of, weight = positive(b, label, s.dtype), importance(b, s)
        return torch.stack([weight * s * (1 - of), weight * (1 - of), weight * s * of, weight * of]).mean(1)

    def best(sums: Tensor) -> Tensor:
        """The best w₃: the mean score of the negatives less that of the positives."""
        tiny = torch.finfo(sums.dtype).tiny  # a class without rows has no scores either
        return (sums[0] / sums[1].clamp_min(tiny) - sums[2] / sums[3].clamp_min(tiny)).reshape(1)

    def g(x: Tensor, b: Batch) -> Tensor:
        w, means = apart(x)

        def loss(v: Tensor) -> Tensor:
            z = logit(v, b)
            each = F.softplus(z) - positive(b, label, z.dtype) * z
            return (each * importance(b, each)).mean()

        if hessian:
            step = grad(loss, w)
        else:
            with torch.no_grad():  # nothing is kept for a second derivative
                step = grad(loss, w).detach()
        return torch.cat([w - rho * step, means])

    def local(x: Tensor, b: Batch) -> Tensor:
        s = score(x, b)
        of, weight = positive(b, label, s.dtype), importance(b, s)
        pairs = (of * weight)[:, None] * ((1 - of) * weight)[None, :]
        total = pairs.sum()
        return (pairs * ell(s[:, None], s[None, :])).sum() / torch.where(total > 0, total, torch.ones_like(total))

    if form is Minimization:
        return Minimization(local, **options)

    def finish(total: Tensor) -> Problem:
        p = agreed_share(total, label, "auc")
        return (replace(problem, share=p, **finished) if isinstance(problem, Pairwise) else
                replace(problem, f=lambda x, y, b: saddle(p, x, y, b), **finished))

    finished: dict[str, Any] = {"statistics": None, "finish": None}
    agreed: dict[str, Any] = {"statistics": share_statistics(label), "finish": finish, "weighted": True}
    problem: Minimax | CompositionalMinimax | Pairwise
    if form is Pairwise:
        problem = Pairwise(score, ell, label=label, **agreed, **options)
    elif form is CompositionalMinimax:
        problem = CompositionalMinimax(unprepared, g, **agreed, **options)
    else:
        problem = Minimax(unprepared, best_y=(sums, best), **agreed, **options)
    return problem
