"""One trial on rows with rare positives, for average precision: the clients' rows, the objectives and methods, what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from common import run_to_end, timed
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

from rookery import FCSG, FCSGM, SOAP, AccFCSGM, CODAPlus, Data, FedAvg, Federation, Model
from rookery.data import Positives, Stratified, Table, drop_positives, hold_out, iid, label_shards, load, positive_counts
from rookery.errors import Diverged
from rookery.models import lenet, mlp
from rookery.objectives import ap_surrogate, auc, balanced_cross_entropy, cross_entropy
from rookery.studies.trials import Result, Trial

SITES, LOCAL_STEPS, HELD, KEPT = 20, 10, 0.1, 0.2  # the share of rows that a client holds out; that of positives left in training
POINTS, CURVE = 1000, 6  # test rows of a curve and its points, few enough that evaluation stays below a tenth of a run
MARGIN, GAMMA = 0.1, 0.9
FLAT = ", flat"  # images as vectors, for a small MLP


@dataclass(frozen=True)
class Settings:
    """A client's batch, the positives in it, and the weight of a new gradient in FCSG-M and Acc-FCSG-M, as the authors have them."""

    batch: int
    positives: int
    beta: float


SETTINGS = {"mnist": Settings(20, 3, 0.9), "digits": Settings(20, 3, 0.9), "cifar10": Settings(60, 20, 0.1), "w8a": Settings(20, 2, 0.1)}
# what a variant changes: by default the scores pass a sigmoid, the AUC's w₁ and w₂ start at ½, CODA+ has two stages, and inner sets
# are batches with a fixed number of positives that are not reweighted
LOGITS: dict[str, Any] = {"squash": False, "means": (1.0, 0.0)}
VARIANTS: dict[str, dict[str, Any]] = {
    "": {}, "logits": LOGITS, "logits, one stage": {**LOGITS, "stages": 1}, "margin 1": {"margin": 1.0}, "reweighted": {"reweight": True},
    "one batch": {"among": True}, "one batch, β = 0.9": {"among": True, "beta": 0.9},
    "uniform rows": {"enrich": False}, "uniform rows, β = 0.1": {"enrich": False, "beta": 0.1}}
METHODS = ("FedAvg", "FedAvg, class weights", "FedAvg, stratified", "CODA+", "FCSG", "FCSG-M", "Acc-FCSG-M", "SOAP")


def settings_of(data: str) -> Settings:
    return SETTINGS[data.removesuffix(FLAT)]


