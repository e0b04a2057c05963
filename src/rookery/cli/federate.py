"""The command `rookery federate`: a run over real sites, or over a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .commands import train
from .console import app
from .manners import AsJson, LogLevel, Quiet, Seed, Sets, Voice, overrides, speaking

if TYPE_CHECKING:
    from ..studies.description import Description
    from ..studies.job import Job

WAYS = ("grpc", "ray")


@app.command()
def federate(file: Annotated[Path, typer.Argument(help="the description of the run")],
             on: Annotated[str, typer.Option("--on", help="grpc: real sites; ray: a simulation on a cluster")] = "grpc",
             sites: Annotated[Path | None, typer.Option("--sites", help="of grpc: the file that says where the sites are")] = None,
             set: Sets = None,
             out: Annotated[Path | None, typer.Option("--out", help="the run's folder; default runs/NAME-OF-FILE")] = None,
             resume: Annotated[bool, typer.Option("--resume", help="go on with the run in that folder")] = False,
             minutes: Annotated[float | None, typer.Option("--minutes", help="stop after so long; --resume goes on")] = None,
             label: Annotated[str, typer.Option("--label", help="what reports call it; default: the folder's name")] = "",
             seed: Seed = None, quiet: Quiet = False, as_json: AsJson = False, log_level: LogLevel = "warning") -> None:
    """Train as a file describes over rows that stay at real sites; the run's folder has the same files as that of a simulation."""
    from ..studies.description import read

    with speaking("federate", quiet, as_json, log_level) as voice:
        if on not in WAYS:
            raise ConfigError(f"--on is one of {', '.join(WAYS)}; got {on!r}")
        if (sites is None) == (on == "grpc"):
            raise ConfigError("--sites federation.toml says where real sites are, and goes with --on grpc; it was "
                              + ("left out" if sites is None else f"given beside --on {on}"))
        folder = out or Path("runs") / file.stem
        config = read(file, [*overrides(set, seed), *(['federation.engine="ray"'] if on == "ray" else [])])
        if sites is None:
            train(voice, config, folder, label, resume, minutes, [])
        else:
            _over_grpc(voice, config, sites, folder, label, resume, minutes)


def _over_grpc(voice: Voice, config: Description, sites: Path, folder: Path, label: str, resume: bool, minutes: float | None) -> None:
    from ..engines.grpc import Grpc
    from ..studies.federating import Meeting, build_at, name_of

    meeting = Meeting.read(sites)
    with Grpc(meeting.sites, meeting.certificates) as transport:
        def make(config: Description, folder: Path) -> Job:
            return build_at(config, meeting.reached(transport, name_of(folder, resume)))

        train(voice, config, folder, label, resume, minutes, [], make)
