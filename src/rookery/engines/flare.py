"""Real sites over NVIDIA FLARE: frames travel by its Collab calls, and a run is a job of FLARE that can be followed by another one.

No code travels. FLARE's server process runs a function that is installed there and that its owner names; FLARE's client processes relay
frames to the resident process of their site, and hold nothing. Neither has torch for it, nor FLARE rows.

One file, because what the server runs, what a site runs and the job that joins them speak to the same young interface of FLARE's.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from ..errors import ConfigError, EngineError
from .flare_admin import ABANDONED, ALLOWED, TOLD, Admin, part_of_flare, to_allow
from .transport import Transport

__all__ = ["Job", "Server", "Site", "submit"]

OWN = "rookery.toml"  # in the folder `local` of FLARE's server or client: what the job does not say
RECORD = "flare.json"  # in a run's folder: the last job that began it, and how it ended
PROGRESS = "progress.json"  # in a run's folder: what the function says of the run
LEFT = "rookery-run"  # in the job's workspace: what the run left
POLL = 2.0  # seconds


def _marked(kind: str) -> Callable[[Any], Any]:
    """A method that FLARE may call; without FLARE nobody does."""
    def mark(method: Any) -> Any:
        try:
            return getattr(part_of_flare("collab").collab, kind)(method)
        except EngineError:
            return method
    return mark


class Calls:
    """A transport over FLARE: a call for each site, all at once. It is made in the function that FLARE calls."""

    def __init__(self) -> None:
        collab = part_of_flare("collab").collab
        self.context, self.everyone = collab.context, collab.clients
        self.proxies = {proxy.name: proxy for proxy in self.everyone}
        self.pool = ThreadPoolExecutor(len(self.proxies))

    def exchange(self, frames: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes | Exception]:
        found = self._call_all(frames, seconds)
        if found.keys() != frames.keys():
            waiting = {site: self.pool.submit(self._call, site, frame, seconds) for site, frame in frames.items()}
            found = {site: call.result() for site, call in waiting.items()}
        if self.aborted():
            raise EngineError("the job was aborted")
        return found

    def _call_all(self, frames: Mapping[str, bytes], seconds: float) -> dict[str, bytes | Exception]:
        """One call of all sites that are told the same, which takes less than a call for each; nothing where it cannot be made."""
        frame, *others = frames.values()
        if frames.keys() != self.proxies.keys() or any(other != frame for other in others):
            return {}
        try:
            replies = self.everyone(timeout=seconds).answer(frame, seconds)
        except Exception:  # that of the group; those of single sites are among what it returns
            return {}
        failed = {site: _trouble(error, seconds) for site, error in replies.failures.items()}
        return {site: _reply(reply) for site, reply in replies} | failed

    def _call(self, site: str, frame: bytes, seconds: float) -> bytes | Exception:
        if site not in self.proxies:
            return ConnectionError("FLARE has not given it this job")
        try:
            return _reply(self.proxies[site](timeout=seconds).answer(frame, seconds))
        except Exception as error:  # the call's, or that the job was aborted meanwhile
            return _trouble(error, seconds)

    def aborted(self) -> bool:
        return bool(self.context.is_aborted())


def _reply(reply: object) -> bytes | Exception:
    return reply if isinstance(reply, bytes) else ConnectionError(f"its reply is no bytes, but {type(reply).__name__}")


def _trouble(error: Any, seconds: float) -> Exception:
    """What a failed call says; FLARE may be told to leave the words of an error at the site, and then has its type alone."""
    cause = getattr(error, "cause", error)
    match getattr(error, "cause_type", ""):
        case "TimeoutError":
            return TimeoutError(f"no answer in {seconds:g} s")
        case "ConnectionError":
            return ConnectionError(f"its resident process is down ({cause})")
    return ConnectionError(str(cause))


class Server:
    """FLARE's server part of a job: finds the function that is named, and gives it a transport to the sites.

    entry: module:function, installed at the server and named in its rookery.toml
    words: what the function is told, as JSON with quoted braces, in which FLARE would see variables
    run:   the run's name, and that of its folder
    sites: whom the function is to ask
    """

    def __init__(self, entry: str, words: str, run: str, sites: list[str]) -> None:
        self.entry, self.words, self.run, self.sites = entry, words, run, sites

    @_marked("main")
    def main(self) -> None:
        from ..training.files import write_whole

        calls = Calls()
        local = Path(calls.context.workspace.get_site_config_dir())
        own = _own(local)
        folder = _run_folder((local / _said(own, "runs", str)).resolve(), self.run)
        folder.mkdir(parents=True, exist_ok=True)
        job = str(part_of_flare("collab").collab.fl_ctx.get_job_id())
        write_whole(folder / RECORD, json.dumps({"job": job, "ended": None}))
        left, ended = Path(calls.context.workspace.get_run_dir(job)) / LEFT, "done"  # what FLARE lets be downloaded with the job
        try:
            entry = _entry(self.entry, _said(own, "entries", list))
            with _logged(folder / PROGRESS):
                entry(calls, list(self.sites), json.loads(unquote(self.words)), folder, calls.aborted)
            shutil.copytree(folder, left, ignore=shutil.ignore_patterns("*.ckpt"), dirs_exist_ok=True)  # the state stays with the run
        except Exception as error:
            ended = "the job was aborted" if calls.aborted() else f"{type(error).__name__}: {error}"
            raise
        finally:
            left.mkdir(parents=True, exist_ok=True)
            for place in (left, folder):
                write_whole(place / RECORD, json.dumps({"job": job, "ended": ended}))


@contextmanager
def _logged(file: Path) -> Iterator[None]:
    """Inside, what is written to a file of progress goes to the job's log as well, which FLARE shows to whoever follows the job."""
    ended, before = threading.Event(), _text(file)  # a job before this one may have left it

    def log() -> None:
        last = before
        while not ended.wait(POLL):
            if (now := _text(file)) != last:
                logging.getLogger("rookery.flare").info("%s%s", TOLD, now)
                last = now

    logs = threading.Thread(target=log, daemon=True)
    logs.start()
    try:
        yield
    finally:
        ended.set()
        logs.join()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


