"""Calibration: what turns a model's outputs into probabilities that come true, fitted to sums that clients add up.

Platt, "Probabilistic outputs for support vector machines", Advances in Large Margin Classifiers 1999; its fit by Newton's steps as in Lin,
Lin, Weng, "A note on Platt's probabilistic outputs for support vector machines", Machine Learning 2007.
Zadrozny, Elkan, "Transforming classifier scores into accurate multiclass probability estimates", KDD 2002, for isotonic regression.
Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017, for the temperature.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from scipy import special
from sklearn.isotonic import IsotonicRegression
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..data.batch import Batch
from ..errors import ProblemError
from ..federation.federation import Federation
from ..federation.placed import Placed
from ..federation.program import Program, RowSum
from ..problems.base import Problem
from .federated import margin_of, outputs_of, vector
from .histogram import auc, class_and_bin, default_edges, refined_edges
from .intervals import Array
from .rows import class_sums_by_owner

Method = Literal["none", "platt", "temperature", "isotonic"]

STEEPEST = 50.0  # slopes of a temperature lie between 1 / STEEPEST and STEEPEST
COARSE = 0.005  # doubt about the AUC from which on bins are too wide to fit to: the rows share less than about a hundred of them
FLAT = 1e-6  # a slope, of scores of unit spread, or a rise that is nothing but rounding
UNORDERED = "larger scores do not go with more positives: look at the labels, or train on"


@dataclass(frozen=True)
class Calibrator(Program):
    """How outputs become probabilities; as they are, by a softmax, unless a method says otherwise.

    method:        "none"; "platt", sigmoid(slope · margin + intercept), where the margin is the second output less the first;
                   "temperature", softmax(slope · outputs), whose slope is 1 / T; or "isotonic", a rising function of the margin that is
                   linear between knots and constant beyond them. "platt" and "isotonic" are for two classes.
    knots, values: margins, and the probabilities there
    note:          what its fit had to say, such as why there is none; two calibrators that differ in it only are equal

    None of them turns the order of two rows round.

    >>> Calibrator("platt", slope=2.0, intercept=-1.0).probabilities(torch.tensor([[0.0, 0.5]]))
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """

    method: Method = "none"
    slope: float = 1.0
    intercept: float = 0.0
    knots: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    note: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _known(self.method)
        if not all(map(math.isfinite, (self.slope, self.intercept, *self.knots, *self.values))) or not self.slope > 0:
            raise ProblemError(f"a calibrator has finite numbers and a slope above 0, which keeps the order of the rows; got {self}: write "
                               "Calibrator() for outputs as they are")
        if (self.method in ("none", "isotonic") and self.slope != 1) or (self.method != "platt" and self.intercept):
            raise ProblemError(f'only "platt" has an intercept, and only "platt" and "temperature" a slope; got {self}: leave them out')
        rising = all(a < b for a, b in zip(self.knots, self.knots[1:], strict=False)) and list(self.values) == sorted(self.values)
        within = all(0 <= value <= 1 for value in self.values)
        if len(self.knots) != len(self.values) or bool(self.knots) != (self.method == "isotonic") or not (rising and within):
            raise ProblemError(f'only "isotonic" has knots, which increase, with as many values that rise from 0 to 1 at most; got {self}')

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Each row's probabilities of the classes, (rows, classes), from its outputs, (rows, classes)."""
        if outputs.ndim != 2 or (outputs.shape[1] != 2 and self.method in ("platt", "isotonic")):
            raise ProblemError(f'outputs are (rows, classes), two for platt and isotonic; {self.method} got {tuple(outputs.shape)}: '
                               'calibrate several classes with method="temperature"')
        if self.method in ("none", "temperature"):
            return (self.slope * outputs.double()).softmax(1)
        return torch.stack([1 - (positive := self.positive(margin_of(outputs))), positive], 1)

    def positive(self, margins: Tensor) -> Tensor:
        """The probability of the positive one of two classes at each margin.

        >>> Calibrator("isotonic", knots=(-1.0, 1.0), values=(0.2, 0.6)).positive(torch.tensor([-5.0, 0.0, 5.0]))
        tensor([0.2000, 0.4000, 0.6000], dtype=torch.float64)
        """
        if self.method == "isotonic":
            return torch.from_numpy(np.interp(margins.double().cpu().numpy(), self.knots, self.values)).to(margins.device)
        return torch.sigmoid(self.slope * margins.double() + self.intercept)

    def probability_at(self, margin: float) -> float:
        """The probability of the positive class that belongs to a margin."""
        return float(self.positive(torch.tensor([margin], dtype=torch.float64))[0])

    def margin_at(self, probability: float) -> float:
        """The margin above which the positive class is more probable than that; ±inf where it always is, or never.

        >>> Calibrator("platt", slope=2.0, intercept=-1.0).margin_at(0.5)
        0.5
        """
        if not 0 < probability < 1:
            raise ProblemError(f"a decision is made at a probability between 0 and 1; got {probability}")
        if self.method != "isotonic":
            return (float(special.logit(probability)) - self.intercept) / self.slope
        above = int(np.searchsorted(self.values, probability, side="right"))  # the first knot that is more probable
        if above in (0, len(self.values)):
            return math.inf if above else -math.inf
        (low, high), (left, right) = self.values[above - 1 : above + 1], self.knots[above - 1 : above + 1]
        return left + (probability - low) / (high - low) * (right - left)

    def to_json(self) -> dict[str, Any]:
        """Its numbers by name, for a file.

        >>> Calibrator.from_json(Calibrator("temperature", slope=0.5).to_json()).slope
        0.5
        """
        return asdict(self) | {"knots": list(self.knots), "values": list(self.values)}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> Calibrator:
        """The calibrator that `to_json` wrote; entries that are not there have their defaults."""
        names = [f.name for f in fields(cls)]
        if not isinstance(entries, Mapping) or not set(entries) <= set(names):
            raise ProblemError(f"a calibrator is written as the entries {', '.join(names)}; got {entries!r}: give what to_json gave")
        for name, value in entries.items():
            numbers = {"slope": [value], "intercept": [value], "knots": value, "values": value}.get(name, [])
            if not isinstance(numbers, list | tuple) or not all(type(number) in (int, float) for number in numbers):
                raise ProblemError(f"slope and intercept of a calibrator are numbers, knots and values lists of numbers; its {name} is "
                                   f"{value!r}: give what to_json gave")
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()})  # type: ignore[arg-type]


