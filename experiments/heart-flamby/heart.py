"""Fed-Heart-Disease: the rows that FLamby keeps, its split and its two standardisations; and one trial of a method on them."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from common import run_to_end, timed
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import SCAFFOLD, Data, FedAvg, Federation, FedOpt, FedProx, Model
from rookery.data import Shuffled
from rookery.data.folder import folder
from rookery.errors import DataError
from rookery.objectives import cross_entropy
from rookery.studies import build, parse
from rookery.studies.trials import Result, Trial

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
PLAIN = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
CODES = ("cp", "restecg")  # a column for each of their values but the first
TRAIN, SPLIT, FOLDS = 0.66, 43, 5  # FLamby's share and the seed of its one split
PRODUCT = "FedAvg, own encoder"
LOCAL_STEPS, BATCH, ROUNDS, EPOCHS = 100, 4, 15, 50  # 15 rounds are what FLamby makes of 50 epochs over the sites


@dataclass(frozen=True)
class Patients:
    """Rows with no gap in the columns that count."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    hospital: NDArray[np.int64]


@cache
def patients(name: str = "heart") -> Patients:
    """The table of that name in the data folder, or rows that are made up, which stand in for it."""
    return _made_up() if name == "made up" else _read(name)


def _read(name: str) -> Patients:
    path = folder() / "sites" / f"{name}.csv"
    if not path.is_file():
        raise DataError(f"{path} is not there; it is UCI's Heart Disease, the four processed files under one header with a column hospital")
    with path.open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if all(row[column] not in ("", "?") for column in (*PLAIN, *CODES, "num"))]
    rows.sort(key=lambda row: HOSPITALS.index(row["hospital"]))
    columns = [[float(row[column]) for row in rows] for column in PLAIN]
    for column in CODES:
        values = [float(row[column]) for row in rows]
        columns += [[float(value == code) for value in values] for code in sorted(set(values))[1:]]
    return Patients(np.array(columns, np.float32).T.copy(), np.array([float(row["num"]) > 0 for row in rows], np.int64),
                    np.array([HOSPITALS.index(row["hospital"]) for row in rows]))


def _made_up() -> Patients:
    draw = np.random.default_rng(0)
    hospital = np.repeat(np.arange(4), (80, 60, 24, 40))
    features = draw.normal(size=(len(hospital), 13)) + 0.3 * hospital[:, None]
    return Patients(features.astype(np.float32), (features[:, :3].sum(1) + draw.normal(size=len(hospital)) > 1).astype(np.int64), hospital)


def parts(p: Patients, split: int, fold: int | None) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows train and which judge: of each hospital two thirds and one, by class; or folds of the training rows of that split."""
    train = np.zeros(len(p.labels), bool)
    for hospital in range(4):
        own = np.flatnonzero(p.hospital == hospital)
        by = p.labels[own] if np.bincount(p.labels[own], minlength=2).min() > 2 else None  # Switzerland has one healthy patient
        kept, _ = train_test_split(np.arange(len(own)), train_size=TRAIN, test_size=1 - TRAIN, random_state=split, stratify=by)
        train[own[kept]] = True
    if fold is None:
        return train, ~train
    rows = np.flatnonzero(train)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class")  # that patient again
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=split).split(rows, 2 * p.hospital[rows] + p.labels[rows]))
    held = np.zeros(len(p.labels), bool)
    held[rows[folds[fold][1]]] = True
    return train & ~held, held


def standardised(p: Patients, train: NDArray[np.bool_], by: str) -> Tensor:
    """All rows in units of the training rows' standard deviations: those of each hospital ("site"), or of all of them ("agreed")."""
    found = torch.from_numpy(p.features.copy())
    for rows in [p.hospital == h for h in range(4)] if by == "site" else [np.ones(len(train), bool)]:
        own = found[torch.from_numpy(rows & train)]
        found[torch.from_numpy(rows)] = (found[torch.from_numpy(rows)] - own.mean(0)) / (own.std(0) + 1e-9)
    return found


