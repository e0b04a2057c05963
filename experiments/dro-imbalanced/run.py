"""Rare classes and distributionally robust training: FedDRO, FastDRO, PDSGD, MBSGD and cross-entropy on Fashion-MNIST and CIFAR-10.

    python experiments/dro-imbalanced/run.py            Fashion-MNIST with all methods and seeds; data in $ROOKERY_DATA
    python experiments/dro-imbalanced/run.py --cifar    and CIFAR-10 with ResNet-20, equal minutes for each method, one seed
    python experiments/dro-imbalanced/run.py --quick    handwritten digits of 8×8 pixels, few steps, written to --out only

Khanduri et al., "FedDRO: Federated compositional optimization for distributionally robust learning", Figures 1 and 2.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from classes import CHOICES, tables, work
from common import Experiment, arguments, available, band, diverged, figure, over_local_steps, percent, rows_of

from rookery.studies.statistics import best, groups
from rookery.studies.trials import Results, Trial

HERE = Path(__file__).resolve().parent
LRS, WIDER = (0.001, 0.01, 0.05, 0.1), 0.3  # the paper's, and one more, as its largest is the best for most methods
LOCAL = (1, 2, 4, 8, 16)
TUNING = 100  # the seed of the grid; results have other seeds
SHOWN = ("train accuracy", "test accuracy", "test common", "test rare", "test worst class")
METRICS = (*SHOWN, "test balanced", "bytes", "samples", "diverged")


def settings(data: str, method: str, steps: int, local_steps: int = 1, alpha: float | None = None) -> Trial:
    return {"data": data, "method": method, "steps": steps, "local_steps": local_steps, "alpha": alpha}


class Study(Experiment):
    """How trials are chosen."""

    def __init__(self, args: Namespace, small: bool) -> None:
        super().__init__(HERE, args, small)
        self.lrs, self.seeds, self.choices = ((0.05,), (TUNING,), 1) if small else ((*LRS, WIDER), (0, 1, 2), 2)

    def __call__(self, todo: list[Trial]) -> Results:
        return self.study(work, todo)

    def grid(self, some: list[Trial]) -> Results:
        return self([{**s, "choice": choice, "lr": lr, "seed": TUNING} for s in some for choice in CHOICES[s["method"]][: self.choices]
                     for lr in self.lrs])

    def finals(self, grid: Results, by: str) -> Results:
        """All seeds of each setting with the step size and the choice that were best on the grid."""
        chosen = best(grid, ("data", "method", "steps", "local_steps", "alpha"), by)
        return self([{**s, "seed": seed} for s in chosen.values() for seed in self.seeds])


def fashion(data: str, s: Study, steps: int, local: Sequence[int], rounds: int) -> dict[str, Results]:
    """As published, settings are chosen by the training accuracy; fairly, by the classes' mean accuracy on the sites' held-out rows."""
    grid = s.grid([settings(data, method, steps) for method in CHOICES])
    its = [d for d in grid if d[0]["method"] in ("FedDRO", "FastDRO", "PDSGD", "MBSGD") and d[0]["lr"] != WIDER]
    compared = {"as published": s.finals(its, "train accuracy"), "fairly tuned": s.finals(grid, "validation balanced")}
    s.lrs = s.lrs[1:] or s.lrs  # the smallest is far too small for all; λ is the one chosen at I = 1
    choice = next(t["choice"] for t, _ in compared["fairly tuned"] if t["method"] == "FedDRO")
    more = s([{**settings(data, "FedDRO", steps, i), "choice": choice, "lr": lr, "seed": TUNING} for i in local for lr in s.lrs])
    compared["local steps, equal samples"] = s.finals(more, "validation balanced")
    chosen = {t["local_steps"]: t for t, _ in compared["local steps, equal samples"]}
    compared["local steps, equal rounds"] = s([{**chosen[i], "steps": rounds * i, "seed": seed} for i in local for seed in s.seeds])
    compared["local steps, equal samples, unlike sites"] = s([{**chosen[i], "alpha": 0.3, "seed": seed} for i in local for seed in s.seeds])
    return compared


def photographs(tuned: Results, minutes: float) -> list[Trial]:
    """CIFAR-10 in equal minutes: the paper's largest step size for all, and the λ or dual step that each method chose on Fashion-MNIST."""
    choice = {t["method"]: t["choice"] for t, _ in tuned}
    return [{**settings("cifar10", method, 0), "choice": choice[method], "lr": LRS[-1], "minutes": minutes, "seed": 0}
            for method in CHOICES]


