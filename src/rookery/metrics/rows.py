"""Loss, accuracy, recalls, Brier score and calibration error, from numbers of each row that clients can add up.

Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017, for the expected calibration error.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError, ProblemError

BINS = 15  # of the top class's probability


def class_sums(outputs: Tensor, labels: Tensor, classes: int) -> Tensor:
    """For each row the numbers whose sums over rows, of one client or of all, `from_sums` makes metrics of: (rows, 48 + 2 · classes).

    outputs: logits, (rows, classes)
    labels:  each row's class, from 0

    The columns: 1; the cross-entropy; the Brier score, which is Σ_c (p_c − 1[c = label])² for three classes or more and, for two, the usual
    (p_1 − label)², half of that sum; for each class whether it is the row's; for each class whether it is the row's and has the largest
    output; for each of 15 bins of the largest probability, (i/15, (i + 1)/15], whether it is the row's; there, that probability; there,
    whether the largest output is the label's. A row's numbers depend on no other row, so an index_add over the rows' owners sums them by
    client. A row with a NaN has a loss and a Brier score of NaN, and is no hit.

    >>> class_sums(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), 2)[0, :7]
    tensor([1.0000, 0.6931, 0.2500, 1.0000, 0.0000, 1.0000, 0.0000], dtype=torch.float64)
    """
    n = _numbers(outputs, labels, classes)
    one, bin_ = (torch.nn.functional.one_hot(of, number).double() for of, number in ((labels.long(), classes), (n.bin, BINS)))
    first = torch.stack([torch.ones_like(n.hit), n.loss, n.brier], 1)
    return torch.cat([first, one, one * n.hit[:, None], bin_, bin_ * n.top[:, None], bin_ * n.hit[:, None]], 1)


def class_sums_by_owner(outputs: Tensor, labels: Tensor, classes: int, owner: Tensor, owners: int) -> Tensor:
    """The sums of `class_sums` over the rows of each owner, (owners, 48 + 2 · classes), without their many zeros.

    >>> outputs, labels, owner = torch.zeros(3, 2), torch.tensor([0, 1, 1]), torch.tensor([2, 0, 2])
    >>> class_sums_by_owner(outputs, labels, 2, owner, 3)[:, 0]
    tensor([1., 0., 2.], dtype=torch.float64)
    """
    n = _numbers(outputs, labels, classes)

    def summed(width: int, place: Tensor, value: Tensor | None = None) -> Tensor:
        return torch.bincount(place, value, owners * width).double().view(owners, width)  # without rows, bincount returns integers

    by_class, by_bin = owner * classes + labels, owner * BINS + n.bin
    return torch.cat([summed(1, owner), summed(1, owner, n.loss), summed(1, owner, n.brier),
                      summed(classes, by_class), summed(classes, by_class, n.hit),
                      summed(BINS, by_bin), summed(BINS, by_bin, n.top), summed(BINS, by_bin, n.hit)], 1)


class _Numbers(NamedTuple):
    """What `class_sums` tells of each row, before it is put into columns."""

    loss: Tensor
    brier: Tensor
    hit: Tensor
    top: Tensor
    bin: Tensor


def _numbers(outputs: Tensor, labels: Tensor, classes: int) -> _Numbers:
    _check(classes)
    if outputs.ndim != 2 or outputs.shape[1] != classes or labels.shape != outputs.shape[:1]:
        raise DataError(f"outputs must be (rows, {classes}) and labels (rows,); got {tuple(outputs.shape)} and {tuple(labels.shape)}: "
                        "give logits with a column for each class")
    if labels.is_floating_point() or bool(((labels < 0) | (labels >= classes)).any()):
        raise DataError(f"labels must be whole numbers from 0 to {classes - 1}; got {labels}: number the classes from 0")
    own = labels.long()[:, None]
    log_p = outputs.double().log_softmax(1)
    loss = -log_p.gather(1, own)[:, 0]
    p = log_p.exp_()
    top, guess = p.max(1)
    hit = ((guess == labels) & ~outputs.isnan().any(1)).double()
    inner = torch.arange(1, BINS, dtype=torch.float64, device=top.device) / BINS
    bin_ = torch.bucketize(top, inner)
    error = p.scatter_add_(1, own, torch.full_like(own, -1, dtype=p.dtype)).square_()
    return _Numbers(loss, error[:, 1] if classes == 2 else error.sum(1), hit, top, bin_)


def from_sums(total: Tensor, classes: int) -> dict[str, float]:
    """The metrics of all rows whose `class_sums` add up to `total`, (48 + 2 · classes,).

    "loss" (mean cross-entropy), "accuracy", "balanced accuracy" (mean of all recalls), "worst class" (the smallest recall), "Brier",
    and "ECE", Σ over bins of (rows of the bin / rows) · |accuracy in the bin − mean probability in the bin|. What the rows do not define is
    absent: balanced accuracy and the worst class if some class has no rows, everything if there are none.

    >>> from_sums(class_sums(torch.tensor([[0.0, 4.0], [0.0, 4.0]]), torch.tensor([1, 1]), 2).sum(0), 2).keys()
    dict_keys(['loss', 'accuracy', 'Brier', 'ECE'])
    """
    _check(classes)
    if total.shape != (3 + 2 * classes + 3 * BINS,):
        raise ProblemError(f"the sums of {classes} classes are {3 + 2 * classes + 3 * BINS} numbers; got the shape {tuple(total.shape)}: "
                           "write class_sums(…).sum(0)")
    starts = [3, 3 + classes, 3 + 2 * classes, 3 + 2 * classes + BINS, 3 + 2 * classes + 2 * BINS]
    (rows, loss, brier), counts, hits, _, sure, right = total.double().tensor_split(starts)
    if not float(rows) > 0:
        return {}
    found = {"loss": float(loss / rows), "accuracy": float(hits.sum() / rows)}
    if bool((counts > 0).all()):
        recalls = hits / counts
        found |= {"balanced accuracy": float(recalls.mean()), "worst class": float(recalls.min())}
    return found | {"Brier": float(brier / rows), "ECE": float((right - sure).abs().sum() / rows)}


def _check(classes: int) -> None:
    if classes < 2:
        raise ProblemError(f"classes is the number of classes, at least 2; got {classes}")
