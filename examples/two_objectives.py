"""Two objectives, one federation: mean cross-entropy by FedAvg and KL-DRO by FedDRO, on scikit-learn's digits.

Ten sites hold unlike shares of the digits, and the digits 5–9 are rare in training. Cross-entropy cares for the average row,
KL-DRO for the rows it does worst on; the price shows in the accuracy. Both get the same data, linear model, batch, local steps and
rounds, and the same choice of step sizes, made on a validation part by the loss of its worst tenth; the test part is balanced.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import functional as F

from rookery import Data, FedAvg, FedDRO, Federation, Model
from rookery.data import dirichlet
from rookery.models import mlp
from rookery.objectives import cross_entropy, cross_entropy_losses, kl_dro
from rookery.run import Run, run

mpl.use("Agg")
from matplotlib import pyplot as plt

SITES, RARE, ROUNDS, STEPS, BATCH, SEEDS, GRID, LAM = 10, 0.08, 80, 5, 32, 5, (0.1, 0.3, 1.0, 3.0), 2.0
METHODS = {"FedAvg": "mean cross-entropy", "FedDRO": "KL-DRO"}
COLOURS = {"FedAvg": "#7a7a7a", "FedDRO": "#1f6fb4"}


def data(seed: int) -> tuple[Data, tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Federated training rows, and the validation and test parts."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    x, xt, y, yt = train_test_split(x, y, test_size=0.3, stratify=y, random_state=seed)
    x, xv, y, yv = train_test_split(x, y, test_size=0.25, stratify=y, random_state=seed)
    r = np.random.default_rng(seed)
    keep = (y < 5) | (r.random(len(y)) < RARE)
    x, y = x[keep], y[keep]
    sites = dirichlet(y, SITES, alpha=1.0, seed=seed)
    tensors = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in ((xv, yv), (xt, yt))]
    return Data.by_site({"inputs": x, "labels": y.astype(np.int64)}, sites), tensors[0], tensors[1]


def scores(model: Model, x: torch.Tensor, part: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    output = model.predict(x, part[0])
    losses = F.cross_entropy(output, part[1], reduction="none")
    right = (output.argmax(1) == part[1]).double()
    return {"accuracy": float(right.mean()), "worst": float(min(right[part[1] == c].mean() for c in range(10))),
            "tail": float(losses.sort().values[-(len(losses) // 10):].mean())}


def train(method: str, lr: float, seed: int, part: int) -> tuple[Run, Federation]:
    """One run, scored on the validation (1) or the test part (2) as it goes."""
    torch.manual_seed(seed)
    parts = data(seed)
    model = Model(mlp(64, 10))
    problem: Any = cross_entropy(model) if method == "FedAvg" else kl_dro(cross_entropy_losses(model), LAM, model=model)
    fed = Federation(problem, parts[0], weights="samples", seed=seed)
    problem.prepare(fed, model.vector())
    algorithm: Any = FedAvg(lr, STEPS, BATCH) if method == "FedAvg" else FedDRO(lr, 0.5, STEPS, BATCH)
    state = algorithm.init(fed, model.vector())
    result = run(algorithm, fed, state, ROUNDS, lambda s: scores(model, s.x, parts[part]), every=4)  # type: ignore[arg-type]
    return result, fed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 120)
    runs: dict[str, list[list[dict[str, float]]]] = {}
    chosen, feds = {}, {}
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("training", total=len(METHODS) * (len(GRID) + SEEDS))
        for method in METHODS:
            found = {}
            for lr in GRID:
                tried = train(method, lr, 0, 1)[0]
                found[lr] = tried.history[-1]["tail"] if tried.reason == "rounds" else float("inf")
                progress.advance(bar)
            chosen[method] = min(found, key=lambda lr: found[lr])
            runs[method] = []
            for seed in range(1, SEEDS + 1):
                done, feds[method] = train(method, chosen[method], seed, 2)
                runs[method].append(done.history)
                progress.advance(bar)

    table = Table(title=f"Digits over {SITES} unlike sites, classes 5–9 kept at {RARE:.0%}; balanced test part, {SEEDS} seeds")
    for column in ("method", "objective", "step size", "worst tenth's loss", "accuracy", "worst class", "exchanges", "MB sent"):
        table.add_column(column, justify="left" if column in ("method", "objective") else "right")
    rows = []
    for method, objective in METHODS.items():
        last = {key: np.asarray([h[-1][key] for h in runs[method]]) for key in ("tail", "accuracy", "worst", "exchanges", "bytes")}
        rows.append({"method": method, "objective": objective, "lr": chosen[method], **{key: v.tolist() for key, v in last.items()}})
        spread = [f"{last[key].mean():.3f} ± {last[key].std():.3f}" for key in ("tail", "accuracy", "worst")]
        table.add_row(method, objective, f"{chosen[method]:g}", *spread,
                      f"{last['exchanges'].mean():.0f}", f"{last['bytes'].mean() / 1e6:.1f}")
    console.print(table)
    (out / "results.json").write_text(json.dumps(rows, indent=1))

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for axis, key, title in zip(axes, ("tail", "accuracy"), ("Loss of the worst tenth of the test rows", "Test accuracy"), strict=True):
        for method, colour in COLOURS.items():
            rounds = [row["round"] for row in runs[method][0]]
            values = np.asarray([[row[key] for row in h] for h in runs[method]])
            axis.plot(rounds, values.mean(0), color=colour, lw=2, label=f"{method}, {METHODS[method]}")
            axis.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.18, lw=0)
        axis.set(title=title, xlabel="round")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(out / "curves.png", dpi=130)
    console.print(f"engine {feds['FedDRO'].engine.name}; plot: {out / 'curves.png'}, numbers: {out / 'results.json'}")


if __name__ == "__main__":
    main()
