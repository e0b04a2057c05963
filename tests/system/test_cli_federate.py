"""`rookery federate` over site processes behind gRPC with certificates: the folder that a simulation leaves, and runs that go on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hospitals
import pytest
from running import command
from site_processes import Processes, processes
from sklearn.datasets import load_breast_cancer

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

MAY = 'algorithms = ["FedAvg", "SCAFFOLD"]\nobjectives = ["cross_entropy"]\nmin_batch = 5\nsalt = "none"'
PAGE = Path(__file__).resolve().parents[2] / "docs" / "three-hospitals.md"
RUN = """[data]
schema = "schema.toml"
test_at = "sites"
[model]
hidden = [8]
[algorithm]
name = "SCAFFOLD"
lr = 0.1
local_steps = 2
batch = 16
[federation]
min_batch = 5
seed = 3
[run]
rounds = 8
every = 4
save_every = 2
"""


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = hospitals.write(tmp_path_factory.mktemp("hospitals"))
    (folder / "run.toml").write_text(RUN)
    with processes(folder, hospitals.NAMES, "", MAY, rows='table = "{name}.csv"') as found:
        write_meeting(found)
        yield found


def write_meeting(sites: Processes) -> None:
    """The file that says where they are."""
    addresses = "\n".join(f'{name} = "{address}"' for name, address in sites.addresses.items())
    (sites.folder / "federation.toml").write_text(f'[server]\ncertificates = "certificates"\nseconds = 30\n[sites]\n{addresses}\n')


def model(folder: Path) -> bytes:
    return (folder / "bundle/model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def simulated(sites: Processes) -> Path:
    """The same run over one table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(sites.folder)
        assert command(patch, "run", "run.toml", "--quiet", "--out", "simulated", "--set", 'data.table="all.csv"', "--set",
                       'data.site="hospital"', "--set", 'federation.engine="wire"') == 0
    return sites.folder / "simulated"