class Site:
    """FLARE's client part of a job: relays frames between the server and the resident process of this site."""

    resident: Transport | None = None

    @_marked("publish")
    def answer(self, frame: bytes, seconds: float) -> bytes:
        collab = part_of_flare("collab").collab
        if collab.caller != "server":
            raise PermissionError("only the server of this job may ask this site")
        if self.resident is None:
            self.resident = _resident(Path(collab.workspace.get_site_config_dir()), collab.site_name)
        reply = self.resident.exchange({"resident": frame}, seconds)["resident"]
        if isinstance(reply, Exception):
            raise reply
        return reply


@cache
def _resident(local: Path, site: str) -> Transport:
    """The resident process, where the owner of this machine says that it is."""
    from .grpc import Grpc

    socket = (local / _said(_own(local), "socket", str).replace("{site}", site)).resolve()
    return Grpc({"resident": f"unix:{socket}"})


def _own(local: Path) -> dict[str, Any]:
    """What the owner of this machine says."""
    try:
        return tomllib.loads((local / OWN).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{local / OWN} could not be read ({error.strerror}): the owner of a machine says there what a job may not "
                          'say, socket = "/path/of/the/resident/process" at a site, runs = "/folder" and entries = ["module:function"] '
                          "at the server") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{local / OWN} is not TOML: {error}") from None


