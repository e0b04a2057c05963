"""Bilevel training of a digit classifier at 100 sites, ten in a round: one trial, and the study both experiments make of it.

loss-tuning:           x = (Δ, l) of the training loss CE(σ(Δ)·scores + l), y = the net; long-tailed digits, class-balanced validation loss
hyper-representation:  x = the net's hidden layer, y = its last one; all classes alike

Settings of the FedNest paper and its scripts: a net 784-200-10, standardised pixels, five local epochs on y, one local step on x, all of a
client's rows for what is averaged before local steps, a local step of 0.01.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from common import Experiment, Row, arguments, available, band, by_class, diverged, figure, guessing, percent, rows_of, run_to_end, timed
from torch import Tensor, nn

from rookery import Data, FedAvg, Federation, FedNest, FedNestSGD, LFedNest, Model, StocBiO
from rookery.data import Stratified, Table, hold_out, iid, label_shards, load, long_tail
from rookery.models import mlp
from rookery.objectives import balanced_cross_entropy, cross_entropy, hyper_representation, loss_tuning
from rookery.studies.statistics import best, groups
from rookery.studies.trials import Result, Results, Trial


class Task(NamedTuple):
    """What the paper's scripts set for one experiment, and how many exchanges each method has here."""

    batch: int
    T: int
    N: int
    smoothness: float
    outer: float  # the outer step for each unit of the local inner one
    length: int


TASKS = {"loss-tuning": Task(10, 3, 3, 50.0, 100.0, 192), "hyper-representation": Task(64, 1, 5, 100.0, 1.0, 200)}
CLASSES, EPOCHS, HELD, POINTS = 10, 5, 0.1, 10
MEAN, STD = 0.1307, 0.3081  # of MNIST's pixels, as everybody standardises them
SITES = {"mnist": 100, "digits": 12}
PUBLISHED, LRS, TUNING = 0.01, (0.01, 0.03, 0.1), 100
SPLITS = {"iid": 0.5, "non-iid": 0.2}  # the share of validation rows
NESTED: dict[str, type[FedNest]] = {"FedNest": FedNest, "FedNest-SGD": FedNestSGD, "LFedNest": LFedNest}
PLAIN = ("FedAvg", "FedAvg, class weights")
ALONE = ("stocBiO, one site", "SGD, one site")  # the dashed lines: all rows in one place, as many inner steps
METHODS = (*NESTED, *PLAIN, *ALONE)
SHOWN = ("test balanced", "test worst class", "test accuracy")
SETTING = ("data", "split", "lr", "exchanges")


def exchanges(method: str, task: Task) -> int:
    """Of one outer round."""
    return {"FedNest": 2 * task.T + task.N + 3, "FedNest-SGD": task.T + task.N + 3, "LFedNest": task.T + 1}.get(method, 1)


@cache
def tables(name: str) -> tuple[Table, Table]:
    return tuple(Table({**t.fields, "inputs": (t.fields["inputs"].flatten(1) - MEAN) / STD}, t.classes, t.name)  # type: ignore[return-value]
                 for t in load(name))


def sites(trial: Trial, one: bool) -> tuple[Data, Data]:
    """The sites' rows, of which some are marked for validation, and a tenth that is held out to choose step sizes by."""
    small, seed = trial["data"] == "digits", trial["seed"]
    train = tables(trial["data"])[0]
    if trial["task"] == "loss-tuning":
        train = train.take(long_tail(train.fields["labels"], 0.1 if small else 0.01, seed))
    number = SITES[trial["data"]]
    site = iid(len(train), number, seed) if trial["split"] == "iid" else label_shards(train.fields["labels"], number, 2, seed)
    data, held = hold_out(Data.by_site(train.fields, site), HELD, seed)
    kind = torch.zeros(int(data.sizes.sum()))
    for start, size in zip(data.offsets, data.sizes, strict=True):
        of = max(1, round(SPLITS[trial["split"]] * int(size)))
        kind[start + np.random.default_rng([seed, start]).permutation(size)[:of]] = 1
    fields = {**data.fields, "validation": kind}
    return (Data({**fields}, ("all",), np.asarray([len(kind)])) if one else Data(fields, data.names, data.sizes)), held


def bilevel(name: str, net: Model) -> tuple[Any, Tensor, Tensor]:
    """The problem, and where x and y start."""
    y, half = net.vector(), Stratified("validation", TASKS[name].batch)
    if name == "loss-tuning":
        return loss_tuning(net, CLASSES, sampling=half), torch.zeros(2 * CLASSES), y
    layer = net.net[0]  # type: ignore[index]
    features = Model(nn.Sequential(nn.Linear(layer.in_features, layer.out_features), nn.ReLU()))
    return hyper_representation(features, layer.out_features, CLASSES, sampling=half), y[: features.size], y[features.size :]


