"""One trial on a data set half of whose classes are rare: the rows at the sites, the robust objectives, the methods, what is measured."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np
import torch
from common import by_class, guessing, run_to_end, timed

from rookery import MBSGD, Data, FastDRO, FedAvg, FedDRO, Federation, Model, PDSGDWeights
from rookery.data import Table, dirichlet, hold_out, iid, load, step
from rookery.errors import NonFinite
from rookery.models import mlp, resnet20, to_group_norm
from rookery.objectives import balanced_cross_entropy, cross_entropy, cross_entropy_losses, fast_dro, group_dro, group_weights, kl_dro
from rookery.studies.trials import Result, Trial
from rookery.training.schedules import Drop

Row = dict[str, float]
CLIENTS, CLASSES, RARE, KEEP, HELD, BATCH, POINTS = 8, 10, range(5, 10), 0.1, 0.1, 16, 12
# what each method has to choose besides the step size: λ, or the step size of the weights
CHOICES: dict[str, tuple[float | None, ...]] = {
    "FedDRO": (1.0, 5.0), "MBSGD": (1.0, 5.0), "FastDRO": (1.0, 5.0), "PDSGD": (0.01, 0.1), "FedDRO, classes": (0.5, 2.0),
    "FedAvg": (None,), "FedAvg, class weights": (None,)}


@cache
def tables(name: str) -> tuple[Table, Table]:
    """Training rows with a tenth of the rare classes, and all test rows; flat where the net is not a convolution."""
    train, test = load(name)
    if name != "cifar10":
        train, test = (Table({**t.fields, "inputs": t.fields["inputs"].flatten(1)}, t.classes, t.name) for t in (train, test))
    return train.take(step(train.fields["labels"], RARE, KEEP)), test


@cache
def model(name: str, seed: int) -> Model:
    torch.manual_seed(seed)
    features = int(np.prod(tables(name)[0].fields["inputs"].shape[1:]))
    return Model(to_group_norm(resnet20()) if name == "cifar10" else mlp(features, 64, CLASSES))


def method(trial: Trial, net: Model) -> tuple[Any, Any]:
    """The problem and the algorithm. FedDRO and MBSGD have the KL form over rows, FastDRO χ², PDSGD weights of the classes."""
    each, choice, steps = cross_entropy_losses(net), trial["choice"], trial["local_steps"]
    rounds = trial["steps"] // steps if trial["steps"] else None
    lr = Drop(trial["lr"], (max(1, round(0.75 * rounds)),)) if rounds else trial["lr"]
    match trial["method"]:
        case "FedDRO":
            return kl_dro(each, choice, model=net), FedDRO(lr, 0.1, steps, BATCH)
        case "MBSGD":
            return kl_dro(each, choice, model=net), MBSGD(lr, BATCH)
        case "FastDRO":
            return fast_dro(each, "chi2", choice, model=net), FastDRO(lr, BATCH)
        case "PDSGD":
            return group_weights(group_dro(each, CLASSES, model=net)), PDSGDWeights(lr, CLASSES, choice, BATCH)
        case "FedDRO, classes":
            return group_dro(each, CLASSES, choice, model=net), FedDRO(lr, 0.1, steps, BATCH)
        case "FedAvg":
            return cross_entropy(net), FedAvg(lr, steps, BATCH)
    return balanced_cross_entropy(net, CLASSES), FedAvg(lr, steps, BATCH)


def accuracies(net: Model, x: torch.Tensor, rows: Any) -> dict[str, float]:
    """Of all rows; mean over the classes, over the rare ones, over the others; of the worst class."""
    guesses = net.predict(x, rows["inputs"], 500).argmax(1)
    of = by_class(guesses, rows["labels"])
    return {"accuracy": float((guesses == rows["labels"]).double().mean()), "balanced": fmean(of.values()),
            "rare": fmean(of[c] for c in of if c in RARE), "common": fmean(of[c] for c in of if c not in RARE),
            "worst class": min(of.values())}


@timed
def work(trial: Trial) -> Result:
    name, seed = trial["data"], trial["seed"]
    train, test = tables(name)
    if trial["alpha"] is None:
        site = iid(len(train), CLIENTS, seed)
    else:
        site = dirichlet(train.fields["labels"], CLIENTS, trial["alpha"], seed, least=20)
    data, held = hold_out(Data.by_site(train.fields, site), HELD, seed)
    net = model(name, seed)
    problem, algorithm = method(trial, net)
    fed = Federation(problem, data, seed=seed, weights="samples")
    x = net.vector()
    fed.prepare(x)
    few = np.random.default_rng(seed).permutation(int(data.sizes.sum()))[:5000]
    parts = {"train": {key: field[few] for key, field in data.fields.items()}, "validation": held.fields, "test": test.fields}
    if name == "cifar10":  # a pass over all of these images takes longer than many steps
        parts = {part: {key: field[: {"train": 1000, "validation": 500, "test": 4000}[part]] for key, field in fields.items()}
                 for part, fields in parts.items()}

    def measure(s: Any) -> dict[str, float]:
        return {f"{part} {key}": value for part, rows in parts.items() for key, value in accuracies(net, s.x, rows).items()}

    if trial["steps"]:
        rounds = trial["steps"] // trial["local_steps"]
        done = run_to_end(algorithm, fed, algorithm.init(fed, x), rounds, measure, max(1, rounds // POINTS), may_diverge=True)
        last, curve, diverged = done.history[-1], done.history, done.reason == "diverged"
    else:
        last, curve, diverged = in_minutes(algorithm, fed, x, trial["minutes"], measure)
    if diverged:
        last = guessing(last, CLASSES, ("train", "validation", "test"))
    short = ("round", "bytes", "samples", "train accuracy", "test accuracy", "test rare", "test worst class")
    return {**last, "diverged": float(diverged), "curve": [{key: row[key] for key in short} for row in curve]}


def in_minutes(algorithm: Any, fed: Federation, x: torch.Tensor, minutes: float, measure: Any) -> tuple[Row, list[Row], bool]:
    """Rounds until the process has worked for so many minutes, the last quarter of them with a tenth of the step size.

    The clock of the wall would count what others do on the machine. `training.run` measures its minutes on that clock and has one step size
    throughout, or a schedule over rounds, whose number is not known here: hence a loop of its own.
    """
    state, rounds, spent, curve, diverged = algorithm.init(fed, x), 0, 0.0, list[Row](), False
    slower = replace(algorithm, lr=algorithm.lr / 10)
    marks = [minutes * 60 * share for share in (0.125, 0.25, 0.5, 0.75, 1.0)]
    while len(curve) < len(marks) and not diverged:
        begun = time.process_time()
        try:
            state = (algorithm if spent < 0.75 * marks[-1] else slower).round(fed, state)
        except NonFinite:
            diverged = True
        spent, rounds = spent + time.process_time() - begun, rounds + 1
        if spent >= marks[len(curve)] or diverged:
            account = fed.ledger["train"]
            curve.append({"round": rounds, "bytes": account.bytes_up + account.bytes_down, "samples": account.samples, **measure(state)})
    return curve[-1], curve, diverged
