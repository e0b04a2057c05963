"""A bootstrap whose rows stay where they are: clients send sums, or scores, of their rows drawn anew many times.

A row counts as often as a Poisson number of mean 1 says, instead of being drawn from all rows: every client draws for itself, and in the
same way for every model, so that differences of models are of the same rows. A server that knew the numbers could work out every row from
the sums, so a real site mixes its secret into them.

Chamandy, Muralidharan, Najmi, Naidu, "Estimating uncertainty for massive data streams", 2012, for the Poisson bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.batch import Batch
from ..errors import ProblemError
from ..federation import rng
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.placed import Placed
from ..federation.program import Program
from ..problems.base import Problem
from .federated import margin_of, outputs_of
from .groups import group_of, large_groups
from .histogram import class_and_bin, default_edges
from .weighted import ranked_places

BINS = 256
POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])


def poisson(units: NDArray[np.int64], draws: int, seed: int,
            uniform: Callable[[rng.Keys, int], NDArray[np.float64]] = rng.uniform) -> NDArray[np.int64]:
    """How often each unit counts in each draw, (units, draws): by the unit's number and the seed alone, or by `uniform` of a key of them.

    >>> counts = poisson(np.asarray([7, 8, 7]), 1000, 0)
    >>> bool((counts[0] == counts[2]).all()), round(float(counts.mean()), 1)
    (True, 1.0)
    """
    keys = rng.combine(rng.as_keys(units.astype(np.uint64)), seed, rng.name_key("bootstrap"))
    return np.searchsorted(POISSON, uniform(keys, draws), side="right")


def _weights(c: Client, b: Batch, client: float, draws: int, seed: int) -> NDArray[np.float64]:
    """How often each of a client's rows counts, (rows, draws); rows of one group count alike, wherever they are under the same seed."""
    grouped = b.fields.get("group")
    units = np.arange(len(b.labels)) + (int(client) << 32) if grouped is None else grouped.cpu().numpy()
    return poisson(units, draws, seed, c.uniform).astype(np.float64)


@dataclass(frozen=True)
class Resampled(Program):
    """Sums over a client's rows of a split in each of many draws; rows of one group are drawn together, wherever they are.

    classes: of two, counts by class and bin of the margin; of more, the rows and those whose likeliest class is the true one
    """

    split: str
    classes: int
    draws: int
    seed: int

    def total(self, c: Client, x: Tensor, edges: Tensor, client: float) -> Tensor:
        """(draws · 2 · bins), or (draws · 2)."""
        b = c.rows(self.split)
        width = 2 * (len(edges) + 1) if self.classes == 2 else 2
        if not len(b.labels):
            return torch.zeros(self.draws * width, dtype=torch.float64, device=b.labels.device)
        outputs = outputs_of(c.problem, x, b.inputs, self.classes).to(b.labels.device)
        if self.classes == 2:
            place = class_and_bin(margin_of(outputs).nan_to_num(), b.labels, edges)
        else:
            place = (outputs.argmax(1) == b.labels).long()
        counts = torch.from_numpy(_weights(c, b, client, self.draws, self.seed)).to(place.device)
        return torch.zeros(width, self.draws, dtype=torch.float64, device=place.device).index_add_(0, place, counts).T.flatten()


def resampled(fed: Federation[Problem], x: Tensor | Placed, split: str, classes: int, draws: int, seed: int = 0) -> Tensor:
    """The sums of all clients' rows of a split in each draw: (draws, 2, bins) counts by class and bin, or of more than two classes
    (draws, 2), the rows that are wrong and those that are right. One exchange.

    x is one vector for all clients, or a value at the clients, every client's own parameters.
    """
    edges = default_edges(BINS)
    with fed.phase("evaluation"):
        here = fed.present
        X = x if isinstance(x, Placed) else here.broadcast(x)
        total = here.sum(here.map(Resampled(split, classes, draws, seed).total, X, here.broadcast(edges), here.index)).cpu()
    return total.reshape(draws, 2, -1) if classes == 2 else total.reshape(draws, 2)


@dataclass(frozen=True)
class DecidedCells(Program):
    """Counts of a client's rows of a split by group, class, and whether they are decided rightly: as they are, and in many draws.

    Rows of a group that has fewer than `min_batch` of them at the client are left out.
    """

    split: str
    field: str | None
    groups: int
    classes: int
    draws: int
    seed: int

    def total(self, c: Client, x: Tensor, margins: Tensor, client: float) -> Tensor:
        """((1 + draws) · groups · classes · 2) counts; `margins` are none, one for all groups, or one each."""
        b, width = c.rows(self.split), self.groups * self.classes * 2
        if not len(b.labels):
            return torch.zeros((1 + self.draws) * width, dtype=torch.float64)
        if margins.dim() != 1 or len(margins) not in (0, 1, self.groups):
            raise ProblemError(f"there is one margin, or one for each of {self.groups} groups, or none; got {tuple(margins.shape)}")
        outputs, labels = outputs_of(c.problem, x, b.inputs, self.classes).cpu(), b.labels.cpu().long()
        group = group_of(b, self.field, self.groups).cpu()
        decided = outputs.argmax(1) if not len(margins) else (margin_of(outputs) > margins.cpu()[group if len(margins) > 1 else 0]).long()
        place = (group * self.classes + labels) * 2 + (decided == labels)
        weights = np.concatenate([np.ones((len(labels), 1)), _weights(c, b, client, self.draws, self.seed)], 1)
        weights *= large_groups(group, c.min_batch).numpy()[:, None]
        return torch.zeros(width, 1 + self.draws, dtype=torch.float64).index_add_(0, place, torch.from_numpy(weights)).T.flatten()


