"""One trial on few-shot tasks: the clients' classes, the methods, and the accuracy on tasks of new classes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import run_to_end, timed
from torch import Tensor
from torch.nn import functional as F

from rookery import FCSG, FCSGM, AccFCSGM, Batch, Data, Federation, LocalSCGD, LocalSCGDM, Model
from rookery.data import Draw, Episodes, Request, load
from rookery.data.readers.omniglot import omniglot_splits
from rookery.errors import Diverged
from rookery.models import conv4, federated_norm
from rookery.objectives import adapt, cross_entropy_losses, maml, tasks
from rookery.problems import conditional_as_compositional
from rookery.studies.trials import Result, Trial

CLIENTS, WAYS, QUERY, INNER_LR, USUAL = 16, 5, 15, 0.4, 3
NONE = "No training"  # steps on a task from random weights
METHODS = ("FCSG", "FCSG-M", "Acc-FCSG-M", "Local-SCGD", "Local-SCGDM", NONE)
OWN = (0.025, 0.1, 0.4, 1.6)  # step sizes on a new task, where it has not to be that of training
TURNS = 4  # by 90° each: a turned character is another class
ALONG, AT_END = 40, {"val": 100, "test": 200}  # new tasks that a point of a curve is made of, and those at the end
Rows = dict[str, Tensor]


@cache
def parts(name: str) -> dict[str, Rows]:
    """Training, validation and test classes: of Omniglot, or the ten digits of scikit-learn, in which all three have the same classes."""
    if name == "digits":
        tables = load("digits")
        fields = {key: torch.cat([t.fields[key] for t in tables]) for key in ("inputs", "labels")}
        images = F.interpolate(fields["inputs"].reshape(-1, 1, 8, 8), scale_factor=2)  # four times halved
        rows = {"inputs": images, "labels": fields["labels"]}
        return dict.fromkeys(("train", "val", "test"), rows)
    return {part: turned(table.fields["inputs"], table.fields["labels"]) for part, table in omniglot_splits().items()}


def turned(images: Tensor, labels: Tensor) -> Rows:
    """The images and, as further classes, the images turned: class c turned k times is 4c + k."""
    inputs = torch.cat([images.rot90(k, (-2, -1)) for k in range(TURNS)])
    return {"inputs": inputs, "labels": torch.cat([TURNS * labels + k for k in range(TURNS)])}


def clients(name: str, seed: int) -> Data:
    """Every client has characters of its own, with their turned images; of digits all clients have all."""
    rows = parts(name)["train"]
    if name == "digits":
        return Data.from_parts({f"client-{k}": rows for k in range(2)})
    character = (rows["labels"] // TURNS).numpy()
    known = np.unique(character)
    owner = np.empty(known.max() + 1, dtype=np.int64)
    owner[known] = np.random.default_rng(seed).permutation(np.arange(len(known)) % CLIENTS)
    return Data.by_site(rows, np.asarray([f"client-{k:02}" for k in owner[character]]))


@cache
def held(name: str, part: str, shots: int, number: int) -> list[tuple[Batch, Batch]]:
    """Tasks of new classes, the same in all trials."""
    rows = Data.from_parts({part: parts(name)[part]})
    draw = Draw(rows, np.arange(1), rows.client_keys, 0, np.arange(number))
    sampler = Episodes(WAYS, QUERY if name != "digits" else 5)
    batch = sampler.fetch(rows, sampler.select(draw, Request(outer=1, inner=shots)))
    assert batch.inner is not None
    # of one client and as many steps as tasks, each of one task
    fields, inner = ({key: field[0, :, 0] for key, field in b.fields.items()} for b in (batch, batch.inner))
    return tasks(Batch(fields, None, Batch(inner)))


def accuracy(net: Model, x: Tensor, some: list[tuple[Batch, Batch]], lr: float = INNER_LR) -> float:
    """Of query rows after steps on the support rows; batch norm takes the moments of the rows at hand, as in training."""
    losses, right = cross_entropy_losses(net), list[Tensor]()

    def loss(z: Tensor, b: Batch) -> Tensor:
        return losses(z, b).mean()

    with torch.no_grad():
        for support, query in some:
            out = net(adapt(loss, x, support, lr, USUAL, second_order=False), query.inputs)
            if not bool(out.isfinite().all()):
                raise Diverged("outputs after adaptation are not finite")
            right.append((out.argmax(1) == query.labels).double().mean())
    return float(torch.stack(right).mean())


def method(trial: Trial, net: Model) -> tuple[Any, Any]:
    """The problem and the algorithm: one task a client and step."""
    lr, q, shots, beta, tracking = (trial[key] for key in ("lr", "local_steps", "shots", "beta", "tracking"))
    problem = maml(net, INNER_LR, sampling=Episodes(WAYS, QUERY if trial["data"] != "digits" else 5))
    match trial["method"]:
        case "FCSG":
            return problem, FCSG(lr, q, 1, shots)
        case "FCSG-M":
            return problem, FCSGM(lr, q, 1, shots, beta=beta)
        case "Acc-FCSG-M":
            return problem, AccFCSGM(lr, q, 1, shots, beta=beta)
        case "Local-SCGD":
            return conditional_as_compositional(problem), LocalSCGD(lr, q, 1, tracking, shots)
        case "Local-SCGDM":
            return conditional_as_compositional(problem), LocalSCGDM(lr, q, 1, tracking, shots, beta)
    raise ValueError(trial["method"])


def net_of(name: str, filters: int = 64) -> Model:
    return Model(federated_norm(conv4(WAYS, side=16 if name == "digits" else 28, filters=filters)))


def work(kept: Path, trial: Trial) -> Result:
    """A trial takes most of an hour: its checkpoints go to a folder in `kept`, from which it goes on."""
    return timed(partial(resumable, kept))(trial)


def resumable(kept: Path, trial: Trial) -> Result:
    name, shots, seed = trial["data"], trial["shots"], trial["seed"]
    torch.manual_seed(seed)
    net = net_of(name, trial["filters"])
    if trial["method"] == NONE:
        return {**costs({}), **judged(trial, net, net.vector(), trial["lr"]), "diverged": 0.0, "curve": []}
    problem, algorithm = method(trial, net)
    fed, rounds = Federation(problem, clients(name, seed), seed=seed), max(1, trial["steps"] // trial["local_steps"])
    along = held(name, "test", shots, 2 if name == "digits" else ALONG)

    def measure(state: Any) -> dict[str, float]:
        return {"test accuracy": accuracy(net, state.x, along)} if trial["points"] else {}

    folder = kept / hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()[:16]
    done = run_to_end(algorithm, fed, algorithm.init(fed, net.vector()), rounds, measure, max(1, rounds // max(1, trial["points"])),
                      may_diverge=True, folder=folder)
    last, over = done.history[-1], done.reason == "diverged"
    found = dict.fromkeys(("validation accuracy", "test accuracy"), 1 / WAYS) if over else judged(trial, net, done.state.x, INNER_LR)
    columns = ("round", "bytes", "test accuracy") if trial["points"] else ()
    shown = [{"iteration": row["round"] * trial["local_steps"], **{key: row[key] for key in columns}} for row in done.history]
    return {**costs(last), **found, "diverged": float(over), "curve": shown if columns else []}


def judged(trial: Trial, net: Model, x: Tensor, lr: float) -> dict[str, float]:
    """The accuracies on new tasks; those of test classes, also with the step size that is best on validation tasks, of results only."""
    name, shots = trial["data"], trial["shots"]
    some = {part: held(name, part, shots, 4 if name == "digits" else number) for part, number in AT_END.items()}
    found = {"validation accuracy": accuracy(net, x, some["val"], lr)}
    if trial["points"]:
        own = {lr: found["validation accuracy"]}
        for size in () if trial["method"] == NONE else OWN:
            with suppress(Diverged):
                own[size] = accuracy(net, x, some["val"], size)
        found["own step"] = max(own, key=lambda size: own[size])
        found["test accuracy"] = accuracy(net, x, some["test"], lr)
        found["test accuracy, own step"] = accuracy(net, x, some["test"], found["own step"])
    return found


def costs(row: Mapping[str, float]) -> dict[str, float]:
    return {key: row.get(key, 0.0) for key in ("round", "exchanges", "bytes", "samples")}
