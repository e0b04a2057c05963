"""Metrics: from sums that clients can add up (histograms of scores, sums over rows), intervals of one owner's rows, and `evaluate`, which
has the clients score their rows and merges what they send.

Undefined stays undefined: a metric that the rows say nothing about is None, or absent from a dictionary; it is never 0 or 1.
"""

from .federated import Scores, by_client, evaluate
from .histogram import Ranked, auc, average_precision, default_edges, histograms_by_client, partial_auc, refined_edges, score_histogram
from .intervals import AucDifference, Interval, auc_interval, bootstrap_interval, delong, delong_test, wilson
from .personal import Adaptation
from .rows import class_sums, from_sums

__all__ = [
    "Adaptation", "AucDifference", "Interval", "Ranked", "Scores", "auc", "auc_interval", "average_precision", "bootstrap_interval",
    "by_client", "class_sums", "default_edges", "delong", "delong_test", "evaluate", "from_sums", "histograms_by_client", "partial_auc",
    "refined_edges", "score_histogram", "wilson",
]
