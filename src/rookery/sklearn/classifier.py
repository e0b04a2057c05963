"""A classifier that is fitted over sites for a goal, with scikit-learn's conventions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from ..data import Data, Table, hold_out
from ..data.split import fingerprint
from ..errors import RookeryError
from ..fitting.bench import Memory, least_rows, tallied, with_cells
from ..fitting.goals import GOALS, Goal, Setting, find_goal, methods
from ..fitting.measures import MANY, Measure, lacking_group
from ..fitting.options import Options
from ..fitting.search import LRS, Chosen, Search, best_of
from ..fitting.training import Tree
from ..metrics.calibration import calibrate
from ..studies.build import Prepared, assemble
from ..studies.cells import CELLS
from ..studies.description import parse
from ..studies.job import Job

ROWS = "the rows given"  # what a description calls them


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A net that is trained over sites for a goal: the goal's method beside its opponents, and the best on held-out rows is kept.

    goal:        accuracy, auc, ap, partial_auc, worst_site, worst_group, fair or personal
    hidden:      the widths of the net's hidden layers; () is a linear model
    rounds, local_steps, batch: how long every method trains, and on how many rows a step
    step_sizes:  what every method chooses from; where the best is at an edge, it looks further
    splits:      of training and held-out rows that the choice between methods is made on
    validation:  the share of its rows that every site holds out
    opponents:   also try FedAvg, class weights, balanced batches and the others; without them the goal's own methods alone
    kind, gap:   of the goal fair; max_fpr: of partial_auc
    random_state: of splits, first weights and draws

    `fit(X, y, sites=…, groups=…, sensitive_features=…)`: sites say whose a row is, one owner without them; rows of a group, as scikit-learn
    means it, stay on one side of every split; sensitive features are the groups of fair and worst_group. Inputs are standardised by means
    and deviations of all sites' rows.

    After it, `method_` is what was kept, `results_` what every method came to, `net_` the module, `calibrator_` and `thresholds_` how its
    outputs are read.

    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(200, weights=[0.9], random_state=0)
    >>> model = FederatedClassifier("auc", rounds=5, step_sizes=[0.3], opponents=False, splits=1, random_state=0)
    >>> model.fit(X, y, sites=np.arange(200) % 3).predict_proba(X).shape
    (200, 2)
    """

    def __init__(self, goal: str = "accuracy", *, hidden: Sequence[int] = (32,), rounds: int = 60, local_steps: int = 5, batch: int = 32,
                 step_sizes: Sequence[float] = LRS, splits: int = 2, validation: float = 0.2, opponents: bool = True,
                 kind: str = "equality of opportunity", gap: float = 0.05, max_fpr: float = 0.1,
                 random_state: int | np.random.RandomState | None = None) -> None:
        self.goal, self.hidden, self.rounds, self.local_steps, self.batch = goal, hidden, rounds, local_steps, batch
        self.step_sizes, self.splits, self.validation, self.opponents = step_sizes, splits, validation, opponents
        self.kind, self.gap, self.max_fpr, self.random_state = kind, gap, max_fpr, random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.goal not in GOALS or not GOALS[self.goal].two_classes
        return tags

    def fit(self, X: Any, y: Any, sites: ArrayLike | None = None, groups: ArrayLike | None = None,
            sensitive_features: ArrayLike | None = None) -> FederatedClassifier:
        """Train over the sites, and keep the best method."""
        goal, seed = self._checked(), int(check_random_state(self.random_state).randint(2**31))
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present, {self.classes_[0]!r}: give rows of another class")
        if goal.two_classes and len(self.classes_) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is multiclass: the goal {goal.name} is for "
                             f"two classes, and there are {len(self.classes_)}")
        self.centre_, spread = X.mean(0), X.std(0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        owner = _named(sites, "sites", len(y))
        fields = {"inputs": self._inputs(X), "labels": torch.from_numpy(labels.astype(np.int64))}
        names: dict[str, tuple[str, ...]] = {}
        if groups is not None:
            fields["group"] = torch.from_numpy(fingerprint(_named(groups, "groups", len(y))))
        self.sensitive_values_: tuple[str, ...] = ()
        if sensitive_features is not None:
            found, place = np.unique(_named(sensitive_features, "sensitive_features", len(y)), return_inverse=True)
            self.sensitive_values_ = names["sensitive"] = tuple(found.tolist())
            if len(found) > MANY:
                raise ValueError(f"sensitive_features have {len(found)} values, and groups are {MANY} at most: bring them into ranges")
            fields["sensitive"] = torch.from_numpy(place.astype(np.int64))
        elif goal.name == "fair":
            warnings.warn("the goal fair has no sensitive_features to be fair between, so that it is balanced accuracy", UserWarning,
                          stacklevel=2)
        table = Table(fields, tuple(map(str, self.classes_)), ROWS, names)
        try:
            self._train(goal, Data.by_site(fields, owner.tolist()), table, seed)
        except RookeryError as error:
            raise ValueError(str(error)) from error
        return self

    def _checked(self) -> Goal:
        """The goal; what cannot be meant by the parameters is refused."""
        try:
            Options(rounds=self.rounds, local_steps=self.local_steps, batch=self.batch, kind=self.kind, gap=self.gap, max_fpr=self.max_fpr)
            goal = find_goal(self.goal)
            tuple(self.hidden), tuple(self.step_sizes)
        except TypeError:
            raise ValueError(f"hidden and step_sizes are sequences of numbers; got {self.hidden!r} and {self.step_sizes!r}") from None
        except RookeryError as error:
            raise ValueError(str(error)) from error
        if not 0 < self.validation < 1 or self.splits < 1 or not len(self.step_sizes) or not min(self.step_sizes) > 0:
            raise ValueError("validation is a share between 0 and 1, splits are one at least, and step_sizes some positive numbers; got "
                             f"{self.validation}, {self.splits} and {self.step_sizes}")
        return goal

    def _train(self, goal: Goal, data: Data, table: Table, seed: int) -> None:
        sensitive = "sensitive" if "sensitive" in data.fields else None
        measure = Measure(goal, len(self.classes_), sensitive, max(1, len(self.sensitive_values_)), self.kind, self.gap, self.max_fpr)
        bench = Memory(lambda split: with_cells(self._prepared(data, table, seed + split), sensitive), measure)
        lacking = lacking_group(measure, tallied(bench.rows(0), measure).train)
        if lacking is not None:
            warnings.warn(f"the group {self.sensitive_values_[lacking]!r} has no training rows by which to compare it ({self.kind}), so "
                          "that no method trains for fairness", UserWarning, stacklevel=3)
        setting = Setting(self.rounds, self.local_steps, self.batch, len(self.classes_), len(data.names), least_rows(bench, self.splits),
                          1 + len(self.hidden), sensitive, CELLS if sensitive else "labels", self.kind, self.max_fpr,
                          comparable=lacking is None)
        tried = methods(goal, setting)
        own = [method for method in tried if method.kind == "nested"]
        base: Tree = {"data": {"name": ROWS}, "model": {"hidden": list(self.hidden)} if self.hidden else {"name": "linear"}}
        chosen = Search(bench, base, tried if self.opponents or not own else own, setting, seed, tuple(self.step_sizes), self.splits).run()
        if not chosen:
            raise ValueError(f"every method diverged at the step sizes {list(self.step_sizes)}: give smaller ones")
        kept = best_of(chosen)
        self.method_, self.step_size_ = kept.label, kept.lr
        self.results_ = [{"method": own.label, "kind": own.method.kind, "step_size": own.lr, "validation": own.value, "kept": own is kept}
                         for own in chosen]
        self._keep(kept, assemble(parse(kept.trials[0].tree), bench.rows(0)), measure)

    def _prepared(self, data: Data, table: Table, seed: int) -> Prepared:
        """Rows with those that the sites hold out; too few of them to hold any out are used twice."""
        groups = "group" if "group" in data.fields else None
        try:
            train, held = hold_out(data, self.validation, seed, groups)
            whole = all(len(np.unique(part.fields["labels"].numpy())) == len(self.classes_) for part in (train, held))
        except RookeryError:
            whole = False
        if not whole:
            warnings.warn("the rows are too few for every class to be among those that the sites hold out, so that the choice is made on "
                          "training rows", UserWarning, stacklevel=2)
            train = held = data
        return Prepared(train.with_splits(validation=held), table)

    def _keep(self, kept: Chosen, job: Job, measure: Measure) -> None:
        outcome = kept.outcomes[0]
        # in float64, so that what is said of a row does not depend on those beside it
        self.net_ = job.model.module(outcome.vector).double()
        self.calibrator_ = calibrate(job.fed, outcome.vector, "validation", len(self.classes_),
                                     "platt" if len(self.classes_) == 2 else "temperature")
        self.thresholds_ = [self.calibrator_.probability_at(margin) for margin in outcome.margins] if measure.decides else None
        self.personal_: dict[str, Any] = {}
        if job.personal is not None:
            vectors = job.personal.fed.collect(job.personal._of(job.personal.how, outcome.vector))
            self.personal_ = {name: job.model.module(vector).double() for name, vector in zip(job.fed.data.names, vectors, strict=True)}

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(((X - self.centre_) / self.scale_).clip(-1e6, 1e6).astype(np.float32))

    def predict_proba(self, X: Any, sites: ArrayLike | None = None) -> NDArray[np.float64]:
        """The calibrated probability of each class; for the goal personal by the models of the rows' sites, where these are known."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        inputs = self._inputs(X).double()
        with torch.inference_mode():
            outputs: Tensor = self.net_(inputs)
            if sites is not None and self.personal_:
                owner = _named(sites, "sites", len(X))
                for name in set(owner.tolist()) & self.personal_.keys():
                    own = torch.from_numpy(owner == name)
                    outputs[own] = self.personal_[name](inputs[own])
        return np.asarray(self.calibrator_.probabilities(outputs).numpy(), dtype=np.float64)

    def predict(self, X: Any, sites: ArrayLike | None = None, sensitive_features: ArrayLike | None = None) -> NDArray[Any]:
        """The decision for every row; where thresholds go by group, sensitive features say of which group it is."""
        found = self.predict_proba(X, sites)
        if not self.thresholds_:
            return np.asarray(self.classes_[found.argmax(1)])
        limit: Any = self.thresholds_[0]
        if len(set(self.thresholds_)) > 1:
            if sensitive_features is None:
                raise ValueError("this model decides by a threshold for each sensitive feature: predict(X, sensitive_features=…)")
            known = dict(zip(self.sensitive_values_, self.thresholds_, strict=True))
            own = _named(sensitive_features, "sensitive_features", len(found))
            limit = np.asarray([known.get(value, float(np.mean(self.thresholds_))) for value in own.tolist()])
        return np.asarray(self.classes_[(found[:, 1] > limit).astype(int)])

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, sites: ArrayLike | None = None,
              sensitive_features: ArrayLike | None = None) -> float:
        """The share of rows that are decided rightly, as `predict` decides."""
        return float(accuracy_score(y, self.predict(X, sites, sensitive_features), sample_weight=sample_weight))


def _named(values: ArrayLike | None, what: str, rows: int) -> NDArray[np.str_]:
    """One text a row; the same for all where there are no values."""
    if values is None:
        return np.full(rows, "everyone")
    found = np.asarray([_text(value) for value in column_or_1d(np.asarray(values)).tolist()], dtype=str)
    if len(found) != rows:
        raise ValueError(f"{what} has one value for each of the {rows} rows; it has {len(found)}")
    missing = int((found == "").sum())
    if missing and what != "sensitive_features":
        raise ValueError(f"{what} has a value for every row, and {missing} are missing: fill them in, or leave these rows out")
    return found


def _text(value: Any) -> str:
    """A value as a text: whole numbers without a point, so that 1.0 is 1, and a missing one as nothing."""
    if not isinstance(value, str) and (value is None or str(value) in ("nan", "NaT", "<NA>")):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