@cache
def tables(name: str) -> tuple[Table, Table]:
    """Training and test rows with the labels 1, for positives, and 0; images are normalised and keep their class as `kind`."""
    if name == "w8a":
        train, test = load(name, test_share=0.2)
        return train, test
    train, test = load(name.removesuffix(FLAT))
    pixels = train.fields["inputs"]
    mean, std = (f(pixels, (0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))
    second = range(len(train.classes) // 2, len(train.classes))

    def ready(table: Table) -> Table:
        inputs = (table.fields["inputs"] - mean) / std
        fields = {"inputs": inputs.flatten(1) if name.endswith(FLAT) else inputs, "kind": table.fields["labels"]}
        return Table({**fields, "labels": table.binary(second).fields["labels"]}, ("0", "1"), table.name)

    return ready(train), ready(test)


@cache
def some(name: str) -> Tensor:
    """Which test rows a curve is made of: always the same ones, drawn without a look at their labels."""
    rows = len(tables(name)[1])
    return torch.from_numpy(np.sort(np.random.default_rng(0).permutation(rows)[:POINTS]))


def clients(trial: Trial) -> tuple[Data, Data]:
    """The rows that the clients train on and those that they hold out; thinned, spread and held out by the seed."""
    seed, train = trial["seed"], tables(trial["data"])[0]
    if "kind" in train.fields:  # w8a has an imbalance of its own
        train = train.take(drop_positives(train.fields["labels"], keep=KEPT, seed=seed))
    site = iid(len(train), SITES, seed) if trial["split"] == "iid" else label_shards(train.fields["kind"], SITES, 2, seed)
    return hold_out(Data.by_site({name: train.fields[name] for name in ("inputs", "labels")}, site), HELD, seed)


class Beside(nn.Module):
    """A 0 beside the one output, as the score of the negative class: cross-entropies want two, and the logit is their difference."""

    def forward(self, z: Tensor) -> Tensor:
        return nn.functional.pad(z, (1, 0))


def net_of(data: str) -> nn.Sequential:
    """The authors' nets: LeNet for MNIST, three convolutions for CIFAR-10, 28 hidden units for w8a; and a MLP for flat images."""
    if data == "mnist":
        net = lenet(1, 1)
        for layer in net:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_normal_(layer.weight)
                nn.init.constant_(layer.bias, 1 / len(layer.bias))
        return net
    if data == "cifar10":
        layers = list[nn.Module]()
        for before, after in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers, nn.Flatten(), *mlp(1024, 512, 64, 1))
    return mlp(tables(data)[0].fields["inputs"].shape[1], 28 if data == "w8a" else 64, 1)


def model(data: str, seed: int) -> Model:
    torch.manual_seed(seed)
    return Model(nn.Sequential(net_of(data), Beside()))


def method(trial: Trial, net: Model, rounds: int) -> tuple[Any, Any]:
    """The problem and the algorithm."""
    lr, s, how = trial["lr"], settings_of(trial["data"]), VARIANTS[trial["variant"]]
    k, b, p = s.positives, s.batch, LOCAL_STEPS
    beta = how.get("beta", s.beta)
    match trial["method"]:
        case "FedAvg":
            return cross_entropy(net), FedAvg(lr, p, b)
        case "FedAvg, class weights":
            return balanced_cross_entropy(net), FedAvg(lr, p, b)
        case "FedAvg, stratified":
            return cross_entropy(net, sampling=Stratified("labels", k)), FedAvg(lr, p, b)
        case "CODA+":
            # a single stage is longer than the run, as at a stage's end the mean of its points takes the place of the last one
            stage = rounds + 1 if how.get("stages") == 1 else max(1, rounds // 3)
            return auc(net, squash=how.get("squash", True), positives=k / b), CODAPlus(lr, p, b, stage)
    sampling = Positives(enrich=k if how.get("enrich", True) else None, reweight=how.get("reweight", False), among=how.get("among", False))
    problem = ap_surrogate(net, how.get("margin", MARGIN), sampling)
    sizes = {"local_steps": p, "outer": k, "inner": trial["inner"]}
    match trial["method"]:
        case "FCSG":
            return problem, FCSG(lr, **sizes)
        case "FCSG-M":
            return problem, FCSGM(lr, **sizes, beta=beta)
        case "Acc-FCSG-M":
            return problem, AccFCSGM(lr, **sizes, beta=beta)
        case "SOAP":
            return problem, SOAP(lr, **sizes, gamma=GAMMA)
    raise ValueError(trial["method"])


def weights_of(trial: Trial, data: Data) -> Any:
    return positive_counts(data) if trial["weights"] == "positives" else trial["weights"]


def scores(net: Model, x: Tensor, rows: Any) -> dict[str, float]:
    """AP and AUC, exact, of rows in one place."""
    s, labels = net.predict(x[: net.size], rows["inputs"], 500)[:, 1].double().numpy(), rows["labels"].numpy()
    if not np.isfinite(s).all():
        raise Diverged("scores are not finite")
    return {"AP": float(average_precision_score(labels, s)), "AUC": float(roc_auc_score(labels, s))}


def start(algorithm: Any, fed: Federation[Any], x: Tensor, means: tuple[float, float]) -> Any:
    """The first state; for CODA+ with w₁ and w₂, the classes' mean scores, and w₃ at 0."""
    if isinstance(algorithm, CODAPlus):
        x = torch.cat([x, x.new_tensor(means)])
        fed.prepare(x)
        return algorithm.init(fed, x, x.new_zeros(1))
    fed.prepare(x)
    return algorithm.init(fed, x)


@timed
def work(trial: Trial) -> Result:
    name, net = trial["data"], model(trial["data"], trial["seed"])
    data, held = clients(trial)
    test, few = tables(name)[1].fields, some(name)
    few_rows = {key: test[key][few] for key in ("inputs", "labels")}
    rounds = max(1, trial["steps"] // LOCAL_STEPS)
    problem, algorithm = method(trial, net, rounds)
    fed = Federation(problem, data, seed=trial["seed"], weights=weights_of(trial, data))
    done = run_to_end(algorithm, fed, start(algorithm, fed, net.vector(), VARIANTS[trial["variant"]].get("means", (0.5, 0.5))), rounds,
                      lambda state: {"test AP": scores(net, state.x, few_rows)["AP"]}, max(1, rounds // CURVE), may_diverge=True)
    result: Result = {"diverged": float(done.reason == "diverged")}
    for part, rows in (("test", test), ("validation", held.fields)):
        # a run that broke off counts as one that ranks at random
        found = ({"AP": float((rows["labels"] > 0).double().mean()), "AUC": 0.5} if result["diverged"] else
                 scores(net, done.state.x, rows))
        result |= {f"{part} {metric}": value for metric, value in found.items()}
    return {**result, "bytes": done.history[-1]["bytes"], "samples": done.history[-1]["samples"],
            "without positives": float((positive_counts(data) == 0).sum()),
            "curve": [[row["round"] * LOCAL_STEPS, row["test AP"]] for row in done.history]}
