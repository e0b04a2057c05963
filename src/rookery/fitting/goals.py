"""What can be wanted of a model, and which methods are tried for it: the goal's own, and its opponents, which are always the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import ConfigError
from ..objectives.fairness import Kind as FairKind
from ..studies.opponents import SIMPLE
from ..studies.values import nearest

GoalName = Literal["accuracy", "auc", "ap", "partial_auc", "worst_site", "worst_group", "fair", "personal"]
Kind = Literal["opponent", "nested"]
FIRST = "FedAvg"  # what every method is compared with


@dataclass(frozen=True)
class Goal:
    """One thing to want, and the number that says how far it is reached: larger is better.

    metric: that number, for people; about: what it is
    """

    name: GoalName
    metric: str
    about: str
    two_classes: bool = False


GOALS: dict[str, Goal] = {goal.name: goal for goal in (
    Goal("accuracy", "accuracy", "the share of rows that are decided rightly"),
    Goal("auc", "AUC", "the probability that a positive row is ranked above a negative one", True),
    Goal("ap", "average precision", "the mean precision over all levels of recall, which the top of the ranking decides", True),
    Goal("partial_auc", "partial AUC", "the mean share of positives found, over false positive rates up to a bound", True),
    Goal("worst_site", "worst sites' score", "the mean AUC, or accuracy of more than two classes, of the tenth of the sites where it is "
         "lowest, one at least"),
    Goal("worst_group", "worst group's recall", "the lowest share of rows decided rightly among all rows of one class and group"),
    Goal("fair", "fair score", "balanced accuracy, less what the gap between groups exceeds the allowed one by", True),
    Goal("personal", "personal accuracy", "the share of rows that are decided rightly by models that the sites adapt to their own rows"))}


def find_goal(name: str) -> Goal:
    """A goal by its name."""
    if name not in GOALS:
        raise ConfigError(f"there is no goal {name!r}; {nearest(name, list(GOALS))}The goals are {', '.join(GOALS)}")
    return GOALS[name]


def check_choices(kind: str, gap: float, max_fpr: float) -> None:
    """Refuse what no goal can mean."""
    if kind not in get_args(FairKind):
        raise ConfigError(f"kind is one of {', '.join(get_args(FairKind))}; {nearest(kind, get_args(FairKind))}It was given {kind!r}")
    if not 0 <= gap < 1 or not 0 < max_fpr <= 1:
        raise ConfigError(f"gap is a difference of rates from 0 to 1, and max_fpr a rate above 0; got {gap} and {max_fpr}")


@dataclass(frozen=True)
class Setting:
    """What all methods have in common, and what is known about the rows that decides which of them are tried.

    least:     the fewest rows that a site trains on
    min_batch: nothing is computed from fewer different rows at once
    sensitive: the column of the groups, where there is one; cells: that of class and group together
    group_thresholds: whether decisions may depend on the group
    comparable: whether every group has training rows of those that fairness compares
    """

    rounds: int
    local_steps: int = 5
    batch: int = 32
    classes: int = 2
    sites: int = 2
    least: int = 32
    layers: int = 2
    sensitive: str | None = None
    cells: str = "labels"
    kind: str = "equality of opportunity"
    max_fpr: float = 0.1
    group_thresholds: bool = True
    comparable: bool = True
    min_batch: int = 1

    @property
    def adapts_on(self) -> int:
        """The rows that a site adapts on in a step of meta-learning, and as many others that it is judged by."""
        return min(self.batch, self.least) // 2


@dataclass(frozen=True)
class Method:
    """One way to train, before its step size is chosen.

    sections:  of a description, over what all have in common
    after:     the method whose model it starts from, or, where it does not train, decides by
    by_group:  decide by a threshold for each group
    trains:    whether there is anything to train
    """

    label: str
    kind: Kind
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    after: str | None = None
    by_group: bool = False
    trains: bool = True


def methods(goal: Goal, setting: Setting) -> list[Method]:
    """FedAvg, the other opponents, and the goal's own methods, in this order."""
    if goal.two_classes and setting.classes != 2:
        raise ConfigError(f"the goal {goal.name} is for two classes, and there are {setting.classes}: name the positive ones, or take "
                          "accuracy, worst_site, worst_group or personal")
    if goal.name == "personal":
        return _personal(setting)
    return [*_opponents(goal, setting), *_nested(goal, setting)]


