"""Equality of opportunity on Adult: FedDRO, GCIVR, reweighing and no constraint at all, with logistic regression at eight sites.

    python experiments/fair-adult/run.py            the whole study, plots, results.json; Adult in $ROOKERY_DATA
    python experiments/fair-adult/run.py --quick    a small generated table in its place, written to --out only

Khanduri et al., "FedDRO: Federated compositional optimization for distributionally robust learning", Figure 3;
Kamiran, Calders, "Data preprocessing techniques for classification without discrimination", Knowledge and Information Systems 2012.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from census import tables, work
from common import Experiment, arguments, available, band, figure, over_local_steps, percent, rows_of

from rookery.studies.statistics import best, groups, mean_std
from rookery.studies.trials import Results, Trial

HERE = Path(__file__).resolve().parent
PUBLISHED, FAIR = (0.001, 0.01, 0.05, 0.1), (0.01, 0.03, 0.1, 0.3, 1.0)  # step sizes: the paper's, and ours
RHOS, SOME = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0), (1.0, 10.0, 100.0)
LOCAL = (1, 2, 4, 8, 16, 32, 64)
TUNING = 100  # the seed that step sizes are chosen with, by the objective on the sites' validation rows; results have other seeds
METRICS = ("train accuracy", "train gap", "test accuracy", "test gap", "validation value", "bytes", "samples", "exchanges", "models")


def setting(method: str, rho: float, local_steps: int, steps: int, batch: int, drop: float, data: str, protected: str) -> Trial:
    return {"data": data, "protected": protected, "method": method, "rho": rho, "local_steps": local_steps, "steps": steps, "batch": batch,
            "drop": drop}


def published(data: str, rounds: int, many: int) -> list[Trial]:
    """Batches of 16, the step size dropped after 90 rounds of 128, as many exchanges of the model for all; FedAvg is ours."""
    of: dict[str, Any] = {"drop": 90 / 128, "data": data, "protected": "sex"}
    return [setting("FedDRO", 10.0, 1, rounds, 16, **of), setting("FedDRO", 10.0, many, rounds * many, 16, **of),
            setting("GCIVR, B = m", 10.0, 16, rounds, 20, **of), setting("Unconstrained", 0.0, 1, rounds, 16, **of),
            setting("FedAvg", 0.0, many, rounds * many, 16, **of)]


def frontier(data: str, protected: str, steps: int, rhos: tuple[float, ...]) -> list[Trial]:
    """32 rows a step for all (41 for GCIVR with B = m, near its theorem's period √m), as many steps."""
    of: dict[str, Any] = {"steps": steps, "drop": 0.75, "data": data, "protected": protected}
    return [*(setting("FedDRO", rho, 1, batch=16, **of) for rho in rhos), *(setting("GCIVR", rho, 16, batch=16, **of) for rho in rhos),
            *(setting("GCIVR, B = m", rho, 128, batch=16, **of) for rho in rhos if rho in SOME and protected == "sex"),
            setting("Unconstrained", 0.0, 1, batch=32, **of), setting("FedAvg", 0.0, 16, batch=32, **of),
            setting("Reweighing", 0.0, 16, batch=32, **of)]


def local_steps(data: str, steps: int, rounds: int, local: tuple[int, ...]) -> dict[str, list[Trial]]:
    of: dict[str, Any] = {"batch": 16, "drop": 0.75, "data": data, "protected": "sex"}
    return {"equal samples": [setting("FedDRO", 10.0, i, steps, **of) for i in local],
            "equal rounds": [setting("FedDRO", 10.0, i, rounds * i, **of) for i in local],
            "equal rounds, no constraint": [setting("FedAvg", 0.0, i, rounds * i, **(of | {"batch": 32})) for i in local]}


def momentum(data: str, steps: int, betas: tuple[float, ...]) -> list[Trial]:
    """FedDRO's β, which is 0.1 elsewhere."""
    return [{**setting("FedDRO", 10.0, 1, steps, 16, 0.75, data, "sex"), "beta": beta} for beta in betas]


def tuned(experiment: Experiment, settings: list[Trial], lrs: tuple[float, ...], seeds: range) -> Results:
    """Every setting with the step size that is best on the validation rows of another seed, then all seeds."""
    grid = experiment.study(work, [{**s, "lr": lr, "seed": TUNING} for s in settings for lr in lrs])
    chosen = best(grid, list(settings[0]), "validation value", larger=False)
    return experiment.study(work, [{**s, "seed": seed} for s in chosen.values() for seed in seeds])


def report(tables_of: dict[str, Results]) -> str:
    lines = []
    for name, done in tables_of.items():
        lines += [f"\n{name}", "| method | ρ | I | lr | exchanges of x | MB | rows | train acc. | train gap | test acc. | test gap |",
                  "|---|---|---|---|---|---|---|---|---|---|---|"]
        done = [({"beta": None, **t}, r) for t, r in done]
        for (method, rho, i, lr, _, beta), found in groups(done, "method", "rho", "local_steps", "lr", "steps", "beta").items():
            cell = {m: mean_std([r[m] for r in found]) for m in ("models", "bytes", "samples")}
            text = " | ".join(percent([r[m] for r in found], 2) for m in METRICS[:4])
            name_of = method if beta is None else f"{method}, β = {beta}"
            lines.append(f"| {name_of} | {rho:g} | {i} | {lr:g} | {cell['models'].mean:.0f} | {cell['bytes'].mean / 1e6:.2f} "
                         f"| {cell['samples'].mean:.0f} | {text} |")
    return "\n".join(lines)


def curves(done: Results, axes: Any, across: str, metric: str) -> None:
    for number, ((method, i), found) in enumerate(groups(done, "method", "local_steps").items()):
        x = [point[across] for point in found[0]["curve"]]
        y = 100 * np.array([[point[metric] for point in r["curve"]] for r in found])
        label = method + (f", I = {i}" if method in ("FedDRO", "FedAvg", "Reweighing") else "")
        band(axes, x[1:], y[:, 1:], number, label)
    axes.set(xlabel={"models": "exchanges of the model", "bytes": "bytes, all clients"}[across], ylabel=f"{metric}, %")


def plot(tables_of: dict[str, Results], where: Path) -> None:
    nested = ("FedDRO", "GCIVR", "GCIVR, B = m")
    of_curves = {"published": tables_of["as published"],
                 "fair": [d for d in tables_of["frontier, sex"] if d[0]["rho"] == (10.0 if d[0]["method"] in nested else 0.0)]}
    for name, done in of_curves.items():
        with figure(where / f"curves-{name}.png", 4, 2, (4.2, 3.5)) as axes:
            for row, across in zip(axes, ("models", "bytes"), strict=True):
                for ax, metric in zip(row, ("train accuracy", "test accuracy", "train gap", "test gap"), strict=True):
                    curves(done, ax, across, metric)
                    ax.set_xscale("log")
                    if "accuracy" in metric:
                        ax.set_ylim(74, 86)
            axes[0][0].legend()
    protected = [name for name in tables_of if name.startswith("frontier")]
    with figure(where / "frontier.png", len(protected) + 2) as axes:
        for ax, name in zip(axes, protected, strict=False):
            trade_off(ax, tables_of[name])
            ax.set(xlabel="test gap of the true positive rates, %", ylabel="test accuracy, %", title=name + " (number: ρ)")
            if name == "frontier, sex":
                top = max(100 * r["test accuracy"] for _, r in tables_of[name])
                ax.set_ylim(top - 3, top + 0.2)
            ax.legend()
        for ax, metric in zip(axes[len(protected):], ("test accuracy", "test gap"), strict=True):
            for number, name in enumerate(("equal samples", "equal rounds", "equal rounds, no constraint")):
                label = "FedAvg, equal rounds" if "no constraint" in name else f"FedDRO, ρ = 10, {name}"
                over_local_steps(ax, tables_of[name], metric, number, label)
            ax.legend()


def trade_off(ax: Any, done: Results) -> None:
    """Accuracy over gap, one line a method, one point for each of its ρ."""
    for number, method in enumerate(("FedDRO", "GCIVR", "GCIVR, B = m", "Unconstrained", "FedAvg", "Reweighing")):
        by_rho, points = groups([d for d in done if d[0]["method"] == method], "rho"), list[tuple[float, float]]()
        for (rho,), found in by_rho.items():
            gap, accuracy = (mean_std([100 * r[f"test {m}"] for r in found]) for m in ("gap", "accuracy"))
            ax.errorbar(gap.mean, accuracy.mean, accuracy.std, gap.std, color=f"C{number}", marker="o", linewidth=0.8,
                        label=None if points else method)
            points.append((gap.mean, accuracy.mean))
            if len(by_rho) > 1:
                ax.annotate(f"{rho:g}", points[-1], textcoords="offset points", xytext=(4, 4), fontsize=7, color=f"C{number}")
        ax.plot([a for a, _ in points], [b for _, b in points], color=f"C{number}", linewidth=0.8)


def main() -> None:
    args = arguments(__doc__, "fair-adult", "a generated table, one penalty, few steps; everything goes to --out").parse_args()
    data = "stand-in" if args.quick else available("adult", "stand-in", tables)
    small = data != "adult"
    experiment = Experiment(HERE, args, small)
    seeds, rhos, local = (range(TUNING, TUNING + 1), (3.0,), (1,)) if small else (range(5), RHOS, LOCAL)

    def of(settings: list[Trial], seeds: range = seeds, lrs: tuple[float, ...] = FAIR) -> Results:
        return tuned(experiment, settings, (0.3,) if small else lrs, seeds)

    tables_of = {"as published": of(published(data, *((16, 1) if small else (128, 32))), lrs=PUBLISHED),
                 "frontier, sex": of(frontier(data, "sex", 16 if small else 512, rhos))}
    for name, settings in local_steps(data, *((16, 4) if small else (512, 32)), local).items():
        tables_of[name] = of(settings)
    if not small:
        tables_of["momentum"] = of(momentum(data, 512, (0.01, 0.03, 0.3)), range(3), FAIR[-2:])
        tables_of["frontier, race"] = of(frontier(data, "race", 512, SOME), range(3))
    print(report(tables_of))
    plot(tables_of, experiment.where)
    with_beta = {name: [({"beta": 0.1 if t["method"] == "FedDRO" else None, **t}, r) for t, r in done] for name, done in tables_of.items()}
    experiment.record(rows_of(with_beta, METRICS, ("data", "protected", "rho", "local_steps", "steps", "batch", "lr", "beta")))


if __name__ == "__main__":
    main()