class Sums(NamedTuple):
    """Sums over rows that a calibrator is fitted to; for two classes the last two are by class and bin of margins, (2, bins)."""

    rows: Tensor  # of each class
    ahead: Tensor  # the label's output less the mean output
    losses: Tensor  # cross-entropy at each slope
    histogram: Tensor
    margins: Tensor


@dataclass(frozen=True)
class CalibrationSums(RowSum):
    """The client function of `calibration_sums`: its numbers in a row, for edges and slopes that the server sends."""

    split: str
    classes: int

    def by_owner(self, problem: Problem, b: Batch, owner: Tensor, owners: int, *values: Any) -> Tensor:
        x, edges, slopes = *values[:2], vector(values[2], "slopes")
        cells = 2 * (len(edges) + 1) if self.classes == 2 else 0
        if not len(owner):
            return torch.zeros(owners, self.classes + 1 + len(slopes) + 2 * cells, dtype=torch.float64, device=owner.device)

        def summed(width: int, place: Tensor, value: Tensor) -> Tensor:
            return torch.bincount(owner * width + place, value, owners * width).view(owners, width)

        outputs = outputs_of(problem, x, b.inputs, self.classes).to(owner.device).double()
        rows, labels = class_sums_by_owner(outputs, b.labels, self.classes, owner, owners)[:, 3 : 3 + self.classes], b.labels.long()
        each = [outputs.gather(1, labels[:, None])[:, 0] - outputs.mean(1),
                *(cross_entropy(slope * outputs, labels, reduction="none") for slope in slopes)]
        found = [rows, *(summed(1, torch.zeros_like(owner), value) for value in each)]
        if cells:
            margin = margin_of(outputs)
            place = class_and_bin(margin.nan_to_num(), labels, edges)  # of a NaN the sum of margins tells
            found += [summed(cells, place, torch.ones_like(margin)), summed(cells, place, margin)]
        return torch.cat(found, 1)


