"""A bootstrap whose rows stay where they are: clients send histograms of their rows drawn anew many times, and the server adds them up.

A row counts as often as a Poisson number of mean 1 says, instead of being drawn from all rows: every client draws for itself, and in the
same way for every model, so that differences of models are of the same rows.

Chamandy, Muralidharan, Najmi, Naidu, "Estimating uncertainty for massive data streams", 2012, for the Poisson bootstrap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..federation import rng
from ..federation.federation import Federation
from ..federation.oracles import Client
from ..federation.program import Program
from ..problems.base import Problem
from .federated import margin_of, outputs_of
from .histogram import class_and_bin, default_edges

BINS = 256
POISSON = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])


def poisson(units: NDArray[np.int64], draws: int, seed: int) -> NDArray[np.int64]:
    """How often each unit counts in each draw, (units, draws): by the unit's number and the seed alone.

    >>> counts = poisson(np.asarray([7, 8, 7]), 1000, 0)
    >>> bool((counts[0] == counts[2]).all()), round(float(counts.mean()), 1)
    (True, 1.0)
    """
    keys = rng.combine(rng.as_keys(units.astype(np.uint64)), seed, rng.name_key("bootstrap"))
    return np.searchsorted(POISSON, rng.uniform(keys, draws), side="right")


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
        grouped = b.fields.get("group")
        units = np.arange(len(b.labels)) + (int(client) << 32) if grouped is None else grouped.cpu().numpy()
        counts = torch.from_numpy(poisson(units, self.draws, self.seed).astype(np.float64)).to(place.device)
        return torch.zeros(width, self.draws, dtype=torch.float64, device=place.device).index_add_(0, place, counts).T.flatten()


def resampled(fed: Federation[Problem], x: Tensor, split: str, classes: int, draws: int, seed: int = 0) -> Tensor:
    """The sums of all clients' rows of a split in each draw: (draws, 2, bins) counts by class and bin, or of more than two classes
    (draws, 2), the rows that are wrong and those that are right. One exchange.
    """
    edges = default_edges(BINS)
    with fed.phase("evaluation"):
        here = fed.present
        total = here.sum(here.map(Resampled(split, classes, draws, seed).total, *here.broadcast(x, edges), here.index)).cpu()
    return total.reshape(draws, 2, -1) if classes == 2 else total.reshape(draws, 2)
