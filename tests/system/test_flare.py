"""Real sites over NVIDIA FLARE: a provisioned server and clients that relay to resident processes; bit for bit as in a simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
from flare_sites import Deployment, deployment

from rookery.engines import flare
from rookery.errors import EngineError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # FLARE's own
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
    assert torch.equal(load_file(deployed.runs / "two" / "end.safetensors")["x"], flare_entries.simulated("FedAvg", 3, sites=2))
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
