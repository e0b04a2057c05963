"""The sections of a run's description, and what each of them builds; [objective] and [model] stand in `choices`.

`description` reads them from TOML, `build` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..algorithms import FedAvg
from ..data import Data, positive_counts
from ..data.columns import found_device
from ..data.imbalance import drop_positives, long_tail, step
from ..data.partition import by_column, by_quantity, dirichlet, iid, label_shards
from ..data.readers import Table, load, read_csv, read_images, read_npz
from ..errors import ConfigError


@dataclass(frozen=True)
class DataSection:
    """[data] what to train on: a data set by `name`, or your own file or folder under `csv`, `npz` or `images`.

    label, site, group: columns of your own table; no `group` (the patient) has rows in both training and test part
    keep, drop, text:   columns to keep as fields as well (a protected attribute), to leave out, and to read as texts though they are
                        numbers (a code); `delimiter` is what stands between the values of a csv file
    test, test_share:   a file of test rows, or the share of rows that become them; which ones depends on `split_seed` alone
    test_at:            who has them: the "server", which scores them itself, or the "sites", which send sums of their scores
    positive:           classes that become label 1, all others 0
    keep_positives, positive_share, long_tail, minority with minority_keep: make training classes rare
    validation:         the share of its rows that each site holds out
    """

    name: str | None = None
    csv: str | None = None
    npz: str | None = None
    images: str | None = None
    label: str | None = None
    site: str | None = None
    group: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    delimiter: str = ","
    test: str | None = None
    test_share: float | None = None
    test_at: Literal["server", "sites"] = "server"
    split_seed: int = 0
    size: int | None = None
    positive: tuple[int | str, ...] = ()
    keep_positives: float | None = None
    positive_share: float | None = None
    long_tail: float | None = None
    minority: tuple[int | str, ...] = ()
    minority_keep: float | None = None
    validation: float = 0.2

    def __post_init__(self) -> None:
        sources = [s for s in ("name", "csv", "npz", "images") if getattr(self, s) is not None]
        if len(sources) != 1:
            raise ConfigError(f"give one of name, csv, npz and images; got {', '.join(sources) or 'none of them'}")
        if self.csv is not None and self.label is None:
            raise ConfigError("csv needs label = \"the column to predict\"")
        own = [k for k in ("label", "site", "group", "test", "keep", "drop", "text") if getattr(self, k)]
        if own and self.csv is None and self.npz is None:
            raise ConfigError(f"{own[0]} names a column or file of your own table; it goes with csv or npz")
        if (self.keep or self.drop or self.text or self.delimiter != ",") and self.csv is None:
            raise ConfigError("keep, drop and text name columns of a csv file, and delimiter is of one; an npz file has the arrays you put "
                              "into it")
        if len(self.delimiter) != 1:
            raise ConfigError(f"delimiter is the one character between the values of a csv file; got {self.delimiter!r}")
        if self.size is not None and self.images is None:
            raise ConfigError("size is the height and width that pictures are brought to; it goes with images")
        thinned = [k for k in ("keep_positives", "positive_share", "long_tail", "minority") if getattr(self, k)]
        if len(thinned) > 1:
            raise ConfigError(f"{thinned[0]} and {thinned[1]} both make classes rare; keep one of them")
        if bool(self.minority) != (self.minority_keep is not None):
            raise ConfigError("minority = [classes] and minority_keep = share go together")

    @property
    def source(self) -> str:
        """What to call it."""
        return self.name or Path(str(self.csv or self.npz or self.images)).name

    def read(self, seed: int) -> tuple[Table, NDArray[np.int64], Table]:
        """Training rows, the class that each of them had at first, and test rows."""
        train, test = self.tables()
        if train.fields["labels"].dim() != 1:
            raise ConfigError(f"{self.source!r} has several labels a row; a run from a file needs one")
        classes, number = train.fields["labels"].numpy(), len(train.classes)
        if number < 2:
            where = f" in the label column {self.label!r}" if self.label else " as their label"
            raise ConfigError(f"there must be two classes at least; all rows of {self.source!r} have {train.classes[0]!r}{where}: "
                              "name another column, or add rows of another class")
        if self.csv is not None and number > max(20, len(train) / 5):
            raise ConfigError(f"a label is one of some classes, but {self.label!r} has {number} different values in {len(train)} rows: "
                              "bin them, or name another column")
        if self.positive:
            places = self.places(train)
            train, test = train.binary(places), test.binary(places)
        keep = self._thinning(train, seed)
        return (train, classes, test) if keep is None else (train.take(keep), classes[keep], test)

    def tables(self) -> tuple[Table, Table]:
        """Training and test rows as they are read, with all their classes."""
        said: dict[str, Any] = {} if self.test_share is None else {"test_share": self.test_share}
        options: dict[str, Any] = {**said, "seed": self.split_seed}
        columns = {"site": self.site, "group": self.group, "test": self.test}
        if self.csv is not None:
            assert self.label is not None
            return read_csv(self.csv, self.label, keep=self.keep, drop=self.drop, text=self.text, delimiter=self.delimiter,
                            **columns, **options)  # type: ignore[arg-type]
        if self.npz is not None:
            return read_npz(self.npz, self.label or "labels", **columns, **options)  # type: ignore[arg-type]
        if self.images is not None:
            return read_images(self.images, self.size, **options)
        assert self.name is not None
        return load(self.name, **(options if self.split_seed else said))

    def places(self, train: Table) -> list[int]:
        """The places of the positive classes."""
        return [self._class(train, one) for one in self.positive]

    def _thinning(self, train: Table, seed: int) -> NDArray[np.bool_] | None:
        labels = train.fields["labels"].numpy()
        if self.long_tail is not None:
            return long_tail(labels, self.long_tail, seed)
        if self.minority_keep is not None:
            places = [self._class(train, one) for one in self.minority]
            return step(labels, places, self.minority_keep, seed)
        if self.keep_positives is not None or self.positive_share is not None:
            return drop_positives(labels, self.keep_positives, self.positive_share, seed)
        return None

    def _class(self, train: Table, one: int | str) -> int:
        """The place of a class: by its name, which may be a number, or else by its place."""
        if str(one) in train.classes:
            return train.classes.index(str(one))
        if isinstance(one, str) or not 0 <= one < len(train.classes):
            raise ConfigError(f"{one!r} is not a class of {self.source!r}; the classes are {', '.join(train.classes)}")
        return one


@dataclass(frozen=True)
class SitesSection:
    """[sites] how rows are spread over sites: by chance, by class (dirichlet, shards), in unequal sizes, or as a column says.

    `pooled` leaves them together at one, for methods of one machine.
    """

    how: Literal["iid", "dirichlet", "shards", "quantity", "column", "pooled"] = "dirichlet"
    number: int = 8
    alpha: float = 1.0
    per_site: int = 2
    column: str = "site"

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
            case "column":
                if self.column not in train.fields:
                    have = ", ".join(sorted(set(train.fields) - {"inputs", "labels"})) or "none"
                    raise ConfigError(f"sites.column is {self.column!r}, which the rows do not have; they have {have}. "
                                      "Columns of your own table are named in [data] site = \"…\"")
                return by_column(train.values(self.column))


@dataclass(frozen=True)
class FederationSection:
    """[federation] how the sites work together. Weights by `positives` make every positive row count the same.

    Cohorts of `clients_per_round` sites are drawn with equal probability, or with one in proportion to the weights. `device` is where
    rows, model and gradients are: "cpu", "cuda", "cuda:1", "mps". `precision` is that of forward and backward passes; the state is of
    float32 in any case. With `only_sums` the server sees sums and means of sites only, as under a secure sum: methods that collect the
    sites' values by themselves are refused, and the page has no scores of single sites.
    """

    engine: Literal["auto", "loop", "vectorised", "wire"] = "auto"
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
    """[warm_up] the first `rounds` of the run are FedAvg on class-weighted cross-entropy, from which the objective then starts.

    They count: rounds, exchanges, bytes and samples begin with them.
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
    """[run] how long, how often to look, which iterate is the result, and further `metrics`: functions of one's own by module:name.

    `max_fpr` adds, for two classes, the partial AUC: the mean true positive rate over false positive rates up to it.
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
