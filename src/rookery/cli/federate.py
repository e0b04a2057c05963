"""The command `rookery federate`: a run over real sites, or over a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .commands import announce, foretell, say_bundle, train
from .console import app
from .flare import begin, follow, over_flare, refuse_dry
from .manners import AsJson, DryRun, LogLevel, Quiet, Seed, Sets, Voice, overrides, refuse_past, speaking

if TYPE_CHECKING:
    from ..studies.description import Description
    from ..studies.job import Job

WAYS = ("grpc", "flare", "ray")


@app.command()
def federate(file: Annotated[Path, typer.Argument(help="the description of the run")],
             on: Annotated[str, typer.Option("--on", help="grpc: real sites; flare: those of a project of NVIDIA FLARE; ray: a simulation "
                                                           "on a cluster")] = "grpc",
             sites: Annotated[Path | None, typer.Option("--sites", help="of grpc and flare: the file of where the sites are")] = None,
             set: Sets = None,
             out: Annotated[Path | None, typer.Option("--out", help="the run's folder; default runs/NAME-OF-FILE")] = None,
             resume: Annotated[bool, typer.Option("--resume", help="go on with the run in that folder")] = False,
             minutes: Annotated[float | None, typer.Option("--minutes", help="stop after so long; --resume goes on")] = None,
             label: Annotated[str, typer.Option("--label", help="what reports call it; default: the folder's name")] = "",
             seed: Seed = None, dry_run: DryRun = False, quiet: Quiet = False, as_json: AsJson = False,
             log_level: LogLevel = "warning") -> None:
    """Train as a file describes over rows that stay at real sites; the run's folder has the same files as that of a simulation."""
    from ..studies.description import read

    with speaking("federate", quiet, as_json, log_level) as voice:
        if on not in WAYS:
            raise ConfigError(f"--on is one of {', '.join(WAYS)}; got {on!r}")
        if (sites is None) == (on != "ray"):
            raise ConfigError("--sites federation.toml says where real sites are, and goes with --on grpc or flare; it was "
                              + ("left out" if sites is None else f"given beside --on {on}"))
        refuse_past(minutes)
        folder = out or Path("runs") / file.stem
        config = read(file, [*overrides(set, seed), *(['federation.engine="ray"'] if on == "ray" else [])])
        if dry_run:
            _foretell(voice, config, on, sites, minutes)
        elif sites is None:
            train(voice, config, folder, label, resume, minutes, [])
        elif on == "flare":
            _over_flare(voice, config, sites, folder, label, resume, minutes)
        else:
            _over_grpc(voice, config, sites, folder, label, resume, minutes)


def _over_grpc(voice: Voice, config: Description, sites: Path, folder: Path, label: str, resume: bool, minutes: float | None) -> None:
    from ..studies.federating import Meeting, build_at, name_of

    meeting = Meeting.read(sites)
    with meeting.transport() as transport:
        def make(config: Description, folder: Path) -> Job:
            return build_at(config, meeting.reached(transport, name_of(folder, resume)))

        train(voice, config, folder, label, resume, minutes, [], make)


def _foretell(voice: Voice, config: Description, on: str, sites: Path | None, minutes: float | None) -> None:
    """What a run would be, without it; real sites are asked what they have and allow, under a name of which nothing is kept here."""
    if on == "flare":
        refuse_dry()
    if sites is None:
        foretell(voice, config, minutes)
        return
    from ..studies.federating import Meeting, build_at, passing_name

    meeting = Meeting.read(sites)
    with meeting.transport() as transport:
        announce(voice, build_at(config, meeting.reached(transport, passing_name())))
    voice.say("nothing was trained, nor written here", dry_run=True)


def _over_flare(voice: Voice, config: Description, sites: Path, folder: Path, label: str, resume: bool, minutes: float | None) -> None:
    """Submit the run as a job of FLARE's, follow it, and fetch what it left; Ctrl-C aborts the job, and --resume submits another."""
    from ..studies.encoding import agreed_schema
    from ..studies.federating import words_of
    from ..training.keeper import refuse_taken

    meeting = over_flare(sites)
    if config.data.schema is not None:
        agreed_schema(config)  # mistakes are said before FLARE is asked
    if not resume:
        refuse_taken(folder)
    words = words_of(config, meeting, label=label or folder.name, minutes=minutes)
    job = begin(voice, meeting, "rookery.studies.federating:serve", words, folder, resume)
    follow(voice, job, "round", lambda bar, progress: bar(progress["round"], progress["rounds"]),
           f"--resume goes on with the run of {folder} in another job")
    job.fetch(folder)
    say_bundle(voice, folder)
    voice.say(f"see {folder}, or write a page about it: rookery report {folder}", folder=str(folder))
