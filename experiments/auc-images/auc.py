"""One trial on rows with rare positives: the clients' rows, the objectives and methods, what is measured."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import torch
from common import timed
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from rookery import CODASCA, FESSGDA, SCAFFOLD, CoDA, Data, FedAvg, Federation, FedProx, FeDXL1, LocalSCGDAM, LocalSGDAM, LocalSGDM, Model
from rookery.data import Stratified, Table, dirichlet, drop_positives, hold_out, iid, load
from rookery.errors import Diverged, NonFinite
from rookery.models import mlp, resnet20, small_cnn, to_group_norm
from rookery.objectives import auc, balanced_cross_entropy, cross_entropy, ratio_loss
from rookery.problems import CompositionalMinimax, Minimax, Pairwise
from rookery.studies.trials import Result, Trial
from rookery.training import Run, Stage, run_stages

Row = dict[str, float]
HELD, BATCH, POINTS = 0.1, 32, 2000  # the share that a client holds out; a client's batch; test rows of a curve
RHO, TRACKING, BETA = 0.1, 0.9, 0.1  # LocalSCGDAM's step of cross-entropy and its tracking; the averages of gradients
GROWTH, PROX = 3, 500.0  # of the stages of CoDA and CODASCA, the first of which has a third of the rounds
PULL = 0.1  # FESS-GDA's pull to z in a round
WARM, WARM_LR = 0.2, 0.1  # a warm start's share of the steps, and FedAvg's step size in it
FLAT = ", flat"  # images as vectors, for a small MLP
CATS = {"cats": 3, "dogs": 5}  # of CIFAR-10
# what a variant changes; by default batches are stratified, scores squashed and gradients averaged, and w₁ and w₂ start at 0
VARIANTS: dict[str, dict[str, Any]] = {
    "": {}, "uniform batches": {"positives": 0.0}, "warm": {"warm": WARM}, "warm, uniform batches": {"warm": WARM, "positives": 0.0},
    "warm, no squash": {"warm": WARM, "squash": False}, "warm, no momentum": {"warm": WARM, "beta": 1.0},
    "from ½": {"means": 0.5}, "warm, from ½": {"warm": WARM, "means": 0.5}}


@cache
def tables(name: str) -> tuple[Table, Table]:
    """Training and test rows with the labels 1, for positives, and 0."""
    if name.endswith(FLAT):
        train, test = tables(name.removesuffix(FLAT))
        return flat(train), flat(test)
    train, test = load("cifar10" if name == "cats" else name)
    if name == "cats":
        pair = torch.tensor(list(CATS.values()))
        train, test = (t.take(torch.isin(t.fields["labels"], pair)) for t in (train, test))
        return train.binary([CATS["cats"]]), test.binary([CATS["cats"]])
    if len(train.classes) > 2:
        half = range(len(train.classes) // 2)
        train, test = train.binary(half), test.binary(half)
    return train, test


def flat(table: Table) -> Table:
    return Table({**table.fields, "inputs": table.fields["inputs"].flatten(1)}, table.classes, table.name)


@cache
def some(name: str) -> Tensor:
    """Which test rows a curve is made of: always the same, as many positives as negatives where there are more than these."""
    labels = tables(name)[1].fields["labels"].numpy()
    if len(labels) <= POINTS:
        return torch.arange(len(labels))
    r = np.random.default_rng(0)
    return torch.from_numpy(np.sort(np.concatenate([r.permutation(np.flatnonzero(labels == c))[: POINTS // 2] for c in (0, 1)])))


def clients(trial: Trial) -> tuple[Data, Data]:
    """The rows that the clients train on, positives thinned to their share, and those that they hold out; split and thinned by the seed."""
    name, seed = trial["data"], trial["seed"]
    train = tables(name)[0]
    if trial["share"] is not None:
        train = train.take(drop_positives(train.fields["labels"], share=trial["share"], seed=seed))
    site = dirichlet(train.fields["labels"], 8, 0.5, seed, least=20) if name == "mammography" else iid(len(train), 4, seed)
    return hold_out(Data.by_site(train.fields, site), HELD, seed)


def model(name: str, seed: int) -> Model:
    """One net for all methods, with two outputs."""
    torch.manual_seed(seed)
    shape = tables(name)[0].fields["inputs"].shape[1:]
    if name == "cats":
        return Model(to_group_norm(resnet20(2)))
    return Model(mlp(shape[0], 64 if shape[0] > 100 else 32, 2) if len(shape) == 1 else small_cnn(shape[0], 2, shape[1]))


def method(trial: Trial, net: Model, rounds: int) -> tuple[Any, Any]:
    """The problem and the algorithm; x and y have the same step size in those with two of them."""
    lr, p, how = trial["lr"], trial["local_steps"], VARIANTS[trial["variant"]]
    beta, of = how.get("beta", BETA), {name: how[name] for name in ("positives", "squash") if name in how}
    stages = {"stage": max(1, rounds // 3), "growth": GROWTH, "prox": PROX}
    match trial["method"]:
        case "LocalSCGDAM":
            return auc(net, CompositionalMinimax, rho=RHO, **of), LocalSCGDAM(lr, lr, p, BATCH, TRACKING, beta, beta)
        case "LocalSGDAM":
            return auc(net, Minimax, **of), LocalSGDAM(lr, lr, p, BATCH, beta)
        case "CoDA":
            return auc(net, Minimax, **of), CoDA(lr, p, BATCH, **stages)
        case "CODASCA":
            return auc(net, Minimax, **of), CODASCA(lr, p, BATCH, **stages)
        case "FESS-GDA":
            return auc(net, Minimax, **of), FESSGDA(lr, lr, p, BATCH, smoothing=PULL / (lr * p))
        case "FeDXL1":
            return auc(net, Pairwise, **of), FeDXL1(lr, p, BATCH)
        case "LocalSGDM":
            return cross_entropy(net), LocalSGDM(lr, p, BATCH)
        case "LocalSGDM_RL":
            return ratio_loss(net), LocalSGDM(lr, p, BATCH)
        case "LocalSGDM, class weights":
            return balanced_cross_entropy(net), LocalSGDM(lr, p, BATCH)
        case "LocalSGDM, balanced batches":
            # cross-entropy does not read the importance: with it a client of one class draws what it has
            return cross_entropy(net, sampling=Stratified("labels", share=0.5, importance=True)), LocalSGDM(lr, p, BATCH)
        case "SCAFFOLD":
            return cross_entropy(net), SCAFFOLD(lr, p, BATCH)
        case "FedProx":
            return cross_entropy(net), FedProx(lr, p, BATCH)
    raise ValueError(trial["method"])


def scores(net: Model, x: Tensor, rows: Any) -> Row:
    """AUC and average precision, exact, of rows in one place."""
    out = net.predict(x[: net.size], rows["inputs"], 500)
    s, labels = (out[:, 1] - out[:, 0]).double().numpy(), rows["labels"].numpy()
    if not np.isfinite(s).all():
        raise Diverged("scores are not finite")
    return {"AUC": float(roc_auc_score(labels, s)), "AP": float(average_precision_score(labels, s))}


@timed
def work(trial: Trial) -> Result:
    name, seed, net = trial["data"], trial["seed"], model(trial["data"], trial["seed"])
    data, held = clients(trial)
    test = tables(name)[1].fields
    few = {key: field[some(name)] for key, field in test.items()}

    def measure(state: Any) -> Row:
        found = {"test AUC": scores(net, state.x, few)["AUC"]}
        if has_h(state):
            found["test AUC of h"] = scores(net, state.h, few)["AUC"]
        return found

    if trial["steps"]:
        state, curve, diverged = in_steps(trial, net, data, seed, measure)
    else:
        state, curve, diverged = in_minutes(trial, net, data, seed, measure)
    shown = ("iteration", "bytes", "samples", "minutes", "test AUC", "test AUC of h")
    last: Row = {key: curve[-1][key] for key in ("iteration", "bytes", "samples")}
    for part, rows in (("test", test), ("validation", held.fields)):
        if diverged:
            last |= {f"{part} AUC": 0.5, f"{part} AP": float((rows["labels"] > 0).double().mean())}
            continue
        last |= {f"{part} {key}": value for key, value in scores(net, state.x, rows).items()}
        if has_h(state):
            last |= {f"{part} {key} of h": value for key, value in scores(net, state.h, rows).items()}
    return {**last, "diverged": float(diverged), "curve": [{key: row[key] for key in shown if key in row} for row in curve]}


def has_h(state: Any) -> bool:
    """Whether there is another net to look at: LocalSCGDAM's h tracks x after its step of cross-entropy, where the AUC's loss is taken."""
    return len(getattr(state, "h", ())) > 0


def of_h(result: Result) -> Result:
    """The result of the same run, had h been the net and not x."""
    if result["diverged"]:
        return result
    own = {key: result[f"{key} of h"] for key in ("test AUC", "test AP", "validation AUC", "validation AP")}
    return result | own | {"curve": [row | {"test AUC": row.get("test AUC of h", row["test AUC"])} for row in result["curve"]]}


def start(algorithm: Any, fed: Federation[Any], x: Tensor, means: float = 0.0) -> Any:
    """The first state, with w₁ and w₂, the classes' mean scores, at `means` and w₃ at 0 where there are any."""
    if isinstance(fed.problem, Minimax | CompositionalMinimax):
        x = torch.cat([x, x.new_full((2,), means)])
        fed.prepare(x)
        return algorithm.init(fed, x, x.new_zeros(1))
    fed.prepare(x)
    return algorithm.init(fed, x)


