"""Fed-Heart-Disease: four hospitals, logistic regression, FLamby's published accuracies, and what stands between FedAvg and pooled rows.

    python experiments/heart-flamby/run.py            all tables; sites/heart.csv in $ROOKERY_DATA
    python experiments/heart-flamby/run.py --quick    one seed, two rounds, nothing chosen, written to --out only

Ogier du Terrail et al., "FLamby: datasets and benchmarks for cross-silo federated learning in realistic healthcare settings", NeurIPS 2022.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from common import Experiment, Row, arguments, available, percent, row, rows_of
from heart import FOLDS, HOSPITALS, METHODS, PRODUCT, ROUNDS, SPLIT, patients, work

from rookery.studies.statistics import groups, mean_std, paired_ttest
from rookery.studies.trials import Results, Trial

HERE = Path(__file__).resolve().parent
SEEDS, CHOICE = (42, 43, 44, 45, 46), 100  # FLamby's, and one that no result has
STEPS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
GRIDS = {"Pooled": ("lr", (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)), "FedAdam": ("server_lr", (0.003, 0.01, 0.03, 0.1, 0.3, 1.0))}
SCORES = ("pooled", *HOSPITALS)
PAPER = {  # the means over FLamby's five result files, of its "Pooled Test" and of each hospital's
    "Pooled": (0.7953, 0.7827, 0.7640, 0.7500, 0.6444), "FedAvg": (0.7480, 0.7308, 0.7191, 0.6500, 0.6400),
    "FedProx": (0.7480, 0.7308, 0.7191, 0.6500, 0.6400), "SCAFFOLD": (0.7480, 0.7269, 0.7191, 0.6500, 0.6400),
    "FedAdam": (0.7787, 0.7519, 0.7461, 0.7375, 0.6667)}
PUBLISHED = {"Pooled": 0.001, "FedAvg": 0.001, "FedProx": 0.001, "SCAFFOLD": 0.001, "FedAdam": 0.01}
SETTING = ("scale", "start", "lr", "server_lr", "rounds")


class Study(Experiment):
    def __init__(self, args: Any, data: str) -> None:
        super().__init__(HERE, args, args.quick or data != "heart")
        self.small = self.where != HERE
        self.base = {"data": data, "split": SPLIT, "fold": None, "rounds": 2 if args.quick else ROUNDS, "start": "drawn", "server_lr": None}
        self.seeds = SEEDS[:1] if args.quick else SEEDS

    def settings(self, method: str, scale: str, **more: Any) -> Trial:
        """With FLamby's step sizes."""
        server = 0.01 if method == "FedAdam" else None
        return {**self.base, "method": method, "scale": scale, "lr": PUBLISHED[method], "server_lr": server, **more}

    def each(self, some: Sequence[Trial]) -> Results:
        return self.study(work, [{**s, "seed": seed} for s in some for seed in self.seeds])

    def chosen(self, some: Sequence[Trial]) -> list[Trial]:
        """The settings with the step size of the best accuracy on held-out folds of the training rows, as many sizes for every method.

        Not of the least loss: a column that is constant in a hospital's rows of a fold makes inputs of 1e9 on its scale.
        """
        if self.small:
            return list(some)
        tried = [[{**s, name: value} for value in values] for s in some for name, values in [GRIDS.get(s["method"], ("lr", STEPS))]]
        done = self.study(work, [{**s, "fold": fold, "seed": CHOICE} for several in tried for s in several for fold in range(FOLDS)])
        right = [sum(result["as trained"] for _, result in done[at : at + FOLDS]) for at in range(0, len(done), FOLDS)]
        best = [max(range(len(several)), key=right[i * len(STEPS) : (i + 1) * len(STEPS)].__getitem__) for i, several in enumerate(tried)]
        return [several[place] for several, place in zip(tried, best, strict=True)]

    def product(self) -> Results:
        """Every seed has its own split, and chooses its step size on its own validation rows."""
        done = self.study(work, [{**self.base, "method": PRODUCT, "scale": "agreed", "lr": lr, "split": seed, "seed": seed}
                                 for seed in range(len(SEEDS)) for lr in STEPS])
        best = [min(done[at : at + len(STEPS)], key=lambda found: found[1]["loss"]) for at in range(0, len(done), len(STEPS))]
        return [({**trial, "lr": None}, {**result, "chosen lr": trial["lr"]}) for trial, result in best]

    def splits(self) -> Results:
        """Other splits of the rows by FLamby's rule; what is chosen is chosen on the training rows of each of them."""
        found: Results = []
        for split in range(len(SEEDS)):
            own = [self.settings("Pooled", "agreed", split=split), self.settings("FedAvg", "site", split=split)]
            tuned = self.chosen([self.settings("FedAvg", "agreed", split=split)])
            done = self.study(work, [{**s, "seed": SEEDS[split]} for s in (*own, *tuned)])
            found += [({**t, "lr": "chosen" if t["method"] == "FedAvg" and t["scale"] == "agreed" else t["lr"]}, r) for t, r in done]
        return found


