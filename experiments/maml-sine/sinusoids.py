"""One trial on sinusoids: the clients' tasks, the methods, and what a net is worth after few steps on a task that it has not seen."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import torch
from common import run_to_end, timed
from torch import Tensor

from rookery import FCSG, FCSGM, AccFCSGM, Batch, Data, FedAvg, Federation, LocalSCGD, LocalSCGDM, Minimization, Model
from rookery.data import PerTask
from rookery.errors import Diverged
from rookery.models import mlp
from rookery.objectives import maml
from rookery.problems import conditional_as_compositional
from rookery.studies.trials import Result, Trial

CLIENTS, TASKS, ROWS = 16, 100, 40  # tasks a client, rows a task
SUPPORT, QUERY, INNER_LR = 10, 10, 0.01
USUAL, MOST = 3, 10  # steps on a new task: those that a loss is named after, and the most that are looked at
HELD = {"validation": (200, 10_000), "test": (300, 10_001)}  # new tasks, and the seed of their draw
JUDGED, SHOWN = 100, 7  # query rows of a new task; the task that is drawn
OWN = (0.001, 0.003, 0.01, 0.03, 0.1)  # step sizes on a new task, where it has not to be that of training
FIRST, SCRATCH, LONG = "FCSG-M, first order", "From scratch", "From scratch, 100 steps"
META = ("FCSG", "FCSG-M", "Acc-FCSG-M", FIRST)
METHODS = (*META, "Local-SCGD", "Local-SCGDM", "FedAvg", SCRATCH, LONG)


def sinusoids(tasks: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, tasks × rows: amplitudes in [0.1, 5], phases in [0, π], inputs in [−5, 5], all uniform."""
    r = np.random.default_rng(seed)
    amplitude, phase, u = r.uniform(0.1, 5, (tasks, 1)), r.uniform(0, math.pi, (tasks, 1)), r.uniform(-5, 5, (tasks, rows))
    return torch.from_numpy(u).float(), torch.from_numpy(amplitude * np.sin(u - phase)).float()


def clients(seed: int) -> Data:
    """Every client has tasks of its own, of which it has stored some rows."""
    inputs, targets = sinusoids(CLIENTS * TASKS, ROWS, seed)
    task = torch.arange(TASKS).repeat_interleave(ROWS)
    return Data.from_parts({f"client-{k:02}": {"inputs": inputs[own].reshape(-1, 1), "targets": targets[own].reshape(-1), "task": task}
                            for k, own in enumerate(torch.arange(CLIENTS * TASKS).split(TASKS))})


@cache
def held(part: str) -> tuple[Tensor, Tensor]:
    """New tasks, the same in all trials: their first rows are the support."""
    number, seed = HELD[part]
    return sinusoids(number, SUPPORT + JUDGED, seed)


