"""The sections of a run's description, and what each of them builds. `config` reads them from TOML, `job` puts them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from .data import Data, Positives, positive_counts
from .data.imbalance import drop_positives, long_tail, step
from .data.partition import by_column, by_quantity, dirichlet, iid, label_shards
from .data.sets import Table, load, read_csv, read_images, read_npz
from .errors import RookeryError
from .models import federated_norm, mlp, resnet20, small_cnn
from .objectives import ap_surrogate, balanced_cross_entropy, cross_entropy, cross_entropy_losses, group_dro, kl_dro, with_weight_decay
from .problem import Problem
from .vector import Model


class ConfigError(RookeryError):
    """A run's description is not right; the message names the entry."""


@dataclass(frozen=True)
class DataPart:
    """[data] what to train on: a data set by `name`, or your own file or folder under `csv`, `npz` or `images`.

    label, site, group: columns of your own table; no `group` (the patient) has rows in both training and test part
    test, test_share:   a file of test rows, or the share of rows that become them
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
    test: str | None = None
    test_share: float | None = None
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
        own = [k for k in ("label", "site", "group", "test") if getattr(self, k) is not None]
        if own and self.csv is None and self.npz is None:
            raise ConfigError(f"{own[0]} names a column or file of your own table; it goes with csv or npz")
        if self.size is not None and self.images is None:
            raise ConfigError("size is the height and width that pictures are brought to; it goes with images")
        if (self.keep_positives is None) + (self.positive_share is None) == 0:
            raise ConfigError("keep_positives and positive_share both thin out the positives; keep one of them")
        if bool(self.minority) != (self.minority_keep is not None):
            raise ConfigError("minority = [classes] and minority_keep = share go together")

    @property
    def source(self) -> str:
        """What to call it."""
        return self.name or Path(str(self.csv or self.npz or self.images)).name

    def read(self, seed: int) -> tuple[Table, NDArray[np.int64], Table]:
        """Training rows, the class that each of them had at first, and test rows."""
        train, test = self._tables(seed)
        if train.fields["labels"].dim() != 1:
            raise ConfigError(f"{self.source!r} has several labels a row; a run from a file needs one")
        classes = train.fields["labels"].numpy()
        if self.positive:
            train, test = train.binary(self.positive), test.binary(self.positive)
        for keep in self._thinning(train, seed):
            train, classes = train.take(keep), classes[keep]
        return train, classes, test

    def _tables(self, seed: int) -> tuple[Table, Table]:
        share: dict[str, Any] = {} if self.test_share is None else {"test_share": self.test_share}
        options: dict[str, Any] = {**share, "seed": seed}
        columns = {"site": self.site, "group": self.group, "test": self.test}
        if self.csv is not None:
            assert self.label is not None
            return read_csv(self.csv, self.label, **columns, **options)  # type: ignore[arg-type]
        if self.npz is not None:
            return read_npz(self.npz, self.label or "labels", **columns, **options)  # type: ignore[arg-type]
        if self.images is not None:
            return read_images(self.images, self.size, **options)
        assert self.name is not None
        return load(self.name, **share)

    def _thinning(self, train: Table, seed: int) -> list[NDArray[np.bool_]]:
        labels = train.fields["labels"].numpy()
        if self.long_tail is not None:
            return [long_tail(labels, self.long_tail, seed)]
        if self.minority_keep is not None:
            places = [self._class(train, one) for one in self.minority]
            return [step(labels, places, self.minority_keep, seed)]
        if self.keep_positives is not None or self.positive_share is not None:
            return [drop_positives(labels, self.keep_positives, self.positive_share, seed)]
        return []

    def _class(self, train: Table, one: int | str) -> int:
        if isinstance(one, int):
            return one
        if one not in train.classes:
            raise ConfigError(f"data.minority names {one!r}; the classes are {', '.join(train.classes)}")
        return train.classes.index(one)


@dataclass(frozen=True)
class SitesPart:
    """[sites] how rows are spread over sites: by chance, by class (dirichlet, shards), in unequal sizes, or as a column says."""

    how: Literal["iid", "dirichlet", "shards", "quantity", "column"] = "dirichlet"
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
            case "dirichlet":
                return dirichlet(classes, self.number, self.alpha, seed)
            case "column":
                if self.column not in train.fields:
                    have = ", ".join(sorted(set(train.fields) - {"inputs", "labels"})) or "none"
                    raise ConfigError(f"sites.column is {self.column!r}, which the rows do not have; they have {have}. "
                                      "Columns of your own table are named in [data] site = \"…\"")
                return by_column(train.values(self.column))


@dataclass(frozen=True)
class ModelPart:
    """[model] the net; its inputs and outputs follow from the data."""

    name: Literal["linear", "mlp", "small_cnn", "resnet20"] = "mlp"
    hidden: tuple[int, ...] = (32,)

    def net(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        flat = prod(shape)
        match self.name:
            case "linear":
                return nn.Sequential(nn.Flatten(), *mlp(flat, classes))
            case "mlp":
                return nn.Sequential(nn.Flatten(), *mlp(flat, *self.hidden, classes))
        if len(shape) != 3:
            raise ConfigError(f"model.name = {self.name!r} takes images; these rows have the shape {shape}: write \"mlp\"")
        images: dict[str, Callable[[], nn.Module]] = {
            "small_cnn": lambda: small_cnn(shape[0], classes, shape[1]), "resnet20": lambda: federated_norm(resnet20(classes, shape[0]))}
        return images[self.name]()


class Objective:
    """[objective] what is minimised. One subclass for each name, whose fields are its entries."""

    name: ClassVar[str]

    def problem(self, model: Model, train: Table) -> Problem:
        raise NotImplementedError


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Mean cross-entropy."""

    name: ClassVar[str] = "cross_entropy"
    weight_decay: float = 0.0

    def problem(self, model: Model, train: Table) -> Problem:
        problem = cross_entropy(model)
        return with_weight_decay(problem, self.weight_decay) if self.weight_decay else problem


