"""FedAvg on a shared composition settles at the wrong point, at any step size; sharing the inner value at every step mends it.

Two clients with g_1 = 4x − 4 and g_2 = −2x + 4, so that g = x and the solution is 0, under f = y²/2 and f = √(1 + y²); full gradients.
Khanduri et al., "FedDRO: Federated compositional optimization for distributionally robust learning", 2023, Theorems 4.1 and 4.2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch

from rookery import Algorithm, FedAvgCaseI, FedAvgCaseII, FedDRO, Federation, ModifiedFedAvg
from rookery.problems.testproblems import counterexample
from rookery.studies.trials import record

mpl.use("Agg")
from matplotlib import pyplot as plt

METHODS: dict[str, Callable[[float, int], Algorithm]] = {"Vanilla FedAvg-CO (Case I)": FedAvgCaseI,
                                                         "Vanilla FedAvg-CO (Case II)": FedAvgCaseII,
                                                         "Modified FedAvg-CO": ModifiedFedAvg,
                                                         "FedDRO": lambda lr, steps: FedDRO(lr, 0.3, steps)}
OUTER = {"square": "f = y²/2", "root": "f = √(1 + y²)"}
STEPS = (1, 2, 4, 8)
SIZES = (0.004, 0.002, 0.001, 0.0005)  # each half the one before, for the extrapolation
SHOWN = 0.02  # the step size of the table's first column and of the plot
LINES = ((4.0, -4.0), (-2.0, 4.0))


class Trial:
    """One method on the counterexample, round by round."""

    def __init__(self, method: str, outer: str, lr: float, steps: int) -> None:
        known = counterexample(outer)
        self.fed = Federation(known.problem, known.data, engine="loop")
        self.algorithm = METHODS[method](lr, steps)
        self.state = self.algorithm.init(self.fed, known.x0)

    def round(self, x: float | None = None) -> float:
        """The point after another round, from `x` if it is given: only for methods whose state is x alone."""
        if x is not None:
            self.state = self.state._replace(x=torch.tensor([x], dtype=torch.float64))
        self.state = self.algorithm.round(self.fed, self.state)
        return float(self.state.x)


def limit(method: str, outer: str, lr: float, steps: int) -> float:
    """Where the rounds lead. FedDRO simply runs; of the others, whose round is a map of x, the fixed point is sped up by Aitken's rule."""
    trial = Trial(method, outer, lr, steps)
    if method == "FedDRO":
        return [trial.round() for _ in range(int(300 / (1 - (1 - 10 * lr) ** steps)))][-1]  # about e^-30 of the way is left
    x = [trial.round() for _ in range(20)][-1]
    for _ in range(50):
        a = trial.round(x)
        b = trial.round()
        if abs(a - x) < 1e-15 or b - 2 * a + x == 0:
            break
        x -= (a - x) ** 2 / (b - 2 * a + x)
    return x


def extrapolated(values: list[float]) -> float:
    """Richardson's limit at step size 0 of values at sizes that halve."""
    table, order = list(values), 1
    while len(table) > 1:
        table = [(2**order * fine - coarse) / (2**order - 1) for coarse, fine in pairwise(table)]
        order += 1
    return table[0]


def theory(method: str, outer: str, steps: int) -> float:
    """The limit as the step size falls to 0: where the mean of a round's directions vanishes, all of them taken at one point."""
    def slope(y: float) -> float:
        return y if outer == "square" else y / np.sqrt(1 + y * y)

    def direction(x: float) -> float:
        own = sum(a * slope(a * x + b) for a, b in LINES) / 2
        shared = slope(x) * sum(a for a, _ in LINES) / 2
        return {"Vanilla FedAvg-CO (Case I)": own, "Vanilla FedAvg-CO (Case II)": shared + (steps - 1) * own}.get(method, shared)

    low, high = -1.0, 3.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if direction(middle) < 0 else (low, middle)
    return round((low + high) / 2, 12) + 0.0


