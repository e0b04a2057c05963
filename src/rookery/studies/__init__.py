"""Runs from a description, comparisons of several, and the statistics of trials.

`build.build(read("run.toml")).run(folder, label)` is `rookery run`; `compare.compare` is `rookery compare`. Studies of one's own are
functions of trials: `study(work, trials(lr=[0.1, 0.3], seed=range(5)), "results.jsonl")`.
"""

from . import build, communication, compare, forecast
from .description import Description, algorithms, describe, parse, read
from .job import Job
from .scores import OwnMetric
from .statistics import MeanStd, PairedTTest, best, groups, mean_std, paired_ttest, rows
from .trials import Result, Results, StudyError, Trial, record, study, trials

__all__ = [
    "Description", "Job", "MeanStd", "OwnMetric", "PairedTTest", "Result", "Results", "StudyError", "Trial", "algorithms", "best", "build",
    "communication", "compare", "describe", "forecast", "groups", "mean_std", "paired_ttest", "parse", "read", "record", "rows", "study",
    "trials",
]