def tables(s: Study) -> dict[str, Results]:
    federated = list(METHODS)
    found = {"published": s.each([s.settings("Pooled", "agreed"), *(s.settings(method, "site") for method in federated)])}
    tuned = s.chosen([s.settings(method, scale) for scale in ("site", "agreed") for method in (("Pooled",) if scale == "agreed" else ()) +
                      tuple(federated)])
    found["tuned"] = s.each(tuned)
    best = next(t for t in tuned if t["method"] == "FedAvg" and t["scale"] == "agreed")["lr"]
    found["causes"] = s.each([s.settings("FedAvg", scale, lr=lr, start=start) for start in ("drawn", "zero") for scale in ("site", "agreed")
                              for lr in dict.fromkeys((0.001, best))])
    if not s.small:
        found["other splits"] = s.splits()
        found["own encoder, other split"] = s.product()
    return found


def record_rows(found: dict[str, Results]) -> list[Row]:
    table = rows_of(found, (*SCORES, *(f"{h} as trained" for h in HOSPITALS), "as trained", "exchanges", "bytes", "chosen lr"), SETTING)
    for one in table:
        if one["setting"]["table"] == "published" and one["metric"] in SCORES:
            one["paper"] = PAPER[one["method"]][SCORES.index(one["metric"])]
    if "other splits" in found:
        by = groups(found["other splits"], "method", "scale")
        base = [r["pooled"] for r in by["Pooled", "agreed"]]
        for scale in ("site", "agreed"):
            own = [r["pooled"] for r in by["FedAvg", scale]]
            test, spread = paired_ttest(own, base), mean_std([a - b for a, b in zip(own, base, strict=True)])
            setting = {"table": "other splits", "scale": scale}
            table += [row("FedAvg less Pooled", setting, name, value, spread.std if name == "difference" else None, spread.seeds)
                      for name, value in (("difference", test.mean), ("low", test.low), ("high", test.high))]
    return table


def report(name: str, done: Results) -> str:
    columns = ("method", "trained on the scale", "start", "step", "all rows, %", "published", "as trained, %", *HOSPITALS)
    lines = [f"\n{name}", f"| {' | '.join(columns)} |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for (method, scale, start, lr, server), own in groups(done, "method", "scale", "start", "lr", "server_lr").items():
        step = f"{lr}" + ("" if server is None else f", server {server}")
        each = [h if name == "published" else f"{h} as trained" for h in HOSPITALS]
        paper = f"{100 * PAPER[method][0]:.1f}" if name == "published" else ""
        lines.append(f"| {method} | {scale} | {start} | {step} | {percent([r['pooled'] for r in own])} | {paper} | "
                     f"{percent([r['as trained'] for r in own])} | " + " | ".join(percent([r[h] for r in own]) for h in each) + " |")
    return "\n".join(lines)


def main() -> None:
    args = arguments(__doc__, HERE.name, "one seed, two rounds; everything goes to --out").parse_args()
    s = Study(args, available("heart", "made up", patients))
    found = tables(s)
    for name, done in found.items():
        print(report(name, done))
    s.record(record_rows(found))


if __name__ == "__main__":
    main()
