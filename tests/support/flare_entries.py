"""What FLARE's server process runs in tests, and the rows of each site for it."""

from __future__ import annotations

import inspect
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from rookery import SCAFFOLD, Data, FedAvg, FedDRO, Federation, FedNest, LocalSCGDAM
from rookery.engines.remote import Remote
from rookery.engines.transport import Transport
from rookery.errors import Away, StateLost
from rookery.problems import Problem
from rookery.problems import testproblems as known
from rookery.testing.faults import Faulty
from rookery.training import run
from rookery.training.files import append, write_whole

RUNS: dict[str, tuple[Any, Any]] = {
    "FedAvg": (FedAvg(0.1, 2, 2), known.minimization), "SCAFFOLD": (SCAFFOLD(0.1, 2, 2), known.minimization),
    "FedDRO": (FedDRO(0.1, 0.3, 2, 2), known.compositional),
    "FedNest": (FedNest(lr=0.1, local_steps=2, batch=2, inner_lr=0.4, inner_rounds=2), known.bilevel),
    "LocalSCGDAM": (LocalSCGDAM(lr=0.1, local_steps=2, batch=2, inner_lr=0.4), known.compositional_minimax)}

ALGORITHMS = sorted(RUNS)
MAY = f'algorithms = {json.dumps(ALGORITHMS)}\nmin_batch = 1\nsalt = "none"'


def rows(asked: dict[str, Any]) -> tuple[Problem, Data]:
    """Those of the client that has the site's name, in the problem that the words name."""
    k = RUNS[asked["algorithm"]][1]()
    return k.problem, k.data.part(k.data.names.index(os.environ["SITE"]))


def starts(program: Any, k: Any) -> list[Any]:
    return [k.x0, k.y0] if "y" in inspect.signature(program.init).parameters else [k.x0]


def simulated(algorithm: str, rounds: int, sites: tuple[int, ...] = (0, 1, 2)) -> Any:
    """Where a simulation without faults comes to."""
    program, make = RUNS[algorithm]
    k = make()
    fed: Federation[Any] = Federation(k.problem, k.data.part(*sites), engine="loop", seed=3)
    return run(program, fed, program.init(fed, *starts(program, k)), rounds).state.x


def train(transport: Transport, sites: list[str], words: dict[str, Any], folder: Path, aborted: Callable[[], bool]) -> None:
    """A run with checkpoints; the words say which, over what faults, how long a site may take, and whether to wait for one that is away."""
    network: Transport = Faulty(transport, share=words["faults"], seed=5) if "faults" in words else transport
    while True:
        try:
            return once(network, sites, words, folder)
        except (Away, StateLost) as error:
            append(folder / "away.txt", str(error))
            if aborted() or not words.get("patient"):
                raise
            time.sleep(0.5)


def once(network: Transport, sites: list[str], words: dict[str, Any], folder: Path) -> None:
    program, make = RUNS[words["algorithm"]]
    engine = Remote(network, seconds=words.get("seconds", 60), tries=words.get("tries", 3), run=folder.name)
    roster = engine.greet(sites, {"algorithm": words["algorithm"]}, seed=3)
    k = make()
    fed: Federation[Any] = Federation(k.problem, roster, engine=engine, seed=3)

    def told(made: int, of: int) -> None:
        said = {"made": made, "process": os.getpid(), "exchanges": fed.ledger["train"].exchanges}
        write_whole(folder / "progress.json", json.dumps(said))
        time.sleep(words.get("pause", 0))

    found = run(program, fed, program.init(fed, *starts(program, k)), words["rounds"], folder=folder, resume=True, save_every=2,
                on_progress=told)
    save_file({"x": found.state.x}, folder / "end.safetensors")
