"""Equality of opportunity on Adult: FedDRO, GCIVR, reweighing and no constraint at all, with logistic regression at eight sites.

    python experiments/fair-adult/run.py            the whole study, plots, results.json; Adult in $ROOKERY_DATA
    python experiments/fair-adult/run.py --quick    a small generated table in its place, written to --out only

Khanduri et al., "FedDRO: Federated compositional optimization for distributionally robust learning", Figure 3;
Kamiran, Calders, "Data preprocessing techniques for classification without discrimination", Knowledge and Information Systems 2012.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from census import tables, work

from rookery.errors import DataError
from rookery.studies.statistics import best, groups, mean_std, rows
from rookery.studies.trials import Results, Trial, announce, arguments, record, study

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


def tuned(settings: list[Trial], lrs: tuple[float, ...], seeds: range, store: Path, jobs: int) -> Results:
    """Every setting with the step size that is best on the validation rows of another seed, then all seeds."""
    grid = study(work, [{**s, "lr": lr, "seed": TUNING} for s in settings for lr in lrs], store, jobs, announce)
    chosen = best(grid, list(settings[0]), "validation value", larger=False)
    return study(work, [{**s, "seed": seed} for s in chosen.values() for seed in seeds], store, jobs, announce)


def report(tables_of: dict[str, Results]) -> str:
    lines = []
    for name, done in tables_of.items():
        lines += [f"\n{name}", "| method | ρ | I | lr | exchanges of x | MB | rows | train acc. | train gap | test acc. | test gap |",
                  "|---|---|---|---|---|---|---|---|---|---|---|"]
        done = [({"beta": None, **t}, r) for t, r in done]
        for (method, rho, i, lr, _, beta), found in groups(done, "method", "rho", "local_steps", "lr", "steps", "beta").items():
            cell = {m: mean_std([r[m] for r in found]) for m in METRICS}
            text = " | ".join(f"{100 * cell[m].mean:.2f} ± {100 * cell[m].std:.2f}" for m in METRICS[:4])
            name_of = method if beta is None else f"{method}, β = {beta}"
            lines.append(f"| {name_of} | {rho:g} | {i} | {lr:g} | {cell['models'].mean:.0f} | {cell['bytes'].mean / 1e6:.2f} "
                         f"| {cell['samples'].mean:.0f} | {text} |")
    return "\n".join(lines)


def curves(done: Results, axes: Any, across: str, metric: str) -> None:
    for number, ((method, i), found) in enumerate(groups(done, "method", "local_steps").items()):
        x = [point[across] for point in found[0]["curve"]]
        y = 100 * np.array([[point[metric] for point in r["curve"]] for r in found])
        label = method + (f", I = {i}" if method in ("FedDRO", "FedAvg", "Reweighing") else "")
        axes.plot(x[1:], y.mean(0)[1:], color=f"C{number}", label=label, linewidth=1.3)
        axes.fill_between(x[1:], y.min(0)[1:], y.max(0)[1:], color=f"C{number}", alpha=0.12, linewidth=0)
    axes.set(xlabel={"models": "exchanges of the model", "bytes": "bytes, all clients"}[across], ylabel=f"{metric}, %")
    axes.grid(alpha=0.3)


def plot(tables_of: dict[str, Results], where: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    nested = ("FedDRO", "GCIVR", "GCIVR, B = m")
    of_curves = {"published": tables_of["as published"],
                 "fair": [d for d in tables_of["frontier, sex"] if d[0]["rho"] == (10.0 if d[0]["method"] in nested else 0.0)]}
    for name, done in of_curves.items():
        figure, axes = plt.subplots(2, 4, figsize=(17, 7))
        for row, across in zip(axes, ("models", "bytes"), strict=True):
            for ax, metric in zip(row, ("train accuracy", "test accuracy", "train gap", "test gap"), strict=True):
                curves(done, ax, across, metric)
                ax.set_xscale("log")
                if "accuracy" in metric:
                    ax.set_ylim(74, 86)
        axes[0][0].legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(where / f"curves-{name}.png", dpi=100)
    protected = [name for name in tables_of if name.startswith("frontier")]
    figure, axes = plt.subplots(1, len(protected) + 2, figsize=(4.6 * (len(protected) + 2), 4.2))
    for ax, name in zip(axes, protected, strict=False):
        for number, method in enumerate(("FedDRO", "GCIVR", "GCIVR, B = m", "Unconstrained", "FedAvg", "Reweighing")):
            points: list[tuple[float, float]] = []
            for (rho,), found in groups([d for d in tables_of[name] if d[0]["method"] == method], "rho").items():
                gap, accuracy = (mean_std([100 * r[f"test {m}"] for r in found]) for m in ("gap", "accuracy"))
                ax.errorbar(gap.mean, accuracy.mean, accuracy.std, gap.std, color=f"C{number}", marker="o", markersize=4, linewidth=0.8,
                            label=None if points else method)
                points.append((gap.mean, accuracy.mean))
                if len({t["rho"] for t, _ in tables_of[name] if t["method"] == method}) > 1:
                    ax.annotate(f"{rho:g}", points[-1], textcoords="offset points", xytext=(4, 4), fontsize=7, color=f"C{number}")
            ax.plot([a for a, _ in points], [b for _, b in points], color=f"C{number}", linewidth=0.8)
        ax.set(xlabel="test gap of the true positive rates, %", ylabel="test accuracy, %", title=name + " (number: ρ)")
        if name == "frontier, sex":
            top = max(100 * r["test accuracy"] for _, r in tables_of[name])
            ax.set_ylim(top - 3, top + 0.2)
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    for ax, metric in zip(axes[len(protected):], ("test accuracy", "test gap"), strict=True):
        for number, name in enumerate(("equal samples", "equal rounds", "equal rounds, no constraint")):
            found = [(i, mean_std([100 * r[metric] for r in part])) for (i,), part in groups(tables_of[name], "local_steps").items()]
            ax.errorbar([i for i, _ in found], [s.mean for _, s in found], [s.std for _, s in found], marker="o", markersize=4,
                        color=f"C{number}", label=f"FedDRO, ρ = 10, {name}" if "no" not in name.split() else "FedAvg, equal rounds")
        ax.set_xscale("log", base=2)
        ax.set(xlabel="local steps I", ylabel=f"{metric}, %")
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(where / "frontier.png", dpi=100)


def main() -> None:
    args = arguments(__doc__, "fair-adult", "a generated table, one penalty, few steps; everything goes to --out").parse_args()
    data = "stand-in"
    if not args.quick:
        try:
            tables("adult")
            data = "adult"
        except DataError as error:
            print(f"no Adult, and a small generated table in its place: {error}")
    small = data != "adult"
    where, store = (args.out, args.out / "quick.jsonl") if small else (HERE, args.out / "trials.jsonl")
    seeds, rhos, local = (range(TUNING, TUNING + 1), (3.0,), (1,)) if small else (range(5), RHOS, LOCAL)

    def of(settings: list[Trial], seeds: range = seeds, lrs: tuple[float, ...] = FAIR) -> Results:
        return tuned(settings, (0.3,) if small else lrs, seeds, store, args.jobs)

    tables_of = {"as published": of(published(data, *((16, 1) if small else (128, 32))), lrs=PUBLISHED),
                 "frontier, sex": of(frontier(data, "sex", 16 if small else 512, rhos))}
    for name, settings in local_steps(data, *((16, 4) if small else (512, 32)), local).items():
        tables_of[name] = of(settings)
    if not small:
        tables_of["momentum"] = of(momentum(data, 512, (0.01, 0.03, 0.3)), range(3), FAIR[-2:])
        tables_of["frontier, race"] = of(frontier(data, "race", 512, SOME), range(3))
    print(report(tables_of))
    plot(tables_of, where)
    table = [row | {"setting": {"table": name, **row["setting"]}} for name, done in tables_of.items()
             for row in rows([({"beta": 0.1 if t["method"] == "FedDRO" else None, **t}, r) for t, r in done], METRICS,
                             setting=("data", "protected", "rho", "local_steps", "steps", "batch", "lr", "beta"))]
    minutes = sum(json.loads(line)["result"]["seconds"] for line in store.read_text().splitlines()) / 60 / args.jobs  # grids too
    record(where / "results.json", table, minutes, None if small else "python experiments/fair-adult/run.py")


if __name__ == "__main__":
    main()