def in_steps(trial: Trial, net: Model, data: Data, seed: int, measure: Any) -> tuple[Any, list[Row], bool]:
    """All rounds; a warm start is FedAvg on the class-weighted cross-entropy, and its rounds are among them."""
    p, how = trial["local_steps"], VARIANTS[trial["variant"]]
    warm, means = how.get("warm", 0.0), how.get("means", 0.0)
    rounds = max(1, trial["steps"] // p)
    first = round(warm * rounds)
    problem, algorithm = method(trial, net, rounds - first)
    fed = Federation(problem, data, seed=seed, weights="samples")
    stages = [Stage(algorithm, fed, rounds - first, lambda s: start(algorithm, fed, net.vector() if s is None else s.x, means), measure)]
    if first:
        before, plain = FedAvg(WARM_LR, p, BATCH), Federation(balanced_cross_entropy(net), data, seed=seed + 1000, weights="samples")
        stages.insert(0, Stage(before, plain, first, lambda s: start(before, plain, net.vector()), measure))
    done: Run = run_stages(stages, max(1, round(100 / p)))
    if done.reason == "interrupted":
        raise KeyboardInterrupt
    return done.state, [{**row, "iteration": row["round"] * p} for row in done.history], done.reason == "diverged"


def in_minutes(trial: Trial, net: Model, data: Data, seed: int, measure: Any) -> tuple[Any, list[Row], bool]:
    """Rounds until the process has trained for so many minutes and has made so many iterations, whichever is later.

    The wall's clock would count what others do on the machine. The state is that when the minutes were over.
    """
    problem, algorithm = method(trial, net, max(1, trial["least"] // trial["local_steps"]))
    fed = Federation(problem, data, seed=seed, weights="samples")
    state, rounds, spent, diverged = start(algorithm, fed, net.vector(), VARIANTS[trial["variant"]].get("means", 0.0)), 0, 0.0, False
    at, every, curve = None, max(1, round(trial["least"] / 5 / trial["local_steps"])), list[Row]()

    def note() -> None:
        account = fed.ledger["train"]
        curve.append({"iteration": rounds * trial["local_steps"], "minutes": spent / 60, "samples": account.samples,
                      "bytes": account.bytes_up + account.bytes_down, **measure(state)})

    note()
    while not diverged and (at is None or rounds * trial["local_steps"] < trial["least"]):
        begun = time.process_time()
        try:
            state = algorithm.round(fed, state)
        except NonFinite:
            diverged = True
        spent, rounds = spent + time.process_time() - begun, rounds + 1
        over = at is None and spent >= 60 * trial["minutes"]
        at = state if over else at
        if over or rounds % every == 0:
            note()
    return at, curve, diverged
