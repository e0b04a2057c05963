"""What a trained model is worth to the people who will use it: calibration, a threshold, what that gets right, and for whom.

The calibrator and the threshold are chosen on the sites' validation rows, from sums; everything that is then said is about test rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..data import Data
from ..data.readers import Table
from ..errors import ConfigError, DataError
from ..federation.federation import Federation
from ..metrics import average_precision
from ..metrics.calibration import Calibrator, Method, calibrate, calibration_sums
from ..metrics.decisions import (
    Confusion,
    Rule,
    auc_interval_from_histogram,
    choose_threshold,
    decide,
    decision_curve,
    expected_calibration_error,
    probabilities_off,
    reliability,
)
from ..metrics.federated import by_client
from ..metrics.histogram import default_edges
from ..metrics.intervals import Interval
from ..metrics.subgroups import by_group

SHOWN = 10  # rows of a subgroup that a site needs to show its sums
GROUPS = 50  # more values of a column than this are no subgroups
WIDE = 0.4  # an interval of an AUC that is wider says nothing
CURVE = tuple(round(p, 2) for p in np.arange(0.01, 1.0, 0.01).tolist())


@dataclass(frozen=True)
class DecisionSection:
    """[decision] how outputs become probabilities, and from which probability on the answer is yes. Both are chosen on validation rows.

    calibrate:      how outputs become probabilities; where it is left out, by Platt's curve for two classes, and by a temperature for more
    threshold:      of two classes: "f1" (the largest F1), "sensitivity" (the highest that finds a share of the positives), "cost" (the
                    least cost) or "probability" (a fixed one)
    sensitivity:    of "sensitivity": the share of the positives to find
    false_positive: of "cost": what a negative row costs that is taken for positive
    false_negative: of "cost": what a positive row costs that is missed
    probability:    of "probability": the threshold itself
    """

    calibrate: Method | None = None
    threshold: Literal["f1", "sensitivity", "cost", "probability"] = "f1"
    sensitivity: float = 0.9
    false_positive: float = 1.0
    false_negative: float = 1.0
    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.sensitivity <= 1 or not 0 < self.probability < 1:
            raise ConfigError(f"sensitivity is a share above 0 and at most 1, and probability lies between 0 and 1; got {self.sensitivity} "
                              f"and {self.probability}")
        costs = self.false_positive, self.false_negative
        if not (all(0 <= cost < math.inf for cost in costs) and sum(costs) > 0):
            raise ConfigError(f"costs are not negative, and one of them is positive; got {self.false_positive} and {self.false_negative}")

    @property
    def rule(self) -> Rule:
        match self.threshold:
            case "sensitivity":
                return ("sensitivity", self.sensitivity)
            case "cost":
                return ("cost", self.false_positive, self.false_negative)
            case "probability":
                return ("probability", self.probability)
            case _:
                return "f1"


@dataclass(frozen=True)
class Assessment:
    """How the model's outputs are to be read, and what came of it on test rows, as plain values for a file."""

    calibrator: Calibrator
    threshold: float | None  # of the positive class's probability, where there are two classes
    found: dict[str, Any]


def assess(fed: Federation[Any], x: Tensor, test: Table, section: DecisionSection, margin: float | None = None) -> Assessment:
    """Choose a calibrator and a threshold on validation rows, and say what they come to on test rows, of all, by site and by subgroup.

    margin: above which the answer is yes, where that has been chosen already
    """
    classes = len(test.classes)
    method: Method = section.calibrate or ("platt" if classes == 2 else "temperature")
    if classes != 2 and method in ("platt", "isotonic"):
        raise ConfigError(f"decision.calibrate = \"{method}\" is for two classes, and there are {classes}: write \"temperature\"")
    calibrator = calibrate(fed, x, "validation", classes, method)
    warnings = [f"the outputs are not calibrated: {calibrator.note}"] if calibrator.note else []
    tested, split = (fed, "test") if "test" in fed.data.splits else (_testers(fed, test), "train")
    names = {field: values for field, values in test.names.items() if field not in ("inputs", "site", "group") and len(values) <= GROUPS}
    found: dict[str, Any] = {"classes": list(test.classes)}
    threshold = None
    if classes == 2:
        threshold, margin = (_threshold(fed, x, calibrator, section, warnings) if margin is None
                             else (calibrator.probability_at(margin), margin))
        found |= _two_classes(tested, x, split, calibrator, margin, warnings)
        found["subgroups"] = {field: _subgroups(tested, x, split, field, values, calibrator, margin) for field, values in names.items()}
        for field, groups in found["subgroups"].items():
            warnings += [f"{field} = {group['group']}: {group['off']}" for group in groups if group.get("off")]
    if not fed.only_sums:
        found["sites"] = _sites(tested, x, split, classes)
        # of a handful of rows an AUC says nothing
        worst = min((site for site in found["sites"] if "AUC" in site and site["AUC"][2] - site["AUC"][1] < WIDE),
                    key=lambda site: site["AUC"][0], default=None)
        if worst is not None and len(found["sites"]) > 1:
            found["worst site"] = worst
    return Assessment(calibrator, threshold, found | {"warnings": warnings})


def _testers(fed: Federation[Any], test: Table) -> Federation[Any]:
    """The test rows that the server has, at the sites that they are of, or at one."""
    fields = {name: column for name, column in test.fields.items() if name not in ("site", "group")}
    owners = test.values("site").tolist() if "site" in test.fields and "site" in test.names else ["the server"] * len(test)
    return Federation(fed.problem, Data.by_site(fields, owners), engine="loop", device=fed.data.device)