class Logit(nn.Module):
    """One linear logit beside 0, as two scores."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(13, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        out = self.linear(inputs)
        return torch.cat([torch.zeros_like(out), out], 1)


# with the coefficients of FLamby's configuration, but for step sizes
METHODS: dict[str, Callable[[Trial], Any]] = {
    "FedAvg": lambda t: FedAvg(t["lr"], LOCAL_STEPS, BATCH),
    "FedProx": lambda t: FedProx(t["lr"], LOCAL_STEPS, BATCH, mu=0.01),
    "SCAFFOLD": lambda t: SCAFFOLD(t["lr"], LOCAL_STEPS, BATCH),
    "FedAdam": lambda t: FedOpt(t["lr"], LOCAL_STEPS, BATCH, server="adam", server_lr=t["server_lr"], beta2=0.999, tau=1e-8)}


@timed
def work(trial: Trial) -> Result:
    return by_description(trial) if trial["method"] == PRODUCT else by_hand(trial)


def by_hand(trial: Trial) -> Result:
    """Train on rows of one scale, and judge on rows of both: every hospital's, all of them, and all of them on the common scale."""
    p = patients(trial["data"])
    train, judge = parts(p, trial["split"], trial["fold"])
    scaled = {by: standardised(p, train, by) for by in ("site", "agreed")}
    torch.manual_seed(trial["seed"])  # with FLamby's seeds these are its first weights
    net = Model(Logit())
    x = net.vector() if trial["start"] == "drawn" else torch.zeros(net.size)
    labels = torch.from_numpy(p.labels)
    rows = {"inputs": scaled[trial["scale"]][torch.from_numpy(train)], "labels": labels[torch.from_numpy(train)]}
    if trial["method"] == "Pooled":
        x, told = pooled(net.module(x), rows, trial), {"exchanges": 0.0, "bytes": 0.0}
    else:
        data = Data.by_site(rows, [HOSPITALS[h] for h in p.hospital[train]])
        fed = Federation(cross_entropy(net, sampling=Shuffled()), data, weights="samples", seed=trial["seed"])
        algorithm = METHODS[trial["method"]](trial)
        done = run_to_end(algorithm, fed, algorithm.init(fed, x), trial["rounds"], lambda s: {}, trial["rounds"])
        x, told = done.state.x, {key: done.history[-1][key] for key in ("exchanges", "bytes")}
    right = {by: (net.predict(x, inputs).argmax(1) == labels).numpy() for by, inputs in scaled.items()}
    # FLamby scores a hospital's rows on its own scale, and the pooled rows on the common one, whatever the model was trained on
    found = {HOSPITALS[h] + also: float(right[by][judge & (p.hospital == h)].mean())
             for h in range(4) for by, also in (("site", ""), (trial["scale"], " as trained"))}
    loss = F.cross_entropy(net.predict(x, scaled[trial["scale"]][torch.from_numpy(judge)]), labels[torch.from_numpy(judge)])
    return {**told, **found, "pooled": float(right["agreed"][judge].mean()), "as trained": float(right[trial["scale"]][judge].mean()),
            "loss": float(loss)}


def pooled(module: nn.Module, rows: dict[str, Tensor], trial: Trial) -> Tensor:
    """PyTorch's Adam on all rows in one place, as FLamby's baseline has it."""
    inputs, labels = rows["inputs"], rows["labels"]
    optimiser = torch.optim.Adam(module.parameters(), trial["lr"])
    for _ in range(round(EPOCHS * trial["rounds"] / ROUNDS)):
        for batch in torch.randperm(len(labels)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(module(inputs[batch]), labels[batch]).backward()
            optimiser.step()
    return torch.cat([value.detach().reshape(-1) for value in module.parameters()])


def by_description(trial: Trial) -> Result:
    """FedAvg as a user writes it down: all 13 columns with their gaps, an encoder that the hospitals agree on, a split of its own."""
    section = {"name": "sites/heart", "test_share": 1 - TRAIN, "split_seed": trial["split"]}
    algorithm = {"name": "FedAvg", "lr": trial["lr"], "local_steps": LOCAL_STEPS, "batch": BATCH}
    job = build.build(parse({"data": section, "model": {"name": "linear"}, "algorithm": algorithm, "federation": {"seed": trial["seed"]},
                             "run": {"rounds": trial["rounds"], "every": trial["rounds"]}}))
    done = job.run(None, PRODUCT)
    if done.reason != "rounds":
        raise RuntimeError(f"a trial ended by {done.reason!r}: {done.failure}")
    right = (job.predict(job.parameters(done.state), job.test.fields["inputs"]).argmax(1) == job.test.fields["labels"]).numpy()
    own, last = job.test.values("site"), done.history[-1]
    all_rows = float(right.mean())
    return {**{f"{h} as trained": float(right[own == h].mean()) for h in HOSPITALS}, "pooled": all_rows, "as trained": all_rows,
            "loss": last["validation loss"], "exchanges": last["exchanges"], "bytes": last["bytes"], "rows": len(right)}
