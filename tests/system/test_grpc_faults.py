"""Real sites and a server that stop, die, lose frames and run out of disk: the end is what it would have been, or the site is named."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import grpc
import hosts
import served_cases
from served_cases import RUNS
from site_processes import Processes, on_small_disk, processes, small_disks

from rookery import Federation
from rookery.engines.grpc import Grpc
from rookery.engines.remote import Remote
from rookery.engines.transport import Transport
from rookery.errors import Away, WriteError
from rookery.sites.host import Own
from rookery.sites.service import Service
from rookery.testing.faults import Faulty
from rookery.training import run

pytestmark = pytest.mark.slow
NAMES = ("site-0", "site-1", "site-2")
EACH = pytest.mark.parametrize("algorithm", RUNS)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("sites"), NAMES, "served_cases:rows") as found:
        yield found


def remote(transport: Transport, algorithm: str, *, seconds: float = 60, tries: int = 3, **options: Any) -> Federation[Any]:
    engine = Remote(transport, seconds=seconds, tries=tries)
    roster = engine.greet(NAMES, {"algorithm": algorithm}, seed=3)
    return Federation(RUNS[algorithm][1]().problem, roster, engine=engine, seed=3, **options)


def simulated(algorithm: str) -> Federation[Any]:
    k = RUNS[algorithm][1]()
    return Federation(k.problem, k.data.part(0, 1, 2), engine="loop", seed=3)


def end(algorithm: str, rounds: int) -> torch.Tensor:
    """Where a simulation without faults comes to."""
    program, make = RUNS[algorithm]
    fed = simulated(algorithm)
    x: torch.Tensor = run(program, fed, program.init(fed, make().x0), rounds).state.x
    return x


@EACH
def test_a_site_that_stands_still_is_left_out_and_comes_back(sites: Processes, algorithm: str, caplog: pytest.LogCaptureFixture) -> None:
    program, make = RUNS[algorithm]
    with sites.transport() as transport:
        fed, other = remote(transport, algorithm, seconds=20, quorum=2), simulated(algorithm)
        state, expected = program.init(fed, make().x0), program.init(other, make().x0)
        for away in (set(), {"site-1"}, set()):
            sites.kill("site-1", signal.SIGSTOP if away else signal.SIGCONT)
            if away:
                assert isinstance(fed.engine, Remote)
                fed.engine.seconds, fed.engine.tries = 3, 1
            with caplog.at_level(logging.WARNING):
                state = run(program, fed, state, 2).state
            assert fed.away == away
            other.away = away
            for _ in range(2):
                expected = program.round(other, expected)
            assert torch.equal(state.x, expected.x)
            if away:
                fed.engine.seconds, fed.engine.tries = 20, 3
    assert "is played again: client 'site-1': no answer in 3 s, 1 times over" in caplog.text
    assert "site-1 is back" in caplog.text


@EACH
def test_lost_late_and_repeated_frames_change_nothing(sites: Processes, algorithm: str) -> None:
    program, make = RUNS[algorithm]
    with sites.transport() as transport:
        faulty = Faulty(transport, share=0.2, seed=5)
        fed = remote(faulty, algorithm, tries=40)
        state = run(program, fed, program.init(fed, make().x0), 6).state
    assert faulty.faults > 10
    assert torch.equal(state.x, end(algorithm, 6))


@pytest.mark.parametrize("algorithm", ["SCAFFOLD", "FedAvg"])
def test_a_killed_server_goes_on_from_its_checkpoint(sites: Processes, algorithm: str, tmp_path: Path) -> None:
    rounds = 9
    command = [sys.executable, served_cases.__file__, json.dumps(sites.addresses), str(sites.folder / "certificates"),
               str(tmp_path / "run"), algorithm, str(rounds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    where = random.Random(algorithm)
    for killed in (where.randint(1, 4), where.randint(5, 8), None):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(int(line))
            if seen[-1] == killed:
                os.killpg(process.pid, signal.SIGKILL)
                break
        process.stdout.close()
        assert process.wait() == (0 if killed is None else -signal.SIGKILL), seen
        assert killed is None or seen[-1] == killed
    assert torch.equal(load_file(tmp_path / "run" / "end.safetensors")["x"], end(algorithm, rounds))
    assert seen[0] > 0  # it went on


class Killing:
    """A network on which a site dies at one exchange, and is started again: before the frame has come there, or after it was executed."""

    def __init__(self, transport: Transport, at: int, restart: Callable[[], None], executed: bool) -> None:
        self.transport, self.at, self.restart, self.executed = transport, at, restart, executed
        self.exchanges = 0

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        self.exchanges += 1
        if self.exchanges != self.at:
            return self.transport.exchange(frames, seconds)
        if not self.executed:
            self.restart()
            return self.transport.exchange(frames, seconds)
        replies = self.transport.exchange(frames, seconds)
        assert isinstance(replies["site-1"], bytes)
        self.restart()
        return {**replies, "site-1": ConnectionError("the reply was lost")}


@EACH
@pytest.mark.parametrize("executed", [False, True])
def test_a_site_that_dies_in_the_middle_of_a_round(sites: Processes, algorithm: str, executed: bool, tmp_path: Path) -> None:
    program, make = RUNS[algorithm]
    with sites.transport() as transport:
        network = Killing(transport, 12 if algorithm == "FedDRO" else 6, lambda: sites.restart("site-1"), executed)
        fed = remote(network, algorithm)
        state = run(program, fed, program.init(fed, make().x0), 6, folder=tmp_path / "run", save_every=2).state
    assert network.exchanges > network.at
    assert torch.equal(state.x, end(algorithm, 6))


def test_a_site_that_stays_away_is_named(sites: Processes) -> None:
    program, make = RUNS["FedAvg"]
    with sites.transport() as transport:
        fed = remote(transport, "FedAvg", seconds=5, tries=2)
        state = run(program, fed, program.init(fed, make().x0), 1).state
        sites.kill("site-2")
        with pytest.raises(Away, match=r"^client 'site-2': unavailable: .*, 2 times over$"):
            run(program, fed, state, 1)
        sites.start("site-2")
        grpc.channel_ready_future(transport.channels["site-2"]).result(60)
        state = run(program, fed, state, 1).state
    assert torch.equal(state.x, end("FedAvg", 2))


@pytest.mark.parametrize(("through", "why"), [
    pytest.param(["sh", "-c", 'ulimit -f 8; exec "$@"', "sh"], "File too large", id="files of 8 kB"),
    pytest.param(on_small_disk("site-1-runs", 32), "No space left on device", id="a disk of 32 kB",
                 marks=pytest.mark.skipif(not small_disks(), reason="this machine lets nobody mount a disk"))])
def test_a_full_disk_at_a_site_is_named_and_nothing_has_changed(sites: Processes, through: list[str], why: str) -> None:
    program, make = RUNS["FedAvg"]
    sites.kill("site-1")
    sites.through = through
    try:
        sites.start("site-1")
        with sites.transport() as transport:
            fed = remote(transport, "FedAvg")
            state, made = program.init(fed, make().x0), 0
            try:
                while made < 200:
                    state, made = program.round(fed, state), made + 1
            except WriteError as error:
                assert re.search(rf"^site 'site-1': .*log\.jsonl could not be written \({why}\)$", str(error))  # noqa: PT017
            assert 2 < made < 200
            seen = Path(f"/proc/{sites.running['site-1'].pid}/root{sites.folder}")  # as the site sees it
            logs = [log for log in (seen / "site-1-runs").glob("*/log.jsonl") if log.stat().st_size > 3000]
            assert logs
            assert all(json.loads(line) for log in logs for line in log.read_text().splitlines())
            assert torch.equal(state.x, end("FedAvg", made))
    finally:
        sites.through = []
        sites.restart("site-1")


def test_a_site_that_is_busy_ends_when_it_is_told_so_twice(tmp_path: Path) -> None:
    with processes(tmp_path, ("site-0",), "served_cases:slow") as found, found.transport() as transport:
        with pytest.raises(Away, match="site-0"):
            Remote(transport, seconds=10, tries=1).greet(["site-0"], {})
        process = found.running["site-0"]
        found.kill("site-0", signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(5)
        found.kill("site-0", signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with processes(tmp_path, ("site-0", "site-1"), "served_cases:rows") as found:
        started = [psutil.Process(process.pid) for process in found.running.values()]
        assert all(process.is_running() for process in started)
        with found.transport() as transport:
            Remote(transport).greet(["site-0"], {"algorithm": "FedAvg"})
            found.kill("site-0", signal.SIGTERM)
            assert found.running["site-0"].wait(60) == 0  # one that is asked to ends by itself, whoever is connected
    assert not any(process.is_running() for process in started)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_frame_that_takes_minutes_is_answered(tmp_path: Path) -> None:
    """The connection is not cut for the pings that keep it: gRPC's own limit is four of them."""
    def slow(asked: dict[str, Any]) -> Any:
        time.sleep(130)
        return hosts.made(asked)

    service = Service(hosts.host(tmp_path, owner=Own(slow)), f"unix:{tmp_path}/socket", None)
    service.start()
    with Grpc({"north": f"unix:{tmp_path}/socket"}) as transport:
        assert Remote(transport, seconds=400, tries=1).greet(["north"], {}).names == ("a", "b")
    service.stop(0)
