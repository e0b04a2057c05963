"""One trial on Adult: the rows at eight sites, the objectives, the methods, and what is measured."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from common import run_to_end, timed
from torch import Tensor
from torch.nn import functional as F

from rookery import GCIVR, Batch, Data, FedAvg, FedDRO, Federation, Minimization, Model, Unconstrained
from rookery.data import Table, hold_out, iid, load
from rookery.models import logistic
from rookery.objectives import fair, fairness_gap, group_rates
from rookery.studies.trials import Result, Trial
from rookery.training.schedules import Drop

CLIENTS, HELD, POINTS = 8, 0.2, 16


def stand_in(rows: int = 4000, seed: int = 0) -> tuple[Table, Table]:
    """A small table in the place of Adult: group 0 is rarer, has fewer positives, and the inputs tell of the group."""
    r = np.random.default_rng(seed)
    sex = (r.random(rows) < 0.67).astype(np.int64)
    inputs = r.normal(size=(rows, 6)) + np.outer(sex, [0.8, 0, 0, 0.4, 0, 0])
    labels = (inputs @ [1.0, -0.5, 0.3, 0.0, 0.2, 0.0] + 0.5 * sex + r.normal(size=rows) > 1.6).astype(np.int64)
    table = Table({"inputs": torch.from_numpy(inputs).float(), "labels": torch.from_numpy(labels), "sex": torch.from_numpy(sex)},
                  ("no", "yes"), "stand-in", {"sex": ("0", "1")})
    return table.take(np.arange(rows // 2)), table.take(np.arange(rows // 2, rows))


@cache
def tables(name: str) -> tuple[Table, Table]:
    return load(name) if name == "adult" else stand_in()


def losses(model: Model) -> Any:
    return lambda x, b: F.binary_cross_entropy_with_logits(model(x, b.inputs)[:, 0], b.labels.to(x.dtype), reduction="none")


def cells(b: Any, groups: int, field: str, dtype: torch.dtype) -> Tensor:
    """(rows, 2, groups): 1 where a row has that label and that group."""
    one = (b[field][:, None] == torch.arange(groups)).to(dtype)
    label = (b["labels"][:, None] == torch.arange(2)).to(dtype)
    return label[:, :, None] * one[:, None]


def balance(counts: Tensor) -> Tensor:
    """P(group)·P(label)/P(group, label) of each cell."""
    return counts.sum(0) * counts.sum(1)[:, None] / (counts.sum() * counts)


def reweighed(model: Model, groups: int, field: str) -> Minimization:
    """Mean of w·ℓ, w the weights of Kamiran and Calders (2012) from the counts of all clients, which `prepare` sums."""
    each = losses(model)

    def statistics(x: Tensor, b: Batch) -> Tensor:
        return cells(b.fields, groups, field, x.dtype).sum(0).reshape(-1)

    def finish(total: Tensor) -> Minimization:
        weight = balance(total.reshape(2, groups))
        return Minimization(lambda x, b: (each(x, b) * (cells(b.fields, groups, field, x.dtype) * weight).sum((1, 2))).mean(), model=model)

    return Minimization(lambda x, b: each(x, b).mean(), model=model, statistics=statistics, finish=finish)


def algorithm(trial: Trial, rounds: int) -> Any:
    """A step is one exchange of the model, or one of FedDRO's and FedAvg's local steps; GCIVR's round is a period of them."""
    lr, steps, batch = Drop(trial["lr"], (max(1, round(trial["drop"] * rounds)),)), trial["local_steps"], trial["batch"]
    match trial["method"]:
        case "FedDRO":
            return FedDRO(lr, trial.get("beta", 0.1), steps, batch)  # g and h have a batch each
        case "GCIVR":
            return GCIVR(lr, steps, batch, (steps + 1) * batch)  # so that a step has 2·batch rows in the mean, as FedDRO's
        case "GCIVR, B = m":
            return GCIVR(lr, steps, batch)
        case "Unconstrained":
            return Unconstrained(lr, batch)
        case _:
            return FedAvg(lr, steps, batch)


@timed
def work(trial: Trial) -> Result:
    train, test = tables(trial["data"])
    field, groups = trial["protected"], len(train.names[trial["protected"]])
    data, held = hold_out(Data.by_site(train.fields, iid(len(train), CLIENTS, trial["seed"])), HELD, trial["seed"])
    model = Model(logistic(train.fields["inputs"].shape[1]))
    each, rho = losses(model), trial["rho"]
    problem = {"FedAvg": lambda: Minimization(lambda x, b: each(x, b).mean(), model=model),
               "Reweighing": lambda: reweighed(model, groups, field)}.get(
                   trial["method"], lambda: fair(each, model, groups, rho=rho, field=field))()
    fed = Federation(problem, data, seed=trial["seed"])
    x = torch.zeros(model.size)
    fed.prepare(x)
    parts = {"train": data.fields, "validation": held.fields, "test": test.fields}

    def value(score: Tensor, rows: Any) -> float:
        """The method's own objective."""
        ell = F.binary_cross_entropy_with_logits(score, rows["labels"].to(score.dtype), reduction="none")
        if trial["method"] == "Reweighing":
            cell = cells(rows, groups, field, score.dtype)
            return float((ell * (cell * balance(cell.sum(0))).sum((1, 2))).mean())
        rates = group_rates(torch.sigmoid(score), rows["labels"], rows[field])[0]
        return float(ell.mean()) + rho / 2 * float(np.nansum((rates[1:] - rates[0]) ** 2))

    def measure(s: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, rows in parts.items():
            score = model.predict(s.x, rows["inputs"])[:, 0]
            hard = (score > 0).long()
            found |= {f"{name} accuracy": float((hard == rows["labels"]).float().mean()), f"{name} value": value(score, rows),
                      f"{name} gap": fairness_gap(hard, rows["labels"], rows[field])}
        return found

    rounds = trial["steps"] // trial["local_steps"]
    method = algorithm(trial, rounds)
    done = run_to_end(method, fed, method.init(fed, x), rounds, measure, max(1, rounds // POINTS), may_diverge=True)
    last = done.history[-1] if done.reason == "rounds" else {}
    curve = [{name: row[name] for name in ("exchanges", "bytes", "samples", "train accuracy", "train gap", "test accuracy", "test gap")}
             | {"models": row["round"] * (trial["local_steps"] if trial["method"].startswith("GCIVR") else 1)} for row in done.history]
    return {**last, "models": curve[-1]["models"], "curve": curve}
