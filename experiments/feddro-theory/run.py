"""FedDRO's theorem as measurements: linear speed-up in the clients, and what is sent until a stationarity is reached.

    python experiments/feddro-theory/run.py            both, the plot, results.json
    python experiments/feddro-theory/run.py --quick    a small version, written to --out only

Khanduri et al., "FedDRO: Federated compositional optimization for distributionally robust learning", Theorem 5.1, Corollaries 5.2 and 5.3:
with η = √(K/T), β ∝ η and I = T^¼/K^¾ the mean of ‖∇Φ‖² over a run of T steps is of order (KT)^−½. So the steps to a level fall as 1/K, and
a client sends O(ε^−3/2) times x and O(K⁻¹ε⁻²) times y, of d and d_g numbers, until the mean is ε.
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
from sided import REPLICAS, work
from theory import by_clients, slope

from rookery.studies.trials import Results, Trial, trials

HERE = Path(__file__).resolve().parent
CLIENTS = (1, 2, 4, 8, 16, 32)
# Clients that are alike, or not, under the rule; and two controls: 32 steps alone, where the rule has 8 at most, and FedAvg (Case I of the
# paper's Algorithm 1), whose clients take the own g for the common one.
REGIMES: dict[str, dict[str, Any]] = {
    "alike": {"method": "FedDRO", "differ": False, "local_steps": None, "level": 0.010},
    "unlike": {"method": "FedDRO", "differ": True, "local_steps": None, "level": 0.009},
    "drift": {"method": "FedDRO", "differ": True, "local_steps": 32, "level": 0.06},
    "own g": {"method": "FedAvg, Case I", "differ": True, "local_steps": None, "level": 0.009}}
LENGTHS, ALONE = (2048, 4096, 8192), (256, 512, 1024, 2048)  # of K·T; with drift of T
HORIZONS = {4: (256, 512, 1024, 2048, 4096, 8192), 16: (256, 512, 1024, 2048)}  # of the law of communication: T for each K
WIDE, LOCAL = 32, 4.0  # its dimension d, and its constant of I


def speedup(regime: str, clients: Sequence[int], lengths: Sequence[int], alone: Sequence[int]) -> list[Trial]:
    of = {name: REGIMES[regime][name] for name in ("method", "differ", "local_steps")}
    some = [k for k in clients if k > 1 or not of["differ"]]
    return [{**of, "clients": k, "steps": T, "d": 2, "local": 1.0, "seed": 0} for k in some
            for T in (alone if regime == "drift" else [length // k for length in lengths])]


def law(horizons: dict[int, tuple[int, ...]]) -> list[Trial]:
    return [t for k, lengths in horizons.items()
            for t in trials(method=("FedDRO",), differ=(True,), local_steps=(None,), clients=(k,), steps=lengths, d=(WIDE,), local=(LOCAL,),
                            seed=(0,))]


def resampled(fit: Callable[[list[np.ndarray]], float], values: list[np.ndarray], number: int = 400) -> tuple[float, float]:
    """A fit on the runs' means over replicas, and its standard error from resampled replicas."""
    r = np.random.default_rng(0)
    again = [fit([v[r.integers(len(v), size=len(v))] for v in values]) for _ in range(number)]
    again = [value for value in again if not math.isnan(value)]
    return fit(values), float(np.std(again, ddof=1)) if len(again) > 1 else math.nan


def exponents(done: Results) -> dict[str, tuple[float, float]]:
    """Of what a client sends, over the mean of ‖∇Φ‖² that was reached."""
    values = [np.array(r["values"]) for _, r in done]
    return {name: resampled(lambda some, name=name: slope([float(v.mean()) for v in some], [r[name] for _, r in done]), values)
            for name in ("rounds", "steps", "floats of x", "floats of y", "floats")}


def fitted(method: str, setting: dict[str, Any], metric: str, found: tuple[float, float], paper: float | None = None) -> Row:
    mean, error = (None if math.isnan(v) else v for v in found)
    return row(method, setting, metric, mean, error, REPLICAS, paper)


def stationarity(method: str, setting: dict[str, Any], values: list[float]) -> Row:
    return row(method, setting, "stationarity", float(np.mean(values)), float(np.std(values, ddof=1)), REPLICAS)