def method(trial: Trial, net: Model, taus: tuple[int, ...]) -> tuple[Any, Any, tuple[Tensor, ...], int]:
    """The problem, the algorithm, where it starts and its rounds. lr is the size of one local step; FedNest divides its own by τ_i."""
    name, task, lr, tau = trial["method"], TASKS[trial["task"]], trial["lr"], fmean(taus)
    rounds = trial["exchanges"] // exchanges(name, task)
    if name in PLAIN:
        problem = balanced_cross_entropy(net, CLASSES) if "weights" in name else cross_entropy(net)
        return problem, FedAvg(lr, taus, task.batch), (net.vector(),), rounds
    steps = task.T * round(tau)
    if name in ALONE:  # as many steps as FedNest's ten clients make together
        rounds = 10 * (trial["exchanges"] // exchanges("FedNest", task))
    if name == "SGD, one site":
        return cross_entropy(net), FedAvg(lr, steps, task.batch), (net.vector(),), rounds
    problem, x, y = bilevel(trial["task"], net)
    if name == "stocBiO, one site":
        return problem, StocBiO(task.outer * lr, lr, task.N, task.smoothness, 2 * task.batch, inner_steps=steps), (x, y), rounds
    return problem, NESTED[name](task.outer * lr, lr * tau, task.T, taus, task.N, task.smoothness, "neumann", 2 * task.batch,
                                 outer_steps=1, full_anchors=True), (x, y), rounds


def accuracies(net: Model, parameters: Tensor, part: Any) -> dict[str, float]:
    """Mean over the classes, of the worst class, of all rows."""
    guesses = net.predict(parameters, part["inputs"]).argmax(1)
    of = by_class(guesses, part["labels"]).values()
    return {"balanced": fmean(of), "worst class": min(of), "accuracy": float((guesses == part["labels"]).double().mean())}


@timed
def work(trial: Trial) -> Result:
    one = trial["method"] in ALONE
    data, held = sites(trial, one)
    torch.manual_seed(trial["seed"])
    net = Model(mlp(data.fields["inputs"].shape[1], 200, CLASSES))
    # five epochs over a site's training rows; at one site, those of a site of average size
    inside = np.add.reduceat(1 - data.fields["validation"].numpy(), data.offsets) / (SITES[trial["data"]] if one else 1)
    taus = tuple((EPOCHS * np.ceil(inside / TASKS[trial["task"]].batch)).astype(int).tolist())
    problem, algorithm, start, rounds = method(trial, net, taus)
    fed = Federation(problem, data, seed=trial["seed"], clients_per_round=None if one else min(10, len(data.names) // 2))
    fed.prepare(start[0])
    parts = {"held-out": held.fields, "test": tables(trial["data"])[1].fields}

    def measure(s: Any) -> dict[str, float]:
        whole = s.x if len(start) == 1 else s.y if trial["task"] == "loss-tuning" else torch.cat([s.x, s.y])
        return {"exchanges": fed.ledger["train"].exchanges,
                **{f"{name} {key}": value for name, part in parts.items() for key, value in accuracies(net, whole, part).items()}}

    every = max(1, rounds // trial.get("points", POINTS))
    done = run_to_end(algorithm, fed, algorithm.init(fed, *start), rounds, measure, every, may_diverge=True)
    last, broken = done.history[-1], done.reason == "diverged"
    if broken:
        last = guessing(last, CLASSES, ("held-out", "test"))
    curve = [{key: row[key] for key in ("exchanges", "bytes", *SHOWN)} for row in done.history]
    return {**last, "diverged": float(broken), "curve": curve, "rounds": rounds}


def report(compared: dict[str, Results]) -> str:
    """Beside the end of each run, the mean of the classes after as many outer rounds as FedNest makes."""
    lines = []
    for name, done in compared.items():
        task = TASKS[done[0][0]["task"]]
        outer = done[0][0]["exchanges"] // exchanges("FedNest", task)
        lines += [f"\n{name}: test accuracy, %",
                  f"| split | method | step size | exchanges | mean of classes | worst class | all rows | after {outer} outer rounds |",
                  "|---|---|---|---|---|---|---|---|"]
        for (split, way, lr), found in groups(done, "split", "method", "lr").items():
            cells = [percent([r[m] for r in found]) for m in SHOWN]
            if way in NESTED:
                there = outer * exchanges(way, task)
                cells.append(percent([min(r["curve"], key=lambda p: abs(p["exchanges"] - there))["test balanced"] for r in found]))
            else:
                cells.append("–")
            lines.append(f"| {split} | {way}{diverged(found)} | {lr:g} | {'–' if way in ALONE else round(found[0]['exchanges'])} | "
                         + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(compared: dict[str, Results], path: Path) -> None:
    panels = [(name, split) for name in compared for split in SPLITS]
    with figure(path, len(panels), size=(5.2, 4.2), sharey=True) as axes:
        for ax, (name, split) in zip(axes, panels, strict=True):
            for number, way in enumerate(METHODS):
                found = [r["curve"] for t, r in compared[name] if (t["split"], t["method"]) == (split, way) and not r["diverged"]]
                if not found:
                    continue
                y = 100 * np.array([[point["test balanced"] for point in curve] for curve in found])
                if way in ALONE:
                    ax.axhline(y[:, -1].mean(), color="sienna" if way == ALONE[0] else "black", linestyle="--", linewidth=1, label=way)
                else:
                    band(ax, [point["exchanges"] for point in found[0]], y, number, way)
            ax.set(title=f"{name}, {split}", xlabel="exchanges")
        axes[0].set_ylabel("test accuracy, mean of the classes, %")
        axes[0].legend()


class Study(Experiment):
    """One run of some parts: how their trials are made, and a record in which the tables that this run does not make stay as they are."""

    def __init__(self, task: str, here: Path, args: Namespace, lrs: Sequence[float], options: str = "") -> None:
        self.task, self.args, self.options = task, args, options
        self.data = "digits" if args.quick else available("mnist", "digits", tables)
        self.small = self.data == "digits"
        super().__init__(here, args, self.small)
        self.lrs = lrs[:2] if self.small else lrs
        if args.seeds is not None or args.rounds is not None:
            self.where = args.out
        self.rows, self.earlier, self.made = dict[str, list[Row]](), list[Row](), set[str]()
        if self.where == here and (here / "results.json").exists():
            self.remember(json.loads((here / "results.json").read_text()))

    def remember(self, before: Row) -> None:
        """The rows of an earlier record by their tables, and which run made which table."""
        for row in before.pop("rows"):
            self.rows.setdefault(row["setting"]["table"], []).append(row)
        self.earlier = before.pop("earlier", [])
        known = {name for run in self.earlier for name in run["tables"]}
        self.earlier.append({**before, "tables": [name for name in self.rows if name not in known]})

    def size(self, length: int, seeds: int) -> tuple[int, tuple[int, ...]]:
        """The exchanges and the seeds of a part, where the command does not say otherwise."""
        return (24, (TUNING,)) if self.small else (self.args.rounds or length, tuple(range(self.args.seeds or seeds)))

    def trials(self, ways: Iterable[str], splits: Iterable[str], lrs: Sequence[float], seeds: Sequence[int], length: int) -> list[Trial]:
        return [{"task": self.task, "data": self.data, "split": split, "method": way, "lr": lr, "exchanges": length, "seed": seed}
                for seed in seeds for split in splits for way in ways for lr in lrs
                if self.task == "loss-tuning" or "weights" not in way]  # where classes are alike, weights change nothing

    def tune(self, ways: Iterable[str], splits: Iterable[str], length: int) -> list[Trial]:
        """For each method and split the step size of the best accuracy on held-out rows, on a seed of its own and half of the exchanges."""
        grid = self.study(work, self.trials(ways, splits, self.lrs, (TUNING,), length // 2))
        return [{**chosen, "exchanges": length} for chosen in best(grid, ("split", "method"), "held-out balanced").values()]

    def write(self, compared: dict[str, Results], more: Sequence[str] = ()) -> None:
        """These tables in the record, beside those that are there; `earlier` has the runs that those come from."""
        self.made |= compared.keys()
        for name, done in compared.items():
            self.rows[name] = rows_of({name: done}, (*SHOWN, *more, "held-out balanced", "diverged"), SETTING)
        self.record([row for table in self.rows.values() for row in table], self.options)
        earlier = [{**run, "tables": left} for run in self.earlier if (left := [name for name in run["tables"] if name not in self.made])]
        if earlier:
            path = self.where / "results.json"
            found = json.loads(path.read_text())
            rows = found.pop("rows")
            path.write_text(json.dumps({**found, "earlier": earlier, "rows": rows}, indent=1, ensure_ascii=False) + "\n")


Part = Callable[[Study], None]


def both_tables(study: Study) -> None:
    """As published, and with step sizes that every method chose for itself."""
    length, seeds = study.size(TASKS[study.task].length, 3)

    def write(compared: dict[str, Results]) -> None:
        print(report(compared), flush=True)
        plot(compared, study.where / "accuracy.png")
        study.write(compared)

    compared = {"as published": study.study(work, study.trials(METHODS, SPLITS, (PUBLISHED,), seeds, length))}
    write(compared)
    if not study.args.published:
        chosen = study.tune(METHODS, SPLITS, length)
        compared["fairly tuned"] = study.study(work, [{**s, "seed": seed} for s in chosen for seed in seeds])
        write(compared)


def main(task: str, here: Path, about: str, lrs: Sequence[float] = LRS, **more: Part) -> None:
    """The command of an experiment: the two tables, and what other parts it has."""
    parts = {"tables": both_tables, **more}
    parser = arguments(about, task, "digits of 8×8 pixels at 12 sites, few exchanges; everything goes to --out")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts), help="which parts; the record keeps the others' tables")
    parser.add_argument("--rounds", type=int, help="exchanges that each method has; with it, everything goes to --out")
    parser.add_argument("--published", action="store_true", help="the paper's step size only: the first of the tables, without the grid")
    parser.add_argument("--seeds", type=int, help="number of seeds; with it, everything goes to --out")
    args = parser.parse_args()
    if args.published:
        if "tables" not in args.parts:
            parser.error("--published is an option of the part tables")
        args.parts = ["tables"]
    options = " --published" if args.published else "" if set(args.parts) == set(parts) else f" --parts {' '.join(args.parts)}"
    study = Study(task, here, args, lrs, options)
    for name, part in parts.items():
        if name in args.parts:
            part(study)
