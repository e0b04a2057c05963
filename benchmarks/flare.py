"""What frames, rules, the log and the relay add to FLARE: an exchange with resident processes against a bare Collab call of the same bytes.

Exchanges are those of `remote.py`. All go through the same processes of a FLARE simulation, in turns: the bare call ends in FLARE's client
process, and an exchange goes on to the resident process of the site.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nvflare.collab import collab
from nvflare.recipe.sim_env import SimEnv
from remote import GOAL, GOALS, LARGE, Nothing, loss
from torch import Tensor

from rookery import Data, Federation, Minimization
from rookery.engines import Remote, flare
from rookery.sites import Host, Rules
from rookery.sites.host import Own


class Echo(flare.Site):
    """A relay with an echo beside it, which answers with the first bytes of what it is sent."""

    @collab.publish
    def echo(self, frame: bytes) -> bytes:
        return frame[:300]


def serve(name: str, folder: str) -> None:
    """A site's resident process."""
    from rookery.sites.service import Service

    torch.set_num_threads(1)
    owner = Own(lambda words: (Minimization(loss), Data.from_parts({name: {"u": torch.zeros(4)}})))
    service = Service(Host(name, owner, Rules(("Nothing",), min_batch=1), f"{folder}/{name}"), f"unix:{folder}/{name}.sock", None)
    service.start()
    print("ready", flush=True)
    service.wait()


def measure(transport: Any, sites: list[str], words: dict[str, Any], folder: Path, aborted: Callable[[], bool]) -> None:
    """Runs in FLARE's server process."""
    torch.set_num_threads(1)
    engine = Remote(transport)
    fed = Federation(Minimization(loss), engine.greet(sites, {}), engine=engine)
    found = {}
    for label, size, times in (("empty", 1, 100), ("a number", 1, 100), ("a client function", 1, 100), ("10 MB", LARGE, 8)):
        value, same, taken = torch.zeros(size), bytes(4 * size + 500), ([], [])  # type: ignore[var-annotated]

        def exchange(label: str = label, value: Tensor = value) -> None:
            if label == "empty":
                engine._everyone([], {})
            else:
                placed = fed.broadcast(value)
                fed.sum(placed if label == "a number" else fed.map(Nothing().first, placed))

        for _ in range(times):
            for work, into in ((exchange, taken[0]), (lambda: list(collab.clients(timeout=60.0).echo(same)), taken[1])):  # noqa: B023
                began = time.perf_counter()
                work()
                into.append(1e3 * (time.perf_counter() - began))
        found[label] = [statistics.median(each) for each in taken]
    (folder / "progress.json").write_text(json.dumps(found))


def row(number: int) -> None:
    flare.Site = Echo  # type: ignore[misc]
    os.environ |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    names, running = [f"s{k}" for k in range(number)], []
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "simulation" / "bench" / "local"
        local.mkdir(parents=True)
        (local / "rookery.toml").write_text(f'socket = "{folder}/{{site}}.sock"\nruns = "{folder}/runs"\nentries = ["flare:measure"]\n')
        try:
            for name in names:
                running.append(subprocess.Popen([sys.executable, __file__, name, folder], stdout=subprocess.PIPE))
            for process in running:
                assert process.stdout is not None
                assert process.stdout.readline()
            env = SimEnv(clients=names, num_threads=number, workspace_root=f"{folder}/simulation", log_config="concise")
            job = flare.submit("flare:measure", {}, names, env, run="bench", runs=f"{folder}/runs")
            job.wait(900)
            for label, (own, bare) in job.progress().items():
                goal = "" if label not in GOALS else f", goal {GOAL:g} {'met' if own <= GOAL * bare else 'MISSED'}"
                print(f"{number} sites, {label}: an exchange {own:.2f} ms, a bare call {bare:.2f} ms, ratio {own / bare:.2f}{goal}")
        finally:
            for process in running:
                process.kill()
                process.wait()


def main() -> None:
    print("\nsites over FLARE")
    for number in (2, 8):
        row(number)


if __name__ == "__main__":
    from flare import Echo, main, serve  # FLARE finds classes by the name of their module  # type: ignore[no-redef]

    serve(*sys.argv[1:]) if len(sys.argv) > 1 else main()