def report(regimes: dict[str, Results], laws: dict[int, Results]) -> tuple[list[Row], list[str]]:
    rows, lines = [], ["| regime | method | level | K: steps at a client | slope over K | slope of ‖∇Φ‖² over K·T |",
                       "|---|---|---|---|---|---|"]
    for regime, done in regimes.items():
        method, level, holds = REGIMES[regime]["method"], REGIMES[regime]["level"], regime in ("alike", "unlike")
        times, of_steps, of_values = by_clients(done, level, resampled)
        text = ", ".join(f"{k}: {t:.0f}" for k, t in times.items()) or "not reached"
        fits = " | ".join(f"{a:.3f} ± {s:.3f}" for a, s in (of_steps, of_values))
        lines.append(f"| {regime} | {method} | {level} | {text} | {fits} |")
        rows += [fitted(method, {"regime": regime}, "slope of steps over K", of_steps, -1.0 if holds else None),
                 fitted(method, {"regime": regime}, "slope of stationarity over KT", of_values, -0.5 if holds else None)]
        rows += [stationarity(method, {"regime": regime, "clients": t["clients"], "steps": r["steps"]}, r["values"]) for t, r in done]
    lines += ["", "| K | T: ‖∇Φ‖² | rounds | steps | floats of x | floats of y | floats |", "|---|---|---|---|---|---|---|"]
    paper = {"rounds": -1.5, "steps": -2.0, "floats of x": -1.5, "floats of y": -2.0}
    for k, done in laws.items():
        found = exponents(done)
        values = ", ".join(f"{r['steps']}: {np.mean(r['values']):.4f}" for _, r in done)
        lines.append(f"| {k} | {values} | " + " | ".join(f"{e:.2f} ± {s:.2f}" for e, s in found.values()) + " |")
        of = {"regime": "law", "clients": k, "d": WIDE}
        rows += [fitted("FedDRO", of, f"exponent of {name}", pair, paper.get(name)) for name, pair in found.items()]
        rows += [stationarity("FedDRO", of | {name: r[name] for name in ("steps", "rounds", "floats")}, r["values"]) for _, r in done]
    return rows, lines


def plot(regimes: dict[str, Results], laws: dict[int, Results], path: Path) -> None:
    with figure(path, 3, size=(5.0, 4.4)) as (left, middle, right):
        for number, (regime, done) in enumerate(regimes.items()):
            level = REGIMES[regime]["level"]
            times = by_clients(done, level, resampled)[0]
            if times:
                left.loglog(list(times), list(times.values()), "o-", color=f"C{number}", label=f"{regime}: ‖∇Φ‖² ≤ {level}")
            pairs = sorted((t["clients"] * r["steps"], float(np.mean(r["values"]))) for t, r in done)
            middle.loglog(*zip(*pairs, strict=True), "o", color=f"C{number}", label=regime)
        clients = np.array(CLIENTS)
        left.loglog(clients, 4096 / clients, color="grey", linewidth=0.8, label="slope −1")
        left.set(xlabel="clients K", ylabel="steps at a client", title="until the mean of ‖∇Φ‖² is at the level")
        middle.loglog([2000, 8200], [0.014, 0.014 * (2000 / 8200) ** 0.5], color="grey", linewidth=0.8, label="slope −½")
        middle.set(xlabel="K·T", ylabel="mean of ‖∇Φ‖² over the run", title="speed-up, and two controls")
        for number, (k, done) in enumerate(laws.items()):
            reach = [float(np.mean(r["values"])) for _, r in done]
            for name, style in (("floats of x", "o-"), ("floats of y", "s--"), ("floats", "-")):
                sent = [r[name] for _, r in done]
                right.loglog(reach, sent, style, color=f"C{number}", label=f"K = {k}, {name}: {slope(reach, sent):.2f}")
        right.set(xlabel="ε = mean of ‖∇Φ‖²", ylabel="numbers, up and down, at a client",
                  title=f"sent with the theorem's η and I, d = {WIDE}, d_g = 1")
        for ax in (left, middle, right):
            ax.legend()


def main() -> None:
    args = arguments(__doc__, "feddro-theory", "few clients and short runs; everything goes to --out").parse_args()
    clients, lengths, alone, horizons = ((2, 4), (32, 64), (32, 64), {4: (32, 64)}) if args.quick else (
        CLIENTS, LENGTHS, ALONE, HORIZONS)
    parts = {regime: speedup(regime, clients, lengths, alone) for regime in REGIMES}
    of_law = {k: law({k: of}) for k, of in horizons.items()}
    every = [t for part in (*parts.values(), *of_law.values()) for t in part]
    experiment = Experiment(HERE, args, args.quick)
    found = {str(t): r for t, r in experiment.study(work, every)}
    regimes = {regime: [(t, found[str(t)]) for t in part] for regime, part in parts.items()}
    laws = {k: [(t, found[str(t)]) for t in part] for k, part in of_law.items()}
    rows, lines = report(regimes, laws)
    print("\n".join(lines))
    plot(regimes, laws, experiment.where / "laws.png")
    experiment.record(rows)


if __name__ == "__main__":
    main()
