"""A linear model over a large population, cohorts of 1 000: memory against data plus state, and time per round against the population."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import psutil
import torch

from rookery import SCAFFOLD, Data, FedAvg, Federation, Minimization

ROWS, D, COHORT, ROUNDS, SMALL, LARGE = 10, 50, 1000, 60, 10_000, 100_000
PROBLEM = Minimization(lambda x, b: (b.inputs @ x - b.labels).square().mean())


def population(clients: int) -> Data:
    r = np.random.default_rng(0)
    return Data({"inputs": torch.from_numpy(r.standard_normal((clients * ROWS, D), dtype=np.float32)),
                 "labels": torch.from_numpy(r.standard_normal(clients * ROWS, dtype=np.float32))},
                tuple(f"client-{i}" for i in range(clients)), np.full(clients, ROWS))


def rounds(name: str, data: Data) -> Callable[[], float]:
    """A federation over the population; each call runs a round and returns its milliseconds."""
    fed = Federation(PROBLEM, data, clients_per_round=min(COHORT, len(data.names)))
    algorithm = {"FedAvg": FedAvg, "SCAFFOLD": SCAFFOLD}[name](0.01, 5, 5)
    box = [algorithm.init(fed, torch.zeros(D))]

    def one() -> float:
        start = time.perf_counter()
        box[0] = algorithm.round(fed, box[0])
        return 1e3 * (time.perf_counter() - start)

    return one


def memory(name: str) -> dict[str, float]:
    """In a process of its own: what was there before the data does not count."""
    torch.set_num_threads(1)
    process = psutil.Process()
    warm = rounds(name, population(COHORT))
    for _ in range(3):  # traces the graph and fills the allocator
        warm()
    before = process.memory_info().rss
    data = population(LARGE)
    one = rounds(name, data)
    peak = max((one(), process.memory_info().rss)[1] for _ in range(ROUNDS))
    seen = LARGE * (1 - (1 - COHORT / LARGE) ** ROUNDS)
    size = sum(field.nbytes for field in data.fields.values()) + (4 * D * seen if name == "SCAFFOLD" else 0)
    return {"memory": (peak - before) / size, "mb": size / 1e6}


def main() -> None:
    torch.set_num_threads(1)
    for name in ("FedAvg", "SCAFFOLD"):
        out = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True).stdout
        found = json.loads(out)
        verdict = "goal 1.3 met" if found["memory"] <= 1.3 else "goal 1.3 MISSED"
        print(f"{name + ', linear model, 1 000 of 100 000 clients':<58} memory ×{found['memory']:.2f} of data and state "
              f"({found['mb']:.0f} MB)   {verdict}")
        small, large = rounds(name, population(SMALL)), rounds(name, population(LARGE))
        pairs = [(small(), large()) for _ in range(ROUNDS)][5:]  # in turns, so that a noisy machine disturbs both alike
        few, many = (sorted(column)[len(pairs) // 2] for column in zip(*pairs, strict=True))
        print(f"{'':<58} {many:.1f} ms a round, ×{many / few:.2f} of a population of 10 000   "
              f"{'independent' if many / few <= 1.15 else 'NOT independent'}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(memory(sys.argv[1])))
    else:
        main()