def decided_cells(fed: Federation[Problem], x: Tensor | Placed, split: str, classes: int = 2, *, field: str | None = None, groups: int = 1,
                  margins: Sequence[float] = (), draws: int = 0, seed: int = 0) -> Tensor:
    """All clients' rows of a split by group, class and whether they are decided rightly, (1 + draws, groups, classes, 2): as they are,
    and in each draw. One exchange of sums.

    field:   the column of the groups, numbered from 0; None for one group of all rows
    margins: of two classes: above which a row is decided to be positive, one for all groups or one each; without them the class with
             the largest output is

    >>> from rookery import Data, Model
    >>> from rookery.objectives import cross_entropy
    >>> rows = Data.from_parts({"a": {"inputs": [[-3.0], [3.0], [1.0]], "labels": [0, 1, 0], "sex": [0, 0, 1]}})
    >>> fed = Federation(cross_entropy(Model(torch.nn.Linear(1, 2, bias=False))), rows.with_splits(test=rows))
    >>> decided_cells(fed, torch.tensor([0.0, 2.0]), "test", field="sex", groups=2)[0, 1]  # wrong and right, of each class
    tensor([[1., 0.],
            [0., 0.]], dtype=torch.float64)
    """
    program = DecidedCells(split, field, groups, classes, draws, seed)
    with fed.phase("evaluation"):
        here = fed.present
        X, at = x if isinstance(x, Placed) else here.broadcast(x), here.broadcast(torch.tensor(list(margins), dtype=torch.float64))
        total = here.sum(here.map(program.total, X, at, here.index)).cpu()
    return total.reshape(1 + draws, groups, classes, 2)


@dataclass(frozen=True)
class ResampledScores(Program):
    """A client's own AUC, of two classes, and accuracy on its rows of a split: as they are, and in each of many draws."""

    split: str
    classes: int
    draws: int
    seed: int

    def scores(self, c: Client, x: Tensor, client: float) -> tuple[Tensor, Tensor, Tensor]:
        """(1 + draws, 2) numbers, whether each is defined, and the rows of each class."""
        b, found = c.rows(self.split), np.full((1 + self.draws, 2), np.nan)
        labels = b.labels.cpu().numpy()
        if len(labels):
            outputs = outputs_of(c.problem, x, b.inputs, self.classes).cpu()
            right = (outputs.argmax(1).numpy() == labels).astype(np.float64)
            weights = np.concatenate([np.ones((len(labels), 1)), _weights(c, b, client, self.draws, self.seed)], 1).T
            total = weights.sum(1)
            found[total > 0, 1] = (weights @ right)[total > 0] / total[total > 0]
            if self.classes == 2 and bool(torch.isfinite(outputs).all()):
                place = np.unique(-margin_of(outputs).numpy(), return_inverse=True)[1]
                found[:, 0] = [ranked_places(place, labels, w) for w in weights]
        counts = np.bincount(labels, minlength=self.classes).astype(np.float64)
        return torch.from_numpy(np.nan_to_num(found)), torch.from_numpy((~np.isnan(found)).astype(np.float64)), torch.from_numpy(counts)


class ByClient(NamedTuple):
    """Of every client, in their order, the rows of each class, (clients, classes), and its AUC and accuracy, (clients, 1 + draws): as the
    rows are, and in each draw; NaN where these do not define it.
    """

    rows: NDArray[np.float64]
    auc: NDArray[np.float64]
    accuracy: NDArray[np.float64]


def resampled_by_client(fed: Federation[Problem], x: Tensor | Placed, split: str, classes: int = 2, draws: int = 0,
                        seed: int = 0) -> ByClient:
    """Every client's own AUC and accuracy of its rows of a split, exactly, and of the same rows drawn anew. One exchange.

    Each client sends the numbers, which `collect` shows to the server: refused where only sums may leave the clients.
    """
    with fed.phase("evaluation"):
        here = fed.present
        X = x if isinstance(x, Placed) else here.broadcast(x)
        values, defined, rows = here.collect(*here.map(ResampledScores(split, classes, draws, seed).scores, X, here.index))
    found = np.where(defined.cpu().numpy() > 0, values.cpu().numpy(), np.nan)
    return ByClient(rows.cpu().numpy(), found[..., 0], found[..., 1])