def adapted(net: Model, x: Tensor, inputs: Tensor, targets: Tensor, lr: float, steps: int) -> Tensor:
    """x after steps on the support of each of some tasks: tasks × parameters; or of x that are different already.

    Plain torch, apart from the objective that it judges.
    """
    def loss(z: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return (net(z, u[:, None])[:, 0] - v).square().mean()

    slope = torch.func.vmap(torch.func.grad(loss))
    own = x if x.dim() == 2 else x.expand(len(inputs), -1)
    for _ in range(steps):
        own = own - lr * slope(own, inputs[:, :SUPPORT], targets[:, :SUPPORT])
    return own


def errors(net: Model, own: Tensor, inputs: Tensor, targets: Tensor) -> float:
    """The mean squared error of the tasks' query rows."""
    out = torch.func.vmap(lambda z, u: net(z, u[:, None])[:, 0])(own, inputs[:, SUPPORT:])
    found = float((out - targets[:, SUPPORT:]).square().mean())
    if not math.isfinite(found):
        raise Diverged("the error on new tasks is not finite")
    return found


def after(net: Model, x: Tensor, part: str, lr: float, *steps: int) -> list[float]:
    """The errors on new tasks after some numbers of steps on their support rows, which rise."""
    found, own, made = list[float](), x, 0
    with torch.no_grad():
        for k in steps:
            own, made = adapted(net, own, *held(part), lr, k - made), k
            found.append(errors(net, own, *held(part)))
    return found


def method(trial: Trial, net: Model) -> tuple[Any, Any]:
    """The problem and the algorithm; FedAvg's batches have as many rows as the tasks of the others."""
    lr, q, tasks, beta, tracking = (trial[key] for key in ("lr", "local_steps", "tasks", "beta", "tracking"))

    def losses(x: Tensor, b: Batch) -> Tensor:
        return (net(x, b.inputs)[:, 0] - b.targets).square()

    problem = maml(net, INNER_LR, second_order=trial["method"] != FIRST, losses=losses, sampling=PerTask("task", QUERY))
    match trial["method"]:
        case "FCSG":
            return problem, FCSG(lr, q, tasks, SUPPORT)
        case "FCSG-M" | "FCSG-M, first order":
            return problem, FCSGM(lr, q, tasks, SUPPORT, beta=beta)
        case "Acc-FCSG-M":
            return problem, AccFCSGM(lr, q, tasks, SUPPORT, beta=beta)
        case "Local-SCGD":
            return conditional_as_compositional(problem), LocalSCGD(lr, q, tasks, tracking, SUPPORT)
        case "Local-SCGDM":
            return conditional_as_compositional(problem), LocalSCGDM(lr, q, tasks, tracking, SUPPORT, beta)
        case "FedAvg":
            return Minimization(lambda x, b: losses(x, b).mean(), model=net), FedAvg(lr, q, tasks * (SUPPORT + QUERY))
    raise ValueError(trial["method"])


@timed
def work(trial: Trial) -> Result:
    torch.manual_seed(trial["seed"])
    net = Model(mlp(1, 40, 40, 1))
    scratch = trial["method"] in (SCRATCH, LONG)
    lr, steps = (trial["lr"], 100 if trial["method"] == LONG else USUAL) if scratch else (INNER_LR, USUAL)
    x, curve, over = net.vector(), list[dict[str, float]](), False
    if not scratch:
        problem, algorithm = method(trial, net)
        rounds, engine = max(1, trial["steps"] // trial["local_steps"]), "auto" if trial["steps"] > 20 else "loop"  # few steps: no graph
        fed = Federation(problem, clients(trial["seed"]), seed=trial["seed"], engine=engine)
        done = run_to_end(algorithm, fed, algorithm.init(fed, x), rounds, lambda s: {"test loss": after(net, s.x, "test", lr, steps)[0]},
                          max(1, rounds // 40), may_diverge=True)
        x, over, curve = done.state.x, done.reason == "diverged", done.history
    costs = {key: curve[-1][key] if curve else 0.0 for key in ("exchanges", "bytes", "samples")}
    shown = [{key: row[key] for key in ("round", "bytes", "test loss")} for row in curve]
    try:
        found = {} if over else judged(net, x, lr, steps, () if scratch else OWN)
    except Diverged:
        found, over = {}, True
    return {**costs, **found, "diverged": float(over), "curve": shown}


def judged(net: Model, x: Tensor, lr: float, steps: int, sizes: tuple[float, ...]) -> Result:
    """Errors on new tasks: as in the paper, after each number of steps, with the step size that is best for validation; one task's net."""
    found, numbers = Result(), sorted({*range(MOST + 1), steps})
    for part in HELD:
        losses = dict(zip(numbers, after(net, x, part, lr, *numbers), strict=True))
        found |= {f"{part} loss": losses[steps], **{f"{part} loss after {k}": losses[k] for k in range(MOST + 1)}}
    own = {lr: found["validation loss"]}
    for size in sizes:
        with suppress(Diverged):
            own[size] = after(net, x, "validation", size, steps)[0]
    found["own step"] = min(own, key=lambda size: own[size])
    found["test loss, own step"] = after(net, x, "test", found["own step"], steps)[0]
    inputs, targets = (column[SHOWN : SHOWN + 1] for column in held("test"))
    at = torch.linspace(-5, 5, 81)[:, None]
    with torch.no_grad():
        lines = [net(adapted(net, x, inputs, targets, lr, k)[0], at)[:, 0] for k in (0, 1, MOST)]
    return {**found, "lines": [[round(v, 3) for v in line.tolist()] for line in lines]}
