"""The sections of a run's description, and what each of them builds; [data] stands in `datasection`, [objective] and [model] in `choices`.

`description` reads them from TOML, `build` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..algorithms import FedAvg
from ..data import Data, positive_counts
from ..data.columns import found_device
from ..data.partition import by_column, by_quantity, dirichlet, iid, label_shards
from ..data.readers import Table
from ..errors import ConfigError


@dataclass(frozen=True)
class SitesSection:
    """[sites] how rows are spread over sites: by chance, by class (dirichlet, shards), in unequal sizes, or as a column says.

    Where the rows have a site of their own, as a table has whose site column is named, that is the federation; other rows are spread by
    Dirichlet draws, unless `how` says otherwise.

    how:      "iid": by chance; "dirichlet": each class by a draw with alpha; "shards": per_site classes each; "quantity": by chance, in
              unequal sizes; "column": as a column says; "pooled": all at one, for methods of one machine
    number:   how many sites there are, where no column says it
    alpha:    of "dirichlet" and "quantity": the smaller, the more unlike the sites
    per_site: of "shards": how many shards of one class each a site has
    column:   of "column": the field of the rows that names their site
    least:    the number of training rows below which a site is left out
    """

    how: Literal["iid", "dirichlet", "shards", "quantity", "column", "pooled"] | None = None
    number: int = 8
    alpha: float = 1.0
    per_site: int = 2
    column: str = "site"
    least: int = 1

    def __post_init__(self) -> None:
        if self.least < 1:
            raise ConfigError(f"least is the number of rows that a site needs, at least 1; got {self.least}")

    def found(self, train: Table, named: str | None) -> SitesSection:
        """The section with `how` it is done: by their column where rows have a site.

        Another way beside a column that was `named` is refused.
        """
        own = {"how", "number", "alpha", "per_site"} - {f.name for f in fields(self) if getattr(self, f.name) == f.default}
        if named is not None and (self.how not in (None, "column", "pooled") or (self.how is None and own)):
            what = f"how = \"{self.how}\"" if self.how else f"{min(own)} = {getattr(self, min(own))}"
            raise ConfigError(f"the site column {named!r} is named in [data], so that its values are the sites, and [sites] {what} makes "
                              "others: leave one of the two out")
        if self.how is not None:
            return self
        return replace(self, how="column" if self.column in train.fields and not own else "dirichlet")

    def spread(self, train: Table, classes: NDArray[np.int64], seed: int) -> NDArray[np.str_]:
        """The site of each row; `classes` are those that differ from site to site."""
        match self.how:
            case "iid":
                return iid(len(train), self.number, seed)
            case "shards":
                return label_shards(classes, self.number, self.per_site, seed)
            case "quantity":
                return by_quantity(len(train), self.number, self.alpha, seed=seed, least=2)
            case "pooled":
                return np.full(len(train), "everyone")
            case "dirichlet":
                return dirichlet(classes, self.number, self.alpha, seed)
            case _:
                if self.column not in train.fields:
                    have = ", ".join(sorted(set(train.fields) - {"inputs", "labels"})) or "none"
                    raise ConfigError(f"sites.column is {self.column!r}, which the rows do not have; they have {have}. "
                                      "Columns of your own table are named in [data] site = \"…\"")
                return by_column(train.values(self.column))


@dataclass(frozen=True)
class FederationSection:
    """[federation] how the sites work together.

    engine:            where the sites' work is done: one after the other ("loop"), as one graph ("vectorised"), behind real frames in one
                       process ("wire"), in four actors of a Ray cluster ("ray"), or whichever of the first two is faster ("auto")
    weights:           how much a site counts: all alike ("equal"), by its rows ("samples"), or by its positive rows ("positives")
    clients_per_round: how many sites take part in a round, drawn anew each time; all of them where it is left out
    cohorts:           how the sites of a round are drawn: with equal probability ("uniform"), or in proportion to the weights ("weighted")
    min_batch:         the smallest batch that a site may draw, in different rows; above 1 rows are drawn without replacement. Where a site
                       has fewer rows of a split, they are not scored
    only_sums:         the server sees sums and means of sites only, as under a secure sum: methods that collect the sites' values by
                       themselves are refused, and the page has no scores of single sites
    seed:              what all draws of the run depend on: the sites' rows, the weights that the net starts with, batches and cohorts
    device:            where rows, model and gradients are: "cpu", "cuda", "cuda:1", "mps"
    precision:         the precision of forward and backward passes; the state is of float32 in any case
    """

    engine: Literal["auto", "loop", "vectorised", "wire", "ray"] = "auto"
    weights: Literal["equal", "samples", "positives"] = "samples"
    clients_per_round: int | None = None
    cohorts: Literal["uniform", "weighted"] = "uniform"
    min_batch: int = 1
    only_sums: bool = False
    seed: int = 0
    device: str = "cpu"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # what NumPy and scikit-learn take
            raise ConfigError(f"seed must be a whole number from 0 to 2**32 - 1; got {self.seed}")
        if self.min_batch < 1:
            raise ConfigError(f"min_batch must be at least 1; got {self.min_batch}")
        found_device(self.device)

    @property
    def autocast(self) -> torch.dtype | None:
        """The dtype for the federation, None where it is the state's own."""
        dtypes = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
        return dtypes[self.precision]

    def weigh(self, data: Data) -> str | list[float]:
        if self.weights == "positives" and int(data.fields["labels"].max()) > 1:
            raise ConfigError("federation.weights = \"positives\" needs two classes: name the positive ones in [data] positive = [\"…\"]")
        return self.weights if self.weights != "positives" else [float(n) for n in positive_counts(data)]