def test_a_run_over_real_sites_leaves_what_a_simulation_leaves(sites: Processes, simulated: Path, monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(sites.folder)
    assert command(monkeypatch, "federate", "run.toml", "--sites", "federation.toml", "--out", "real") == 0
    said = capsys.readouterr().out
    assert "3 sites of" in said
    assert "engine remote" in said
    assert model(Path("real")) == model(simulated)
    assert {file.name for file in Path("real").iterdir()} >= {file.name for file in simulated.iterdir()} - {"sites"}
    assert command(monkeypatch, "report", "real", "--out", "page.html") == 0
    assert "The rows were at 3 sites with processes of their own, which answered a server that has none." in Path("page.html").read_text()
    assert command(monkeypatch, "predict", "real/bundle", "north.csv", "-o", "out.csv") == 0
    assert len(Path("out.csv").read_text().splitlines()) == len(Path("north.csv").read_text().splitlines())
    capsys.readouterr()
    assert command(monkeypatch, "site", "log", "north.toml") == 0
    log = " ".join(capsys.readouterr().out.split())
    assert "Agreement.totals" in log
    assert "and the names f, high, low, m" in log


def test_a_dry_run_says_what_would_be_sent(sites: Processes, simulated: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(sites.folder)
    words = ["federate", "run.toml", "--sites", "federation.toml", "--out", "dry", "--dry-run"]
    assert command(monkeypatch, *words, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dry_run"], told["sites"], told["algorithm"]) == (True, 3, "SCAFFOLD")
    assert command(monkeypatch, *words) == 0
    assert "nothing was trained, nor written here" in capsys.readouterr().out
    last = json.loads((simulated / "history.jsonl").read_text().splitlines()[-1])
    assert told["forecast"] == {"exchanges": last["exchanges"], "bytes": last["bytes"], "how": "exactly"}
    assert not Path("dry").exists()
    assert command(monkeypatch, *words, "--on", "flare") == 2
    assert "those of --on flare answer to jobs only" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_fit_about_groups_over_real_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run says what would be trained and sent, and nothing is trained; the fit leaves the bundle of a simulation."""
    hospitals.write(tmp_path, hospitals.SCHEMA.replace("keep = [\"sex\"]\n", ""))  # --sensitive keeps the column
    (tmp_path / "fit.toml").write_text(RUN.partition("[algorithm]")[0] + "[federation]\nmin_batch = 5\nseed = 3\n")
    may = MAY.replace('"SCAFFOLD"', '"FedDRO"').replace('["cross', '["balanced_cross_entropy", "fair", "last_layer", "cross')
    with processes(tmp_path, hospitals.NAMES, "", may, rows='table = "{name}.csv"') as sites:
        write_meeting(sites)
        monkeypatch.chdir(tmp_path)
        words = ["fit", "fit.toml", "--goal", "fair", "--sensitive", "sex", "--rounds", "2", "--no-pool"]
        assert command(monkeypatch, *words, "--sites", "federation.toml", "--dry-run", "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["dry_run"], told["rounds"], told["trials"], told["sites"]) == (True, 2, 35, 3)  # seven methods on a grid and splits
        assert told["bytes"] > 0
        assert told["exchanges"] >= 14
        assert not Path("runs").exists()
        assert command(monkeypatch, "site", "log", "north.toml") == 0
        log = capsys.readouterr().out
        assert "Counting.counts" in log
        assert "FedAvg." not in log
        assert command(monkeypatch, *words, "--sites", "federation.toml", "--out", "real") == 0
    assert command(monkeypatch, *words, "--out", "simulated", "--jobs", "1", "--set", 'data.table="all.csv"', "--set",
                   'data.site="hospital"', "--set", 'federation.engine="wire"') == 0
    assert model(Path("real")) == model(Path("simulated"))


@pytest.mark.slow
def test_a_server_that_is_killed_goes_on(sites: Processes, simulated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sites.folder)
    words = [sys.executable, "-m", "rookery.cli", "federate", "run.toml", "--sites", "federation.toml", "--out", "killed"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL) as server:
        ends = time.monotonic() + 300
        while not Path("killed/state.ckpt").exists():
            assert server.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.01)
        os.killpg(server.pid, signal.SIGKILL)
    assert command(monkeypatch, "federate", "run.toml", "--sites", "federation.toml", "--out", "killed", "--resume", "--quiet") == 0
    assert model(Path("killed")) == model(simulated)


def test_what_is_not_allowed_is_refused_by_name(sites: Processes, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(sites.folder)
    for change, sentence in (('objective.name="balanced_cross_entropy"', "not among the objectives that may be minimised here"),
                             ('algorithm.name="FedProx"', "FedProx is not among the algorithms that may run here"),
                             ("federation.min_batch=2", "write min_batch = 5 in [federation]"),
                             ('data.schema="nowhere.toml"', "there is no schema 'nowhere.toml'")):
        assert command(monkeypatch, "federate", "run.toml", "--sites", "federation.toml", "--out", "refused", "--set", change) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
        assert not Path("refused/state.ckpt").exists()


def test_words_that_do_not_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(hospitals.write(tmp_path))
    Path("run.toml").write_text(RUN)
    Path("federation.toml").write_text('[sites]\nnorth = "unix:nowhere"\n')
    for words, sentence in (((), "goes with --on grpc or flare; it was left out"), (("--on", "mpi"), "--on is one of grpc"),
                            (("--on", "ray", "--sites", "federation.toml"), "it was given beside --on ray"),
                            (("--sites", "nothing.toml"), "there is no file nothing.toml"),
                            (("--sites", "federation.toml", "--resume"), "there is no run in"),
                            (("--sites", "federation.toml"), "did not answer to the hello")):
        assert command(monkeypatch, "federate", "run.toml", *words) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert sentence in err
    assert json.loads(Path("runs/run/federation.json").read_text())["run"].startswith("run-run-")


@pytest.mark.slow
def test_the_page_about_three_hospitals_runs(tmp_path: Path) -> None:
    """Its files and commands in their order, with ports that are free here."""
    page, names = PAGE.read_text(), ["north", "south", "west"]
    table = load_breast_cancer()
    for k, name in enumerate(names):
        lines = [",".join([*table.feature_names, "diagnosis"]), *(",".join([*map(str, row), table.target_names[label]]) for row, label in
                                                                 zip(table.data[k::3], table.target[k::3], strict=True)), ""]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    sites, printed = Processes(tmp_path, [], ""), ""
    try:
        for kind, body in re.findall(r"^```(toml|sh)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
            if kind == "toml":
                name, text = re.fullmatch(r"# (\S+)\n(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
                for site in names if name == "north.toml" else [""]:
                    own = text.replace("north", site).replace("6e6f727468", site.encode().hex()).replace(":7443", ":0") if site else text
                    for place, other in enumerate(sites.ports):
                        own = own.replace(f"127.0.0.1:{7443 + place}", f"127.0.0.1:{sites.ports[other]}")
                    (tmp_path / (f"{site}.toml" if site else name)).write_text(own)
                continue
            for line in body.splitlines():
                words = shlex.split(line)
                assert words[0] == "rookery"
                if words[1:] == ["site", "north.toml"]:
                    sites.start(*names)
                else:
                    printed = subprocess.run([sys.executable, "-m", "rookery.cli", *words[1:]], cwd=tmp_path, check=True,
                                             capture_output=True, text=True).stdout
    finally:
        sites.stop()
    assert "LocalSCGDAM" in printed
    assert json.loads((tmp_path / "runs/three/about.json").read_text())["assessment"]["AUC"][0] > 0.9
    assert len((tmp_path / "predicted.csv").read_text().splitlines()) == len((tmp_path / "south.csv").read_text().splitlines())
