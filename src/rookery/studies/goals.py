"""[objective], what is minimised: one class for each name, whose fields are the entries of the section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..data import Positives
from ..data.readers import Table
from ..errors import ConfigError, ProblemError
from ..objectives import (
    ap_surrogate,
    balanced_cross_entropy,
    chi2_dro,
    constrained_dro,
    cross_entropy,
    cross_entropy_losses,
    cvar,
    fair,
    fairness_gap,
    group_dro,
    kl_dro,
    mean_variance,
    with_weight_decay,
)
from ..problems.base import Problem
from ..problems.model import Model


class Objective:
    """One way to say what is minimised."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]] = ()  # what `scores` gives

    def problem(self, model: Model, train: Table) -> Problem:
        raise NotImplementedError

    @property
    def extra(self) -> int:
        """Coordinates of x beyond the model's, which start at 0."""
        return 0

    def scores(self, output: Tensor, fields: dict[str, Tensor]) -> dict[str, float]:
        """Metrics that belong to the objective, of rows with these outputs of the model."""
        return {}


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
class Chi2DRO(Objective):
    """Mean ℓ + Var ℓ/(2λ) (form "variance"), or the exact worst case over χ²-regularised weights (form "dual", a plain minimisation)."""

    name: ClassVar[str] = "chi2_dro"
    lam: float = 1.0
    form: Literal["variance", "dual"] = "variance"

    @property
    def extra(self) -> int:
        return int(self.form == "dual")

    def problem(self, model: Model, train: Table) -> Problem:
        losses = cross_entropy_losses(model)
        return chi2_dro(losses, self.lam, form="dual", model=model) if self.extra else chi2_dro(losses, self.lam, model=model)


@dataclass(frozen=True)
class CVaR(Objective):
    """Mean of the worst `share` of the rows, smoothed."""

    name: ClassVar[str] = "cvar"
    extra: ClassVar[int] = 1  # type: ignore[assignment]
    share: float = 0.1
    temperature: float = 0.01

    def problem(self, model: Model, train: Table) -> Problem:
        return cvar(cross_entropy_losses(model), self.share, self.temperature, model=model)


@dataclass(frozen=True)
class ConstrainedDRO(Objective):
    """The worst mean loss over weights within a KL ball of radius ρ."""

    name: ClassVar[str] = "constrained_dro"
    extra: ClassVar[int] = 1  # type: ignore[assignment]
    rho: float = 0.5
    least_lam: float = 0.1

    def problem(self, model: Model, train: Table) -> Problem:
        return constrained_dro(cross_entropy_losses(model), self.rho, self.least_lam, model=model)


@dataclass(frozen=True)
class MeanVariance(Objective):
    """Mean ℓ + weight·Var ℓ."""

    name: ClassVar[str] = "mean_variance"
    weight: float = 1.0

    def problem(self, model: Model, train: Table) -> Problem:
        return mean_variance(cross_entropy_losses(model), self.weight, model=model)


@dataclass(frozen=True)
class GroupDRO(Objective):
    """λ·log mean_j exp(g_j/λ) of the groups' mean losses g_j: the worst group counts more. `groups` is a column; else the label."""

    name: ClassVar[str] = "group_dro"
    lam: float = 1.0
    groups: str = "labels"

    def problem(self, model: Model, train: Table) -> Problem:
        return group_dro(cross_entropy_losses(model), _number(train, self.groups), self.lam, self.groups, model=model)


@dataclass(frozen=True)
class Fair(Objective):
    """Cross-entropy with a penalty on the gaps between groups: rates of positive scores among certain rows. `groups` is a column."""

    name: ClassVar[str] = "fair"
    metrics: ClassVar[tuple[str, ...]] = ("gap",)
    groups: str = "sex"
    kind: Literal["equality of opportunity", "equalised odds", "demographic parity"] = "equality of opportunity"
    rho: float = 10.0
    slack: float = 0.0

    def problem(self, model: Model, train: Table) -> Problem:
        _two_classes(self.name, train)
        return fair(cross_entropy_losses(model), model, _number(train, self.groups), self.kind, self.rho, self.slack, self.groups,
                    model=model)

    def scores(self, output: Tensor, fields: dict[str, Tensor]) -> dict[str, float]:
        try:
            return {"gap": fairness_gap(output.argmax(1).numpy(), fields["labels"].numpy(), fields[self.groups].numpy(), self.kind)}
        except ProblemError:  # a small site may hold out no row that counts
            return {}


@dataclass(frozen=True)
class APSurrogate(Objective):
    """Average precision of the positive class, smoothed: pairs of a positive and any row, as a conditional problem."""

    name: ClassVar[str] = "ap_surrogate"
    margin: float = 0.3
    enrich: int | None = None  # positives in each set of inner samples

    def problem(self, model: Model, train: Table) -> Problem:
        _two_classes(self.name, train)
        return ap_surrogate(model, self.margin, Positives(enrich=self.enrich))


OBJECTIVES: dict[str, type[Objective]] = {cls.name: cls for cls in (
    CrossEntropy, Balanced, KLDRO, Chi2DRO, CVaR, ConstrainedDRO, MeanVariance, GroupDRO, Fair, APSurrogate)}


def _two_classes(name: str, train: Table) -> None:
    if len(train.classes) != 2:
        raise ConfigError(f"objective.name = \"{name}\" needs two classes, there are {len(train.classes)}: name the positive ones in "
                          "[data] positive = [\"…\"]")


def _number(train: Table, groups: str) -> int:
    """How many groups a column has."""
    if groups not in train.fields or groups == "inputs":
        have = ", ".join(sorted(set(train.fields) - {"inputs"}))
        raise ConfigError(f"objective.groups is {groups!r}, which the rows do not have; they have {have}")
    return len(train.classes) if groups == "labels" else int(torch.max(train.fields[groups])) + 1