def _said(own: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    if not isinstance(own.get(name), kind):
        example = {"socket": '"/run/rookery/north.sock"', "runs": '"/var/lib/rookery"', "entries": '["agreed:train"]'}[name]
        raise ConfigError(f"{OWN} of this machine needs {name}: write {name} = {example}; got {own.get(name)!r}")
    return own[name]


def _entry(name: str, allowed: Sequence[str]) -> Callable[..., object]:
    """The function of a name, if the server's owner lets it run."""
    if name not in allowed:
        raise ConfigError(f"{name!r} is not among what may run at this server: {OWN} has entries = {list(allowed)!r}")
    module, _, function = name.partition(":")
    found: Callable[..., object] | None = getattr(import_module(module), function, None)
    if not callable(found):
        raise ConfigError(f"{OWN} lets {name!r} run, but {module} has no function {function!r}: write module:function")
    return found


def _run_folder(runs: Path, run: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,79}", run, re.ASCII):
        raise ConfigError("the name of a run begins with a letter or digit and has up to 80 letters, digits, dots, hyphens and "
                          f"underscores, because its folder has it too; got {run!r}")
    return runs / run


def submit(entry: str, words: dict[str, Any], sites: Sequence[str], env: Any, *, run: str, runs: Path | str | None = None,
           start: float = 180.0) -> Job:
    """Begin a run as a job of FLARE, or go on with it.

    entry: module:function, called in FLARE's server process as entry(transport, sites, words, folder, aborted). It greets the sites,
           trains into `folder` with resume=True, and writes what it wants to be known into folder/progress.json
    words: what the function is told, as JSON can say it
    sites: whom it asks, all of whom FLARE must reach; FLARE's names of them are the names in their site.toml
    env:   ProdEnv with an administrator's startup kit, also that of a POC; or SimEnv, with the names of the sites as `clients`
    run:   the run's name; a second job of the same name goes on where the first one ended, whatever ended it
    runs:  where the server's folder of runs is seen from here: None if it is not
    start: seconds that FLARE gives the sites to begin
    """
    folder = None if runs is None else _run_folder(Path(runs), run)
    _run_folder(Path(), run)
    if isinstance(env, part_of_flare("recipe.poc_env").PocEnv):
        raise EngineError("PocEnv provisions all sites anew for each job, and none of them would allow ours: prepare and start the POC "
                          "with nvflare poc, and give ProdEnv the startup kit of its administrator")
    api, runtime = part_of_flare("job_config.api"), "collab.runtime"

    def make() -> Any:
        job = api.FedJob(name=run, min_clients=len(sites), mandatory_clients=list(sites))
        job.set_app_packages(["rookery"])  # which is installed wherever the job runs: nothing travels
        job.to_server(Server(entry, quote(json.dumps(words), safe='":, []'), run, list(sites)), id="rookery")
        controller = part_of_flare(f"{runtime}.controller").CollabController(server_obj_id="rookery", sync_task_timeout=start)
        job.to_server(controller, id="controller")
        for site in sites:
            job.to(Site(), site, id="rookery")
            job.to(part_of_flare(f"{runtime}.executor").CollabExecutor(client_obj_id="rookery"), site, id="executor", tasks=["*"])
        return job

    return Job(make, env, folder)


class Job:
    """A run that FLARE has been given, as a job: to follow, to abort, and to wait for.

    id: that of the job at FLARE; another one after a start that failed and was tried once more
    """

    def __init__(self, make: Callable[[], Any], env: Any, folder: Path | None) -> None:
        self.make, self.env, self.folder = make, env, folder
        self.simulated = isinstance(env, part_of_flare("recipe.sim_env").SimEnv)
        self.admin = Admin(env)
        self.again = True  # a start that fails is tried once more
        self._deploy()

    def _deploy(self) -> None:
        self.id = ""
        if self.simulated and self.folder is not None:  # where all jobs have one name
            (self.folder / RECORD).unlink(missing_ok=True)
        self.deployed: Future[str] = ThreadPoolExecutor(1).submit(self.env.deploy, self.make())
        if not self.simulated:
            try:
                self.id = self.deployed.result()
            except Exception:
                if not self._once_more():
                    raise

    def _once_more(self) -> bool:
        again, self.again = self.again, False
        if again:
            self._deploy()
        return again

    def status(self) -> str:
        """FLARE's word for how the job stands: RUNNING, or FINISHED: and how; empty while FLARE does not say.

        A job that FLARE's server had under way when it was ended is FINISHED:ABANDONED once the server is back.
        """
        if not self.simulated:
            try:
                return self.admin.status(self.id)
            except Exception:  # the server cannot be reached, or is busy
                return ""
        if not self.deployed.done():
            return "RUNNING"
        return "FINISHED:EXECUTION_EXCEPTION" if self.deployed.exception() else "FINISHED:COMPLETED"

    def progress(self) -> dict[str, Any]:
        """What the function last wrote into progress.json of the run's folder; as FLARE's log has it where that is not seen."""
        if self.folder is not None or self.simulated:
            return self._read(PROGRESS)
        try:
            return self.admin.told(self.id)
        except Exception:  # the server cannot be reached, or is busy
            return {}

    def abort(self) -> None:
        """End the job; the run stays, and another job goes on with it."""
        if self.simulated:
            raise EngineError("FLARE cannot abort a simulation; end its process")
        self.admin.abort(self.id)

    def wait(self, seconds: float | None = None, told: Callable[[dict[str, Any]], None] | None = None,
             look: Callable[[], None] | None = None) -> str:
        """Wait for the job's end, and give FLARE's word for it. A job that fails before its function began is submitted once more.

        told: is given the progress of the run, again and again
        look: is called as often, and may raise to end the waiting
        """
        ends = None if seconds is None else time.monotonic() + seconds
        with self.admin.kept():
            while not (status := self.status()).startswith("FINISHED"):
                if look is not None:
                    look()
                if ends is not None and time.monotonic() > ends:
                    raise TimeoutError(f"job {self.id} is {status or 'not known'} after {seconds:g} s")
                if told is not None and (found := self.progress()):
                    told(found)
                time.sleep(POLL)
            if status == "FINISHED:COMPLETED":
                return status
            record = self._record()
            refused = {} if record or self.simulated else self._refused()
        if self.folder is not None and not record and not refused and status != "FINISHED:ABORTED" and self._once_more():
            return self.wait(None if ends is None else max(0.0, ends - time.monotonic()), told, look)
        raise EngineError(f"job {self.id or 'of the simulation'} is {status}: {to_allow(refused) if refused else _why(status, record)}")

    def _record(self) -> dict[str, Any]:
        """What the server wrote of this job; nothing if its function did not begin."""
        if self.folder is not None or self.simulated:
            found = self._read(RECORD)
            return found if self.simulated or found.get("job") == self.id else {}
        with suppress(Exception):  # FLARE has nothing of it
            return dict(json.loads(self.admin.result(self.id, RECORD).read_text(encoding="utf-8")))
        return {}

    def _refused(self) -> dict[str, str]:
        """Who did not allow the job's classes. A site sends its log when its process has ended, which may be after the job."""
        for _ in range(3):
            with suppress(Exception):  # the server cannot be reached, or has no logs
                if found := self.admin.refused(self.id):
                    return found
            time.sleep(POLL)
        return {}

    def fetch(self, to: Path, part: str = "") -> None:
        """Bring what the run left into a folder: from the server's folder of runs where that is seen from here, or else by FLARE.

        part: a folder in that of the run, which is all that is brought
        """
        found = self.admin.result(self.id, LEFT) if self.folder is None else self.folder
        shutil.copytree(found / part, to, ignore=shutil.ignore_patterns("*.ckpt", RECORD), dirs_exist_ok=True)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = {} if self.folder is None else json.loads(_text(self.folder / name))
            return found
        except ValueError:
            return {}


def _why(status: str, record: Mapping[str, Any]) -> str:
    if status == ABANDONED:
        return "FLARE's server was ended and started again while it was under way; submitted again, the run goes on in another job"
    if record:
        return record.get("ended") or "see the log of FLARE's server"
    return f"it did not begin; see FLARE's logs, and whether class_allow_list names {' and '.join(ALLOWED)} at the server and all sites"