@dataclass(frozen=True)
class Balanced(Objective):
    """Cross-entropy in which every class has the same part; the sites agree on the weights."""

    name: ClassVar[str] = "balanced_cross_entropy"

    def problem(self, model: Model, train: Table) -> Problem:
        return balanced_cross_entropy(model, len(train.classes))


@dataclass(frozen=True)
class KLDRO(Objective):
    """λ·log mean exp(ℓ/λ): the worst rows count more."""

    name: ClassVar[str] = "kl_dro"
    lam: float = 1.0

    def problem(self, model: Model, train: Table) -> Problem:
        return kl_dro(cross_entropy_losses(model), self.lam, model=model)


@dataclass(frozen=True)
class GroupDRO(Objective):
    """λ·log mean_j exp(g_j/λ) of the groups' mean losses g_j: the worst group counts more. `groups` is a column; else the label."""

    name: ClassVar[str] = "group_dro"
    lam: float = 1.0
    groups: str = "labels"

    def problem(self, model: Model, train: Table) -> Problem:
        number = len(train.classes) if self.groups == "labels" else len(set(_column(train, self.groups).tolist()))
        return group_dro(cross_entropy_losses(model), number, self.lam, self.groups, model=model)


@dataclass(frozen=True)
class APSurrogate(Objective):
    """Average precision of the positive class, smoothed: pairs of a positive and any row, as a conditional problem."""

    name: ClassVar[str] = "ap_surrogate"
    margin: float = 1.0
    enrich: int | None = None  # positives in each set of inner samples

    def problem(self, model: Model, train: Table) -> Problem:
        if len(train.classes) != 2:
            raise ConfigError(f"objective.name = \"ap_surrogate\" needs two classes, there are {len(train.classes)}: name the "
                              "positive ones in [data] positive = [\"…\"]")
        return ap_surrogate(model, self.margin, Positives(enrich=self.enrich))


OBJECTIVES: dict[str, type[Objective]] = {cls.name: cls for cls in (CrossEntropy, Balanced, KLDRO, GroupDRO, APSurrogate)}


def _column(train: Table, name: str) -> NDArray[np.int64]:
    if name not in train.fields:
        raise ConfigError(f"objective.groups is {name!r}, which the rows do not have; they have {', '.join(sorted(train.fields))}")
    return train.fields[name].numpy()


@dataclass(frozen=True)
class FederationPart:
    """[federation] how the sites work together. Weights by `positives` make every positive row count the same."""

    engine: Literal["auto", "loop", "vectorised", "wire"] = "auto"
    weights: Literal["equal", "samples", "positives"] = "samples"
    participate: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:  # what NumPy and scikit-learn take
            raise ConfigError(f"seed must be a whole number from 0 to 2**32 - 1; got {self.seed}")

    def weigh(self, data: Data) -> str | list[float]:
        return self.weights if self.weights != "positives" else [float(n) for n in positive_counts(data)]


@dataclass(frozen=True)
class RunPart:
    """[run] how long, how often to look, and which iterate is the result."""

    rounds: int = 50
    every: int | None = None
    minutes: float | None = None
    save_every: int | None = None
    output: Literal["last", "uniform"] = "last"