def _threshold(fed: Federation[Any], x: Tensor, calibrator: Calibrator, section: DecisionSection,
               warnings: list[str]) -> tuple[float, float]:
    """The probability from which on the answer is yes, and the margin that belongs to it."""
    edges = default_edges()
    histogram = calibration_sums(fed, x, "validation", edges=edges, slopes=torch.zeros(0, dtype=torch.float64)).histogram
    try:
        margin = choose_threshold(histogram, edges, section.rule, calibrator).threshold
    except DataError as error:
        warnings.append(f"the threshold is a probability of 0.5, as none could be chosen: {error}")
        margin = calibrator.margin_at(0.5)
    probability = calibrator.probability_at(margin)
    return probability, calibrator.margin_at(probability) if 0 < probability < 1 else margin


def _two_classes(fed: Federation[Any], x: Tensor, split: str, calibrator: Calibrator, margin: float, warnings: list[str]) -> dict[str, Any]:
    edges = default_edges()
    if math.isfinite(margin):  # an edge, so that no row lies in doubt
        edges = torch.from_numpy(np.unique(torch.cat([edges, torch.tensor([margin], dtype=torch.float64)]).numpy()))
    sums = calibration_sums(fed, x, split, edges=edges, slopes=torch.zeros(0, dtype=torch.float64))
    histogram, rows = sums.histogram, int(sums.rows.sum())
    area, ap = auc_interval_from_histogram(histogram), average_precision(histogram)
    found: dict[str, Any] = {"rows": rows, "positives": int(sums.rows[1]), "AUC": _interval(area), "AP": None if ap is None else ap.value}
    found |= _decided(decide(histogram, edges, margin).confusion)
    observed = float(sums.rows[1]) / rows if rows else math.nan
    for when, by in (("before", Calibrator()), ("after", calibrator)):
        table = reliability(histogram, edges, by)
        found[f"reliability {when}"] = [[entry.predicted, *entry.observed, entry.rows] for entry in table]
        found[f"calibration error {when}"] = expected_calibration_error(table)
        mean = sum(entry.predicted * entry.rows for entry in table) / rows if rows else math.nan
        off = probabilities_off(mean, observed, rows)
        if off is not None:
            warnings.append(_calibrated(off) if when == "after" else f"before calibration {off.partition(':')[0]}")
    found["decision curve"] = [list(point) for point in decision_curve(histogram, edges, calibrator, CURVE)]
    return found


def _calibrated(off: str) -> str:
    """What is said of probabilities that are off though they have been calibrated."""
    return f"{off.partition(':')[0]}, after calibration: do not take its outputs for probabilities there"


def _decided(confusion: Confusion) -> dict[str, Any]:
    return {"confusion": confusion._asdict(), "F1": confusion.f1} | {
        name: _interval(getattr(confusion, name)) for name in ("sensitivity", "specificity", "ppv", "npv", "accuracy")}


def _interval(found: Interval | None) -> list[float] | None:
    return None if found is None else list(found)


def _subgroups(fed: Federation[Any], x: Tensor, split: str, field: str, values: tuple[str, ...], calibrator: Calibrator,
               margin: float) -> list[dict[str, Any]]:
    """Scores by the values of a column; rows that the server has itself, those of no split, need not be withheld from it."""
    least = 1 if split == "train" else max(SHOWN, fed.setting.min_batch)
    found = by_group(fed, x, split, field, len(values), threshold=margin, calibrator=calibrator, least=least)
    return [{"group": values[group.value] or "missing", "rows": group.rows, "positives": group.positives, "withheld": group.withheld,
             "AUC": _interval(group.auc), "predicted": group.predicted, "observed": _interval(group.observed),
             "off": group.off and _calibrated(group.off), **_decided(group.confusion)} for group in found]


def _sites(fed: Federation[Any], x: Tensor, split: str, classes: int) -> list[dict[str, Any]]:
    """Every site's own test scores, with intervals; what its rows do not define is absent."""
    found = []
    for row in by_client(fed, x, split, classes):
        entry: dict[str, Any] = {"site": row["client"], "rows": row["scored rows"]}
        for name in ("AUC", "accuracy"):
            if name in row:
                entry[name] = [row[name], row[f"{name} low"], row[f"{name} high"]]
        entry |= {name: row[name] for name in ("AP", "Brier", "ECE") if name in row}
        found.append(entry)
    return found


def shown(interval: Any, digits: int = 3) -> str:
    """An interval for people: its value, and its ends in brackets.

    >>> shown([0.9, 0.85, 0.94]), shown(None)
    ('0.900 (0.850–0.940)', '–')
    """
    if interval is None:
        return "–"
    value, low, high = interval
    return f"{value:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def sentences(found: Mapping[str, Any], threshold: float | None) -> list[str]:
    """What is worth saying of the test rows, in a few lines."""
    lines = []
    if found.get("AUC"):
        lines.append(f"test rows: {found['rows']}, {found['positives']} of them {found['classes'][1]!r}; AUC {shown(found['AUC'])}")
    elif "rows" in found and "positives" in found:
        lines.append(f"test rows: {found['rows']}, {found['positives']} of them {found['classes'][1]!r}: there is no AUC")
    if threshold is not None and "sensitivity" in found:
        lines.append(f"decided {found['classes'][1]!r} above a probability of {threshold:.3g}: sensitivity {shown(found['sensitivity'])}, "
                     f"specificity {shown(found['specificity'])}, positive predictive value {shown(found['ppv'])}")
    if found.get("calibration error after") is not None:
        lines.append(f"calibration error {found['calibration error before']:.3f}, calibrated {found['calibration error after']:.3f}")
    if "worst site" in found:
        worst = found["worst site"]
        lines.append(f"worst site by AUC: {worst['site']}, {shown(worst['AUC'])} on {worst['rows']} rows")
    return lines