def report(compared: dict[str, Results]) -> str:
    lines = []
    for name, done in compared.items():
        lines += [f"\n{name}, %", "| method | λ or dual lr | lr | I | MB | rows | train | test | common | rare | worst class |",
                  "|---|---|---|---|---|---|---|---|---|---|---|"]
        for (method, choice, lr, i), found in groups(done, "method", "choice", "lr", "local_steps").items():
            text = " | ".join(percent([r[m] for r in found]) for m in SHOWN)
            lines.append(f"| {method}{diverged(found)} | {'–' if choice is None else choice} | {lr:g} | {i} "
                         f"| {found[0]['bytes'] / 1e6:.0f} | {found[0]['samples']} | {text} |")
    return "\n".join(lines)


def plot(compared: dict[str, Results], where: Path) -> None:
    metrics = ("train accuracy", "test accuracy", "test rare", "test worst class")
    for name, across, file in (("as published", "round", "published"), ("fairly tuned", "round", "fair"),
                               ("local steps, equal samples", "bytes", "local-steps"),
                               ("local steps, equal rounds", "round", "equal-rounds"),
                               *((name, "round", "cifar") for name in compared if name.startswith("CIFAR"))):
        with figure(where / f"{file}.png", len(metrics)) as axes:
            for ax, metric in zip(axes, metrics, strict=True):
                for number, ((method, i), found) in enumerate(groups(compared[name], "method", "local_steps").items()):
                    whole = [r["curve"] for r in found if not r["diverged"]]
                    if whole:
                        y = 100 * np.array([[point[metric] for point in curve] for curve in whole])
                        band(ax, [point[across] for point in whole[0]], y, number, f"I = {i}" if name.startswith("local") else method)
                ax.set(xlabel="bytes, all clients" if across == "bytes" else "rounds", ylabel=f"{metric}, %")
                if across == "bytes":
                    ax.set_xscale("log")
            axes[0].legend()
    with figure(where / "over-local-steps.png", 3) as axes:
        for ax, metric in zip(axes, metrics[:3], strict=True):
            for number, name in enumerate(name for name in compared if name.startswith("local")):
                over_local_steps(ax, compared[name], metric, number, name.removeprefix("local steps, "))
        axes[0].legend()


def main() -> None:
    parser = arguments(__doc__, "dro-imbalanced", "small digits, few steps; everything goes to --out")
    parser.add_argument("--cifar", action="store_true", help="CIFAR-10 with ResNet-20 as well")
    parser.add_argument("--minutes", type=float, default=8.0, help="of CPU for each method on CIFAR-10")
    args = parser.parse_args()
    data = "digits" if args.quick else available("fashion-mnist", "digits", tables)
    small = data == "digits"
    s = Study(args, small)
    compared = fashion(data, s, *((8, (1,), 4) if small else (600, LOCAL, 48)))
    if args.cifar and not small:
        compared[f"CIFAR-10, ResNet-20, {args.minutes:g} minutes each"] = s(photographs(compared["fairly tuned"], args.minutes))
    print(report(compared))
    plot(compared, s.where)
    s.record(rows_of(compared, METRICS, ("data", "choice", "lr", "local_steps", "steps", "alpha")), " --cifar" * args.cifar)


if __name__ == "__main__":
    main()
