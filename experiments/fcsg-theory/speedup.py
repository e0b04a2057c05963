"""Linear speed-up: iterations at a client until the mean of ‖∇F(x̄_t)‖² over the run is below a level, for 1 to 32 clients.

The rule for the step size was fixed before measuring and is the theorems' own (`rookery.theory`), one constant S_F for all K:
FCSG and FCSG-M α = √(K/T)/(6 S_F), Acc-FCSG-M α = (K²/T)^⅓/(12 S_F), with their q, β and B. The theorems then give a mean of order
(KT)^−½ and (KT)^−⅔, so that the iterations T to a level fall as 1/K.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from problem import STAR, exact, problem

from rookery import FCSG, FCSGM, AccFCSGM, Data, Federation, theory
from rookery.study import Done, Result, Trial, trials

REPLICAS = 24
METHODS: dict[str, Any] = {"FCSG": (FCSG, theory.fcsg, 1 / 6), "FCSG-M": (FCSGM, theory.fcsg_m, 1 / 6),
                           "Acc-FCSG-M": (AccFCSGM, theory.acc_fcsg_m, 1 / 2)}
CLIENTS = (1, 2, 4, 8, 16, 32)
LENGTHS = (2048, 4096, 8192, 16384, 32768)  # K·T
# what is drawn and how far clients go alone: inner noise and batch, whether clients differ, local steps where they are not the theorem's
REGIMES: dict[str, dict[str, Any]] = {"noise": {"sigma": 0.25, "inner": 4}, "bias": {"sigma": 1.0, "inner": 1},
                                      "drift": {"sigma": 0.25, "inner": 4, "differ": True, "local_steps": 32}}


def work(trial: Trial) -> Result:
    """One run of T iterations, all replicas: each one's mean of ‖∇F‖² over the points at which rounds begin."""
    begun = time.perf_counter()
    make, rule, S_F = METHODS[trial["method"]]
    regime = REGIMES[trial["regime"]]
    setting = {"outer": 1, **rule(trial["length"] // trial["clients"], trial["clients"], S_F)}
    setting["local_steps"] = regime.get("local_steps", setting["local_steps"])
    algorithm = make(inner=regime["inner"], **setting)
    differ = regime.get("differ", False)
    fed = Federation(problem(REPLICAS, regime["sigma"], differ=differ), Data.streams([f"client-{k}" for k in range(trial["clients"])]),
                     seed=trial["seed"])
    state = algorithm.init(fed, torch.zeros(REPLICAS * len(STAR)))
    rounds = max(1, round(trial["length"] / trial["clients"] / algorithm.local_steps))
    total = torch.zeros(REPLICAS, dtype=torch.float64)
    for _ in range(rounds):
        total += exact(state.x, differ=differ).square().sum(-1)
        state = algorithm.round(fed, state)
    return {"steps": rounds * algorithm.local_steps, "values": (total / rounds).tolist(), "seconds": time.perf_counter() - begun}


def todo(clients: tuple[int, ...] = CLIENTS, lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> list[Trial]:
    """Noise, bias, and drift; clients that differ are two at least."""
    return [t for t in trials(regime=REGIMES, method=METHODS, clients=clients, length=lengths, seed=(seed,))
            if t["regime"] != "drift" or t["clients"] > 1]


def table(done: Done, regime: str, method: str) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """For each number of clients the iterations, and the values of all replicas (lengths × replicas)."""
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for clients in sorted({t["clients"] for t, _ in done if t["regime"] == regime}):
        part = sorted((r["steps"], r["values"]) for t, r in done if (t["regime"], t["method"], t["clients"]) == (regime, method, clients))
        found[clients] = np.array([s for s, _ in part]), np.array([v for _, v in part])
    return found


def reached(steps: np.ndarray, means: np.ndarray, level: float) -> float:
    """The iterations at which log mean, a line between measured lengths, crosses the level; nan if it does not do so in between."""
    below = np.flatnonzero(means <= level)
    if not len(below) or below[0] == 0:
        return math.nan
    i = below[0]
    return float(np.exp(np.interp(-np.log(level), -np.log(means[i - 1 : i + 1]), np.log(steps[i - 1 : i + 1]))))


def slope(x: list[int], y: list[float]) -> float:
    """Of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def fitted(found: dict[int, tuple[np.ndarray, np.ndarray]], level: float, resamples: int = 400) -> dict[str, Any]:
    """Iterations to the level for each K, and their slope over K with its standard error from resampled replicas."""
    r = np.random.default_rng(0)

    def once(choose: Any) -> tuple[list[int], list[float]]:
        pairs = [(k, reached(steps, choose(values).mean(1), level)) for k, (steps, values) in found.items()]
        kept = [(k, t) for k, t in pairs if not math.isnan(t)]
        return [k for k, _ in kept], [t for _, t in kept]

    clients, times = once(lambda values: values)
    if len(clients) < 3:
        return {"steps": dict(zip(clients, times, strict=True)), "slope": None, "error": None}
    again = [once(lambda values: values[:, r.integers(values.shape[1], size=values.shape[1])]) for _ in range(resamples)]
    slopes = [slope(*pairs) for pairs in again if len(pairs[0]) >= 3]
    return {"steps": dict(zip(clients, times, strict=True)), "slope": slope(clients, times), "error": float(np.std(slopes, ddof=1))}


def at_length(found: dict[int, tuple[np.ndarray, np.ndarray]], steps: int, resamples: int = 400) -> tuple[float, float]:
    """The slope over K of the mean of ‖∇F‖² after a fixed number of iterations, with its standard error."""
    r = np.random.default_rng(0)

    def once(choose: Any) -> float:
        means = [np.exp(np.interp(np.log(steps), np.log(s), np.log(choose(v).mean(1)))) for s, v in found.values()]
        return slope(list(found), means)

    again = [once(lambda v: v[:, r.integers(v.shape[1], size=v.shape[1])]) for _ in range(resamples)]
    return once(lambda v: v), float(np.std(again, ddof=1))
