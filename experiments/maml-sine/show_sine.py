"""Tables and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from common import band, diverged, figure
from sinusoids import METHODS, MOST, SCRATCH, SHOWN, SUPPORT, held

from rookery.studies.statistics import groups, mean_std
from rookery.studies.trials import Result, Results

BY_STEPS = tuple(f"test loss after {k}" for k in range(MOST + 1))
METRICS = ("test loss", "validation loss", "test loss, own step", *BY_STEPS, "exchanges", "bytes", "samples", "diverged")


def hundredths(found: list[Result], metric: str) -> str:
    values = [r[metric] for r in found if r.get(metric) is not None]
    if not values:
        return "–"
    s = mean_std(values)
    return f"{s.mean:.3f}" + (f" ± {s.std:.3f}" if s.seeds > 1 else "")


def report(name: str, done: Results) -> str:
    shown = ("test loss after 0", "test loss after 1", "test loss", f"test loss after {MOST}", "test loss, own step")
    titles = ["method", "lr", "β", "tracking", "MB", *shown]
    lines = [f"\n{name}", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (method, *chosen), found in groups(done, "method", "lr", "beta", "tracking").items():
        cells = [method + diverged(found), *("–" if value is None else f"{value:g}" for value in chosen), f"{found[0]['bytes'] / 1e6:.1f}",
                 *(hundredths(found, metric) for metric in shown)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(compared: dict[str, Results], where: Path) -> None:
    if "tuned" not in compared:
        return
    found = {method: [r for r in some if not r["diverged"]] for (method,), some in groups(compared["tuned"], "method").items()}
    whole = {method: some for method, some in found.items() if some}
    with figure(where / "curves.png", 3, size=(5.0, 4.0)) as axes:
        for ax, across in zip(axes[:2], ("round", "bytes"), strict=True):
            for method, some in whole.items():
                if not method.startswith(SCRATCH):
                    band(ax, [row[across] for row in some[0]["curve"]], [[row["test loss"] for row in r["curve"]] for r in some],
                         METHODS.index(method), method)
            ax.set(xlabel="rounds" if across == "round" else "bytes, all clients", ylabel="error on new tasks, 3 steps", yscale="log")
        for method, some in whole.items():
            band(axes[2], range(MOST + 1), [[r[key] for key in BY_STEPS] for r in some], METHODS.index(method), method)
        axes[2].set(xlabel="steps on a new task", ylabel="error on new tasks", yscale="log")
        axes[2].legend(loc="upper left", bbox_to_anchor=(1.01, 1))  # beside the curves, which fill the panel
    several = [method for method in ("FCSG-M", "Local-SCGDM", "FedAvg") if method in whole]
    if several:
        with figure(where / "sinusoid.png", len(several), sharey=True, squeeze=False) as axes:
            for ax, method in zip(axes[0], several, strict=True):
                one_task(ax, whole[method][0], method)
            axes[0][0].legend()


def one_task(ax: Any, result: Result, title: str) -> None:
    """A new sinusoid, its ten points, and the net before and after steps on these."""
    inputs, targets = (column[SHOWN].numpy() for column in held("test"))
    order = np.argsort(inputs)
    ax.plot(inputs[order], targets[order], color="0.6", linewidth=3, label="the task")
    ax.plot(inputs[:SUPPORT], targets[:SUPPORT], "k^", label="its support")
    for line, steps, style in zip(result["lines"], (0, 1, MOST), (":", "--", "-"), strict=True):
        ax.plot(np.linspace(-5, 5, len(line)), line, style, color="C3", label=f"{steps} steps")
    ax.set(title=title, xlabel="input")
