"""Real sites: processes of their own behind gRPC with certificates, from files as owners write them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from site_processes import Processes, processes
from sklearn.datasets import load_breast_cancer

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from rookery import SCAFFOLD, FedAvg, Federation
from rookery.engines.grpc import Grpc
from rookery.engines.remote import Remote
from rookery.errors import Away, Refused
from rookery.problems import testproblems as known
from rookery.training import run

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("site-0", "site-1", "site-2")
OWN = """
import os
from rookery.problems import testproblems as known

def rows():
    k = known.minimization()
    return k.problem, k.data.part(k.data.names.index(os.environ["SITE"]))
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("sites")
    (folder / "owned.py").write_text(OWN)
    with processes(folder, NAMES, "owned:rows") as found:
        yield found


def remote(sites: Processes, **options: int) -> Federation:
    engine = Remote(sites.transport(), seconds=20)
    roster = engine.greet(NAMES, {}, seed=3)
    return Federation(known.minimization().problem, roster, engine=engine, seed=3, **options)  # type: ignore[arg-type]


def simulated() -> Federation:
    k = known.minimization()
    return Federation(k.problem, k.data.part(0, 1, 2), engine="loop", seed=3)


def test_processes_come_to_what_a_simulation_comes_to(sites: Processes) -> None:
    k = known.minimization()
    for algorithm in (SCAFFOLD(0.1, 2, 2), FedAvg(0.1, 2, 2)):
        fed, other = remote(sites), simulated()
        assert fed.data.fields == {}
        state = run(algorithm, fed, algorithm.init(fed, k.x0), 5).state
        expected = run(algorithm, other, algorithm.init(other, k.x0), 5).state
        assert torch.equal(state.x, expected.x)
        assert fed.ledger == other.ledger


def test_a_killed_site_comes_back_and_the_end_is_the_same(sites: Processes, tmp_path: Path) -> None:
    k, algorithm = known.minimization(), SCAFFOLD(0.1, 2, 2)
    fed, other, killed = remote(sites), simulated(), []

    def progress(made: int, of: int) -> None:
        if made == 5 and not killed:
            killed.append(made)
            sites.kill("site-1")
            sites.start("site-1")

    found = run(algorithm, fed, algorithm.init(fed, k.x0), 9, folder=tmp_path, save_every=3, on_progress=progress)
    assert torch.equal(found.state.x, run(algorithm, other, algorithm.init(other, k.x0), 9).state.x)
    assert killed


def test_what_is_not_allowed_is_refused_by_name_and_written_down(sites: Processes) -> None:
    from rookery import LocalSGDM

    k, algorithm, fed = known.minimization(), LocalSGDM(0.1, 2, 2), remote(sites)
    with pytest.raises(Refused, match=r"^site 'site-0': LocalSGDM\.\w+ is not among what may run here \(may\.algorithms\)$"):
        run(algorithm, fed, algorithm.init(fed, k.x0), 1)
    logs = [log for log in (sites.folder / "site-0-runs").glob("*/log.jsonl") if "refused" in log.read_text()]
    assert any("not among what may run here" in log.read_text() for log in logs)


def test_a_foreign_certificate_is_refused(sites: Processes, tmp_path: Path) -> None:
    from rookery.sites.certificates import invite

    invite(tmp_path / "certificates", "site-0")
    addresses = {name: f"127.0.0.1:{port}" for name, port in sites.ports.items()}
    with Grpc(addresses, tmp_path / "certificates") as foreign, pytest.raises(Away, match="site-0"):
        Remote(foreign, seconds=5).greet(NAMES, {})
    # a site is no server: its own certificate does not let it ask another
    own = sites.folder / "certificates" / b"site-1".hex()
    for name, source in (("server.key", "site.key"), ("server.pem", "site.pem"), ("authority.pem", "authority.pem")):
        (tmp_path / name).write_bytes((own / source).read_bytes())
    with Grpc(addresses, tmp_path) as other, pytest.raises(Away, match="only the federation's server may ask this site"):
        Remote(other, seconds=5).greet(NAMES, {})
    # and one site is not another, wherever it listens
    swapped = {"site-0": addresses["site-1"]}
    with Grpc(swapped, sites.folder / "certificates") as wrong, pytest.raises(Away, match="site-0"):
        Remote(wrong, seconds=5).greet(["site-0"], {})


def test_the_page_about_real_sites_runs(tmp_path: Path) -> None:
    """Its files and commands, with ports that are free here."""
    page = (ROOT / "docs" / "real-sites.md").read_text()
    for block in re.finditer(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        (tmp_path / block[1]).write_text(block[2])
    table = load_breast_cancer()
    inputs = ((table.data - table.data.mean(0)) / table.data.std(0)).astype(np.float32)
    names, sites = ["north", "south", "west"], Processes(tmp_path, [], "")
    for k, name in enumerate(names):
        np.savez(tmp_path / f"{name}.npz", inputs=inputs[k::3], labels=table.target[k::3])
        assert f"rookery site invite {name}\n" in page
        rookery(tmp_path, "site", "invite", name)
        own = (tmp_path / "north.toml").read_text().replace("north", name).replace("6e6f727468", name.encode().hex())
        (tmp_path / f"{name}.toml").write_text(re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", own))
    try:
        sites.start(*names)
        addresses = [f"{name}=127.0.0.1:{sites.ports[name]}" for name in names]
        said = subprocess.run([sys.executable, "server.py", *addresses], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert said == "{'north': 190, 'south': 190, 'west': 189}\n20 rounds: rounds\n"
        log = rookery(tmp_path, "site", "log", "north.toml")
        assert "run heart-2026" in log
        assert re.search(r"frame 3: .*SCAFFOLD\.step 5 times, SCAFFOLD\.finish; 124 numbers left", log)
    finally:
        sites.stop()


def rookery(folder: Path, *words: str) -> str:
    return subprocess.run([sys.executable, "-m", "rookery.cli", *words], cwd=folder, capture_output=True, text=True, check=True).stdout
