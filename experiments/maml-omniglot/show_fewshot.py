"""Tables and plots."""

from __future__ import annotations

from pathlib import Path

from common import band, diverged, figure, percent
from fewshot import METHODS, NONE, WAYS

from rookery.studies.statistics import groups
from rookery.studies.trials import Results

METRICS = ("test accuracy", "test accuracy, own step", "own step", "validation accuracy", "round", "exchanges", "bytes", "samples",
           "diverged")


def report(name: str, done: Results) -> str:
    titles = ["method", "lr", "β", "tracking", "iterations", "MB", "test accuracy, %", "own step", "with it, %", "validation accuracy, %"]
    lines = [f"\n{name}", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (method, *chosen, steps), found in groups(done, "method", "lr", "beta", "tracking", "steps").items():
        own = sorted({f"{r['own step']:g}" for r in found if "own step" in r})
        cells = [method + diverged(found), *("–" if value is None else f"{value:g}" for value in chosen), f"{steps}",
                 f"{found[0]['bytes'] / 1e6:.0f}", percent([r["test accuracy"] for r in found]), ", ".join(own) or "–",
                 *(percent([r.get(metric, 1 / WAYS) for r in found]) for metric in ("test accuracy, own step", "validation accuracy"))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(compared: dict[str, Results], where: Path) -> None:
    with figure(where / "curves.png", len(compared), 2, squeeze=False) as axes:
        for (name, done), column in zip(compared.items(), axes.T, strict=True):
            for ax, across in zip(column, ("iteration", "bytes"), strict=True):
                for (method,), found in groups(done, "method").items():
                    whole = [r["curve"] for r in found if not r["diverged"]]
                    if method == NONE:
                        ax.axhline(sum(r["test accuracy"] for r in found) / len(found), color="0.5", linestyle=":", label=method)
                    elif whole:
                        band(ax, [point[across] for point in whole[0]], [[point["test accuracy"] for point in c] for c in whole],
                             METHODS.index(method), method)
                ax.set(xlabel="iterations" if across == "iteration" else "bytes, all clients", ylabel="accuracy on new tasks", title=name)
        axes[0][0].legend()
