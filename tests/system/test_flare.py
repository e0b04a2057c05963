"""Real sites over NVIDIA FLARE: a provisioned server and clients that relay to resident processes; bit for bit as in a simulation."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_breast_cancer

pytest.importorskip("grpc")
if find_spec("nvflare") is None:
    pytest.skip("FLARE is not installed: pip install 'rookery[flare]'", allow_module_level=True)

import flare_entries
import hospitals
import test_cli_federate
from flare_entries import MAY
from flare_sites import ADMIN, ALLOWED, Deployment, Residents, allow, deployment, environment, free_ports, kill, listens, processes
from running import command
from site_processes import Processes

from rookery.engines import flare
from rookery.errors import EngineError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # FLARE's own
ROOT = Path(__file__).resolve().parents[2]
NAMES = ["site-0", "site-1", "site-2"]
WAIT = 600.0


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    before = set(psutil.pids())
    with deployment(tmp_path_factory.mktemp("flare"), NAMES, "flare_entries:rows", MAY, ["flare_entries:train"]) as (found, _):
        yield found
    left = [process for process in psutil.process_iter(["cmdline"]) if process.pid not in before
            and str(found.folder) in " ".join(process.info["cmdline"] or ())]
    assert left == []


def begin(deployed: Deployment, run: str, sites: list[str] | None = None, **words: Any) -> flare.Job:
    return flare.submit("flare_entries:train", words, NAMES if sites is None else sites, deployed.env(), run=run, runs=deployed.runs)


@pytest.mark.parametrize(("algorithm", "rounds"), [("FedDRO", 34), ("FedNest", 6), ("LocalSCGDAM", 20)])
def test_a_job_comes_to_what_a_simulation_comes_to(deployed: Deployment, algorithm: str, rounds: int) -> None:
    job = begin(deployed, algorithm, algorithm=algorithm, rounds=rounds)
    assert job.wait(WAIT) == "FINISHED:COMPLETED"
    told = job.progress()
    assert told["made"] == rounds
    assert told["exchanges"] >= (100 if algorithm == "FedDRO" else rounds)
    assert torch.equal(load_file(deployed.runs / algorithm / "end.safetensors")["x"], flare_entries.simulated(algorithm, rounds))


def test_a_function_that_the_server_does_not_name_is_refused_and_the_sites_of_a_run_are_those_named(deployed: Deployment) -> None:
    job = begin(deployed, "two", NAMES[:2], algorithm="FedAvg", rounds=3)
    other = flare.submit("os:system", {}, NAMES, deployed.env(), run="other", runs=deployed.runs)
    job.wait(WAIT)
    assert torch.equal(load_file(deployed.runs / "two" / "end.safetensors")["x"], flare_entries.simulated("FedAvg", 3, (0, 1)))
    with pytest.raises(EngineError, match="ConfigError: 'os:system' is not among what may run at this server"):
        other.wait(WAIT)


def test_progress_and_failures_are_known_where_the_servers_folder_of_runs_is_not_seen(deployed: Deployment) -> None:
    words = {"algorithm": "FedAvg", "rounds": 20, "pause": 0.5}
    job = flare.submit("flare_entries:train", words, NAMES, deployed.env(), run="unseen")
    seen: list[int] = []
    assert job.wait(WAIT, lambda progress: seen.append(progress["made"])) == "FINISHED:COMPLETED"
    assert seen == sorted(seen)
    assert len(set(seen)) > 1
    assert max(seen) <= 20
    other = flare.submit("os:system", {}, NAMES, deployed.env(), run="other-unseen")
    with pytest.raises(EngineError, match="ConfigError: 'os:system' is not among what may run at this server"):
        other.wait(WAIT)


def test_no_code_travels_with_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Exported:
        def deploy(self, job: Any) -> str:
            job.export_job(str(tmp_path))
            return "exported"

    flare.submit("flare_entries:train", {"a": [{"b": "{c}"}]}, NAMES, Exported(), run="one")
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert all(file.endswith(".json") for file in files), files
    [server] = json.loads((tmp_path / "one/app_server/config/config_fed_server.json").read_text())["components"]
    assert server["path"] == "rookery.engines.flare.Server"
    assert not set("{}") & set(server["args"]["words"])


@pytest.mark.skipif(listens(8002) or listens(8003), reason="a POC of FLARE has the ports 8002 and 8003, and others use them here")
def test_a_poc_that_was_prepared_takes_jobs_as_well(tmp_path: Path) -> None:
    from nvflare.recipe.prod_env import ProdEnv

    names, environ = ["site-1", "site-2"], environment() | {"NVFLARE_POC_WORKSPACE": str(tmp_path / "poc"), "HOME": str(tmp_path)}
    residents = Residents(tmp_path, names, "flare_entries:rows", MAY)

    def poc(*words: str) -> None:
        with (tmp_path / "console.txt").open("ab") as out:
            subprocess.run(["nvflare", "poc", *words], cwd=tmp_path, env=environ, check=True, stdin=subprocess.DEVNULL, stdout=out,
                           stderr=out)

    try:
        residents.start()
        poc("prepare", "-n", "2")
        [kits] = tmp_path.glob("poc/*/prod_00")
        for name in (*names, "server"):
            allow(kits / name / "local")
            (kits / name / "local" / "rookery.toml").write_text(f'socket = "{tmp_path}/{name}.sock"\nruns = "{tmp_path}/runs"\n'
                                                                'entries = ["flare_entries:train"]\n')
        poc("start", "-ex", "admin@nvidia.com")
        env = ProdEnv(str(kits / "admin@nvidia.com"), login_timeout=60.0)
        words = {"algorithm": "FedDRO", "rounds": 5}
        assert flare.submit("flare_entries:train", words, names, env, run="one", runs=tmp_path / "runs").wait(WAIT) == "FINISHED:COMPLETED"
    finally:
        residents.stop()
        kill(tmp_path / "poc")  # FLARE's own stop may fail, or leave something
    assert torch.equal(load_file(tmp_path / "runs/one/end.safetensors")["x"], flare_entries.simulated("FedDRO", 5, (1, 2)))
    assert processes(tmp_path) == []


def test_a_simulation_of_flare_comes_to_the_same(tmp_path: Path) -> None:
    from nvflare.recipe.sim_env import SimEnv

    names, local = NAMES[:2], tmp_path / "workspace" / "one" / "local"
    local.mkdir(parents=True)
    (local / "rookery.toml").write_text(f'socket = "{tmp_path}/{{site}}.sock"\nruns = "{tmp_path}/runs"\n'
                                        'entries = ["flare_entries:train"]\n')
    (local / "resources.json").write_text(json.dumps({"format_version": 2, "class_allow_list": ALLOWED}))
    residents = Residents(tmp_path, names, "flare_entries:rows", MAY)
    try:
        residents.start()
        env = SimEnv(clients=names, num_threads=2, workspace_root=str(tmp_path / "workspace"), log_config="concise")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
            job = flare.submit("flare_entries:train", {"algorithm": "FedDRO", "rounds": 5}, names, env, run="one", runs=tmp_path / "runs")
            with pytest.raises(EngineError, match="FLARE cannot abort a simulation"):
                job.abort()
            assert job.wait(WAIT) == "FINISHED:COMPLETED"
    finally:
        residents.stop()
    assert job.progress()["made"] == 5
    assert torch.equal(load_file(tmp_path / "runs/one/end.safetensors")["x"], flare_entries.simulated("FedDRO", 5, (0, 1)))
    assert processes(tmp_path) == []


def test_the_page_about_flare_runs(tmp_path: Path) -> None:
    """Its files and commands, with ports that are free here, and for the other hospitals what it says of one."""
    page = (ROOT / "docs" / "flare.md").read_text()
    ports, names = free_ports(2), ["north", "south", "west"]
    written = {block[1]: block[2] for block in re.finditer(r"(?ms)^```(?:python|toml|yaml)\n# (\S+)\n(.*?)^```$", page)}
    commands = [line for block in re.finditer(r"(?ms)^```sh\n(.*?)^```$", page) for line in block[1].splitlines()]
    environ = environment() | {"PYTHONPATH": os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])}
    residents = Processes(tmp_path, [], "")
    started: list[subprocess.Popen[bytes]] = []

    def write(name: str) -> None:
        text = written[name].replace("8002", str(ports[0])).replace("8003", str(ports[1]))
        for hospital in names if "north" in name else ["north"]:
            (tmp_path / name.replace("north", hospital)).write_text(text.replace("north", hospital) if "north" in name else text)

    def do(line: str) -> str:
        return subprocess.run(line, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    for name in [name for name in written if "/" not in name]:
        write(name)
    for name, part in zip(names, rows_in_three(), strict=True):
        np.savez(tmp_path / f"{name}.npz", inputs=part[0], labels=part[1])
    said = ""
    try:
        for command in commands:
            for line in [command.replace("north", name) for name in names] if "north" in command else [command]:
                if "rookery site" in line:
                    residents.start(line.split()[-1].removesuffix(".toml"))
                elif line.endswith("start.sh"):
                    with (tmp_path / "console.txt").open("ab") as out:
                        started.append(subprocess.Popen(["bash", line], cwd=tmp_path, env=environ, stdout=out, stderr=out,
                                                        stdin=subprocess.DEVNULL, start_new_session=True))
                else:
                    said = do(line)
            if command.startswith("nvflare provision"):
                for name in [name for name in written if "/" in name]:
                    write(name)
    finally:
        residents.stop()
        kill(tmp_path / "kits")
        for process in started:
            process.wait()
    assert said.splitlines()[-1] == "FINISHED:COMPLETED {'rounds': 20, 'of': 20}"
    assert processes(tmp_path) == []


def rows_in_three() -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    table = load_breast_cancer()
    inputs = ((table.data - table.data.mean(0)) / table.data.std(0)).astype(np.float32)
    return [(inputs[k::3], table.target[k::3]) for k in range(3)]


def test_a_description_runs_over_flare_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    """What is downloaded is what a simulation leaves."""
    monkeypatch.chdir(hospitals.write(tmp_path))
    Path("run.toml").write_text(test_cli_federate.RUN)
    words = ["federate", "run.toml", "--on", "flare", "--sites", "federation.toml"]
    with deployment(tmp_path, hospitals.NAMES, "", test_cli_federate.MAY, ["rookery.studies.federating:serve"],
                    rows='table = "{name}.csv"') as (found, _):
        sites = "\n".join(f'{name} = "flare"' for name in hospitals.NAMES)
        kit = f'kit = "{found.kits / ADMIN}"\nuser = "{ADMIN}"'
        Path("federation.toml").write_text(f"[flare]\n{kit}\n[sites]\n{sites}\n")
        assert command(monkeypatch, *words, "--out", "downloaded") == 0
        assert "the model: rookery predict downloaded/bundle" in " ".join(capsys.readouterr().out.split())
        Path("federation.toml").write_text(f'[flare]\n{kit}\nruns = "runs"\n[sites]\n{sites}\n')
        assert command(monkeypatch, *words, "--out", "seen", "--set", "run.rounds=6") == 0
        assert command(monkeypatch, *words, "--out", "seen", "--resume") == 0
        assert len(list(Path("runs").glob("*-seen-*"))) == 1  # the run that was gone on with, and no other
    assert command(monkeypatch, "run", "run.toml", "--quiet", "--out", "simulated", "--set", 'data.table="all.csv"', "--set",
                   'data.site="hospital"', "--set", 'federation.engine="wire"') == 0
    for folder in ("downloaded", "seen"):
        assert Path(folder, "bundle/model.safetensors").read_bytes() == Path("simulated/bundle/model.safetensors").read_bytes()
        assert not Path(folder, "state.ckpt").exists()
