"""`rookery fit --on flare`: a fit as a job of FLARE's comes to the bundle of a simulation, also when it was aborted on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import hospitals
import pytest
import test_cli_federate
from running import command

from rookery.fitting.goals import GOALS
from rookery.objectives.declare import objectives
from rookery.studies.description import algorithms

pytest.importorskip("grpc")
MAY = 'algorithms = ["FedAvg", "CODA+", "LocalSCGDAM", "LocalSGDAM"]\nmin_batch = 5\nsalt = "none"\n' \
      'objectives = ["cross_entropy", "balanced_cross_entropy", "auc", "last_layer"]'
FIT = test_cli_federate.RUN.partition("[algorithm]")[0] + "[federation]\nmin_batch = 5\nseed = 3\n"
WORDS = ["fit", "fit.toml", "--goal", "auc", "--rounds", "8", "--no-pool"]
OVER = [*WORDS, "--sites", "federation.toml", "--on", "flare"]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(hospitals.write(tmp_path))
    Path("fit.toml").write_text(FIT)
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # FLARE's own
@pytest.mark.skipif(find_spec("nvflare") is None, reason="FLARE is not installed: pip install 'rookery[flare]'")
def test_a_fit_over_flare_leaves_what_a_simulation_leaves(written: Path, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    from flare_sites import ADMIN, deployment, environment, processes, waited

    entries = ["rookery.fitting.serving:serve"]
    with deployment(written, hospitals.NAMES, "", MAY, entries, rows='table = "{name}.csv"') as (found, residents):
        kit = f'[flare]\nkit = "{found.kits / ADMIN}"\nuser = "{ADMIN}"\n'
        sites = "\n".join(f'{name} = "flare"' for name in hospitals.NAMES)
        Path("federation.toml").write_text(f'{kit}runs = "runs"\n[sites]\n{sites}\n')
        with Path("aborted.txt").open("wb") as out, subprocess.Popen(
                [sys.executable, "-m", "rookery.cli", *OVER, "--out", "seen"], env=environment(), stdout=out, stderr=out,
                start_new_session=True) as first:
            waited(lambda: first.poll() is not None or list(written.glob("runs/*/fit/trials.jsonl")), "a trial is done")
            residents.kill(hospitals.NAMES[0], signal.SIGSTOP)  # so that the fit cannot end before the job is aborted
            os.killpg(first.pid, signal.SIGINT)
            first.wait(300)
        residents.kill(hospitals.NAMES[0], signal.SIGCONT)
        assert first.returncode == 130, Path("aborted.txt").read_text()
        said = " ".join(Path("aborted.txt").read_text().split())
        assert "the job was aborted; the same command goes on with the fit of seen in another job" in said
        [run] = written.glob("runs/run-seen-*")
        made = (run / "fit/trials.jsonl").read_text().splitlines()
        assert not (run / "fit/fit.json").exists()
        waited(lambda: not [one for one in processes(found.kits) if "runner_process" in " ".join(one.cmdline())], "the first job has ended")
        assert command(monkeypatch, *OVER, "--out", "seen") == 0
        assert (run / "fit/trials.jsonl").read_text().splitlines()[:len(made)] == made
        assert [one.name for one in written.glob("runs/run-*")] == [run.name]
        Path("federation.toml").write_text(f"{kit}[sites]\n{sites}\n")
        assert command(monkeypatch, *OVER, "--out", "downloaded") == 0
    capsys.readouterr()
    assert command(monkeypatch, *WORDS, "--out", "simulated", "--set", 'data.table="all.csv"', "--set", 'data.site="hospital"', "--set",
                   'federation.engine="wire"') == 0
    expected = {path.relative_to("simulated").as_posix() for path in Path("simulated").rglob("*") if path.is_file()}
    told = json.loads(Path("simulated/fit.json").read_text())
    for folder in (Path("seen"), Path("downloaded")):
        for file in ("bundle/model.safetensors", "bundle/encoder.json"):
            assert (folder / file).read_bytes() == Path("simulated", file).read_bytes()
        there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert there - expected <= {"federation.json", "flare.json"} | {file for file in there if file.startswith("models/")}
        assert {file for file in expected - there if not file.startswith("models/")} == set()
        own = json.loads((folder / "fit.json").read_text())
        assert own["kept"] == told["kept"]
        assert [row["label"] for row in own["rows"]] == [row["label"] for row in told["rows"]][:len(own["rows"])]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(find_spec("nvflare") is None, reason="FLARE is not installed: pip install 'rookery[flare]'")
def test_fits_for_the_other_goals_leave_what_simulations_leave(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flare_sites import ADMIN, deployment

    may = f'algorithms = {json.dumps(sorted(algorithms()))}\nobjectives = {json.dumps(sorted(objectives()))}\nmin_batch = 5\nsalt = "none"'
    pooled = ["--set", 'data.table="all.csv"', "--set", 'data.site="hospital"', "--set", 'federation.engine="wire"']
    with deployment(written, hospitals.NAMES, "", may, ["rookery.fitting.serving:serve"], rows='table = "{name}.csv"') as (found, _):
        sites = "\n".join(f'{name} = "flare"' for name in hospitals.NAMES)
        Path("federation.toml").write_text(f'[flare]\nkit = "{found.kits / ADMIN}"\nuser = "{ADMIN}"\nruns = "runs"\n[sites]\n{sites}\n')
        for goal in sorted(set(GOALS) - {"auc"}):
            words = ["fit", "fit.toml", "--goal", goal, "--rounds", "2", "--no-pool", "--sensitive", "sex"]
            assert command(monkeypatch, *words, "--sites", "federation.toml", "--on", "flare", "--out", f"{goal}-flare") == 0
            assert command(monkeypatch, *words, *pooled, "--out", f"{goal}-simulated") == 0
            real, simulated = (json.loads(Path(f"{goal}-{how}", "fit.json").read_text()) for how in ("flare", "simulated"))
            assert [real[name] for name in ("kept", "splits")] == [simulated[name] for name in ("kept", "splits")], goal
            for file in ("bundle/model.safetensors", "bundle/encoder.json"):
                assert Path(f"{goal}-flare", file).read_bytes() == Path(f"{goal}-simulated", file).read_bytes(), (goal, file)


def test_words_of_a_fit_over_flare_that_do_not_go_together(written: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    Path("federation.toml").write_text('[sites]\nnorth = "flare"\n')
    Path("flare.toml").write_text(f'[flare]\nkit = "nowhere"\nuser = "admin"\n{Path("federation.toml").read_text()}')
    Path("other").mkdir()
    Path("other/plan.json").write_text("{}")
    for words, sentence in ((("--on", "flare"), "--on flare goes with --sites federation.toml"),
                            (("--on", "mpi"), "--on is one of grpc, flare, ray; got 'mpi'"),
                            (("--on", "ray", "--sites", "federation.toml"), "--on ray is a simulation on a cluster, and --sites"),
                            (("--on", "ray", "--jobs", "2"), "one trial after the other, each over all of the cluster: leave out --jobs 2"),
                            (("--on", "flare", "--sites", "federation.toml"), "needs the section [flare], with kit"),
                            (("--on", "flare", "--sites", "flare.toml", "--goal", "best"), "best"),
                            (("--on", "flare", "--sites", "flare.toml", "--dry-run"), "--dry-run asks sites at once"),
                            (("--on", "flare", "--sites", "flare.toml", "--set", 'data.schema="no.toml"'), "there is no schema 'no.toml'"),
                            (("--on", "flare", "--sites", "flare.toml", "--set", 'data.test_at="server"'), "write test_at = \"sites\""),
                            (("--on", "flare", "--sites", "flare.toml", "--out", "other"), "other holds something else than a fit over"),
                            (("--on", "flare", "--sites", "flare.toml"), "is not the folder of an administrator's startup kit")):
        assert command(monkeypatch, *WORDS, *words) == 2
        assert sentence in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()
