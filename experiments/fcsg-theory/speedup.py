"""Linear speed-up: iterations at a client until the mean of ‖∇F(x̄_t)‖² over the run is below a level, for 1 to 32 clients.

The parameters follow the theorems' rules with one constant for all K and T in each place. The constants and the level were chosen in
trial runs with another seed, so that noise and first descent weigh about the same, and not changed after:

    FCSG        α = ½(K/T)^½, q = (T/K³)^¼
    FCSG-M      the same, β = (5/3)α, and a first batch of 32/K
    Acc-FCSG-M  α = (1/12)(K²/T)^⅓, q = (T/K²)^⅓, β = 30α²/K, and a first batch of 4(T/K²)^⅓

q and the first batch are whole numbers of at least 1, β is at most 1. The theorems then give a mean of order (KT)^−½, and (KT)^−⅔ for
Acc-FCSG-M, so that the iterations T to a level fall as 1/K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from common import timed
from cosine import STAR, exact, lost, problem
from theory import followed, mean_where_rounds_begin, reached, slope

from rookery import FCSG, FCSGM, AccFCSGM, Data, Federation
from rookery.studies.trials import Result, Results, Trial, trials

REPLICAS = 32
METHODS: dict[str, type[FCSG] | type[FCSGM]] = {"FCSG": FCSG, "FCSG-M": FCSGM, "Acc-FCSG-M": AccFCSGM}
CLIENTS = (1, 2, 4, 8, 16, 32)
# Inner noise and batch, and the level. In the regime of noise the bias is far below the level, in that of bias far above it. Then clients
# differ: with the rules' local steps, and in the regime of drift with 32, where the rules have 10 at most.
REGIMES: dict[str, dict[str, Any]] = {"noise": {"sigma": 0.25, "inner": 4, "level": 0.003},
                                      "bias": {"sigma": 1.0, "inner": 1, "level": 0.003},
                                      "differ": {"sigma": 0.25, "inner": 4, "level": 0.015, "differ": True},
                                      "drift": {"sigma": 0.25, "inner": 4, "level": 0.015, "differ": True, "local_steps": 32}}


def rule(method: str, T: float, K: int) -> dict[str, Any]:
    """lr, local_steps, beta and first of one run."""
    if method == "Acc-FCSG-M":
        lr, q = (K**2 / T) ** (1 / 3) / 12, (T / K**2) ** (1 / 3)
        return {"lr": lr, "local_steps": max(1, round(q)), "beta": min(1.0, 30 * lr**2 / K), "first": max(1, round(4 * q))}
    lr = 0.5 * math.sqrt(K / T)
    more = {} if method == "FCSG" else {"beta": min(1.0, 5 / 3 * lr), "first": max(1, round(32 / K))}
    return {"lr": lr, "local_steps": max(1, round((T / K**3) ** 0.25)), **more}


@timed
def work(trial: Trial) -> Result:
    """One run of T iterations, all replicas: each one's mean of ‖∇F‖² over the points at which rounds begin; None where one is lost."""
    method, regime = trial["method"], REGIMES[trial["regime"]]
    setting = rule(method, trial["length"] / trial["clients"], trial["clients"])
    setting["local_steps"] = regime.get("local_steps", setting["local_steps"])
    algorithm: Any = METHODS[method](outer=1, inner=regime["inner"], **setting)
    differ = regime.get("differ", False)
    fed = Federation(problem(REPLICAS, regime["sigma"], differ=differ), Data.streams([f"client-{k}" for k in range(trial["clients"])]),
                     seed=trial["seed"])
    state = algorithm.init(fed, torch.zeros(REPLICAS * len(STAR)))
    rounds = max(1, round(trial["length"] / trial["clients"] / algorithm.local_steps))
    values = followed(algorithm, fed, state, rounds, lambda x: exact(x, differ=differ).square().sum(-1), lost)
    return {"steps": rounds * algorithm.local_steps, "values": None if values is None else mean_where_rounds_begin(values)}


def todo(clients: Sequence[int] = CLIENTS, lengths: Sequence[int] = (4096, 8192, 16384), seed: int = 0) -> list[Trial]:
    """Some K·T around that which reaches the level, and with drift some T; clients that differ are two at least."""
    same: dict[str, Any] = {"method": METHODS, "seed": (seed,)}
    several = [k for k in clients if k > 1]
    return [*trials(regime=("noise",), clients=clients, length=lengths, **same),
            *trials(regime=("bias",), clients=clients, length=lengths[:2], **same),
            *trials(regime=("differ",), clients=several, length=(512, 1024, 2048, 4096), **same),
            *(t for k in several for t in trials(regime=("drift",), clients=(k,), length=[k * 2**i for i in range(8, 13)], **same))]


def table(done: Results, regime: str, method: str) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """For each number of clients the iterations, and the values of all replicas (lengths × replicas), of runs that are not lost."""
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for clients in sorted({t["clients"] for t, _ in done if t["regime"] == regime}):
        part = sorted((r["steps"], r["values"]) for t, r in done
                      if (t["regime"], t["method"], t["clients"]) == (regime, method, clients) and r["values"])
        if part:
            found[clients] = np.array([s for s, _ in part]), np.array([v for _, v in part])
    return found


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


def order(found: dict[int, tuple[np.ndarray, np.ndarray]], resamples: int = 400) -> tuple[float, float] | tuple[None, None]:
    """The slope of the mean of ‖∇F‖² over K·T, all numbers of clients and all lengths together, with its standard error."""
    r = np.random.default_rng(0)
    products = [float(k * t) for k, (steps, _) in found.items() for t in steps]
    if len(products) < 3:
        return None, None

    def once(choose: Any) -> float:
        return slope(products, [float(mean) for _, values in found.values() for mean in choose(values).mean(1)])

    again = [once(lambda v: v[:, r.integers(v.shape[1], size=v.shape[1])]) for _ in range(resamples)]
    return once(lambda v: v), float(np.std(again, ddof=1))
