"""Means, spreads and paired tests over seeds, and the choice of the best setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy import stats

from .trials import Result, Results, StudyError, Trial, _key


class MeanStd(NamedTuple):
    """Mean and sample standard deviation of one metric over seeds."""

    mean: float
    std: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.std:.4f}" if self.seeds > 1 else f"{self.mean:.4f}"


def mean_std(values: Sequence[float]) -> MeanStd:
    """Mean and sample standard deviation of some values.

    >>> print(mean_std([1.0, 2.0, 3.0]))
    2.0000 ± 1.0000
    """
    return MeanStd(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def groups(done: Results, *keys: str) -> dict[tuple[Any, ...], list[Result]]:
    """The results that agree in some of their trials' entries, such as the seeds of one method.

    >>> groups([({"m": "A", "seed": 0}, {"v": 1}), ({"m": "A", "seed": 1}, {"v": 2})], "m")
    {('A',): [{'v': 1}, {'v': 2}]}
    """
    found: dict[tuple[Any, ...], list[Result]] = {}
    for trial, result in done:
        found.setdefault(tuple(_hashable(trial[key]) for key in keys), []).append(result)
    return found


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def best(done: Results, keys: Sequence[str], metric: str, larger: bool = True) -> dict[tuple[Any, ...], Trial]:
    """For each value of `keys` the trial whose other entries (but the seed) have the best mean of `metric`.

    A result without the metric, or with one that is not finite, counts as the worst.
    """
    chosen: dict[tuple[Any, ...], tuple[float, Trial]] = {}
    by_settings: dict[str, tuple[Trial, list[float]]] = {}
    for trial, result in done:
        settings = {name: value for name, value in trial.items() if name != "seed"}
        value = result.get(metric)
        score = -math.inf if value is None or not math.isfinite(value) else (value if larger else -value)
        by_settings.setdefault(_key(settings), (settings, []))[1].append(score)
    for settings, scores in by_settings.values():
        key, mean = tuple(_hashable(settings[name]) for name in keys), fmean(scores)
        if key not in chosen or mean > chosen[key][0]:
            chosen[key] = (mean, settings)
    return {key: settings for key, (_, settings) in chosen.items()}


class PairedTTest(NamedTuple):
    """The difference of two methods on the same seeds: mean, 95 % interval and p-value of the paired t-test; NaN where it says nothing."""

    mean: float
    low: float
    high: float
    p: float


def paired_ttest(a: Sequence[float], b: Sequence[float]) -> PairedTTest:
    """The paired t-test of two methods, by their differences a − b on the same seeds.

    >>> paired_ttest([1.0, 2.0, 3.1], [0.5, 1.4, 2.6]).mean
    0.5333333333333333
    """
    if len(a) != len(b) or len(a) < 2:
        raise StudyError(f"a paired test needs the same seeds of both methods, at least two; got {len(a)} and {len(b)}")
    differences = [u - v for u, v in zip(a, b, strict=True)]
    mean, error = fmean(differences), stdev(differences) / math.sqrt(len(differences))
    if error <= 1e-12 * max(map(abs, (*a, *b))):  # the same difference on every seed, up to rounding: no variance to test against
        return PairedTTest(mean, mean, mean, math.nan)
    law = stats.t(len(differences) - 1)
    return PairedTTest(mean, mean - law.ppf(0.975) * error, mean + law.ppf(0.975) * error, float(2 * law.sf(abs(mean) / error)))


def rows(done: Results, metrics: Sequence[str], method: str = "method", setting: Sequence[str] = (),
         paper: dict[tuple[Any, ...], float] | None = None) -> list[dict[str, Any]]:
    """Rows of a record: one for each method, setting and metric, over the seeds; `paper[method, setting…, metric]` is the published one."""
    table = []
    for key, results in groups(done, method, *setting).items():
        for metric in metrics:
            values = [result[metric] for result in results if result.get(metric) is not None]
            if values:
                s = mean_std(values)
                table.append({"method": key[0], "setting": dict(zip(setting, key[1:], strict=True)), "metric": metric, "mean": s.mean,
                              "std": s.std, "seeds": s.seeds, "paper": (paper or {}).get((*key, metric))})
    return table