def calibration_sums(fed: Federation[Problem], x: Tensor | Placed, split: str = "validation", classes: int = 2, *,
                     edges: Tensor | None = None, slopes: Tensor | None = None) -> Sums:
    """What a calibrator is fitted to, of all clients' rows of a split at the parameters x: one exchange in the phase `evaluation`.

    edges:  of the bins of margins, for two classes; those of `default_edges` unless told
    slopes: at which the cross-entropy is summed; 61 from 1/50 to 50 unless told

    The sum of margins in a bin that holds one row alone is that row's margin. A client with fewer rows than `min_batch` shows none.
    """
    edges, slopes = default_edges() if edges is None else edges, _slopes(1 / STEEPEST, STEEPEST) if slopes is None else slopes
    with fed.phase("evaluation"):
        here, X = fed.present, x if isinstance(x, Placed) else fed.broadcast(x)
        total = here.sum(here.map(CalibrationSums(split, classes).total, X, *here.broadcast(edges, slopes))).cpu()
    rows, ahead, losses, cells = total.tensor_split([classes, classes + 1, classes + 1 + len(slopes)])
    return Sums(rows, ahead, losses, *cells.view(2, 2, len(cells) // 4))


def calibrate(fed: Federation[Problem], x: Tensor | Placed, split: str = "validation", classes: int = 2,
              method: Method = "platt") -> Calibrator:
    """A calibrator fitted to all clients' rows of a split at the parameters x, from sums.

    "platt" and "isotonic" take one exchange, or two where the bins of margins are too wide; "temperature" takes two, the second one with
    slopes close to the best of the first. Only what the method needs is asked for. The rows should be others than those of training.

    Where the rows do not tell, it is `Calibrator()`, whose `note` says why: a class has no rows ("temperature": fewer than two have), all
    scores are the same, or larger ones do not go with more positives. There a fit would throw the order of the rows away or turn it round,
    which hides labels that were mixed up. Rows that are separated have a finite slope nevertheless, by Platt's targets,
    (positives + 1) / (positives + 2) and 1 / (negatives + 2) in place of 1 and 0, or by labels smoothed by classes / (rows + classes).

    >>> from rookery import Data, Model
    >>> from rookery.objectives import cross_entropy
    >>> rows = Data.from_parts({"a": {"inputs": [[-3.0], [3.0]], "labels": [0, 1]}, "b": {"inputs": [[-3.0], [3.0]], "labels": [1, 1]}})
    >>> fed = Federation(cross_entropy(Model(torch.nn.Linear(1, 2, bias=False))), rows.with_splits(validation=rows))
    >>> calibrate(fed, torch.tensor([0.0, 2.0])).positive(torch.tensor([-6.0, 6.0]))  # Platt's targets are 1/3 and 4/5
    tensor([0.5667, 0.8000], dtype=torch.float64)
    """
    _known(method)
    if classes != 2 and method in ("platt", "isotonic"):
        raise ProblemError(f'"{method}" is for two classes; got {classes}: write method="temperature"')
    if method == "none":
        return Calibrator()
    with fed.phase("evaluation"):
        X = x if isinstance(x, Placed) else fed.broadcast(x)  # once for all exchanges
    if method == "temperature":
        return _temperature(lambda slopes: calibration_sums(fed, X, split, classes, edges=default_edges(1), slopes=slopes))
    edges, nothing = default_edges(), torch.zeros(0, dtype=torch.float64)
    found = calibration_sums(fed, X, split, edges=edges, slopes=nothing)
    ranked = auc(found.histogram)
    if ranked is None:
        return Calibrator(note=f"the rows hold {found.rows[1]:.0f} positives and {found.rows[0]:.0f} negatives, and a fit needs both")
    if ranked.high - ranked.value > COARSE:
        # a ranking does without edges between negatives, but their scores count here: bins are cut as if all rows were of both classes
        edges = refined_edges(found.histogram.sum(0).expand(2, -1), edges)
        found = calibration_sums(fed, X, split, edges=edges, slopes=nothing)
    return (_platt if method == "platt" else _isotonic)(found.histogram.numpy(), found.margins.numpy())


def _temperature(sums: Callable[[Tensor], Sums]) -> Calibrator:
    slopes = _slopes(1 / STEEPEST, STEEPEST)
    rows, ahead, losses, *_ = sums(slopes)
    if int((rows > 0).sum()) < 2:
        return Calibrator(note=f"the rows hold {int((rows > 0).sum())} of {len(rows)} classes, and a fit needs two")
    smooth = len(rows) / (float(rows.sum()) + len(rows)) * ahead  # what smoothed labels add to the loss, times the slope
    losses = losses + smooth * slopes
    best = int(losses.argmin())
    if best == 0 and float(losses[0]) >= (1 - 1e-9) * float(rows.sum()) * math.log(len(rows)):
        return Calibrator(note=f"at no slope from 1/{STEEPEST:.0f} to {STEEPEST:.0f} do the outputs say more than even odds")
    if best in (0, len(slopes) - 1):
        return Calibrator("temperature", float(slopes[best]), note=f"the slope is the {'largest' if best else 'least'} one tried")
    slopes = _slopes(float(slopes[best - 1]), float(slopes[best + 1]))
    losses = sums(slopes).losses + smooth * slopes
    best = min(max(int(losses.argmin()), 1), len(slopes) - 2)
    below, at, above = losses[best - 1 : best + 2].tolist()
    bend = below - 2 * at + above
    shift = (below - above) / (2 * bend) if bend > 0 else 0.0  # the lowest point of a parabola through the three
    return Calibrator("temperature", float(slopes[best] * (slopes[1] / slopes[0]) ** min(max(shift, -1.0), 1.0)))


def _platt(counts: Array, margins: Array) -> Calibrator:
    there, (negatives, positives) = counts > 0, counts.sum(1)
    targets = np.broadcast_to([[1 / (negatives + 2)], [(positives + 1) / (positives + 2)]], counts.shape)[there]
    scores, share = margins[there] / counts[there], counts[there] / counts.sum()
    mean = float(share @ scores)
    spread = math.sqrt(share @ (scores - mean) ** 2)
    if spread <= 1e-9 * abs(mean):
        return Calibrator(note=f"all rows have the score {mean:.3g}, which tells none apart")
    slope, level = _logistic((scores - mean) / spread, targets, share).tolist()
    return Calibrator("platt", slope / spread, level - slope * mean / spread) if slope > FLAT else Calibrator(note=UNORDERED)


def _logistic(scores: Array, targets: Array, share: Array) -> Array:
    """The slope and intercept of the least mean cross-entropy, by Newton's steps, each halved until it lowers the loss enough."""
    design, at = np.stack([scores, np.ones_like(scores)], 1), np.asarray([0.0, special.logit(share @ targets)])

    def loss(at: Array) -> float:
        return float(share @ (np.logaddexp(0, design @ at) - targets * (design @ at)))

    for _ in range(100):
        p = special.expit(design @ at)
        gradient = design.T @ (share * (p - targets))
        step = np.linalg.solve(design.T @ (design * (share * p * (1 - p))[:, None]) + 1e-12 * np.eye(2), gradient)
        size = 1.0
        while size > 1e-9 and loss(at - size * step) > loss(at) - 1e-4 * size * gradient @ step:
            size /= 2
        at = at - size * step
        if np.abs(gradient).max() < 1e-12:
            break
    return at


def _isotonic(counts: Array, margins: Array) -> Calibrator:
    rows = counts.sum(0)
    there = rows > 0
    fit = IsotonicRegression(y_min=0, y_max=1).fit(margins.sum(0)[there] / rows[there], counts[1, there] / rows[there], rows[there])
    knots, values = fit.X_thresholds_.tolist(), fit.y_thresholds_.tolist()
    return Calibrator("isotonic", knots=tuple(knots), values=tuple(values)) if values[-1] - values[0] > FLAT else Calibrator(note=UNORDERED)


def _slopes(low: float, high: float) -> Tensor:
    return torch.from_numpy(np.geomspace(low, high, 61))


def _known(method: str) -> None:
    if method not in get_args(Method):
        raise ProblemError(f"method is one of {', '.join(get_args(Method))}; got {method!r}")
