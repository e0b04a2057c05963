"""FLARE on this machine, as an administrator makes one: provisioned, allowed what it needs, started; ended whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from site_processes import Processes

from rookery.engines.flare_admin import ALLOWED

ADMIN = "admin@trial.org"
PROJECT = """
api_version: 3
name: trial
participants:
  - {{name: localhost, type: server, org: trial, fed_learn_port: {0}, admin_port: {1}}}
{2}
  - {{name: {3}, type: admin, org: trial, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Residents(Processes):
    """Resident processes behind unix sockets, as FLARE's clients relay to them."""

    def __init__(self, folder: Path, names: Sequence[str], own: str, may: str, rows: str = 'own = "{own}"') -> None:
        super().__init__(folder, [], own)
        self.names = list(names)
        for name in names:
            (folder / f"{name}.toml").write_text(f'[site]\nname = "{name}"\nlisten = "unix:{folder / name}.sock"\nfolder = "{name}-runs"\n'
                                                 f'[rows]\n{rows.format(own=own, name=name)}\n[may]\n{may}\n')


class Deployment:
    """FLARE's server and clients, each started from its own startup kit."""

    def __init__(self, folder: Path, names: Sequence[str], sockets: Path, entries: Sequence[str], port: int | None = None) -> None:
        self.folder, self.names, self.runs = folder, list(names), folder / "runs"
        self.shells: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(2) if port is None else [port, port + 1]
        self.port = ports[0]
        clients = "\n".join(f"  - {{name: {name}, type: client, org: trial}}" for name in names)
        (folder / "project.yml").write_text(PROJECT.format(*ports, clients, ADMIN))
        self.command("nvflare", "provision", "-p", "project.yml", "-w", "kits")
        self.kits = folder / "kits" / "trial" / "prod_00"
        for name in (*names, "localhost"):
            local = self.kits / name / "local"
            allow(local, folder / "store")
            (local / "rookery.toml").write_text(f'socket = "{sockets / name}.sock"\n')
        (self.kits / "localhost" / "local" / "rookery.toml").write_text(f'runs = "{self.runs}"\nentries = {json.dumps(list(entries))}\n')

    def command(self, *words: str) -> None:
        subprocess.run(words, cwd=self.folder, env=environment(), check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def start(self, *names: str) -> None:
        for name in names or ("localhost", *self.names):
            for left in self.kits.glob(f"{name}/*.fl"):
                left.unlink()
            kit = self.kits / name
            with (kit / "console.txt").open("ab") as out:
                shell = subprocess.Popen(["bash", str(kit / "startup" / "sub_start.sh")], cwd=kit, env=environment(), stdout=out,
                                         stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
            self.shells[name] = shell
            if name == "localhost":
                waited(lambda: listens(self.port), "FLARE's server listens")

    def env(self, **options: Any) -> Any:
        from nvflare.recipe.prod_env import ProdEnv

        return ProdEnv(str(self.kits / ADMIN), login_timeout=60.0, username=ADMIN, **options)

    def processes(self, name: str = "") -> list[psutil.Process]:
        return processes(self.kits / name)

    def kill(self, name: str = "") -> None:
        """All that a party runs, or all parties."""
        kill(self.kits / name)
        for shell in [self.shells.pop(name)] if name else self.shells.values():
            shell.wait()


def allow(local: Path, store: Path | None = None) -> None:
    """Add our classes to those that a party allows in jobs; a server may have its own `store` of them, instead of one of the machine's."""
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] += ALLOWED
    text = json.dumps(resources)
    (local / "resources.json").write_text(text if store is None else text.replace("/tmp/nvflare/", f"{store}/"))


def processes(folder: Path) -> list[psutil.Process]:
    """Those that were given something of a folder; a job's processes have sessions of their own, so that groups would not do."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(word).is_relative_to(folder) for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill(folder: Path) -> None:
    """First the shell that would start the rest again."""
    for process in sorted(processes(folder), key=lambda process: process.pid):
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    waited(lambda: not processes(folder), "all processes have ended")


def waited(holds: Any, what: str, seconds: float = 300) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@contextmanager
def deployment(folder: Path, names: Sequence[str], own: str, may: str, entries: Sequence[str],
               **rows: str) -> Iterator[tuple[Deployment, Residents]]:
    """FLARE and the resident processes; in the end, all of them are gone."""
    residents = Residents(folder, names, own, may, **rows)
    found = Deployment(folder, names, folder, entries)
    try:
        residents.start()
        found.start()
        yield found, residents
    finally:
        residents.stop()
        found.kill()
