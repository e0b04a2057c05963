"""Scores of the clients' rows, computed where the rows are: the server gets sums, or a few numbers of each client, and never a row.

`evaluate` merges: one vector of sums a client, added up. `by_client` collects every client's own scores, with intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from ..data.batch import Batch
from ..errors import ProblemError, RookeryError
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.placed import Placed
from ..federation.program import Program, RowSum
from ..objectives.declare import find_objective
from ..problems.base import Problem
from ..problems.model import Model
from .histogram import Ranked, auc, average_precision, class_and_bin, default_edges, partial_auc, refined_edges
from .intervals import auc_interval, wilson
from .rows import class_sums, class_sums_by_owner, from_sums

TOLERANCE = 0.0005  # a histogram that leaves more than this to doubt, on either side, is followed by a finer one


def vector(value: Tensor, what: str) -> Tensor:
    """A value of the server's that must be a vector: one of more dimensions could meet rows one by one."""
    if value.dim() != 1:
        raise ProblemError(f"{what} are one vector; got the shape {tuple(value.shape)}")
    return value


def outputs_of(problem: Problem, x: Tensor, inputs: Tensor, classes: int) -> Tensor:
    """The outputs of the problem's model in inference mode, one for each class; a net with one output has its logit beside 0."""
    model: Model | None = problem.predictor or problem.model
    if model is None:
        raise ProblemError("rows are scored by the problem's model, and this problem has none: write model=Model(module) in it")
    try:
        out = model.predict(vector(x, "a model's parameters")[: model.size], inputs.to(x.device))
    except RookeryError:
        raise
    except Exception as error:  # a net of the user's own, and rows that do not fit it
        raise ProblemError(f"the model cannot score rows of shape {tuple(inputs.shape[1:])}: {type(error).__name__}: {error}") from error
    out = out[:, None] if out.dim() == 1 else out
    if out.dim() == 2 and out.shape[1] == 1 and classes == 2:
        out = torch.cat([torch.zeros_like(out), out], 1)
    if out.shape != (len(inputs), classes):
        raise ProblemError(f"the model must put out a score for each of the {classes} classes in every row; its output for {len(inputs)} "
                           f"rows has shape {tuple(out.shape)}")
    return out


def margin_of(outputs: Tensor) -> Tensor:
    """The score of a row for the positive one of two classes: the difference of the two outputs."""
    return outputs[:, 1].double() - outputs[:, 0]


Kept = dict[tuple[int, int], tuple[Tensor, tuple[Tensor, Tensor]]]
_kept: ContextVar[Kept | None] = ContextVar("of one evaluation, by where the rows' inputs lie", default=None)


@contextmanager
def _keeping(stored: bool) -> Iterator[None]:
    """Inside, rows that are `stored` go through the net once: a second histogram at the same x needs no second pass."""
    token = _kept.set({} if stored else None)
    try:
        yield
    finally:
        _kept.reset(token)


