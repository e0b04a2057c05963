"""What commands have in common that give NVIDIA FLARE a job, and wait for it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from ..errors import ConfigError
from .console import complain
from .exits import INTERRUPTED
from .manners import Bar, Voice

if TYPE_CHECKING:
    from ..engines.flare import Job
    from ..studies.federating import Meeting


def refuse_dry() -> NoReturn:
    raise ConfigError("--dry-run asks sites at once, and those of --on flare answer to jobs only: leave one of the two out")


def over_flare(sites: Path) -> Meeting:
    """The file of where sites are, with the section that FLARE needs."""
    from ..studies.federating import Meeting

    meeting = Meeting.read(sites)
    if meeting.flare is None:
        raise ConfigError(f"{sites} needs the section [flare], with kit, the folder of an administrator's startup kit, and user below it")
    return meeting


def begin(voice: Voice, meeting: Meeting, entry: str, words: dict[str, Any], folder: Path, resume: bool) -> Job:
    """Give FLARE the job of a folder, whose name its runs keep from one job to the next."""
    from ..engines.flare import submit
    from ..engines.flare_admin import production
    from ..studies.federating import name_of

    assert meeting.flare is not None
    env = production(meeting.beside / meeting.flare.kit, meeting.flare.user)
    seen = None if meeting.flare.runs is None else meeting.beside / meeting.flare.runs
    run = name_of(folder, resume)
    job = submit(entry, words, list(meeting.sites), env, run=run, runs=seen)
    voice.say(f"job {job.id} of FLARE, for run {run}", job=job.id, run=run)
    return job


def follow(voice: Voice, job: Job, what: str, told: Callable[[Bar, dict[str, Any]], None], again: str) -> None:
    """Show how far a job has come until it ends; Ctrl-C aborts it, and `again` says how to go on with the run."""
    pressed: list[int] = []

    def press(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    def look() -> None:
        if pressed:  # code of FLARE's that catches everything may have caught it
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    try:
        with voice.progress(what) as bar:
            job.wait(told=lambda progress: told(bar, progress), look=look)
    except KeyboardInterrupt:
        job.abort()
        complain(f"the job was aborted; {again}")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, before)
