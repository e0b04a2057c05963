"""A linear model over a large population, cohorts of 1 000: memory against data plus state, and time per round against the population."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import psutil
import torch

ROWS, D, COHORT, ROUNDS = 10, 50, 1000, 60


def measure(name: str, clients: int) -> dict[str, float]:
    """In a process of its own: what was there before the data does not count."""
    from rookery import SCAFFOLD, Data, FedAvg, Federation, Minimization

    torch.set_num_threads(1)
    process = psutil.Process()
    problem = Minimization(lambda x, b: (b.inputs @ x - b.labels).square().mean())

    def population(n: int) -> Data:
        r = np.random.default_rng(0)
        return Data({"inputs": torch.from_numpy(r.standard_normal((n * ROWS, D), dtype=np.float32)),
                     "labels": torch.from_numpy(r.standard_normal(n * ROWS, dtype=np.float32))},
                    tuple(f"client-{i}" for i in range(n)), np.full(n, ROWS))

    def run(data: Data, rounds: int) -> tuple[list[float], float]:
        fed = Federation(problem, data, participate=min(COHORT, len(data.names)))
        algorithm = {"FedAvg": FedAvg, "SCAFFOLD": SCAFFOLD}[name](0.01, 5, 5)
        state = algorithm.init(fed, torch.zeros(D))
        seconds, peak = [], 0.0
        for _ in range(rounds):
            start = time.perf_counter()
            state = algorithm.round(fed, state)
            seconds.append(time.perf_counter() - start)
            peak = max(peak, process.memory_info().rss)
        return seconds, peak

    run(population(COHORT), 3)  # traces the graph and fills the allocator
    before = process.memory_info().rss
    data = population(clients)
    seconds, peak = run(data, ROUNDS)
    size = sum(field.nbytes for field in data.fields.values())
    seen = clients * (1 - (1 - COHORT / clients) ** ROUNDS)
    state = 4 * D * seen if name == "SCAFFOLD" else 0
    return {"ms": 1e3 * sorted(seconds[5:])[len(seconds[5:]) // 2], "memory": (peak - before) / (size + state), "mb": (size + state) / 1e6}


def main() -> None:
    for name in ("FedAvg", "SCAFFOLD"):
        found = {}
        for clients in (10_000, 100_000):
            out = subprocess.run([sys.executable, __file__, name, str(clients)], capture_output=True, text=True, check=True).stdout
            found[clients] = json.loads(out)
        small, large = found[10_000], found[100_000]
        ratio = large["ms"] / small["ms"]
        print(f"{name + ', linear model, 1 000 of 100 000 clients':<58} memory ×{large['memory']:.2f} of data and state "
              f"({large['mb']:.0f} MB)   {'goal 1.3 met' if large['memory'] <= 1.3 else 'goal 1.3 MISSED'}")
        print(f"{'':<58} {large['ms']:.1f} ms a round, ×{ratio:.2f} of a population of 10 000   "
              f"{'independent' if ratio <= 1.15 else 'NOT independent'}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
