"""LocalSCGDAM's theorem as measurements: linear speed-up in the clients, controls without it, and clients for which the theorem fails.

    python experiments/localscgdam-theory/run.py            all regimes, the plot, results.json
    python experiments/localscgdam-theory/run.py --quick    a small version, written to --out only

Zhang, Zhang, Yang, Souvenir, Gao, "Federated compositional deep AUC maximization", NeurIPS 2023, Theorem 1 and Remark 1: with η ∝ √(K/T),
all rates in proportion to η and p = T^¼/K^¾ the mean of ‖∇Φ‖² over a run of T steps is of order (KT)^−½. So the steps to a level fall as
1/K.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, Row, arguments, figure, row
from saddle import REPLICAS, work
from theory import by_clients

from rookery.studies.trials import Results, Trial

HERE = Path(__file__).resolve().parent
METHOD = "LocalSCGDAM"
CLIENTS = (1, 2, 4, 8, 16, 32)
# The rule with clients that are alike; with inner maps (and ∂y f) that differ; with ∂z f that differ too, not in step with ∇g, or in step.
# Then two controls with inner maps that differ: 64 steps alone, where the rule has 6 at most for them, and αη = ½ for all K and T.
REGIMES: dict[str, dict[str, Any]] = {
    "alike": {"differ": False, "outer": "same", "clients": CLIENTS, "level": 0.012},
    "inner": {"differ": True, "outer": "same", "clients": CLIENTS[1:], "level": 0.012},
    "crossed": {"differ": True, "outer": "crossed", "clients": CLIENTS[2:], "level": 0.012},
    "joint": {"differ": True, "outer": "joint", "clients": (2, 8, 32), "level": 0.012},
    "drift": {"differ": True, "outer": "same", "changed": {"local_steps": 64}, "clients": CLIENTS[1:], "level": 0.02},
    "tracking": {"differ": True, "outer": "same", "changed": {"tracking": 0.5}, "clients": (2, 8, 32), "level": 0.012}}
HOLDS = ("alike", "inner", "crossed")
LENGTHS, ALONE = (8192, 16384, 32768), (1024, 2048, 4096, 8192)  # of K·T; with drift of T


def speedup(regime: str, clients: Sequence[int], lengths: Sequence[int], alone: Sequence[int], noise: float = 1.0) -> list[Trial]:
    of = REGIMES[regime]
    fixed = {"differ": of["differ"], "outer": of["outer"], "changed": of.get("changed", {}), "noise": noise, "seed": 0}
    return [{**fixed, "clients": k, "steps": T} for k in clients if k in of["clients"]
            for T in (alone if regime == "drift" else [length // k for length in lengths])]


def resampled(fit: Callable[[list[np.ndarray]], float], values: list[np.ndarray], number: int = 400) -> tuple[float, float]:
    """A fit on the runs' means over replicas, and its standard error from resampled replicas.

    Runs of one seed share samples, replica by replica, so that one choice of replicas is made for all of them.
    """
    r = np.random.default_rng(0)
    again = [fit([v[chosen] for v in values]) for chosen in r.integers(len(values[0]), size=(number, len(values[0])))]
    again = [value for value in again if not math.isnan(value)]
    return fit(values), float(np.std(again, ddof=1)) if len(again) > 1 else math.nan


def fitted(setting: dict[str, Any], metric: str, found: tuple[float, float], paper: float | None = None) -> Row:
    mean, error = (None if math.isnan(v) else v for v in found)
    return row(METHOD, setting, metric, mean, error, REPLICAS, paper)


def report(regimes: dict[str, Results], quiet: dict[str, Results]) -> tuple[list[Row], list[str]]:
    rows, lines = [], ["| regime | level | K: steps at a client | slope over K | slope of ‖∇Φ‖² over K·T | share without noise |",
                       "|---|---|---|---|---|---|"]
    for regime, done in regimes.items():
        level, paper = REGIMES[regime]["level"], regime not in ("drift", "tracking")
        times, of_steps, of_values = by_clients(done, level, resampled)
        noisy = {(t["clients"], r["steps"]): float(np.mean(r["values"])) for t, r in done}
        shares = {(t["clients"], r["steps"]): r["values"][0] / noisy[t["clients"], r["steps"]] for t, r in quiet.get(regime, [])}
        text = ", ".join(f"{k}: {t:.0f}" for k, t in times.items()) or "not reached"
        fits = " | ".join(f"{a:.3f} ± {s:.3f}" for a, s in (of_steps, of_values))
        lines.append(f"| {regime} | {level} | {text} | {fits} | " + ", ".join(f"{k}: {s:.2f}" for (k, _), s in shares.items()) + " |")
        rows += [fitted({"regime": regime}, "slope of steps over K", of_steps, -1.0 if paper else None),
                 fitted({"regime": regime}, "slope of stationarity over KT", of_values, -0.5 if paper else None)]
        rows += [row(METHOD, {"regime": regime, "clients": k}, "steps to the level", t, None, REPLICAS) for k, t in times.items()]
        rows += [row(METHOD, {"regime": regime, "clients": t["clients"], "steps": r["steps"]}, "stationarity", float(np.mean(r["values"])),
                     float(np.std(r["values"], ddof=1)), REPLICAS) for t, r in done]
        rows += [row(METHOD, {"regime": regime, "clients": k, "steps": T}, "share without noise", s, None, REPLICAS)
                 for (k, T), s in shares.items()]
    return rows, lines


def plot(regimes: dict[str, Results], path: Path) -> None:
    with figure(path, 2, size=(5.4, 4.6)) as (left, right):
        for number, (regime, done) in enumerate(regimes.items()):
            level = REGIMES[regime]["level"]
            times = by_clients(done, level, resampled)[0]
            if times:
                left.loglog(list(times), list(times.values()), "o-", color=f"C{number}", label=f"{regime}: ‖∇Φ‖² ≤ {level}")
            pairs = sorted((t["clients"] * r["steps"], float(np.mean(r["values"]))) for t, r in done)
            right.loglog(*zip(*pairs, strict=True), "o", color=f"C{number}", label=regime)
        clients = np.array(CLIENTS)
        left.loglog(clients, 8192 / clients, color="grey", linewidth=0.8, label="slope −1")
        left.set(xlabel="clients K", ylabel="steps at a client", title="until the mean of ‖∇Φ‖² is at the level")
        ends = np.array([4096, 262144])
        right.loglog(ends, 0.018 * (ends / 4096) ** -0.5, color="grey", linewidth=0.8, label="slope −½")
        right.set(xlabel="K·T", ylabel="mean of ‖∇Φ‖² over the run", title="speed-up, and where there is none")
        for ax in (left, right):
            ax.legend()


def main() -> None:
    args = arguments(__doc__, "localscgdam-theory", "few clients and short runs; everything goes to --out").parse_args()
    clients, lengths, alone = ((2, 4), (32, 64), (32, 64)) if args.quick else (CLIENTS, LENGTHS, ALONE)
    parts = {regime: speedup(regime, clients, lengths, alone) for regime in REGIMES}
    silent = {regime: speedup(regime, clients, lengths[:1], alone, noise=0.0) for regime in HOLDS}
    experiment = Experiment(HERE, args, args.quick)
    found = {str(t): r for t, r in experiment.study(work, [t for part in (*parts.values(), *silent.values()) for t in part])}
    regimes, quiet = ({regime: [(t, found[str(t)]) for t in part] for regime, part in some.items()} for some in (parts, silent))
    rows, lines = report(regimes, quiet)
    print("\n".join(lines))
    plot(regimes, experiment.where / "speedup.png")
    experiment.record(rows)


if __name__ == "__main__":
    main()
