"""Sites as real processes behind gRPC with certificates: started from files as an owner would write them, and ended whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rookery.engines.grpc import Grpc
from rookery.sites.certificates import invite

ALL = '["FedAvg", "SCAFFOLD", "FedDRO"]'


def on_small_disk(folder: str, kilobytes: int) -> list[str]:
    """A command that runs another one with a disk of its own at a folder, so small that it fills up."""
    mount = f'mkdir -p {folder} && mount -t tmpfs -o size={kilobytes}k tmpfs {folder} && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]


def small_disks() -> bool:
    """Whether this machine lets us have one."""
    try:
        return subprocess.run([*on_small_disk("/tmp", 64), "true"], capture_output=True).returncode == 0
    except OSError:
        return False


class Processes:
    """Sites of one folder, by name."""

    def __init__(self, folder: Path, names: Sequence[str], own: str, may: str = f"algorithms = {ALL}\nmin_batch = 1\nsalt = \"none\"",
                 modules: Sequence[str] = (), rows: str = 'own = "{own}"') -> None:
        self.folder, self.running, self.ports = folder, dict[str, subprocess.Popen[bytes]](), dict[str, int]()
        self.through: list[str] = []  # a command that starts the next ones
        self.names = list(names)
        for name in names:
            given = invite(folder / "certificates", name)
            (folder / f"{name}.toml").write_text(
                f'[site]\nname = "{name}"\nlisten = "127.0.0.1:0"\ncertificates = "{given.relative_to(folder)}"\nfolder = "{name}-runs"\n'
                f'modules = {list(modules)!r}\n[rows]\n{rows.format(own=own, name=name)}\n[may]\n{may}\n'.replace("'", '"'))

    def start(self, *names: str) -> None:
        """Start sites, at the port where they were before, and wait until they listen."""
        for name in names or self.names:
            if name in self.ports:
                file = self.folder / f"{name}.toml"
                file.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{self.ports[name]}", file.read_text()))
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "SITE": name, "HOSPITAL": name, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [*self.through, sys.executable, "-m", "rookery.cli", "site", f"{name}.toml"]
            with (self.folder / f"{name}.out").open("wb") as out:
                self.running[name] = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=out, stderr=subprocess.STDOUT,
                                                      start_new_session=True)
        for name in names or self.names:
            ends = time.monotonic() + 300
            while not (found := re.search(r"\(port (\d+)\)", self.said(name))):
                if self.running[name].poll() is not None or time.monotonic() > ends:
                    raise AssertionError(f"{name} did not start: {self.said(name)}")
                time.sleep(0.05)
            self.ports[name] = int(found[1])

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        os.killpg(self.running[name].pid, number)
        if number == signal.SIGKILL:
            self.running[name].wait()

    def restart(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def transport(self) -> Grpc:
        return Grpc(self.addresses, self.folder / "certificates")

    @property
    def addresses(self) -> dict[str, str]:
        return {name: f"127.0.0.1:{self.ports[name]}" for name in self.names}


@contextmanager
def processes(folder: Path, names: Sequence[str], own: str, *more: object, **options: object) -> Iterator[Processes]:
    found = Processes(folder, names, own, *more, **options)  # type: ignore[arg-type]
    try:
        found.start()
        yield found
    finally:
        found.stop()
