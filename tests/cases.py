"""Every algorithm joins the conformance suite with one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from rookery import (
    BSGD,
    FCSG,
    FCSGM,
    SCAFFOLD,
    AccFCSGM,
    BSpiderBoost,
    FedAvg,
    FedDRO,
    Federation,
    FedLin,
    FedNest,
    FedNova,
    FedOpt,
    FedProx,
    FedSVRG,
    LocalSGDM,
    as_bilevel,
)
from rookery import testproblems as known
from rookery.algorithms import Algorithm
from rookery.testproblems import Known


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[..., Algorithm]  # (lr, local_steps, batch) -> algorithm
    known: Callable[..., Known]
    # (d, dy, local_steps) -> exchanges, floats up and down, per client and later round
    floats: Callable[[int, int, int], tuple[int, int, int]]
    lr: float = 0.1
    rounds: int = 350  # enough to converge at one local step
    embed: bool = False  # run on the bilevel form of the problem
    memory: bool = False  # exact with local steps only once its clients' state has been found, not from the start
    biased: bool = False  # small batches bias its direction, by design

    def solved(self, sizes: tuple[int, ...] = known.SIZES) -> Known:
        return _solved(self.known, sizes)

    def federation(self, k: Known, **options: Any) -> Federation:
        return Federation(_embedded(k.problem) if self.embed else k.problem, k.data, **options)

    def init(self, algorithm: Algorithm, fed: Federation, k: Known, at_solution: bool = False) -> Any:
        x, y = (k.x, k.y) if at_solution else (k.x0, k.y0)
        return algorithm.init(fed, x, y) if isinstance(algorithm, FedNest) and y is not None else algorithm.init(fed, x)


@cache
def _solved(make: Callable[..., Known], sizes: tuple[int, ...]) -> Known:
    """One object per problem, so that the tests share its traced graphs."""
    return make(sizes=sizes)


_embedded = cache(as_bilevel)


def nest(**fixed: Any) -> Callable[..., Algorithm]:
    return lambda lr, steps, batch: FedNest(lr=lr, local_steps=steps, batch=batch, **{"inner_lr": 0.4, "inner_rounds": 2, **fixed})


def opt(server: str, **fixed: Any) -> Callable[..., Algorithm]:
    return lambda lr, steps, batch: FedOpt(lr, steps, batch, server, **{"server_lr": 0.3, "beta1": 0.5, "tau": 0.1, **fixed})


def pooled(sizes: tuple[int, ...]) -> Known:
    return known.conditional(sizes=(sum(sizes),))


CASES = [
    Case("FedAvg", lambda lr, q, b: FedAvg(lr, q, b), known.minimization, lambda d, _, q: (1, d, d)),
    Case("SCAFFOLD", lambda lr, q, b: SCAFFOLD(lr, q, b), known.minimization, lambda d, _, q: (1, 2 * d, 2 * d), memory=True),
    Case("FedProx", lambda lr, q, b: FedProx(lr, q, b, mu=0.1), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedNova", lambda lr, q, b: FedNova(lr, q, b, rho=0.3), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedLin", lambda lr, q, b: FedLin(lr, q, b), known.minimization, lambda d, _, q: (2, 2 * d, 2 * d)),
    Case("FedSVRG", lambda lr, q, b: FedSVRG(lr, q, b), known.minimization, lambda d, _, q: (2, 2 * d, 2 * d)),
    Case("LocalSGDM", lambda lr, q, b: LocalSGDM(lr, q, b, momentum=0.5), known.minimization, lambda d, _, q: (1, 2 * d, 2 * d)),
    Case("FedOpt/momentum", opt("momentum", server_lr=0.7), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedOpt/adagrad", opt("adagrad"), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedOpt/adam", opt("adam"), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FedOpt/yogi", opt("yogi"), known.minimization, lambda d, _, q: (1, d, d)),
    Case("FCSG", lambda lr, q, b: FCSG(lr, q, b, b), known.conditional, lambda d, _, q: (1, d, d), biased=True),
    Case("FCSG-M", lambda lr, q, b: FCSGM(lr, q, b, b, beta=0.3), known.conditional, lambda d, _, q: (1, 2 * d, 2 * d), biased=True),
    Case("Acc-FCSG-M", lambda lr, q, b: AccFCSGM(lr, q, b, b, beta=0.3), known.conditional, lambda d, _, q: (1, 2 * d, 2 * d), biased=True),
    Case("FedDRO", lambda lr, q, b: FedDRO(lr, 0.3, q, b), known.compositional, lambda d, dy, q: (q + 1, q * dy + d, d + (q + 1) * dy)),
    Case("FedNest/bilevel", nest(terms=40, smoothness=2.0, series="deterministic"), known.bilevel,
         lambda d, dy, q: (2 * 2 + 40 + 3, (4 + 41) * dy + 2 * d, 2 * d + (4 + 1 + 40 + 1) * dy), rounds=150),
    Case("FedNest/minimax", nest(), known.minimax, lambda d, dy, q: (2 * 2 + 2, 4 * dy + 2 * d, 2 * d + (4 + 1) * dy), embed=True),
    Case("FedNest/compositional", nest(), known.compositional,
         lambda d, dy, q: (2 * 2 + 3, (4 + 1) * dy + 2 * d, 2 * d + (4 + 1 + 1) * dy), embed=True),
    Case("FedNest/minimization", nest(), known.minimization, lambda d, _, q: (2, 2 * d, 2 * d), embed=True),
]

# methods of one machine refuse a second client; test_baselines.py holds them against the laws that say nothing of other clients
ONE_MACHINE = [
    Case("BSGD", lambda lr, q, b: BSGD(lr, q, b, b), pooled, lambda d, _, q: (1, d, d), biased=True),
    Case("BSpiderBoost", lambda lr, q, b: BSpiderBoost(lr, q, b, b, 2 * b if b else None), pooled, lambda d, _, q: (1, d, d), biased=True),
]