def closed_form(method: str, e: float, I: int) -> float:
    """The limit under f = y²/2 at step size e < 1/8."""
    r1, r2 = 1 - 16 * e, 1 - 4 * e
    if method == "Vanilla FedAvg-CO (Case I)":
        return ((1 - r1**I) + 2 * (1 - r2**I)) / ((1 - r1**I) + (1 - r2**I))
    if method == "Vanilla FedAvg-CO (Case II)":
        A = (r1 ** (I - 1) * (1 - 4 * e) + r2 ** (I - 1) * (1 + 2 * e)) / 2
        return ((1 - r1 ** (I - 1)) + 2 * (1 - r2 ** (I - 1))) / 2 / (1 - A)
    return 0.0


def table() -> list[dict[str, Any]]:
    rows = []
    print(f"{'method':<29}{'f':<8}{'I':>2}  {'limit, lr ' + str(SHOWN):>15}{'closed form':>15}  {'limit, lr → 0':>15}{'theory':>15}")
    for outer, formula in OUTER.items():
        for method in METHODS:
            for steps in STEPS:
                there = round(limit(method, outer, SHOWN, steps), 12) + 0.0
                known = f"{closed_form(method, SHOWN, steps):15.10f}" if outer == "square" else " " * 15
                # FedDRO runs as it is, and where it is 0 at this step size there is nothing to extrapolate
                far = None if method == "FedDRO" else round(extrapolated([limit(method, outer, lr, steps) for lr in SIZES]), 12) + 0.0
                shown = " " * 15 if far is None else f"{far:15.10f}"
                print(f"{method:<29}{outer:<8}{steps:>2}  {there:15.10f}{known}  {shown}{theory(method, outer, steps):15.10f}", flush=True)
                rows += [{"method": method, "setting": f"{formula}, I = {steps}", "metric": metric, "mean": abs(value), "std": 0.0,
                          "seeds": 1, "paper": None}
                         for metric, value in ((f"distance of the limit to the solution, step size {SHOWN}", there),
                                               ("distance of the limit to the solution, step size → 0", far)) if value is not None]
    return rows


def plot(path: Path) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), constrained_layout=True)
    colours = dict(zip(METHODS, ("#b5482f", "#d9a441", "#222222", "#6fb1e0"), strict=True))
    sizes = [0.08, 0.04, 0.02, 0.01, 0.005]
    for method, colour in colours.items():
        trial = Trial(method, "square", SHOWN, 4)
        above = method == "Modified FedAvg-CO"  # FedDRO's curve lies on it
        left.plot(range(121), [1.0, *(trial.round() for _ in range(120))], color=colour, label=method, linewidth=1.6,
                  linestyle="--" if above else "-", zorder=3 if above else 2)
        if method.startswith("Vanilla"):
            right.plot(sizes, [limit(method, "square", e, 4) for e in sizes], "o", color=colour)
            fine = np.geomspace(0.004, 0.1, 100)
            right.plot(fine, [closed_form(method, e, 4) for e in fine], color=colour, linewidth=1.2)
    right.plot(sizes, [limit("Modified FedAvg-CO", "square", e, 4) for e in sizes], "o", color=colours["Modified FedAvg-CO"])
    left.axhline(0, color="black", linewidth=0.6)
    right.axhline(0, color="black", linewidth=0.6)
    left.set(xlabel="round", ylabel="x", title=f"f = y²/2, I = 4, step size {SHOWN}; the solution is 0")
    left.legend(frameon=False, fontsize=8, loc="center right")
    right.set(xlabel="step size", xscale="log", ylabel="limit", ylim=(-0.08, 1.55), title="Limits, I = 4: measured (dots), closed form")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where results.json and limits.png go")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows = table()
    plot(out / "limits.png")
    record(out / "results.json", rows, (time.perf_counter() - start) / 60, "python experiments/fedavg-counterexample/run.py")


if __name__ == "__main__":
    main()
