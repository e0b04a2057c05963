"""Tables, plots and the rows of the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common import Row, band, diverged, figure, rows_of
from precision import METHODS

from rookery.studies.statistics import groups, mean_std
from rookery.studies.trials import Results

METRICS = ("test AP", "test AUC", "validation AP", "bytes", "samples", "without positives", "diverged")
SETTING = ("data", "split", "weights", "variant", "inner", "steps", "lr")
COLUMNS = ("method", *SETTING)  # those that differ within a table are shown
# Table 2 of the paper
PAPER = {"published, mnist": {"FedAvg": 0.9357, "CODA+": 0.9733, "FCSG": 0.9868, "FCSG-M": 0.9878, "Acc-FCSG-M": 0.9879},
         "published, cifar10": {"FedAvg": 0.5059, "CODA+": 0.6039, "FCSG": 0.7130, "FCSG-M": 0.7157, "Acc-FCSG-M": 0.7184}}


def record_rows(compared: dict[str, Results]) -> list[Row]:
    """The rows of the record, with the paper's figures where it prints them."""
    table = rows_of(compared, METRICS, SETTING)
    for row in table:
        if row["metric"] == "test AP":
            row["paper"] = PAPER.get(row["setting"]["table"], {}).get(row["method"])
    return table


def report(name: str, done: Results) -> str:
    shown = [c for c in COLUMNS if c in ("method", "lr") or len({trial[c] for trial, _ in done}) > 1]
    paper = PAPER.get(name, {})
    titles = [*shown, "MB", "rows", "test AP", "test AUC", "held-out AP", *(["paper"] if paper else [])]
    lines = [f"\n{name}", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for key, found in groups(done, *shown).items():
        of = dict(zip(shown, key, strict=True))
        cells = [str(of[c]) + (diverged(found) if c == "method" else "") or "–" for c in shown]
        cells += [f"{found[0]['bytes'] / 1e6:.0f}", f"{found[0]['samples']:.0f}"]
        cells += [str(mean_std([r[m] for r in found])) for m in ("test AP", "test AUC", "validation AP")]
        lines.append(f"| {' | '.join(cells + ([str(paper.get(of['method'], '–'))] if paper else []))} |")
    return "\n".join(lines)


def curves(ax: Any, done: Results, title: str) -> None:
    """Test AP, of 1 000 rows, over the iterations; runs that broke off are left out."""
    for (method, variant, steps), found in groups(done, "method", "variant", "steps").items():
        whole = [r["curve"] for r in found if not r["diverged"]]
        if whole and steps == max(trial["steps"] for trial, _ in done):
            band(ax, [t for t, _ in whole[0]], [[value for _, value in curve] for curve in whole], METHODS.index(method),
                 f"{method}, {variant}" if variant else method, linestyle={"": "-", "reweighted": ":"}.get(variant, "--"))
    late = [value for _, r in done if not r["diverged"] for _, value in r["curve"][len(r["curve"]) // 3:]]
    if late:
        low, high = np.quantile(late, 0.1), max(late)  # the last part of the climb; what collapsed leaves the frame
        ax.set_ylim(low - 0.5 * (high - low) - 1e-3, high + 0.1 * (high - low) + 1e-3)
    ax.set(xlabel="iterations", ylabel="test AP", title=title)
    ax.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))  # beside the curves, as there are up to thirteen


def over(ax: Any, done: Results, across: str, dashed: bool = False) -> None:
    """Mean and standard deviation of the test AP over one entry of the trials."""
    for method, variant in groups(done, "method", "variant"):
        own = [d for d in done if (d[0]["method"], d[0]["variant"]) == (method, variant)]
        found = {x: mean_std([r["test AP"] for r in part]) for (x,), part in
                 groups(sorted(own, key=lambda d: d[0][across]), across).items()}
        label = method if across == "lr" else f"{method}, step size {own[0][0]['lr']:g}"
        ax.errorbar(list(found), [v.mean for v in found.values()], [v.std for v in found.values()], marker="o", capsize=2,
                    color=f"C{METHODS.index(method)}", linestyle="--" if dashed else "-", label=label)
    ax.set_xscale("log")
    ax.set(xlabel={"inner": "inner batch m", "lr": "step size"}[across], ylabel="test AP")
    ax.legend()


def plot(compared: dict[str, Results], where: Path) -> None:
    for start in ("published", "tuned", "longer", "natural"):
        names = [name for name in compared if name.startswith(start) and compared[name]]
        if names:
            with figure(where / f"{start}.png", len(names), squeeze=False, size=(6.8, 4.2)) as axes:
                for ax, name in zip(axes[0], names, strict=True):
                    curves(ax, compared[name], name)
    inner = [name for name in compared if name.startswith("inner") and compared[name]]
    if inner:
        with figure(where / "inner.png", 1, size=(5.6, 4.4)) as ax:
            for name in inner:
                over(ax, compared[name], "inner", dashed="published" in name)
            ax.set_xticks(sizes := sorted({trial["inner"] for name in inner for trial, _ in compared[name]}), [str(m) for m in sizes])
    steps = [name for name in compared if name.startswith("step sizes") and compared[name]]
    if steps:
        with figure(where / "steps.png", len(steps), squeeze=False) as axes:
            for ax, name in zip(axes[0], steps, strict=True):
                over(ax, compared[name], "lr")
                ax.set_title(name)
