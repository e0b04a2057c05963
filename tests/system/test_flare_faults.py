"""FLARE, its jobs and the resident processes behind it die, stand still and lose replies: the site is named, and the end is the same."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("grpc")
if find_spec("nvflare") is None:
    pytest.skip("FLARE is not installed: pip install 'rookery[flare]'", allow_module_level=True)

import flare_entries
from flare_entries import MAY
from flare_sites import Deployment, Residents, deployment, waited
from site_processes import on_small_disk, small_disks

from rookery.engines import flare
from rookery.errors import EngineError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # FLARE's own
NAMES = ["site-0", "site-1", "site-2"]
WAIT = 600.0
Both = tuple[Deployment, Residents]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with deployment(tmp_path_factory.mktemp("flare"), NAMES, "flare_entries:rows", MAY, ["flare_entries:train"]) as found:
        yield found


@pytest.fixture(autouse=True)
def left_behind(both: Both) -> Iterator[None]:
    """After each test the parties' own processes are there, and none of a job's; after the last one none at all."""
    yield
    deployed, residents = both
    waited(lambda: not workers(deployed), "the processes of all jobs have ended")
    assert {name for name in ("localhost", *NAMES) if deployed.processes(name)} == {"localhost", *NAMES}
    assert all(process.poll() is None for process in residents.running.values())


def workers(deployed: Deployment) -> list[psutil.Process]:
    """What FLARE has started for jobs."""
    return [process for process in deployed.processes() if any(word.endswith((".worker_process", ".runner_process"))
                                                               for word in process.cmdline())]


def begin(deployed: Deployment, run: str, **words: Any) -> flare.Job:
    words = {"algorithm": "SCAFFOLD", "rounds": 12, "pause": 0.5, "seconds": 3, "tries": 2} | words
    return flare.submit("flare_entries:train", words, NAMES, deployed.env(), run=run, runs=deployed.runs)


def made(job: flare.Job, least: int) -> None:
    waited(lambda: job.progress().get("made", 0) >= least, f"{least} rounds", WAIT)


def away(folder: Path) -> str:
    file = folder / "away.txt"
    return file.read_text() if file.exists() else ""


def same(deployed: Deployment, run: str, rounds: int = 12) -> bool:
    return torch.equal(load_file(deployed.runs / run / "end.safetensors")["x"], flare_entries.simulated("SCAFFOLD", rounds))


def goes_on(deployed: Deployment, run: str) -> None:
    """Another job of a run that was cut off comes to where a simulation comes to."""
    assert not (deployed.runs / run / "end.safetensors").exists()
    begin(deployed, run, pause=0).wait(WAIT)
    assert same(deployed, run)


def test_a_resident_process_that_dies_and_one_that_stands_still_are_named_and_waited_for(both: Both) -> None:
    deployed, residents = both
    job, folder = begin(deployed, "residents", patient=True), deployed.runs / "residents"
    made(job, 3)
    residents.kill("site-1")
    waited(lambda: "client 'site-1': " in away(folder), "the dead one is named")
    assert "its resident process is down" in away(folder)
    residents.start("site-1")
    before = job.progress()["made"]
    made(job, before + 1)
    residents.kill("site-2", signal.SIGSTOP)
    waited(lambda: "client 'site-2': no answer in 3 s, 2 times over" in away(folder), "the slow one is named")
    residents.kill("site-2", signal.SIGCONT)
    assert job.wait(WAIT) == "FINISHED:COMPLETED"
    assert same(deployed, "residents")


def test_lost_late_and_repeated_frames_change_nothing(both: Both) -> None:
    deployed, _ = both
    begin(deployed, "lost", faults=0.1, tries=40, pause=0, seconds=60).wait(WAIT)
    assert same(deployed, "lost")


def test_a_job_that_is_killed_at_the_server_is_followed_by_one_that_goes_on(both: Both) -> None:
    deployed, _ = both
    job = begin(deployed, "server")
    made(job, 5)
    os.kill(job.progress()["process"], signal.SIGKILL)
    with pytest.raises(EngineError, match=r"FINISHED:(?!COMPLETED)"):
        job.wait(WAIT)
    other = begin(deployed, "server", pause=0)
    other.wait(WAIT)
    assert other.id != job.id
    assert same(deployed, "server")


def test_an_aborted_job_is_followed_by_one_that_goes_on(both: Both) -> None:
    deployed, _ = both
    job = begin(deployed, "aborted")
    made(job, 3)
    job.abort()
    with pytest.raises(EngineError, match="FINISHED:ABORTED"):
        job.wait(WAIT)
    goes_on(deployed, "aborted")


def test_a_client_of_flare_that_is_killed_is_named_and_a_second_job_goes_on_when_it_is_back(both: Both) -> None:
    deployed, _ = both
    job, folder = begin(deployed, "client"), deployed.runs / "client"
    made(job, 5)
    deployed.kill("site-1")
    waited(lambda: "client 'site-1': no answer in 3 s, 2 times over" in away(folder), "the dead one is named")
    with pytest.raises(EngineError, match=r"FINISHED:(?!COMPLETED)"):
        job.wait(WAIT)
    deployed.start("site-1")
    goes_on(deployed, "client")


def test_a_client_of_flare_that_does_not_allow_our_classes_is_named_with_what_to_write(both: Both) -> None:
    """Once, and not after a second job; a job reads what is allowed, so that nothing has to be started again."""
    deployed, _ = both
    own = deployed.kits / "site-1" / "local" / "resources.json"
    allowed = own.read_text()
    own.unlink()
    try:
        job = begin(deployed, "allowed", pause=0)
        first = job.id
        with pytest.raises(EngineError) as error:
            job.wait(WAIT)
    finally:
        own.write_text(allowed)
    assert job.id == first
    assert "class_allow_list does not name what the job needs at site-1 (nvflare.collab.runtime.executor.CollabExecutor): the " \
           'administrator there adds "rookery.engines.flare" and "nvflare.collab.runtime"' in str(error.value)
    goes_on(deployed, "allowed")


def test_a_server_of_flare_that_is_killed_and_started_again_has_lost_the_job_and_another_one_goes_on(both: Both) -> None:
    """FLARE itself says for ever that the job runs."""
    deployed, _ = both
    job = begin(deployed, "parent")
    made(job, 5)
    worker = job.progress()["process"]
    [parent] = [process for process in deployed.processes("localhost") if any("server_train" in word for word in process.cmdline())]
    parent.kill()
    with pytest.raises(EngineError, match=r"FINISHED:ABANDONED: FLARE's server was ended and started again .* goes on in another job"):
        job.wait(WAIT)
    waited(lambda: not psutil.pid_exists(worker), "the job's own process has ended")
    goes_on(deployed, "parent")


@pytest.mark.skipif(not small_disks(), reason="this machine lets nobody mount a disk")
def test_a_full_disk_at_a_site_is_named_and_the_run_goes_on_when_there_is_space(both: Both) -> None:
    """Another file fills the disk that the resident process writes to; later it is deleted."""
    deployed, residents = both
    residents.kill("site-1")
    residents.through = on_small_disk("site-1-runs", 512)
    residents.start("site-1")
    runs = Path(f"/proc/{residents.running['site-1'].pid}/root{residents.folder}/site-1-runs")  # as that process sees it
    try:
        job = begin(deployed, "disk")
        made(job, 5)
        with suppress(OSError), (runs / "another").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(EngineError, match=r"WriteError: .*site-1.* could not be written \(.*No space left on device.*\)"):
            job.wait(WAIT)
        (runs / "another").unlink()
        goes_on(deployed, "disk")
        logs = list(runs.glob("*/log.jsonl"))
        assert logs
        for log in logs:
            assert all(json.loads(line) for line in log.read_text().splitlines())
    finally:
        residents.through = []
        residents.restart("site-1")


def answered(deployed: Deployment, kit: Path) -> bool:
    """Whether FLARE's server, which speaks HTTP inside of TLS, answers to who shows the certificate of a kit."""
    trust = ssl.create_default_context(cafile=str(deployed.kits / "site-1" / "startup" / "rootCA.pem"))
    trust.check_hostname = False
    trust.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    try:
        with socket.create_connection(("127.0.0.1", deployed.port)) as plain, trust.wrap_socket(plain) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return secure.recv(4) == b"HTTP"
    except OSError:  # a refusal, or a connection that was closed
        return False


def test_a_client_with_a_foreign_certificate_is_refused(both: Both, tmp_path: Path) -> None:
    """One that an administrator of another project has made, with the name and the address of ours."""
    deployed, _ = both
    foreign = Deployment(tmp_path, NAMES, tmp_path, [], deployed.port)
    assert answered(deployed, deployed.kits / "site-1")
    assert not answered(deployed, foreign.kits / "site-1")
    log = deployed.kits / "localhost" / "log.txt"
    waited(lambda: all(f"New client {name}@" in log.read_text() for name in NAMES), "our own have joined")
    begun = len(log.read_text())
    try:
        foreign.start("site-1")  # which does not know our server either
        waited(lambda: "CERTIFICATE_VERIFY_FAILED" in (foreign.kits / "site-1" / "console.txt").read_text(), "the certificate is refused")
    finally:
        foreign.kill()
    assert "New client site-1" not in log.read_text()[begun:]
    assert not foreign.processes()
