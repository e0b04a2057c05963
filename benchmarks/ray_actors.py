"""An exchange with Ray's actors beside a raw call of the same bytes: a number that goes down and up, one with a client function, 10 MB.

The goal is that of the first and the last.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import ray
import torch
from torch import Tensor

from rookery import Data, Federation, Minimization, Program
from rookery.engines import Ray
from rookery.federation import Client

LONG = 2_500_000  # numbers of 4 bytes: 10 MB
GOAL = 1.3


@dataclass(frozen=True)
class Sum(Program):
    def total(self, c: Client, x: Tensor) -> Tensor:
        return x.sum()


class Raw:
    """What a user would write: a vector in, itself or its sum out."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def same(self, x: np.ndarray) -> np.ndarray:
        return x

    def total(self, x: np.ndarray) -> np.ndarray:
        return x.sum(keepdims=True)


def compare(actors: int, numbers: int, turns: int, empty: bool = False) -> None:
    """In turns, so that a noisy machine disturbs both alike; the ratio is that of the medians."""
    names = tuple(f"client-{k}" for k in range(actors))
    raw = [ray.remote(Raw).remote() for _ in range(actors)]
    with Ray(actors, "loop") as engine:
        fed = Federation(Minimization(lambda x, b: x.sum()), Data({"u": torch.zeros(actors)}, names, np.ones(actors, dtype=np.int64)),
                         engine=engine)
        x = torch.ones(numbers)

        def ours() -> None:
            fed.mean(fed.broadcast(x) if empty else fed.map(Sum().total, fed.broadcast(x)))

        def plain() -> None:
            array = x.numpy()
            sent = ray.put(array) if array.nbytes > 100_000 else array
            sum(ray.get([(one.same if empty else one.total).remote(sent) for one in raw]))

        seconds: dict[Callable[[], None], list[float]] = {ours: [], plain: []}
        for turn in range(turns + 5):
            for fn in (ours, plain):
                start = time.perf_counter()
                fn()
                if turn >= 5:
                    seconds[fn].append(1e3 * (time.perf_counter() - start))
    for one in raw:
        ray.kill(one)
    mine, theirs = statistics.median(seconds[ours]), statistics.median(seconds[plain])
    what = "a number" if empty else "a client function" if numbers == 1 else f"a client function of {numbers / 250_000:.0f} MB"
    goal = f"   goal {GOAL:g} {'met' if mine <= GOAL * theirs else 'MISSED'}" if empty or numbers > 1 else ""
    print(f"{what + f', {actors} actors':<58} {mine:8.2f} / {theirs:8.2f} ms   ×{mine / theirs:.2f} of a raw call{goal}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for actors in (2, 8):
        compare(actors, 1, 200, empty=True)
        compare(actors, 1, 200)
        compare(actors, LONG, 30)
    ray.shutdown()


if __name__ == "__main__":
    main()
