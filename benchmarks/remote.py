"""What frames, rules and the log add to gRPC: an exchange with site processes against a bare echo of the same bytes over the same channels.

An empty exchange is a frame that asks nothing, which rules, log and reply are made for all the same; one of a number brings it down and up
again, by the verbs of a federation; one with a client function brings one number down and one up; a large one 10 MB down and one number up.
The goal is that of empty and large ones. All calls go to the same processes, behind the same certificates. A bare echo makes the bytes of
its vector each time, as whoever sends a model has to; what it takes where these lie ready, in the processor's cache, is said beside it.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rookery import Data, Federation, Minimization, Program
from rookery.engines.grpc import Grpc
from rookery.engines.remote import Remote
from rookery.federation import Client
from rookery.sites import Host, Rules
from rookery.sites.certificates import invite
from rookery.sites.host import Own

LARGE = 10 * 2**20 // 4  # numbers
GOAL, GOALS = 1.3, ("empty", "10 MB")


@dataclass(frozen=True)
class Nothing(Program):
    """A client function that does next to nothing."""

    def first(self, c: Client, x: Tensor) -> Tensor:
        return x[:1].clone()


def loss(x: Tensor, b: Any) -> Tensor:
    return (x[:1] - b.u).square().mean()


def serve(name: str, folder: str, certificates: str) -> None:
    """A site's process, with an echo beside it that answers with the first bytes of what it is sent."""
    import grpc

    from rookery.sites.service import Service

    torch.set_num_threads(1)
    owner = Own(lambda words: (Minimization(loss), Data.from_parts({name: {"u": torch.zeros(4)}})))
    service = Service(Host(name, owner, Rules(("Nothing",), min_batch=1), folder), "127.0.0.1:0", certificates)
    echo = grpc.unary_unary_rpc_method_handler(lambda frame, context: frame[:300])
    service.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("rookery.Echo", {"Answer": echo}),))
    service.start()
    print(f"(port {service.port})", flush=True)
    service.wait()


def medians(times: int, *works: Callable[[], object]) -> list[float]:
    """Milliseconds of each, taken in turns, after a first turn that does not count."""
    found: list[list[float]] = [[] for _ in works]
    for turn in range(times + 1):
        for work, into in zip(works, found, strict=True):
            began = time.perf_counter()
            work()
            if turn:
                into.append(1e3 * (time.perf_counter() - began))
    return [statistics.median(each) for each in found]


def row(number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        names = [f"s{k}" for k in range(number)]
        certificates, running, addresses = Path(folder) / "certificates", [], {}
        for name in names:
            words = [sys.executable, __file__, name, f"{folder}/{name}", str(invite(certificates, name))]
            running.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}))
        try:
            for name, process in zip(names, running, strict=True):
                assert process.stdout is not None
                found = re.search(r"\d+", process.stdout.readline())
                assert found is not None
                addresses[name] = f"127.0.0.1:{found[0]}"
            with Grpc(addresses, certificates) as transport:
                engine = Remote(transport)
                fed = Federation(Minimization(loss), engine.greet(names, {}), engine=engine)
                echoes = [channel.unary_unary("/rookery.Echo/Answer") for channel in transport.channels.values()]
                one, large = torch.zeros(1), torch.zeros(LARGE)
                for label, times, work, vector in (
                        ("empty", 300, lambda: engine._everyone([], {}), one),
                        ("a number", 300, lambda: fed.sum(fed.broadcast(one)), one),
                        ("a client function", 300, lambda: fed.sum(fed.map(Nothing().first, fed.broadcast(one))), one),
                        ("10 MB", 20, lambda: fed.sum(fed.map(Nothing().first, fed.broadcast(large))), large)):
                    header = bytes(500)
                    ready = header + vector.numpy().tobytes()

                    def echo(frame: bytes) -> None:
                        for call in [each.future(frame) for each in echoes]:
                            call.result()

                    works = [work, lambda: echo(header + vector.numpy().tobytes()), lambda: echo(ready)]  # noqa: B023
                    own, bare, *hot = medians(times, *works[: 2 + (vector is large)])
                    goal = "" if label not in GOALS else f", goal {GOAL:g} {'met' if own <= GOAL * bare else 'MISSED'}"
                    print(f"{number} sites, {label}: an exchange {own:.2f} ms, a bare echo {bare:.2f} ms, ratio {own / bare:.2f}{goal}"
                          + "".join(f" (of bytes that lie ready {each:.2f} ms, {own / each:.2f})" for each in hot))
        finally:
            for process in running:
                process.kill()
                process.wait()


def main() -> None:
    torch.set_num_threads(1)  # the sites' processes want the other core
    print("\nsites over gRPC")
    for number in (2, 8):
        row(number)


if __name__ == "__main__":
    serve(*sys.argv[1:]) if len(sys.argv) > 1 else main()
