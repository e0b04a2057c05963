"""Invariant logistic regression over 16 clients: FCSG, FCSG-M and Acc-FCSG-M at three noise levels and three inner batches.

    python experiments/invariant-logistic/run.py            all of it: nine panels, two tables, the plot, results.json
    python experiments/invariant-logistic/run.py --quick    a small version in a minute, written to --out only

Wu et al., "Federated conditional stochastic optimization", NeurIPS 2023, section 5.1 and Figure 1.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, arguments, band, figure, percent, run_to_end, timed
from torch import Tensor
from torch.nn import functional as F

from rookery import FCSG, FCSGM, AccFCSGM, Conditional, Data, Federation
from rookery.objectives import invariant_logistic
from rookery.studies.statistics import best, groups, mean_std, paired_ttest, rows
from rookery.studies.trials import Result, Results, Trial, trials

HERE = Path(__file__).resolve().parent
D, CLIENTS, LOCAL_STEPS, TEST = 10, 16, 50, 50_000
FIRST = 32  # outer samples of the first gradient, as in the authors' public code
TAIL, END = 10, 5  # rounds over which steadiness is measured, and over which the final accuracy is averaged
METHODS = {"FCSG": FCSG, "FCSG-M": FCSGM, "Acc-FCSG-M": AccFCSGM}
NOISES, INNER = (1.0, 1.5, 2.0), (1, 10, 100)
PUBLISHED, WIDER = (0.001, 0.005, 0.01), (0.02, 0.05)  # the paper's step sizes, and those that the fair table may also choose
BETAS, SOME = (0.001, 0.01, 0.1, 0.5, 0.9), (0.1, 0.9)  # the paper's, and those that are tried with the wider step sizes
TUNE, SEEDS = (100, 101), range(5)  # tuning never sees a seed of the test: other truth, other start, other samples


def outside(problem: Conditional) -> Conditional:
    """The mean over the views taken outside the logarithm, as in the authors' public code: the loss of one view, averaged."""
    return replace(problem, f=lambda u, xi: u[:, 0], g=lambda x, xi, eta: F.softplus(-xi.b[:, None] * (eta.eta @ x))[..., None], oracles={})


def accuracy(x: Tensor, inputs: Tensor, labels: Tensor) -> float:
    """The share of clean inputs a with sign(aᵀx) = b; E[ηᵀx | a] is aᵀx."""
    return float(((inputs @ x) * labels > 0).double().mean())


@timed
def work(trial: Trial) -> Result:
    """One run: the accuracy of the averaged model after each round, and near the end of one client's model before it is averaged."""
    r = torch.Generator().manual_seed(trial["seed"])
    truth, x0 = (torch.randn(D, generator=r) * (2 / (D + 1)) ** 0.5 for _ in range(2))
    inputs = torch.randn(TEST, D, generator=r)
    labels = torch.sign(inputs @ truth)
    problem = invariant_logistic(truth, trial["noise"])
    if trial["mean"] == "outside":
        problem = outside(problem)
    more = {} if trial["beta"] is None else {"beta": trial["beta"]}
    algorithm: Any = METHODS[trial["method"]](trial["lr"], LOCAL_STEPS, 1, trial["inner"], FIRST, **more)
    names = [f"client-{k}" for k in range(CLIENTS)]
    fed = Federation(problem, Data.streams(names), seed=trial["seed"])
    alone = Federation(problem, Data.streams(names[:1]), seed=trial["seed"])
    rounds, left = trial["rounds"], iter(range(trial["rounds"], -1, -1))

    def measure(state: Any) -> dict[str, float]:
        found = {"accuracy": accuracy(state.x, inputs, labels)}
        if 0 < next(left) <= TAIL and trial["seed"] not in TUNE and trial["method"] != "Acc-FCSG-M":
            found["own"] = accuracy(algorithm.round(alone, state).x, inputs, labels)
        return found

    done = run_to_end(algorithm, fed, algorithm.init(fed, x0), rounds, measure, may_diverge=True)
    if done.reason == "diverged":
        return {"accuracy": None}
    found, own = done.column("accuracy")[1:], [line["own"] for line in done.history if "own" in line]
    return {"accuracy": sum(found[-END:]) / END, **steadiness(found[-TAIL:]), **({"own_jitter": steadiness(own)["jitter"]} if own else {}),
            "curve": [round(value, 5) for value in found]}


def steadiness(found: list[float]) -> Result:
    """The standard deviation over the last rounds, and the root mean square of the change from one round to the next."""
    values = torch.tensor(found, dtype=torch.float64)
    return {"spread": float(values.std()), "jitter": float(values.diff().square().mean().sqrt())}


def grid(rounds: int, noises: tuple[float, ...], inner: tuple[int, ...], pairs: list[tuple[float, float]]) -> list[Trial]:
    """What is tried on the tuning seeds: pairs of lr and beta, of which FCSG takes the lr alone."""
    same: dict[str, Any] = {"noise": noises, "inner": inner, "mean": ("inside",), "rounds": (rounds,), "seed": TUNE}
    return [*trials(method=("FCSG",), lr=sorted({lr for lr, _ in pairs}), beta=(None,), **same),
            *(t for lr, beta in pairs for t in trials(method=("FCSG-M", "Acc-FCSG-M"), lr=(lr,), beta=(beta,), **same))]


def chosen(tuned: Results, lrs: tuple[float, ...]) -> list[Trial]:
    """The best setting of each method in each panel, by accuracy on the tuning seeds."""
    return list(best([(t, r) for t, r in tuned if t["lr"] in lrs], ("method", "noise", "inner"), "accuracy").values())


