"""FedAvg on a shared composition settles at the wrong point, at any step size; sharing the inner value at every step mends it.

    python experiments/fedavg-counterexample/run.py            all limits, the plot, results.json
    python experiments/fedavg-counterexample/run.py --quick    one outer function and two numbers of local steps, written to --out only

Two clients with g_1 = 4x − 4 and g_2 = −2x + 4, so that g = x and the solution is 0, under f = y²/2 and f = √(1 + y²); full gradients.
Khanduri et al., "FedDRO: Federated compositional optimization for distributionally robust learning", 2023, Theorems 4.1 and 4.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, Row, arguments, figure, row, timed

from rookery import Algorithm, FedAvgCaseI, FedAvgCaseII, FedDRO, Federation, ModifiedFedAvg
from rookery.problems.testproblems import counterexample
from rookery.studies.trials import Result, Trial, trials

HERE = Path(__file__).resolve().parent
METHODS: dict[str, Callable[[float, int], Algorithm[Any]]] = {"Vanilla FedAvg-CO (Case I)": FedAvgCaseI,
                                                              "Vanilla FedAvg-CO (Case II)": FedAvgCaseII,
                                                              "Modified FedAvg-CO": ModifiedFedAvg,
                                                              "FedDRO": lambda lr, steps: FedDRO(lr, 0.3, steps)}
OUTER = {"square": "f = y²/2", "root": "f = √(1 + y²)"}
STEPS = (1, 2, 4, 8)
SIZES = (0.004, 0.002, 0.001, 0.0005)  # each half the one before, for the extrapolation
SHOWN = 0.02  # the step size of the table's first column and of the plot
PLOTTED = (0.08, 0.04, 0.02, 0.01, 0.005)  # those at which the plot has limits, at four local steps
LINES = ((4.0, -4.0), (-2.0, 4.0))
Limits = dict[tuple[str, str, int, float], float]  # by outer function, method, local steps and step size


class Rounds:
    """One method on the counterexample, round by round: the search for a fixed point sets x between rounds, which no loop does."""

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


@timed
def work(trial: Trial) -> Result:
    """Where the rounds lead. FedDRO simply runs; of the others, whose round is a map of x, the fixed point is sped up by Aitken's rule."""
    lr, steps = trial["lr"], trial["steps"]
    rounds = Rounds(trial["method"], trial["outer"], lr, steps)
    if trial["method"] == "FedDRO":
        return {"limit": [rounds.round() for _ in range(int(300 / (1 - (1 - 10 * lr) ** steps)))][-1]}  # about e^-30 of the way is left
    x = [rounds.round() for _ in range(20)][-1]
    for _ in range(50):
        a = rounds.round(x)
        b = rounds.round()
        if abs(a - x) < 1e-15 or b - 2 * a + x == 0:
            break
        x -= (a - x) ** 2 / (b - 2 * a + x)
    return {"limit": x}


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


def table(limits: Limits) -> list[Row]:
    rows = []
    print(f"{'method':<29}{'f':<8}{'I':>2}  {'limit, lr ' + str(SHOWN):>15}{'closed form':>15}  {'limit, lr → 0':>15}{'theory':>15}")
    for outer, method, steps in [key[:3] for key in limits if key[3] == SHOWN]:
        there = round(limits[outer, method, steps, SHOWN], 12) + 0.0
        known = f"{closed_form(method, SHOWN, steps):15.10f}" if outer == "square" else " " * 15
        # FedDRO runs as it is, and where it is 0 at this step size there is nothing to extrapolate
        far = None if method == "FedDRO" else round(extrapolated([limits[outer, method, steps, lr] for lr in SIZES]), 12) + 0.0
        shown = " " * 15 if far is None else f"{far:15.10f}"
        print(f"{method:<29}{outer:<8}{steps:>2}  {there:15.10f}{known}  {shown}{theory(method, outer, steps):15.10f}", flush=True)
        rows += [row(method, f"{OUTER[outer]}, I = {steps}", f"distance of the limit to the solution, step size {size}", abs(value), 0.0, 1)
                 for size, value in ((SHOWN, there), ("→ 0", far)) if value is not None]
    return rows


def plot(limits: Limits, path: Path) -> None:
    colours = dict(zip(METHODS, ("#b5482f", "#d9a441", "#222222", "#6fb1e0"), strict=True))
    with figure(path, 2, size=(4.8, 3.6)) as (left, right):
        for method, colour in colours.items():
            rounds = Rounds(method, "square", SHOWN, 4)
            above = method == "Modified FedAvg-CO"  # FedDRO's curve lies on it
            left.plot(range(121), [1.0, *(rounds.round() for _ in range(120))], color=colour, label=method,
                      linestyle="--" if above else "-", zorder=3 if above else 2)
            if method != "FedDRO":
                right.plot(PLOTTED, [limits["square", method, 4, lr] for lr in PLOTTED], "o", color=colour)
            if method.startswith("Vanilla"):
                fine = np.geomspace(0.004, 0.1, 100)
                right.plot(fine, [closed_form(method, lr, 4) for lr in fine], color=colour)
        for ax in (left, right):
            ax.axhline(0, color="black", linewidth=0.6)
        left.set(xlabel="round", ylabel="x", title=f"f = y²/2, I = 4, step size {SHOWN}; the solution is 0")
        left.legend(loc="center right")
        right.set(xlabel="step size", xscale="log", ylabel="limit", ylim=(-0.08, 1.55), title="Limits, I = 4: measured (dots), closed form")


def main() -> None:
    args = arguments(__doc__, "fedavg-counterexample", "f = y²/2 with one and four local steps; everything goes to --out").parse_args()
    outers, steps = (["square"], (1, 4)) if args.quick else (list(OUTER), STEPS)
    todo = [*trials(outer=outers, method=METHODS, steps=steps, lr=(SHOWN, *SIZES)),
            *trials(outer=("square",), method=METHODS, steps=(4,), lr=PLOTTED)]
    experiment = Experiment(HERE, args, args.quick)
    done = experiment.study(work, [trial for trial in todo if trial["method"] != "FedDRO" or trial["lr"] == SHOWN])
    limits = {(t["outer"], t["method"], t["steps"], t["lr"]): r["limit"] for t, r in done}
    rows = table(limits)
    plot(limits, experiment.where / "limits.png")
    experiment.record(rows)


if __name__ == "__main__":
    main()
