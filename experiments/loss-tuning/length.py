"""The part `length`: as many exchanges as in the authors' scripts on heterogeneous sites, FedNest beside training without tuning.

FedNest has the authors' settings, both FedAvgs the step sizes that they choose on held-out rows, of the same grid and in the same way as in
the tables: on a seed of its own and half of the exchanges.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common import band, diverged, figure, percent
from nested import PLAIN, PUBLISHED, SHOWN, Study, work

from rookery.studies.statistics import groups, paired_ttest
from rookery.studies.trials import Result, Results

LENGTH, SEEDS = 3000, 5
POINTS, COLUMNS = 25, 5  # of a curve, at every 10 outer rounds of FedNest; of the table
SPLIT, NEST = "non-iid", "FedNest"
PANELS = {"exchanges": ("exchanges", 1.0), "bytes": ("GB, all clients, both ways", 1e9)}


def nearest(result: Result, axis: str, there: float) -> float:
    """The mean of the classes at the point of the curve that is nearest; that of guessing where a run had broken off before."""
    if result["diverged"] and result["curve"][-1][axis] < there:
        return float(result["test balanced"])
    return float(min(result["curve"], key=lambda point: abs(point[axis] - there))["test balanced"])


def shared_bytes(done: Results) -> float:
    """What the method of the least traffic sent in a whole run."""
    return float(min(max(result["curve"][-1]["bytes"] for result in of) for of in groups(done, "method").values()))


def report(done: Results, length: int) -> str:
    """The table, and how far FedNest is above each FedAvg on the same seeds, at equal exchanges and at equal bytes."""
    some, traffic = [length * i // COLUMNS for i in range(1, COLUMNS)], shared_bytes(done)
    titles = ["method", "step size", "exchanges", "GB", *(f"after {there}" for there in some), f"after {traffic / 1e9:.3g} GB",
              "mean of classes", "worst class", "all rows"]
    lines = [f"\nlength, {SPLIT}: test accuracy, %", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    found = groups(done, "method", "lr")
    for (way, lr), of in found.items():
        last = max((r["curve"][-1] for r in of), key=lambda point: point["exchanges"])
        cells = [f"{way}{diverged(of)}", f"{lr:g}", f"{last['exchanges']:.0f}", f"{last['bytes'] / 1e9:.3g}",
                 *(percent([nearest(r, "exchanges", there) for r in of]) for there in some),
                 percent([nearest(r, "bytes", traffic) for r in of]), *(percent([r[metric] for r in of]) for metric in SHOWN)]
        lines.append(f"| {' | '.join(cells)} |")
    nest = next(of for (way, _), of in found.items() if way == NEST)
    for (way, _), of in found.items():
        if way != NEST and len(of) > 1:
            both = {metric: [[r[metric] for r in side] for side in (nest, of)] for metric in SHOWN}
            both["test balanced at equal bytes"] = [[nearest(r, "bytes", traffic) for r in side] for side in (nest, of)]
            lines += ["", *(f"{NEST} − {way}, {name}: {difference(*sides)}" for name, sides in both.items())]
    return "\n".join(lines)


def difference(a: list[float], b: list[float]) -> str:
    """In points, with its 95 % interval over the seeds.

    >>> difference([0.5, 0.6, 0.7], [0.4, 0.4, 0.6])
    '+13.3 points (95 % interval -1.0 to +27.7, 3 seeds)'
    """
    found = paired_ttest(a, b)
    return f"{100 * found.mean:+.1f} points (95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f}, {len(a)} seeds)"


def plot(done: Results, path: Path) -> None:
    """Mean of the classes and worst class, over exchanges and over bytes."""
    with figure(path, len(PANELS), 2, size=(5.2, 3.8), sharey="row", sharex="col") as axes:
        for line, metric in zip(axes, SHOWN[:2], strict=True):
            for ax, (axis, (title, unit)) in zip(line, PANELS.items(), strict=True):
                panel(ax, done, axis, unit, metric)
                if metric == SHOWN[1]:
                    ax.set_xlabel(title)
            line[0].set_ylabel(f"{'mean of the classes' if metric == SHOWN[0] else 'worst class'}, test, %")
        axes[0][0].legend()


def panel(ax: Any, done: Results, axis: str, unit: float, metric: str) -> None:
    for number, ((way,), of) in enumerate(groups(done, "method").items()):
        curves = [result["curve"] for result in of if not result["diverged"]]
        if curves:
            y = 100 * np.array([[point[metric] for point in curve] for curve in curves])
            band(ax, [point[axis] / unit for point in curves[0]], y, number, way)


def part(study: Study) -> None:
    length, seeds = study.size(LENGTH, SEEDS)
    chosen = [*study.trials((NEST,), (SPLIT,), (PUBLISHED,), seeds[:1], length), *study.tune(PLAIN, (SPLIT,), length)]
    points = {} if study.small else {"points": POINTS}  # a small run has these trials from its tables
    done = study.study(work, [{**s, **points, "seed": seed} for seed in seeds for s in chosen])
    print(report(done, length), flush=True)
    plot(done, study.where / "length.png")
    study.write({"length": done}, ("bytes",))
