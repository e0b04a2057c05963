"""Rate order: samples until the mean of ‖∇F(x̄_t)‖² over the run is below ε², with the step size, β and m tuned for every ε.

Each method tries the same step sizes and inner batches; β follows the theorems' orders, 4α (FCSG-M) and cα² with three c (Acc-FCSG-M).
Settings are chosen on one seed and measured on another. Samples are inner ones, over all clients: K·m·(T + first − 1).
A run that is lost (see `cosine`) has reached nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from common import timed
from cosine import STAR, exact, lost, problem
from speedup import METHODS
from theory import followed, slope

from rookery import Data, Federation
from rookery.studies.trials import Result, Results, Trial

REPLICAS, CLIENTS, LOCAL_STEPS, LONGEST = 24, 4, 16, 4096
LRS = (0.125, 0.0625, 0.03125, 0.015625)
FACTORS = {"FCSG": (None,), "FCSG-M": (4.0,), "Acc-FCSG-M": (1.0, 4.0, 16.0)}
# the kink of the outer derivative, and the inner batches tried: a kink needs larger ones
KINDS: dict[str, tuple[float, tuple[int, ...]]] = {"smooth": (0.0, (2, 4, 8, 16)), "kinked": (0.3, (4, 8, 16, 32, 64))}
LEVELS = tuple(0.016 * 2 ** (-i / 2) for i in range(6))  # of ε²
TUNE, TEST = 100, 0


def setting(trial: Trial) -> dict[str, Any]:
    lr, c = trial["lr"], trial["factor"]
    if c is None:
        return {"lr": lr}
    if trial["method"] == "FCSG-M":
        return {"lr": lr, "beta": min(1.0, c * lr)}
    return {"lr": lr, "beta": min(1.0, c * lr**2), "first": round(1 / lr)}


def horizon(trial: Trial) -> int:
    """Four times as long as descent and noise take to weigh the same, so that no setting is cut off before its best."""
    lr, c = trial["lr"], trial["factor"]
    length = 4 / lr**2 if trial["method"] != "Acc-FCSG-M" else 2.5 / (c * lr**3)
    return LOCAL_STEPS * math.ceil(min(max(length, 8 / lr), max(LONGEST, 128 / lr)) / LOCAL_STEPS)


@timed
def work(trial: Trial) -> Result:
    """One run, all replicas: each one's running mean of ‖∇F‖² at some iterations, and the samples drawn until then."""
    kink = KINDS[trial["kind"]][0]
    chosen = setting(trial)
    algorithm: Any = METHODS[trial["method"]](local_steps=LOCAL_STEPS, outer=1, inner=trial["inner"], **chosen)
    fed = Federation(problem(REPLICAS, kink=kink), Data.streams([f"client-{k}" for k in range(CLIENTS)]), seed=trial["seed"])
    state, rounds = algorithm.init(fed, torch.zeros(REPLICAS * len(STAR))), trial["steps"] // LOCAL_STEPS
    shown = set(np.unique(np.geomspace(1, rounds, 60).round().astype(int)).tolist())
    halves = followed(algorithm, fed, state, rounds, lambda x: 0.5 * exact(x, kink).square().sum(-1), lost)
    if halves is None:
        return {"samples": [], "means": [], "steps": []}
    total, steps, means = torch.zeros(REPLICAS, dtype=torch.float64), [], []
    for t, (before, after) in enumerate(pairwise(halves), 1):
        total += before  # the trapezoidal rule: a round is long where lr is large
        total += after
        if t in shown:
            steps.append(t * LOCAL_STEPS)
            means.append((total / t).tolist())
    samples = [CLIENTS * trial["inner"] * (t + chosen.get("first", 1) - 1) for t in steps]
    return {"samples": samples, "means": means, "steps": steps}


def todo() -> list[Trial]:
    """The grid; the smallest step size, which only the smallest ε can want, has the larger inner batches only."""
    some = [{"kind": kind, "method": method, "lr": lr, "factor": c, "inner": m, "seed": TUNE}
            for kind in KINDS for method in METHODS for lr in LRS for c in FACTORS[method] for m in KINDS[kind][1][2 * (lr == LRS[-1]) :]]
    return [{**trial, "steps": horizon(trial)} for trial in some]


def first(x: Sequence[float], means: np.ndarray, level: float) -> float:
    """Where the mean first crosses the level (a line between logarithms); nan if it never does."""
    below = np.flatnonzero(means <= level)
    if not len(below):
        return math.nan
    i = max(int(below[0]), 1)
    return float(np.exp(np.interp(-np.log(level), -np.log(means[i - 1 : i + 1]), np.log(np.asarray(x[i - 1 : i + 1])))))


def tuned(done: Results, levels: Sequence[float] = LEVELS) -> list[tuple[float, Trial]]:
    """For each kind, method and level the setting with the fewest samples, to be run again on another seed, a little longer."""
    chosen = []
    for kind, method in sorted({(t["kind"], t["method"]) for t, _ in done}):
        for level in levels:
            found = [(first(r["samples"], np.mean(r["means"], 1), level), first(r["steps"], np.mean(r["means"], 1), level), i)
                     for i, (t, r) in enumerate(done) if (t["kind"], t["method"]) == (kind, method) and r["steps"]]
            found = [f for f in found if not math.isnan(f[0])]
            if found:
                _, steps, i = min(found)
                trial = done[i][0]
                chosen.append((level, {**trial, "seed": TEST, "steps": LOCAL_STEPS * math.ceil(2 * steps / LOCAL_STEPS)}))
    return chosen


def exponents(chosen: list[tuple[float, Trial]], results: dict[str, Result], resamples: int = 400) -> list[dict[str, Any]]:
    """Samples, iterations and m at each level, and their slopes over ε (not ε²) with standard errors from resampled replicas."""
    r, out = np.random.default_rng(0), []
    for kind, method in sorted({(t["kind"], t["method"]) for _, t in chosen}):
        part = [(level, t, results[str(t)]) for level, t in chosen if (t["kind"], t["method"]) == (kind, method)]

        def once(what: str, choose: Any, part: Any = part) -> tuple[list[float], list[float]]:
            pairs = [(math.sqrt(level), first(res[what], choose(np.array(res["means"])).mean(1), level))
                     for level, _, res in part if res["steps"]]
            pairs = [(e, n) for e, n in pairs if not math.isnan(n)]
            return [e for e, _ in pairs], [n for _, n in pairs]

        reached = once("samples", lambda v: v)[0]
        row: dict[str, Any] = {"kind": kind, "method": method, "trials": [t for level, t, _ in part if math.sqrt(level) in reached],
                               "inner": slope([math.sqrt(level) for level, _, _ in part], [t["inner"] for _, t, _ in part])}
        for what in ("samples", "steps"):
            again = [once(what, lambda v: v[:, r.integers(v.shape[1], size=v.shape[1])]) for _ in range(resamples)]
            e, n = once(what, lambda v: v)
            row[what] = {"at": n, "epsilon": e, "slope": slope(e, n), "error": float(np.std([slope(*a) for a in again], ddof=1))}
        out.append(row)
    return out
