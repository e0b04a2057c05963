"""One trial at clients with few classes each: their rows, the methods, and what every client's own model is worth."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import torch
from common import run_to_end, timed
from torch import Tensor

from rookery import FCSG, FCSGM, AccFCSGM, Data, FedAvg, Federation, Model
from rookery.data import Table, label_shards, load, split
from rookery.data.partition import spread_alike
from rookery.errors import Diverged, NonFinite
from rookery.federation import Placed
from rookery.metrics import by_client
from rookery.metrics.personal import Adaptation
from rookery.models import mlp
from rookery.objectives import cross_entropy, maml
from rookery.studies.trials import Result, Trial

CLIENTS, SUPPORT, QUERY = 50, 10, 10
ROWS = {"train": 2000, "validation": 1000}  # of the training table; the test table is spread whole
STEPS, USUAL = 5, 0.1  # with which a client adapts a model to its rows, and their size along a curve
OWN = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of which validation rows choose the size at the end
TENTH = 0.1  # of the clients: the worst ones
FIRST, COMMON, TUNED, ALONE = "FCSG-M, first order", "FedAvg", "FedAvg, fine-tuned", "Local only"
METHODS = ("FCSG", "FCSG-M", "Acc-FCSG-M", FIRST, COMMON, TUNED, ALONE)


@cache
def tables(name: str) -> tuple[Table, Table]:
    return load(name)


def clients(name: str, shards: int, seed: int) -> Data:
    """Rows to train on, validation rows and test rows, of the same few classes at a client."""
    train, test = tables(name)
    labels = train.fields["labels"]
    number = CLIENTS if name != "digits" else 10
    sizes = ROWS if name != "digits" else {"train": 400, "validation": 200}
    whole = split(labels, sizes["train"] / len(labels), sizes["validation"] / len(labels), seed)
    rows = {"train": whole.test, "validation": whole.validation}
    site = label_shards(labels[rows["train"]], number, shards, seed)
    taken = {part: train.take(torch.from_numpy(index)).fields for part, index in rows.items()} | {"test": test.fields}
    data = {part: Data.by_site(flat(fields), site if part == "train" else
                               spread_alike(taken["train"]["labels"], site, fields["labels"], seed)) for part, fields in taken.items()}
    return data["train"].with_splits(validation=data["validation"], test=data["test"])


def flat(fields: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"inputs": fields["inputs"].flatten(1), "labels": fields["labels"]}


def method(trial: Trial, net: Model) -> tuple[Any, Any]:
    """The problem and the algorithm; a client is one task, and FedAvg's batches have as many rows as its support and query together."""
    lr, q, beta = (trial[key] for key in ("lr", "local_steps", "beta"))
    if trial["method"] in (COMMON, TUNED):
        return cross_entropy(net), FedAvg(lr, q, SUPPORT + QUERY)
    problem = maml(net, trial["inner_lr"], second_order=trial["method"] != FIRST, query=QUERY)
    match trial["method"]:
        case "FCSG":
            return problem, FCSG(lr, q, 1, SUPPORT)
        case "FCSG-M" | "FCSG-M, first order":
            return problem, FCSGM(lr, q, 1, SUPPORT, beta=beta)
        case "Acc-FCSG-M":
            return problem, AccFCSGM(lr, q, 1, SUPPORT, beta=beta)
    raise ValueError(trial["method"])


def scores(fed: Federation[Any], x: Tensor | Placed, part: str) -> Result:
    """The accuracies of the clients' rows of a split: their mean, and that of the worst tenth of the clients."""
    each = sorted(row["accuracy"] for row in by_client(fed, x, part, classes=10))
    worst = each[: max(1, math.ceil(TENTH * len(each)))]
    return {f"{part} accuracy": float(np.mean(each)), f"{part} worst tenth": float(np.mean(worst)), f"{part} of clients": each}


@timed
def work(trial: Trial) -> Result:
    torch.manual_seed(trial["seed"])
    data = clients(trial["data"], trial["shards"], trial["seed"])
    net = Model(mlp(data.fields["inputs"].shape[1], 64, 10))
    # by which models are adapted and scored, whatever trained them; steps on all rows of clients of many sizes would be as many graphs
    plain = Federation(cross_entropy(net), data, seed=trial["seed"], engine="auto" if trial["method"] == ALONE else "loop")
    x, common = net.vector(), trial["method"] == COMMON
    if trial["method"] == ALONE:
        try:
            own = Adaptation(trial["lr"], trial["steps"], SUPPORT + QUERY).of(plain, x)
            return {**scores(plain, own, "validation"), **scores(plain, own, "test"), "diverged": 0.0, "bytes": 0.0, "exchanges": 0.0,
                    "samples": float(trial["steps"] * (SUPPORT + QUERY) * len(data.names)), "curve": []}
        except (Diverged, NonFinite):
            return {"diverged": 1.0, "bytes": 0.0, "exchanges": 0.0, "samples": 0.0, "curve": []}

    def measure(state: Any) -> dict[str, float]:
        own = state.x if common else Adaptation(trial["inner_lr"] or USUAL, STEPS).of(plain, state.x)
        found = scores(plain, own, "test")
        return {key: found[key] for key in ("test accuracy", "test worst tenth")}

    problem, algorithm = method(trial, net)
    rounds = max(1, trial["steps"] // trial["local_steps"])
    engine = "auto" if trial["steps"] > 20 else "loop"  # a few steps are not worth a graph
    fed = Federation(problem, data, seed=trial["seed"], engine=engine)
    done = run_to_end(algorithm, fed, algorithm.init(fed, x), rounds, measure if trial["points"] else lambda s: {},
                      max(1, rounds // max(1, trial["points"])), may_diverge=True)
    over = done.reason == "diverged"
    found = {} if over else at_end(plain, done.state.x, common)
    columns = ("round", "bytes", "test accuracy", "test worst tenth") if trial["points"] else ()
    return {**{key: done.history[-1][key] for key in ("exchanges", "bytes", "samples")}, **found, "diverged": float(over or not found),
            "curve": [{key: row[key] for key in columns} for row in done.history] if columns else []}


def at_end(fed: Federation[Any], x: Tensor, common: bool) -> Result:
    """The common model's scores, or those of the clients' own models with the step size that is best on validation rows."""
    if common:
        return {**scores(fed, x, "validation"), **scores(fed, x, "test")}
    tried = dict[float, Result]()
    for size in OWN:
        with suppress(Diverged, NonFinite):
            tried[size] = scores(fed, Adaptation(size, STEPS).of(fed, x), "validation")
    if not tried:
        return {}
    size = max(tried, key=lambda s: tried[s]["validation accuracy"])
    return {**tried[size], **scores(fed, Adaptation(size, STEPS).of(fed, x), "test"), "own step": size}