def _once(inputs: Tensor, owners: int, found: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """What is found of the rows of so many owners, kept for views of stored ones: a copy's memory would be that of other rows later."""
    kept = _kept.get()
    if kept is None or not inputs._is_view():
        return found()
    key = inputs.data_ptr(), owners
    if key not in kept or kept[key][0].shape != inputs.shape:
        kept[key] = inputs, found()
    return kept[key][1]


@dataclass(frozen=True)
class RowScores(RowSum):
    """The sums that all scores of a split are made of, in one pass: `class_sums`, what an objective counts, and histograms of two classes.

    objective, entries: an objective by name whose own counts come along, with its entries and the number of its groups
    """

    split: str
    classes: int
    objective: str = ""
    entries: tuple[tuple[str, Any], ...] = ()

    def by_owner(self, problem: Problem, b: Batch, owner: Tensor, owners: int, *values: Any) -> Tensor:
        x, edges = values[0], values[1] if len(values) > 1 else default_edges().to(owner.device)
        counts = find_objective(self.objective).counts if self.objective else None
        if not len(owner):
            width = 48 + 2 * self.classes + (0 if counts is None else counts.width(dict(self.entries)))
            return torch.zeros(owners, width + (2 * (len(edges) + 1) if self.classes == 2 else 0), dtype=torch.float64, device=owner.device)
        sums, scores = _once(b.inputs, owners, lambda: self._sums_and_scores(problem, b, owner, owners, x))
        if self.classes != 2:
            return sums
        own = sums.shape[1]
        width = own + 2 * (len(edges) + 1)
        # counts stand where they belong at once: those of a thousand clients are large, and a copy would cost as much
        whole = torch.bincount(owner * width + own + class_and_bin(scores, b.labels, edges), torch.ones_like(scores), owners * width)
        whole = whole.view(owners, width)
        whole[:, :own] = sums
        return whole

    def _sums_and_scores(self, problem: Problem, b: Batch, owner: Tensor, owners: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """All sums but the histograms, and the rows' scores that these are of."""
        outputs = outputs_of(problem, x, b.inputs, self.classes).to(owner.device)
        sums = class_sums_by_owner(outputs, b.labels, self.classes, owner, owners)
        counts = find_objective(self.objective).counts if self.objective else None
        if counts is not None:
            each = counts.rows(outputs, b.fields, dict(self.entries)).double()
            sums = torch.cat([sums, sums.new_zeros(owners, each.shape[1]).index_add_(0, owner, each)], 1)
        return sums, margin_of(outputs).nan_to_num()  # of a NaN the loss tells


@dataclass(frozen=True)
class Scores:
    """What an evaluation found: values by metric, and for those of a histogram how far the exact value may be away, `bounds`."""

    values: dict[str, float]
    bounds: dict[str, float] = field(default_factory=dict)


def evaluate(fed: Federation[Problem], x: Tensor | Placed, split: str = "validation", classes: int = 2, *, max_fpr: float | None = None,
             objective: str = "", entries: tuple[tuple[str, Any], ...] = (), tolerance: float = TOLERANCE) -> Scores:
    """Scores of all clients' rows of a split at the parameters x, from sums: one exchange, or two where a histogram is too coarse.

    x is one vector for all clients, or a value at the clients: every client's own parameters, by which its rows are scored.

    Loss, accuracy, balanced accuracy, worst class, Brier score and calibration error are what they would be on the pooled rows. AUC and
    AP of two classes, and with `max_fpr` the partial AUC, are those of binned scores, within `bounds` of those of the pooled rows. What
    the rows do not define is absent. It is booked in the ledger's phase `evaluation`, and a client with fewer rows than `min_batch`
    shows none.
    """
    program = RowScores(split, classes, objective, entries)
    rows = fed.data.split(split)
    with fed.phase("evaluation"), _keeping(classes == 2 and rows is not None and rows.in_memory):
        here = fed.present
        X = x if isinstance(x, Placed) else here.broadcast(x)
        total = here.sum(here.map(program.total, X)).cpu()
        own = 48 + 2 * classes
        found, bounds = from_sums(total[:own], classes), dict[str, float]()
        counts = find_objective(objective).counts if objective else None
        if counts is not None:
            width = counts.width(dict(entries))
            found |= counts.finish(total[own : own + width], dict(entries))
            own += width
        if classes == 2:
            edges, histogram = default_edges(), total[own:].reshape(2, -1)
            ranked = _ranked(histogram, max_fpr)
            if any(_doubt(metric) > tolerance for metric in ranked.values()):
                edges = refined_edges(histogram, edges)
                finer = here.sum(here.map(program.total, X, here.broadcast(edges))).cpu()[own:].reshape(2, -1)
                ranked = _ranked(finer, max_fpr)
            found |= {name: metric.value for name, metric in ranked.items()}
            bounds = {name: _doubt(metric) for name, metric in ranked.items()}
    return Scores(found, bounds)


def _ranked(histogram: Tensor, max_fpr: float | None) -> dict[str, Ranked]:
    found = {"AUC": auc(histogram), "AP": average_precision(histogram),
             "partial AUC": None if max_fpr is None else partial_auc(histogram, max_fpr)}
    return {name: metric for name, metric in found.items() if metric is not None}


def _doubt(metric: Ranked) -> float:
    return max(metric.high - metric.value, metric.value - metric.low)


@dataclass(frozen=True)
class ClientScores(Program):
    """A client's own scores of its rows of a split, as numbers and whether each is defined: its AUC is that of its own rows alone."""

    split: str
    classes: int

    @property
    def names(self) -> list[str]:
        """What the numbers are, in their order."""
        return ["rows", "positives", "scored rows", "loss", "accuracy", "accuracy low", "accuracy high", "balanced accuracy", "worst class",
                "Brier", "ECE", "AUC", "AUC low", "AUC high", "AP"]

    def scores(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        train, b = c.rows(), c.rows(self.split)
        found: dict[str, float] = {"rows": len(train.labels), "scored rows": len(b.labels)}
        if self.classes == 2:
            found["positives"] = int((train.labels > 0).sum())
        if len(b.labels):
            outputs = outputs_of(c.problem, x, b.inputs, self.classes).cpu()
            found |= self.of_rows(outputs, {name: column.cpu() for name, column in b.fields.items()})
        defined = [name in found and math.isfinite(found[name]) for name in self.names]
        values = [found[name] if there else 0.0 for name, there in zip(self.names, defined, strict=True)]
        return torch.tensor(values, dtype=torch.float64), torch.tensor(defined, dtype=torch.float64)

    def of_rows(self, outputs: Tensor, fields: Mapping[str, Tensor]) -> dict[str, float]:
        """The exact scores of the rows, with 95 % intervals of accuracy (Wilson) and of AUC (DeLong); what is undefined is absent."""
        labels = fields["labels"]
        found = from_sums(class_sums(outputs, labels, self.classes).sum(0), self.classes)
        _, low, high = wilson(round(found["accuracy"] * len(labels)), len(labels))
        found |= {"accuracy low": low, "accuracy high": high}
        if self.classes == 2 and bool(torch.isfinite(outputs).all()):
            score, positive = margin_of(outputs).numpy(), labels.numpy() > 0
            interval = auc_interval(score, positive)
            if interval is not None:
                found |= {"AUC": interval.value, "AUC low": interval.low, "AUC high": interval.high,
                          "AP": float(average_precision_score(positive, score))}
        return found


def by_client(fed: Federation[Problem], x: Tensor | Placed, split: str = "validation", classes: int = 2,
              scores: ClientScores | None = None) -> list[dict[str, Any]]:
    """Every client's own scores of its rows of a split, in the order of the clients, with intervals; an undefined score is absent.

    x is one vector for all clients, or a value at the clients, every client's own parameters.

    Each client computes them from its own rows and sends the numbers, which `collect` shows to the server: refused where only sums may
    leave the clients. A mean of clients' AUCs is not the AUC of all rows, which `evaluate` gives.
    """
    program = ClientScores(split, classes) if scores is None else scores
    with fed.phase("evaluation"):
        here = fed.present
        values, defined = here.collect(*here.map(program.scores, x if isinstance(x, Placed) else here.broadcast(x)))
    counts = ("rows", "positives", "scored rows")
    return [{"client": name, **{metric: int(v) if metric in counts else v
                                for metric, v, there in zip(program.names, row.tolist(), is_there.tolist(), strict=True) if there}}
            for name, row, is_there in zip(here.names, values, defined, strict=True)]
