"""The rows of one site for any conformance case, and the program of a server that a test can kill."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from cases import CASES, ONE_MACHINE
from safetensors.torch import save_file

from rookery import SCAFFOLD, Data, FedAvg, FedDRO, Federation
from rookery.problems import Problem
from rookery.problems import testproblems as known

SIZES = (5, 3, 4, 7, 6, 4, 5, 3)
HALF = 4  # of the clients are in a cohort, as in the laws
NAMES = tuple(f"site-{place}" for place in range(len(SIZES)))
BY_NAME = {case.name: case for case in (*CASES, *ONE_MACHINE)}
RUNS: dict[str, tuple[Any, Any]] = {
    "SCAFFOLD": (SCAFFOLD(0.1, 2, 2), known.minimization), "FedAvg": (FedAvg(0.1, 2, 2), known.minimization),
    "FedDRO": (FedDRO(0.1, 0.3, 2, 2), known.compositional)}


def rows(asked: dict[str, Any]) -> tuple[Problem, Data]:
    """Those of the client that has the site's place, in the problem that the words name."""
    place = NAMES.index(os.environ["SITE"])
    if "algorithm" in asked:
        k = RUNS[asked["algorithm"]][1]()
        return k.problem, k.data.part(place)
    case = BY_NAME[asked["case"]]
    fed = case.federation(case.solved(SIZES), engine="loop")
    return fed.problem, fed.data.part(place)


def slow() -> Any:
    """Rows that take long to read."""
    time.sleep(600)


def serve(addresses: dict[str, str], certificates: str, folder: str, algorithm: str, rounds: int) -> None:
    """A server that begins a run, or goes on with it, says how many rounds it has made, and leaves its end in a file."""
    from rookery.engines.grpc import Grpc
    from rookery.engines.remote import Remote
    from rookery.training import run

    program, make = RUNS[algorithm]
    with Grpc(addresses, certificates) as transport:
        engine = Remote(transport, run=f"run of {algorithm} in {folder}"[-90:])
        roster = engine.greet(list(addresses), {"algorithm": algorithm}, seed=3)
        k = make()
        fed: Federation[Any] = Federation(k.problem, roster, engine=engine, seed=3)
        found = run(program, fed, program.init(fed, k.x0), rounds, folder=folder, resume=True, save_every=2,
                    on_progress=lambda made, of: print(made, flush=True))
    save_file({"x": found.state.x}, Path(folder) / "end.safetensors")


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5]))
