"""Many runs as one study: trials that are done once and survive an interruption, their means and spreads, and a record of the result.

A trial is a JSON object (method, hyper-parameters, seed); a trial's work is a function of it, at the top of a module, that returns
another JSON object. Results go to a file of lines as they come, so that a study that was cut off goes on where it was.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from datetime import date
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ..errors import RookeryError
from ..training.files import append, write_whole
from ..training.result import OnProgress

LOG = logging.getLogger(__name__)

Trial = dict[str, Any]
"""What a trial is: a JSON object with its method, hyper-parameters and seed."""
Result = dict[str, Any]
"""What a trial gave: a JSON object, by metric."""
Results = list[tuple[Trial, Result]]
"""Trials with their results, as `study` returns them."""


class StudyError(RookeryError):
    """A study cannot go on; the message says what to change."""


def trials(**choices: Iterable[Any]) -> list[Trial]:
    """All combinations of some choices, as trials.

    >>> trials(method=["A", "B"], seed=range(2))
    [{'method': 'A', 'seed': 0}, {'method': 'A', 'seed': 1}, {'method': 'B', 'seed': 0}, {'method': 'B', 'seed': 1}]
    """
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


class Workers:
    """Processes with one thread each, that are started when there is work for them and stay until the end of a `with`."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=error is None, cancel_futures=error is not None)
            self.pool = None

    def results(self, work: Callable[[Trial], Result], left: list[Trial]) -> Iterator[tuple[Trial, Result]]:
        """Trials with their results, as they come."""
        if self.pool is None:  # a fork would inherit torch's threads in an unknown state
            self.pool = ProcessPoolExecutor(self.jobs, multiprocessing.get_context("spawn"), _alone)
        running = {self.pool.submit(work, trial): trial for trial in left}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            self.pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():  # what they are at is done again next time
                worker.terminate()
            self.pool = None
            raise


def study(work: Callable[[Trial], Result], todo: Sequence[Trial], store: Path | str, jobs: int | None = None,
          on_progress: OnProgress | None = None, is_current: Callable[[Trial], bool] | None = None,
          workers: Workers | None = None) -> Results:
    """The trials with their results, in order; those that the store holds already, and for which `is_current` holds, are not done again.

    jobs: processes at a time (default: one per core), each with one thread; 1 works in this process.
    on_progress: called with the number of trials done and the number of all, as results come.
    workers: processes that several studies share, where there are to be more than one
    """
    store = Path(store)
    store.parent.mkdir(parents=True, exist_ok=True)
    known, wanted = _read(store), {_key(trial): trial for trial in todo}
    left = [trial for key, trial in wanted.items() if key not in known or (is_current is not None and not is_current(trial))]
    number = len(left)
    if on_progress is not None:
        on_progress(len(wanted) - number, len(wanted))
    jobs = jobs or os.cpu_count() or 1
    alone = jobs == 1 or (workers is None and number < 2)
    with nullcontext(workers) if workers is not None else Workers(max(1, min(jobs, number))) as several:
        for trial, result in ((t, work(t)) for t in left) if alone else several.results(work, left):
            known[_key(trial)] = result
            append(store, json.dumps({"trial": trial, "result": result}))
            number -= 1
            LOG.info("trial %d of %d is done: %s", len(wanted) - number, len(wanted),
                     _key({name: value for name, value in trial.items() if not isinstance(value, dict)}))
            if on_progress is not None:
                on_progress(len(wanted) - number, len(wanted))
    return [(trial, known[_key(trial)]) for trial in todo]


def _alone() -> None:
    """A worker has one thread, and leaves Ctrl-C to the process that waits for it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _key(trial: Trial) -> str:
    return json.dumps(trial, sort_keys=True)


def _read(store: Path) -> dict[str, Result]:
    """What the store holds; a last line that was cut off in the middle is taken out of the file."""
    if not store.exists():
        return {}
    text = store.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_whole(store, whole)
    try:
        return {_key(entry["trial"]): entry["result"] for entry in map(json.loads, whole.splitlines())}
    except (ValueError, KeyError, TypeError):
        raise StudyError(f"{store} is not a file of trials and results; delete it, or keep the study's results elsewhere") from None


def record(path: Path | str, table: Sequence[dict[str, Any]], minutes: float, command: str | None = None) -> None:
    """Write what a study came to, with what is needed to repeat it."""
    about = {"command": command or invocation(), "commit": commit(), "date": date.today().isoformat(),
             "machine": machine(), "minutes": round(minutes, 1), "rows": list(table)}
    Path(path).write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def commit() -> str | None:
    """The commit of the working folder, where it is one of git's."""
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def invocation() -> str:
    """The command of this process, quoted so that it can be pasted."""
    own = Path(sys.argv[0]).name in ("rookery", "__main__.py")
    return shlex.join(["rookery", *sys.argv[1:]] if own else ["python", *sys.argv])


def machine() -> str:
    """
    >>> "cores" in machine()
    True
    """
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
