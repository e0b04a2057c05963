"""Bilevel objectives: a model trained on some rows inside, and what it is trained with judged on others outside.

A client's rows are of two kinds, told apart by the field `validation`: 1 for the rows of the outer loss, 0 for those of the inner one.
Each loss is the mean over the rows of its kind in a batch, and every client needs both. Draw with `sampling=Stratified("validation", n)`,
so that a batch has n validation rows every time: then the means are unbiased, and each loss runs the model on the rows of its kind only.
Full batches need nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..data.sampling import Sampler, Stratified
from ..data.store import Batch
from ..errors import ProblemError
from ..problems.autodiff import cross, jvp
from ..problems.kinds import Bilevel
from ..problems.model import Model
from .declare import objective
from .dro import Losses, one_a_row
from .given import MODEL, Given, Start, constant
from .groups import members
from .supervised import class_losses, scores, weight_of
from .trainval import VALIDATION, TrainValBatch, TrainValSampler

Loss = Callable[[Tensor, Tensor, Batch], Tensor]


def _bilevel(f: Loss, g: Loss, sampling: Sampler | None = None, **options: Any) -> Bilevel:
    """A problem whose f sees validation rows and whose g sees training rows, as far as a draw has them apart."""
    if sampling is None:
        sampling = TrainValSampler()
    elif isinstance(sampling, Stratified) and sampling.label == "validation" and sampling.share is None and not sampling.importance:
        sampling = TrainValSampler("validation", sampling.positives)
    else:
        raise ProblemError(f'a bilevel objective draws its kinds of rows apart: write sampling=Stratified("validation", n); got {sampling}')
    return Bilevel(lambda x, y, b: f(x, y, _rows(b, True)), lambda x, y, b: g(x, y, _rows(b, False)), sampling=sampling, **options)


def _rows(b: Batch, validation: bool) -> Batch:
    """The rows of one kind, where a draw has them apart; else all rows, and the means weigh them by kind."""
    if not isinstance(b, TrainValBatch) or b.front is None:
        return b
    mine = slice(None, b.front) if validation else slice(b.front, None)
    return Batch({name: field[mine] for name, field in b.fields.items()}, None if b.index is None else b.index[mine], None, b.key)


def _outside(losses: Tensor, b: Batch) -> Tensor:
    """The mean over the validation rows of a batch."""
    return _mean(losses, b.validation > 0)


def _inside(losses: Tensor, b: Batch) -> Tensor:
    """The mean over the training rows of a batch."""
    return _mean(losses, b.validation <= 0)


def _mean(losses: Tensor, some: Tensor) -> Tensor:
    kind = some.to(losses.dtype)
    return (kind * one_a_row(losses, len(some))).sum() / kind.sum()


def _length(name: str, vector: Tensor, length: int, what: str) -> None:
    if len(vector) != length:
        raise ProblemError(f"{name} has {length} numbers, {what}; got {len(vector)}")


def _not_negative(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value >= 0:
            raise ProblemError(f"{name} must not be negative; got {value}")


@objective(metric="worst class", x=constant(lambda given: 0.0, lambda given: 2 * given.classes, "0: all classes alike"), y=MODEL,
           trained="y", columns=[VALIDATION])
def loss_tuning(model: Model, classes: int, weights: Tensor | None = None, ridge: float = 0.0, **options: Any) -> Bilevel:
    """A loss for unbalanced classes, learned: x = (Δ, l), y the model's parameters.

        g(x, y) = mean over training rows of CE(σ(Δ)·scores + l, label) + (ridge/2)‖y‖²
        f(x, y) = mean over validation rows of weights[label]·CE(scores, label)

    `weights` balance the classes in the federation's mean of f: 1/(classes·q_c) with the share q_c of class c in the clients' validation
    rows, a mean with the federation's weights that `prepare` agrees on, or given.
    From x = 0 all classes are alike. Li, Zhang, Thrampoulidis, Chen, Oymak, "AutoBalance: Optimized loss functions for imbalanced data",
    NeurIPS 2021; the federated form in Tarzanagh et al., "FedNest", ICML 2022.
    """
    _not_negative(ridge=ridge)
    if classes < 2:
        raise ProblemError(f"classes is their number, at least 2; got {classes}")
    if weights is not None and (not isinstance(weights, Tensor) or weights.shape != (classes,) or not bool((weights >= 0).all())):
        raise ProblemError(f"weights are a tensor with a number that is not negative for each of the {classes} classes; got {weights!r}")

    def f(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        _length("y", y, model.size, "the model's parameters")
        losses = class_losses(scores(model, y, b, classes), b.labels)
        return _outside(losses if weights is None else losses * weight_of(b.labels, weights, losses), b)

    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        _length("y", y, model.size, "the model's parameters")
        value = adjusted(x, scores(model, y, b, classes), b)
        return value + 0.5 * ridge * y.square().sum() if ridge else value

    def adjusted(x: Tensor, logits: Tensor, b: Batch) -> Tensor:
        _length("x", x, 2 * classes, "(Δ, l)")
        return _inside(class_losses(torch.sigmoid(x[:classes]) * logits + x[classes:], b.labels), b)

    def g_xy(x: Tensor, y: Tensor, b: Batch, v: Tensor) -> Tensor:
        """x meets y in the scores only, so their derivative along v is all that is needed of the model: no backward pass through it."""
        b = _rows(b, False)
        logits, along = jvp(lambda w: model(w, b.inputs).reshape(-1), y, v)
        return cross(lambda z, s: adjusted(z, s.view(-1, classes), b), x, logits, along)

    def statistics(x: Tensor, b: Batch) -> Tensor:
        kind = (b.validation > 0).to(x.dtype)
        return (members(b.labels, classes, x.dtype) * kind[:, None]).sum(0) / kind.sum()

    def finish(total: Tensor) -> Bilevel:
        shares = total / total.sum()
        missing = [c for c, share in enumerate(shares.tolist()) if share == 0]
        if missing:
            raise ProblemError(f"class {missing[0]} has no validation rows at any client: balance them with weights=…, or split again")
        return loss_tuning(model, classes, 1 / (classes * shares), ridge, **options)

    agreed: dict[str, Any] = {} if weights is not None else {"statistics": statistics, "finish": finish, "weighted": True}
    oracles = {"f_x": lambda x, y, b: torch.zeros_like(x), "g_xy": g_xy}
    return _bilevel(f, g, model=model, **agreed, **{"oracles": oracles, **options})


def _cut(given: Given) -> int:
    return given.body[0].size


@objective(metric="accuracy", x=Start("the parameters of the net without its last layer", lambda given: given.vector[: _cut(given)]),
           y=Start("those of its last layer", lambda given: given.vector[_cut(given) :]), trained="x and y", columns=[VALIDATION])
def hyper_representation(features: Model, width: int, classes: int, ridge: float = 1e-3, **options: Any) -> Bilevel:
    """Features outside, a linear head inside: x the parameters of `features`, y = (W, b) of the head on its `width` outputs.

        g(x, y) = mean over training rows of CE(Wφ(x; u) + b, label) + (ridge/2)‖y‖²
        f(x, y) = mean over validation rows of CE(Wφ(x; u) + b, label)

    y has classes·(width + 1) numbers. The ridge makes g strongly convex in y. Franceschi, Frasconi, Salzo, Grazzi, Pontil, "Bilevel
    programming for hyperparameter optimization and meta-learning", ICML 2018.
    """
    if not ridge > 0:
        raise ProblemError(f"ridge must be positive, so that the head is the only one; got {ridge}")

    def losses(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        _length("x", x, features.size, "the parameters of the features")
        _length("y", y, classes * (width + 1), "the head (W, b)")
        W, offset = y[: classes * width].view(classes, width), y[classes * width :]
        phi = features(x, b.inputs)
        if not isinstance(phi, Tensor) or phi.dim() != 2 or phi.shape[1] != width:
            what = f"shape {tuple(phi.shape)}" if isinstance(phi, Tensor) else type(phi).__name__
            raise ProblemError(f"the features put out {width} numbers a row, the width; got {what}")
        return class_losses(phi @ W.T + offset, b.labels)

    return _bilevel(lambda x, y, b: _outside(losses(x, y, b), b),
                    lambda x, y, b: _inside(losses(x, y, b), b) + 0.5 * ridge * y.square().sum(), model=features, **options)


@objective(metric="loss", x=constant(lambda given: -5.0, lambda given: len(given.vector), "−5, a strength of 0.0067 for every parameter"),
           y=MODEL, trained="y", columns=[VALIDATION])
def hyper_parameters(losses: Losses, **options: Any) -> Bilevel:
    """One regularisation strength exp(x_j) for every parameter y_j, learned on validation rows; `losses(y, batch)` → one loss a row.

        g(x, y) = mean over training rows of ℓ(y) + ½Σ_j exp(x_j)y_j²,   f(x, y) = mean over validation rows of ℓ(y)

    Pedregosa, "Hyperparameter optimization with approximate gradient", ICML 2016; Lorraine, Vicol, Duvenaud, "Optimizing millions of
    hyperparameters by implicit differentiation", AISTATS 2020.
    """
    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        _length("x", x, len(y), "one for each of y")
        return _inside(losses(y, b), b) + 0.5 * (torch.exp(x) * y.square()).sum()

    return _bilevel(lambda x, y, b: _outside(losses(y, b), b), g, **options)


@objective(metric="accuracy", x=constant(lambda given: 0.0, lambda given: given.count(given.entries["field"]), "0: all groups alike"),
           y=MODEL, trained="y", columns=[VALIDATION])
def data_reweighting(losses: Losses, ridge: float = 1e-3, field: str = "group", **options: Any) -> Bilevel:
    """Weights σ(x_j) for groups of training rows, learned on clean validation rows; `field` has each row's group j < len(x).

        g(x, y) = mean over training rows of σ(x_group)·ℓ(y) + (ridge/2)‖y‖²,   f(x, y) = mean over validation rows of ℓ(y)

    A group may be a site, a class at a site, an annotator. Numbers of their own for all rows, the same length at all clients together,
    make a weight a row (data cleaning); x is shared by all, so these weights are seen by every client. Validation rows' groups are not
    used. Shaban, Cheng, Hatch, Boots, "Truncated back-propagation for bilevel optimization", AISTATS 2019.
    """
    _not_negative(ridge=ridge)

    def g(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        of = getattr(b, field)
        if of.dim() != 1 or of.is_floating_point():
            raise ProblemError(f"field {field!r} holds a whole number a row, from 0; got {of.dtype} of shape {tuple(of.shape)}")
        group = torch.where(b.validation > 0, 0, of.long())
        return _inside(torch.sigmoid(torch.index_select(x, 0, group)) * losses(y, b), b) + 0.5 * ridge * y.square().sum()

    return _bilevel(lambda x, y, b: _outside(losses(y, b), b), g, **options)