def _plain(setting: Setting, label: str, objective: dict[str, Any], sections: dict[str, dict[str, Any]] | None = None,
           after: str | None = None) -> Method:
    own = {"algorithm": {"name": "FedAvg", **_steps(setting)}, "objective": objective}
    return Method(label, "opponent", own | (sections or {}), after)


def _balanced(field: str) -> dict[str, Any]:
    return {"sampling": {"name": "Balanced", "field": field}}


def _steps(setting: Setting) -> dict[str, int]:
    return {"local_steps": setting.local_steps, "batch": setting.batch}


def _opponents(goal: Goal, setting: Setting) -> list[Method]:
    found = [_plain(setting, label, objective) for label, objective in SIMPLE.items()]
    if setting.sensitive is not None:
        found.append(_plain(setting, "batches balanced by group", SIMPLE[FIRST] | _balanced(setting.cells)))
    if goal.name == "worst_site" and setting.sites > 1:
        found.append(_plain(setting, "sites of equal weight", SIMPLE[FIRST], {"federation": {"weights": "equal"}}))
    if setting.layers > 1:
        found.append(_plain(setting, "last layer again", {"name": "last_layer"} | _balanced(setting.cells), after=FIRST))
    if goal.name in ("fair", "worst_group") and setting.sensitive is not None and setting.classes == 2 and setting.group_thresholds:
        found += [Method(f"{label}, thresholds by group", "opponent", after=label, by_group=True, trains=False)
                  for label in (FIRST, "class weights")]
    return found


def _nested(goal: Goal, setting: Setting) -> list[Method]:
    steps, half = _steps(setting), setting.batch // 2
    warm_up = {"warm_up": {"rounds": setting.rounds // 4, "local_steps": setting.local_steps, "batch": setting.batch}}
    outer, inner = (max(number, setting.min_batch) for number in (half // 2, setting.batch - half // 2))
    pairs = {"local_steps": setting.local_steps, "outer": outer, "inner": inner}
    match goal.name:
        case "auc":
            return [_by("LocalSCGDAM", "AUC", {"name": "auc"}, steps), _by("LocalSGDAM", "AUC", {"name": "auc"}, steps)]
        case "ap":
            drawn = {"name": "Positives", "enrich": max(half, outer), "among": True}
            return [_by("FCSG-M", "AP", {"name": "ap_surrogate", "sampling": drawn}, pairs | {"inner": setting.batch},
                        warm_up | {"federation": {"weights": "positives"}})]
        case "partial_auc":
            return [_by("FCSG-M", "partial AUC", {"name": "partial_auc"}, pairs, warm_up | {"federation": {"weights": "positives"}})]
        case "worst_site":
            return [] if setting.sites < 2 else [_by("FedDRO", "group DRO of sites", {"name": "group_dro", "field": "site"}, steps)]
        case "worst_group":
            return [_by("FedDRO", "group DRO", {"name": "group_dro", "field": setting.cells}, steps)]
        case "fair":
            between = {"name": "fair", "field": setting.sensitive, "kind": setting.kind}
            known = setting.sensitive is not None and setting.comparable
            return [_by("FedDRO", f"fairness ρ = {rho:g}", between | {"rho": rho}, steps) for rho in (1.0, 10.0) if known]
        case _:
            return [_by("FedDRO", "KL-DRO", {"name": "kl_dro"}, steps)]


def _by(algorithm: str, what: str, objective: dict[str, Any], steps: dict[str, int],
        more: dict[str, dict[str, Any]] | None = None) -> Method:
    return Method(f"{algorithm} ({what})", "nested", {"algorithm": {"name": algorithm, **steps}, "objective": objective, **(more or {})})


def _personal(setting: Setting) -> list[Method]:
    """One model for all, the same after steps of each site, and starts that are learned for such steps."""
    adapted = {"personal": {"steps": 5, "lr": 0.1}}
    half = setting.adapts_on
    learned = [_by("FCSG-M", "MAML", {"name": "maml", "inner_lr": 0.1, "query": half},
                   {"local_steps": setting.local_steps, "outer": 1, "inner": half}, adapted)]
    plain = [_plain(setting, FIRST, SIMPLE[FIRST]), _plain(setting, "FedAvg, adapted", SIMPLE[FIRST], adapted)]
    return [*plain, *(learned if half >= setting.min_batch else [])]
