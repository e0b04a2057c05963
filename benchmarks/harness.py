"""Ratios in one run: ours against the plain loop a user would write, on one thread and on two, wall and CPU seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Row:
    name: str
    threads: int
    wall: float  # ratio of rates: ours to the plain loop's
    cpu: float
    goal: float | None
    ours_ms: float
    plain_ms: float
    note: str = ""

    def __str__(self) -> str:
        verdict = "" if self.goal is None else f"goal {self.goal:g} {'met' if self.wall >= self.goal else 'MISSED'}"
        return (f"{self.name:<58} {self.threads} thread(s)  ×{self.wall:5.2f} wall  ×{self.cpu:5.2f} cpu   "
                f"{self.ours_ms:9.2f} / {self.plain_ms:9.2f} ms   {verdict} {self.note}")


def compare(name: str, ours: Callable[[], object], plain: Callable[[], object], goal: float | None = None, seconds: float = 4.0,
            note: str = "", threads: tuple[int, ...] = (1, 2)) -> list[Row]:
    """Run the two in turns, so that a noisy machine disturbs both alike; the ratio is that of the medians."""
    rows = []
    for count in threads:
        torch.set_num_threads(count)
        for fn in (ours, plain, ours, plain):  # compile, trace, warm up
            fn()
        wall: dict[str, list[float]] = {"ours": [], "plain": []}
        cpu: dict[str, list[float]] = {"ours": [], "plain": []}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(wall["plain"]) < 3:
            for label, fn in (("ours", ours), ("plain", plain)):
                w, c = time.perf_counter(), time.process_time()
                fn()
                wall[label].append(time.perf_counter() - w)
                cpu[label].append(time.process_time() - c)
        middle = {label: sorted(values)[len(values) // 2] for label, values in wall.items()}
        busy = {label: sorted(values)[len(values) // 2] for label, values in cpu.items()}
        rows.append(Row(name, count, middle["plain"] / middle["ours"], busy["plain"] / busy["ours"], goal,
                        1e3 * middle["ours"], 1e3 * middle["plain"], note))
        print(rows[-1], flush=True)
    return rows


def load() -> str:
    return f"load average {', '.join(f'{v:.2f}' for v in os.getloadavg())} on {os.cpu_count()} cores, torch {torch.__version__}"
