"""NVIDIA FLARE as its administrator reaches it: how jobs stand, what they left, and who did not let them begin."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConfigError, EngineError

ALLOWED = ("rookery.engines.flare", "nvflare.collab.runtime")  # what a class_allow_list must name
ABANDONED = "FINISHED:ABANDONED"  # FLARE's word for a job that its server lost; it has the word, and does not use it
TOLD = "progress of the run: "  # what a line of a job's log has before it
T = TypeVar("T")


def part_of_flare(module: str) -> Any:
    try:
        return import_module(f"nvflare.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "nvflare":
            raise
        raise EngineError("real sites over FLARE need nvflare, which is not installed: pip install 'rookery[flare]'") from None


def production(kit: Path, user: str) -> Any:
    """FLARE as an administrator reaches it, by a startup kit."""
    if not (kit / "startup").is_dir():
        raise ConfigError(f"{kit} is not the folder of an administrator's startup kit, which has a folder \"startup\"")
    return part_of_flare("recipe.prod_env").ProdEnv(str(kit), username=user, login_timeout=30.0)


class Admin:
    """An administrator's questions, each by a session of its own, or all by one that is kept.

    env: FLARE's ProdEnv
    """

    def __init__(self, env: Any) -> None:
        self.env, self.session, self.keeps = env, None, False

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Inside, one login serves all questions; a session that is left open would keep the program from ending."""
        self.keeps = True
        try:
            yield
        finally:
            self.keeps = False
            self._close()

    def ask(self, question: Callable[[Any], T]) -> T:
        with redirect_stdout(io.StringIO()):  # a line for each connection
            try:
                if self.session is None:
                    self.session = part_of_flare("fuel.flare_api.flare_api").new_secure_session(
                        username=self.env.username, startup_kit_location=self.env.startup_kit_location, timeout=self.env.login_timeout,
                        study=self.env.study)
                found = question(self.session)
            except BaseException:  # of which a session that its server has forgotten is one
                self._close()
                raise
            if not self.keeps:
                self._close()
            return found

    def _close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            with suppress(Exception), redirect_stdout(io.StringIO()):
                session.close()

    def status(self, job: str) -> str:
        """FLARE's word for how a job stands, and `ABANDONED` for one that its server lost by ending, which FLARE does not notice."""
        def question(session: Any) -> str:
            found = str(session.get_job_status(job) or "")
            if found in ("DISPATCHED", "RUNNING"):
                began = session.get_job_meta(job).get("last_schedule_time")
                since = session.get_system_info().server_info.start_time
                if isinstance(began, float) and isinstance(since, float) and began < since:
                    return ABANDONED
            return found
        return self.ask(question)

    def told(self, job: str) -> dict[str, Any]:
        """The last progress of a run that a job's log has."""
        log = self.ask(lambda session: session.get_job_logs(job, "server"))["logs"].get("server", "")
        lines = [line.partition(TOLD)[2] for line in log.splitlines() if TOLD in line]
        return dict(json.loads(lines[-1])) if lines else {}

    def abort(self, job: str) -> None:
        self.ask(lambda session: session.abort_job(job))

    def result(self, job: str, name: str) -> Path:
        """What a job left under a name at FLARE's server, downloaded."""
        place = self.ask(lambda session: session.download_job_result(job))
        found = next(Path(place).rglob(name), None) if place else None
        if found is None:
            raise EngineError(f"FLARE has no result of job {job} to download")
        return found

    def refused(self, job: str) -> dict[str, str]:
        """Who did not allow a class that a job has, and which one: from the logs of errors that sites send, unless told not to."""
        def question(session: Any) -> dict[str, str]:
            logs = dict(session.get_job_logs(job, "server")["logs"])
            if session.list_job_components(job):
                place = Path(session.download_job_components(job))
                logs |= {file.name.removeprefix("ERRORLOG_"): file.read_text(errors="replace") for file in place.rglob("ERRORLOG_*")}
                shutil.rmtree(place, ignore_errors=True)
            return logs
        found = {name: re.search(r"Component '([\w.]+)' at .* is not in allow_list", log) for name, log in self.ask(question).items()}
        return {name: match[1] for name, match in sorted(found.items()) if match is not None}


def to_allow(refused: dict[str, str]) -> str:
    """What the owners of machines have to write that did not allow a job's classes."""
    who = " and ".join(f"{'the server' if name == 'server' else name} ({what})" for name, what in refused.items())
    what = " and ".join(f'"{name}"' for name in ALLOWED)
    return (f"FLARE's class_allow_list does not name what the job needs at {who}: the administrator there adds {what} to class_allow_list "
            "in local/resources.json")
