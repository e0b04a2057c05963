"""Jobs of FLARE as its administrator follows them, with a stand-in for FLARE."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rookery.engines import flare
from rookery.errors import EngineError


class Env:
    """FLARE as its administrator reaches it, and a session there: some submissions fail, and each job has a status."""

    username, startup_kit_location, login_timeout, study = "admin", "kit", 1.0, "default"

    def __init__(self, folder: Path, *ends: Any) -> None:
        self.folder, self.ends, self.ids = folder, list(ends), list[str]()
        self.opened = self.closed = 0
        self.began, self.since, self.place = 1.0, 0.0, ""
        self.logs: dict[str, str] = {"server": ""}

    def deploy(self, job: Any) -> str:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        self.ids.append(f"job-{len(self.ids)}")
        self.status, began = end
        if began:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "flare.json").write_text(json.dumps({"job": self.ids[-1], "ended": "Away: client 'x'"}))
        return self.ids[-1]

    def get_job_status(self, id: str) -> str:
        return str(self.status)

    def get_job_meta(self, id: str) -> dict[str, Any]:
        return {"last_schedule_time": self.began}

    def get_system_info(self) -> Any:
        return SimpleNamespace(server_info=SimpleNamespace(start_time=self.since))

    def get_job_logs(self, id: str, target: str) -> dict[str, Any]:
        return {"logs": {target: self.logs[target]}}

    def list_job_components(self, id: str) -> list[str]:
        return [f"ERRORLOG_{name}" for name in self.logs if name != "server"]

    def download_job_components(self, id: str) -> str:
        place = self.folder.with_name("components")
        place.mkdir()
        for name in self.list_job_components(id):
            (place / name).write_text(self.logs[name.removeprefix("ERRORLOG_")])
        return str(place)

    def download_job_result(self, id: str) -> str:
        return self.place

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., flare.Job]:
    simulation = ModuleType("nvflare.recipe.sim_env")
    simulation.SimEnv = type("SimEnv", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvflare.recipe.sim_env", simulation)
    envs: list[Env] = []

    def session(**words: Any) -> Env:
        assert words == {"username": "admin", "startup_kit_location": "kit", "timeout": 1.0, "study": "default"}
        envs[-1].opened += 1
        return envs[-1]

    sessions = ModuleType("nvflare.fuel.flare_api.flare_api")
    sessions.new_secure_session = session  # type: ignore[attr-defined]
    for name in ("nvflare", "nvflare.recipe", "nvflare.fuel", "nvflare.fuel.flare_api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, sessions.__name__, sessions)
    monkeypatch.setattr(flare, "POLL", 0.01)
    folders = (tmp_path / str(k) for k in count())

    def begin(*ends: Any) -> flare.Job:
        envs.append(Env(folder := next(folders), *ends))
        return flare.Job(lambda: None, envs[-1], folder)

    return begin


def test_a_start_that_fails_is_tried_once_more(begin: Callable[..., flare.Job]) -> None:
    done, failed = ("FINISHED:COMPLETED", True), ("FINISHED:EXECUTION_EXCEPTION", False)
    assert begin(RuntimeError("no login"), done).wait(5) == "FINISHED:COMPLETED"
    job = begin(failed, done)
    assert (job.wait(5), job.id) == ("FINISHED:COMPLETED", "job-1")
    with pytest.raises(RuntimeError, match="no login twice"):
        begin(RuntimeError("no login"), RuntimeError("no login twice"))
    with pytest.raises(EngineError, match="job job-1 is FINISHED:EXECUTION_EXCEPTION: it did not begin; see FLARE's logs"):
        begin(failed, failed).wait(5)


def test_a_run_that_began_and_failed_is_not_begun_again(begin: Callable[..., flare.Job]) -> None:
    with pytest.raises(EngineError, match="job job-0 is FINISHED:EXECUTION_EXCEPTION: Away: client 'x'"):
        begin(("FINISHED:EXECUTION_EXCEPTION", True)).wait(5)
    with pytest.raises(EngineError, match="FINISHED:ABORTED"):
        begin(("FINISHED:ABORTED", False)).wait(5)
    with pytest.raises(TimeoutError, match="job job-0 is RUNNING after 0 s"):
        begin(("RUNNING", True)).wait(0)


def test_what_a_run_left_is_fetched_from_where_it_is_seen_or_from_flare(begin: Callable[..., flare.Job], tmp_path: Path) -> None:
    job = begin(("FINISHED:COMPLETED", True))
    assert job.folder is not None
    (job.folder / "about.json").write_text("seen")
    (job.folder / "state.ckpt").write_text("state")
    job.fetch(tmp_path / "seen")
    assert [file.name for file in (tmp_path / "seen").iterdir()] == ["about.json"]
    left = tmp_path / "download/workspace" / flare.LEFT
    left.mkdir(parents=True)
    (left / "about.json").write_text("downloaded")
    job.folder, job.env.place = None, str(tmp_path / "download")
    job.fetch(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere/about.json").read_text() == "downloaded"
    for place in (str(tmp_path / "seen"), ""):
        job.env.place = place
        with pytest.raises(EngineError, match="FLARE has no result of job job-0 to download"):
            job.fetch(tmp_path / "nowhere")


def test_one_login_serves_a_wait_and_a_question_outside_of_it_leaves_nothing_open(begin: Callable[..., flare.Job]) -> None:
    """An open session would keep the program from ending."""
    job = begin(("RUNNING", True))
    with pytest.raises(TimeoutError):
        job.wait(0.2)
    assert (job.env.opened, job.env.closed) == (1, 1)
    assert job.status() == "RUNNING"
    assert (job.env.opened, job.env.closed) == (2, 2)
    job.env.get_job_status = lambda id: 1 / 0  # a session that the server has forgotten
    with job.admin.kept():
        assert (job.status(), job.status()) == ("", "")
    assert (job.env.opened, job.env.closed) == (4, 4)


def test_a_job_that_was_under_way_when_its_server_ended_is_abandoned(begin: Callable[..., flare.Job]) -> None:
    job = begin(("RUNNING", True))
    job.env.since = 2.0
    assert job.status() == "FINISHED:ABANDONED"
    with pytest.raises(EngineError, match=r"FINISHED:ABANDONED: FLARE's server was ended and started again .* goes on in another job"):
        job.wait(5)
    job.env.status = "SUBMITTED"
    assert job.status() == "SUBMITTED"


def test_who_does_not_allow_our_classes_is_told_what_to_write(begin: Callable[..., flare.Job]) -> None:
    job = begin(("FINISHED:ABNORMAL", False))
    line = "ComponentNotAuthorized: Component 'a.b.C' at config path 'executors.#1' is not in allow_list"
    job.env.logs |= {"north": line, "south": "another error"}
    with pytest.raises(EngineError) as error:
        job.wait(5)
    assert str(error.value) == (
        "job job-0 is FINISHED:ABNORMAL: FLARE's class_allow_list does not name what the job needs at north (a.b.C): the administrator "
        'there adds "rookery.engines.flare" and "nvflare.collab.runtime" to class_allow_list in local/resources.json')
    assert job.id == "job-0"


def test_why_a_job_failed_is_known_where_the_servers_folder_is_not_seen(begin: Callable[..., flare.Job], tmp_path: Path) -> None:
    job = begin(("FINISHED:EXECUTION_EXCEPTION", True))
    job.env.place, job.folder = str(job.folder), None
    with pytest.raises(EngineError, match="job job-0 is FINISHED:EXECUTION_EXCEPTION: Away: client 'x'"):
        job.wait(5)
    job.env.place = ""
    with pytest.raises(EngineError, match=r"it did not begin; see FLARE's logs, and whether class_allow_list names rookery"):
        job.wait(5)


def test_progress_is_read_from_the_jobs_log_where_the_servers_folder_is_not_seen(begin: Callable[..., flare.Job]) -> None:
    job = begin(("RUNNING", True))
    assert job.progress() == {}
    job.folder, job.env.logs["server"] = None, "a line\n"
    assert job.progress() == {}
    job.env.logs["server"] += 'INFO - progress of the run: {"round": 1}\nINFO - progress of the run: {"round": 2}\nanother\n'
    assert job.progress() == {"round": 2}
    job.env.logs["server"] += "INFO - progress of the run: {\n"
    assert job.progress() == {}


def test_ctrl_c_aborts_the_job_also_where_code_of_flare_s_has_caught_it(begin: Callable[..., flare.Job], monkeypatch: pytest.MonkeyPatch,
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    from rookery.cli.flare import follow
    from rookery.cli.manners import Voice

    job, aborted = begin(("RUNNING", True)), list[str]()

    def status(id: str) -> str:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return "RUNNING"
        raise AssertionError("nobody was interrupted")

    monkeypatch.setattr(job.admin, "status", status)
    monkeypatch.setattr(job.admin, "abort", aborted.append)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(typer.Exit) as end:
        follow(Voice("federate", True, False), job, "round", lambda bar, progress: None, "the same command goes on")
    assert end.value.exit_code == 130
    assert aborted == ["job-0"]
    assert "the job was aborted; the same command goes on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
