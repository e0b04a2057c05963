"""Tables with paired intervals, plots and the rows of the record."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from common import Row, band, diverged, figure, percent, row, rows_of
from shards import ALONE, METHODS, TUNED

from rookery.studies.statistics import PairedTTest, groups, paired_ttest
from rookery.studies.trials import Results

SCORES = ("test accuracy", "test worst tenth")
METRICS = (*SCORES, "validation accuracy", "exchanges", "bytes", "samples", "diverged")
SETTING = ("data", "shards", "local_steps", "steps", "lr", "inner_lr", "beta")


def against(done: Results, method: str, metric: str) -> PairedTTest | None:
    """The differences to FedAvg with fine-tuning on the seeds that both have."""
    of = {name: {t["seed"]: r[metric] for t, r in done if t["method"] == name and r.get(metric) is not None} for name in (method, TUNED)}
    seeds = sorted(of[method].keys() & of[TUNED].keys())
    if method == TUNED or len(seeds) < 2:
        return None
    return paired_ttest(*([of[name][seed] for seed in seeds] for name in (method, TUNED)))


def record_rows(compared: dict[str, Results]) -> list[Row]:
    """The means, and the differences to FedAvg with fine-tuning with the ends of their 95 % intervals."""
    table = rows_of(compared, METRICS, SETTING)
    for name, done in compared.items():
        for (method,), found in groups(done, "method").items():
            for metric in SCORES:
                test = against(done, method, metric)
                if test is not None:
                    table += [row(method, {"table": name}, f"{metric}, difference{end}", value, None, len(found))
                              for end, value in (("", test.mean), (", low", test.low), (", high", test.high))]
    return table


def interval(test: PairedTTest | None) -> str:
    if test is None:
        return "–"
    found = f"{100 * test.mean:+.1f}"
    return found if math.isnan(test.p) else f"{found} ({100 * test.low:+.1f} … {100 * test.high:+.1f})"


def report(name: str, done: Results) -> str:
    titles = ["method", "lr", "inner lr", "β", "MB", "rows", "accuracy, %", "to fine-tuned", "worst tenth, %", "to fine-tuned"]
    lines = [f"\n{name}", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (method, *chosen), found in groups(done, "method", "lr", "inner_lr", "beta").items():
        cells = [method + diverged(found), *("–" if value is None else f"{value:g}" for value in chosen), f"{found[0]['bytes'] / 1e6:.1f}",
                 f"{found[0]['samples']:.0f}"]
        for metric in SCORES:
            values = [r[metric] for r in found if r.get(metric) is not None]
            cells += [percent(values) if values else "–", interval(against(done, method, metric))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(compared: dict[str, Results], where: Path) -> None:
    for name, done in compared.items():
        with figure(where / f"{name.split()[0]}-classes.png", 2, 2) as axes:
            for column, across in zip(axes.T, ("round", "bytes"), strict=True):
                for ax, metric in zip(column, SCORES, strict=True):
                    curves(ax, done, metric, across)
            axes[0][0].set_title(name)
            axes[0][0].legend()


def curves(ax: Any, done: Results, metric: str, across: str) -> None:
    """Over the rounds or the bytes; what is trained alone is a line across."""
    for (method,), found in groups(done, "method").items():
        some, number = [r for r in found if not r["diverged"]], METHODS.index(method)
        if some and method == ALONE:
            ax.axhline(sum(r[metric] for r in some) / len(some), color=f"C{number}", linestyle=":", label=method)
        elif some:
            band(ax, [p[across] for p in some[0]["curve"]], [[p[metric] for p in r["curve"]] for r in some], number, method)
    ax.set(xlabel="rounds" if across == "round" else "bytes, all clients", ylabel=metric)