@dataclass(frozen=True)
class WarmUpSection:
    """[warm_up] the first rounds of the run are FedAvg on class-weighted cross-entropy, from which the objective then starts.

    They count: rounds, exchanges, bytes and samples begin with them.

    rounds:      how many of the run's rounds are the warm-up's
    lr:          the size of a step in the warm-up
    local_steps: the steps of a site in a round of the warm-up
    batch:       the rows of a step in the warm-up; all of a site's where it is left out
    """

    rounds: int = 0
    lr: float = 0.1
    local_steps: int = 1
    batch: int | None = None

    def __post_init__(self) -> None:
        if self.rounds < 0 or not self.lr > 0:
            raise ConfigError(f"rounds must not be negative, and lr must be positive; got {self.rounds} and {self.lr}")

    @property
    def algorithm(self) -> FedAvg:
        return FedAvg(self.lr, self.local_steps, self.batch)


@dataclass(frozen=True)
class RunSection:
    """[run] how long, how often to look, which iterate is the result, and what else is measured.

    rounds:     the number of rounds, those of the warm-up with them
    every:      the rounds between two evaluations; where it is left out, so many that evaluation takes about a tenth of the time
    minutes:    the time after which the run ends; --resume goes on
    save_every: the rounds between two checkpoints; where it is left out, they are saved at evaluations
    output:     which iterate is the result: the "last", or one drawn uniformly from all, which theorems speak of ("uniform")
    metrics:    further metrics: functions of one's own, each as module:name
    max_fpr:    of two classes: adds the partial AUC, the mean true positive rate over false positive rates up to this one
    """

    rounds: int = 50
    every: int | None = None
    minutes: float | None = None
    save_every: int | None = None
    output: Literal["last", "uniform"] = "last"
    metrics: tuple[str, ...] = ()
    max_fpr: float | None = None

    def __post_init__(self) -> None:
        if self.max_fpr is not None and not 0 < self.max_fpr <= 1:
            raise ConfigError(f"max_fpr is a false positive rate above 0 and at most 1; got {self.max_fpr}")
        if self.rounds < 0 or (self.minutes is not None and self.minutes < 0):
            raise ConfigError(f"rounds and minutes must not be negative; got {self.rounds} and {self.minutes}")
        for name in ("every", "save_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name} is a number of rounds, at least 1; got {getattr(self, name)}")