def label(done: Results, **entries: Any) -> Results:
    return [({**trial, **entries}, result) for trial, result in done]


def by_seed(done: Results, metric: str, **entries: Any) -> list[float]:
    """One metric of one method in one panel, in the order of the seeds."""
    return [result[metric] for trial, result in done if all(trial[name] == value for name, value in entries.items())]


def report(done: Results) -> str:
    """The tables, and the paper's four statements beside what was measured."""
    noises, inner = (sorted({trial[name] for trial, _ in done}) for name in ("noise", "inner"))
    lines = []
    for table in ("published", "fair"):
        part = [(t, r) for t, r in done if t["table"] == table and t["mean"] == "inside"]
        lines += [f"\n{table}: final test accuracy, in % (spread over the last {TAIL} rounds; change from round to round), lr and beta",
                  "| noise | m | " + " | ".join(METHODS) + " | FCSG-M − FCSG |", "|---|---|---|---|---|---|"]
        for noise in noises:
            for m in inner:
                cells = []
                for method in METHODS:
                    of = {"method": method, "noise": noise, "inner": m}
                    s, j = (mean_std([100 * v for v in by_seed(part, metric, **of)]) for metric in ("spread", "jitter"))
                    setting = next(t for t, _ in part if all(t[k] == v for k, v in of.items()))
                    beta = "" if setting["beta"] is None else f", {setting['beta']:g}"
                    reached = percent(by_seed(part, "accuracy", **of), 2)
                    cells.append(f"{reached} ({s.mean:.2f}; {j.mean:.2f}) {setting['lr']:g}{beta}")
                momentum, plain = ([100 * v for v in by_seed(part, "accuracy", method=name, noise=noise, inner=m)]
                                   for name in ("FCSG-M", "FCSG"))
                gap = paired_ttest(momentum, plain)
                lines.append(f"| {noise:g} | {m} | " + " | ".join(cells) + f" | {gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}] |")
        lines += [f"\n{table}: change from round to round, FCSG-M over FCSG: of the averaged model, of one client's model before the mean",
                  "| noise | m | averaged | one client |", "|---|---|---|---|"]
        for noise in noises:
            for m in inner:
                ratio = []
                for metric in ("jitter", "own_jitter"):
                    a, b = (sum(by_seed(part, metric, method=name, noise=noise, inner=m)) for name in ("FCSG-M", "FCSG"))
                    ratio.append(f"{a / b:.2f}")
                lines.append(f"| {noise:g} | {m} | {' | '.join(ratio)} |")
    lines += ["\nmean outside the logarithm, published settings: final test accuracy in %",
              "| noise | m | FCSG | FCSG-M |", "|---|---|---|---|"]
    for (noise, m), _ in groups([d for d in done if d[0]["mean"] == "outside"], "noise", "inner").items():
        part = [(t, r) for t, r in done if t["mean"] == "outside" and t["noise"] == noise and t["inner"] == m]
        cells = [percent(by_seed(part, "accuracy", method=method), 2) for method in ("FCSG", "FCSG-M")]
        lines.append(f"| {noise:g} | {m} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(done: Results, path: Path) -> None:
    """Nine panels: accuracy over exchanges, mean and range over the seeds, at the published settings."""
    part = [(t, r) for t, r in done if t["table"] == "published" and t["mean"] == "inside"]
    noises, inner = (sorted({trial[name] for trial, _ in part}) for name in ("noise", "inner"))
    with figure(path, len(inner), len(noises), (3.6, 2.7), sharex=True, squeeze=False) as axes:
        for row, noise in zip(axes, noises, strict=True):
            for ax, m in zip(row, inner, strict=True):
                for number, method in enumerate(METHODS):
                    curves = by_seed(part, "curve", method=method, noise=noise, inner=m)
                    band(ax, range(1, len(curves[0]) + 1), curves, number, method, linestyle=("-", "--", ":")[number])
                ax.set_title(f"σ2/σ1 = {noise:g}, m = {m}", fontsize=10)
                ax.set_ylim(0.75, 1.0)
            row[0].set_ylabel("test accuracy")
        for ax in axes[-1]:
            ax.set_xlabel("communication rounds")
        axes[0][0].legend(loc="lower right")


def main() -> None:
    args = arguments(__doc__, "invariant-logistic", "four panels, few settings, few rounds; everything goes to --out").parse_args()
    quick = args.quick
    rounds, noises, inner, pairs = (15, (1.0, 2.0), (1, 10), [(0.01, 0.1)]) if quick else (
        40, NOISES, INNER, [*product(PUBLISHED, BETAS), *product(WIDER, SOME)])
    experiment = Experiment(HERE, args, quick)
    tuned = experiment.study(work, grid(rounds, noises, inner, pairs))
    published, fair = chosen(tuned, PUBLISHED), chosen(tuned, PUBLISHED + WIDER)
    other = [{**s, "mean": "outside"} for s in published if s["inner"] > 1 and s["method"] != "Acc-FCSG-M"]
    tests = {table: [{**setting, "seed": seed} for setting in settings for seed in SEEDS]
             for table, settings in (("published", published), ("fair", fair), ("outside", other))}
    every = {str(t): t for part in tests.values() for t in part}
    found = {str(t): result for t, result in experiment.study(work, list(every.values()))}
    done = [item for table, part in tests.items()
            for item in label([(t, found[str(t)]) for t in part], table="published" if table == "outside" else table)]
    print(report(done))
    plot(done, experiment.where / "accuracy.png")
    experiment.record(rows(done, ("accuracy", "spread", "jitter", "own_jitter"), setting=("table", "mean", "noise", "inner", "lr", "beta")))


if __name__ == "__main__":
    main()
