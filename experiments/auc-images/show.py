"""Tables, plots and the rows of the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common import Row, band, diverged, figure, rows_of

from rookery.studies.statistics import groups, mean_std
from rookery.studies.trials import Results

METRICS = ("test AUC", "test AP", "validation AUC", "test AUC of h", "iteration", "bytes", "samples", "diverged")
SETTING = ("data", "share", "variant", "local_steps", "steps", "lr")
# Table 1 of the paper, Fashion-MNIST; its ± is the variance over devices
PAPER = {"LocalSCGDAM": (0.980, 0.980, 0.980), "CoDA": (0.976, 0.976, 0.976), "LocalSGDAM": (0.977, 0.977, 0.976),
         "LocalSGDM": (0.963, 0.956, 0.955), "LocalSGDM_RL": (0.980, 0.957, 0.962)}
PERIODS = (4, 8, 16)
HALF = "from ½"  # the variant with w₁ and w₂ at ½ to begin with
MLP = "MLP, "  # how names of tables begin
CORRECTED = ("LocalSCGDAM", "LocalSGDAM", "LocalSGDM")  # beside which SCAFFOLD and FedProx are shown
COLOURS = ("LocalSCGDAM", "CoDA", "LocalSGDAM", "LocalSGDM", "LocalSGDM_RL", "LocalSGDM, class weights", "LocalSGDM, balanced batches",
           "SCAFFOLD", "FedProx", "LocalSCGDAM, h")


def record_rows(compared: dict[str, Results]) -> list[Row]:
    """The rows of the record, with the paper's figures where it prints them; of cats also the last AUC before so many iterations."""
    table = rows_of(compared, METRICS, SETTING)
    for row in table:
        if "published" in row["setting"]["table"] and row["metric"] == "test AUC":
            row["paper"] = PAPER[row["method"]][PERIODS.index(row["setting"]["local_steps"])]
    for name, done in compared.items():
        if name == "cats":
            table += [{"method": t["method"], "setting": {"table": name, "iterations": t["least"]}, "metric": "test AUC of the curve",
                       "mean": at(r["curve"], t["least"]), "std": 0.0, "seeds": 1, "paper": None} for t, r in done]
    return table


def at(curve: list[Row], iterations: int) -> float:
    """The test AUC at the last point that is not beyond so many iterations."""
    found: float = [point["test AUC"] for point in curve if point["iteration"] <= iterations][-1]
    return found


def thousandths(values: list[float]) -> str:
    found = mean_std(values)
    return f"{found.mean:.4f}" + (f" ± {found.std:.4f}" if found.seeds > 1 else "")


