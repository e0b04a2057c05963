"""Metrics: from sums that clients can add up (histograms of scores, sums over rows), intervals of one owner's rows, and `evaluate`, which
has the clients score their rows and merges what they send.

Undefined stays undefined: a metric that the rows say nothing about is None, or absent from a dictionary; it is never 0 or 1.
"""

from .calibration import Calibrator, calibrate, calibration_sums
from .decisions import (
    Confusion,
    Decision,
    NetBenefit,
    Predicted,
    auc_interval_from_histogram,
    choose_threshold,
    decide,
    decision_curve,
    expected_calibration_error,
    probabilities_off,
    reliability,
)
from .federated import Scores, by_client, evaluate
from .histogram import Ranked, auc, average_precision, default_edges, histograms_by_client, partial_auc, refined_edges, score_histogram
from .intervals import AucDifference, Interval, auc_interval, bootstrap_interval, delong, delong_test, wilson
from .personal import Adaptation
from .resampling import ByClient, decided_cells, resampled, resampled_by_client
from .rows import class_sums, from_sums
from .subgroups import Group, by_group
from .thresholds import Rates, best_thresholds, group_histograms

__all__ = [
    "Adaptation",
    "AucDifference",
    "ByClient",
    "Calibrator",
    "Confusion",
    "Decision",
    "Group",
    "Interval",
    "NetBenefit",
    "Predicted",
    "Ranked",
    "Rates",
    "Scores",
    "auc",
    "auc_interval",
    "auc_interval_from_histogram",
    "average_precision",
    "best_thresholds",
    "bootstrap_interval",
    "by_client",
    "by_group",
    "calibrate",
    "calibration_sums",
    "choose_threshold",
    "class_sums",
    "decide",
    "decided_cells",
    "decision_curve",
    "default_edges",
    "delong",
    "delong_test",
    "evaluate",
    "expected_calibration_error",
    "from_sums",
    "group_histograms",
    "histograms_by_client",
    "partial_auc",
    "probabilities_off",
    "refined_edges",
    "reliability",
    "resampled",
    "resampled_by_client",
    "score_histogram",
    "wilson",
]