def report(name: str, done: Results) -> str:
    paper, minutes = "published" in name, name == "cats"
    more = [title for title, there in (("paper", paper), ("iterations", minutes), (f"AUC at {done[0][0].get('least')}", minutes)) if there]
    titles = ["method", "variant", "lr", "MB", "rows", "test AUC", "test AP", *more]
    lines = [f"\n{name}", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (method, variant, lr), found in groups(done, "method", "variant", "lr").items():
        trial = next(t for t, _ in done if (t["method"], t["variant"], t["lr"]) == (method, variant, lr))
        cells = [method + diverged(found), variant or "–", f"{lr:g}", f"{found[0]['bytes'] / 1e6:.0f}", f"{found[0]['samples']:.0f}",
                 *(thousandths([r[m] for r in found]) for m in ("test AUC", "test AP"))]
        if paper:
            cells.append(f"{PAPER[method][PERIODS.index(trial['local_steps'])]:.3f}")
        if minutes:
            cells += [f"{found[0]['iteration']:.0f}", f"{at(found[0]['curve'], trial['least']):.4f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def curves(ax: Any, done: Results, across: str) -> None:
    for (method, variant), found in groups(done, "method", "variant").items():
        whole = [r["curve"] for r in found if not r["diverged"]]
        if whole:
            band(ax, [point[across] for point in whole[0]], [[point["test AUC"] for point in curve] for curve in whole],
                 COLOURS.index(method), label(method, variant), linestyle="--" if variant == HALF else "-")
    ax.set(xlabel={"iteration": "iterations", "bytes": "bytes, all clients", "minutes": "minutes of one core"}[across], ylabel="test AUC")


def zoom(ax: Any, done: Results) -> None:
    """The last part of the climb; runs that collapsed leave the frame."""
    values = [point["test AUC"] for _, r in done if not r["diverged"] for point in r["curve"][max(1, len(r["curve"]) // 4):]]
    if values:
        low, high = np.quantile(values, 0.25), max(values)
        ax.set_ylim(low - 2 * (high - low) - 1e-3, high + 0.1 * (high - low) + 1e-3)


def plot(compared: dict[str, Results], where: Path) -> None:
    plain = {name: done for name, done in compared.items() if not name.startswith(MLP)}
    for tables, prefix in ((plain, ""), ({name.removeprefix(MLP): done for name, done in compared.items() if name not in plain}, "mlp-")):
        plot_images(tables, where, prefix)
    ablations = [name for name in compared if "ablation" in name]
    if ablations:
        with figure(where / "ablation.png", len(ablations), squeeze=False, size=(6.0, 4.0)) as axes:
            for name, ax in zip(ablations, axes[0], strict=True):
                bars(ax, compared[name], name)
    if "cats" in compared:
        with figure(where / "cats.png", 2) as axes:
            for ax, across in zip(axes, ("iteration", "minutes"), strict=True):
                curves(ax, compared["cats"], across)
            axes[0].legend()


def plot_images(compared: dict[str, Results], where: Path, prefix: str) -> None:
    """The plots of one net on images."""
    periods = sorted((name for name in compared if name.startswith("published")), key=lambda name: int(name.split()[-1]))
    shares = sorted((name for name in compared if name.startswith("tuned")), key=lambda name: float(name.split()[1]))
    for names, file in ((periods, "published"), (shares, "tuned")):
        if names:
            with figure(where / f"{prefix}{file}.png", len(names), 2, squeeze=False) as axes:
                for name, (first, second) in zip(names, axes.T, strict=True):
                    for ax, across in ((first, "iteration"), (second, "bytes")):
                        curves(ax, compared[name], across)
                        zoom(ax, compared[name])
                        ax.set_title(name)
                axes[0][0].legend()
    if "corrected" in compared and "tuned, 10 %" in compared:
        with figure(where / f"{prefix}corrected.png", 1) as ax:
            several = compared["corrected"] + [d for d in compared["tuned, 10 %"] if d[0]["method"] in CORRECTED]
            curves(ax, several, "iteration")
            zoom(ax, several)
            ax.set_title("10 % positives")
            ax.legend()
    some = [d for name, done in compared.items() if name.startswith(("tuned", "imbalance")) for d in done]
    if len({trial["share"] for trial, _ in some}) > 2:
        with figure(where / f"{prefix}imbalance.png", 1, size=(5.2, 4.4)) as ax:
            over_shares(ax, some)


def label(method: str, variant: str) -> str:
    return f"{method}, {HALF}" if variant == HALF else method


def over_shares(ax: Any, done: Results) -> None:
    """Mean and standard deviation over the share of positives."""
    for method, variant in groups(done, "method", "variant"):
        own = [d for d in done if (d[0]["method"], d[0]["variant"]) == (method, variant)]
        found = groups(sorted(own, key=lambda d: d[0]["share"]), "share")
        if len(found) > 2:
            values = [mean_std([r["test AUC"] for r in part]) for part in found.values()]
            ax.errorbar([share for share, in found], [v.mean for v in values], [v.std for v in values], marker="o",
                        color=f"C{COLOURS.index(method)}", linestyle="--" if variant == HALF else "-", label=label(method, variant))
    ax.set_xscale("log")
    ax.set(xlabel="share of positives in training", ylabel="test AUC")
    means = [mean_std([r["test AUC"] for r in part]).mean for part in groups(done, "method", "variant", "share").values()]
    low, high = float(np.quantile(means, 0.25)), max(means)  # what collapsed leaves the frame
    ax.set_ylim(low - 1.5 * (high - low), high + 0.3 * (high - low))
    ax.legend(fontsize="small", ncols=2, loc="lower right")


def bars(ax: Any, done: Results, title: str) -> None:
    found = groups(done, "method", "variant")
    labels = [f"{method}, {variant or 'from scratch'}" for method, variant in found]
    values = [mean_std([r["test AUC"] for r in part]) for part in found.values()]
    ax.errorbar([v.mean for v in values], range(len(values)), xerr=[v.std for v in values], fmt="o", color="C0")
    ax.set_yticks(range(len(values)), labels)
    ax.invert_yaxis()
    ax.set(xlabel="test AUC", title=title)
    middle = float(np.quantile([v.mean for v in values], 0.25))  # what collapsed leaves the frame
    ax.set_xlim(left=max(min(v.mean - v.std for v in values), middle - 0.05) - 0.002)
