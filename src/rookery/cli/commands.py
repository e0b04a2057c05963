"""The command `rookery run`. Needs the extra `cli`; each command imports what it needs itself."""

from __future__ import annotations

import json
import shlex
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import CheckpointError
from .console import app, complain
from .exits import DIVERGED, INTERRUPTED
from .manners import AsJson, DryRun, LogLevel, Quiet, Seed, Sets, Voice, duration, overrides, refuse_past, speaking

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..studies.description import Description
    from ..studies.forecast import Forecast
    from ..studies.job import Job
    from ..training.result import Run


@app.command()
def run(file: Annotated[Path, typer.Argument(help="the description of the run")],
        set: Sets = None,
        out: Annotated[Path | None, typer.Option("--out", help="the run's folder; default runs/NAME-OF-FILE")] = None,
        resume: Annotated[bool, typer.Option("--resume", help="go on with the run in that folder")] = False,
        minutes: Annotated[float | None, typer.Option("--minutes", help="stop after so long; --resume goes on for as long again")] = None,
        label: Annotated[str, typer.Option("--label", help="what reports call it; default: the folder's name")] = "",
        track: Annotated[list[str] | None, typer.Option("--track", help="tensorboard or mlflow; needs the extra tracking")] = None,
        seed: Seed = None, dry_run: DryRun = False, quiet: Quiet = False, as_json: AsJson = False, log_level: LogLevel = "warning") -> None:
    """Train as a file describes; history, checkpoints and predictions go to the run's folder."""
    from ..studies.description import read

    with speaking("run", quiet, as_json, log_level) as voice:
        config = read(file, overrides(set, seed))
        refuse_past(minutes)
        if dry_run:
            foretell(voice, config, minutes)
            return
        train(voice, config, out or Path("runs") / file.stem, label, resume, minutes, [(name, file.stem) for name in track or ()])


def train(voice: Voice, config: Description, folder: Path, label: str, resume: bool, minutes: float | None, track: list[tuple[str, str]],
          make: Callable[[Description, Path], Job] | None = None) -> None:
    """Train a description in a folder, by a job that is built here or made elsewhere, and say what came of it."""
    from ..training.keeper import CHECKPOINT

    if resume and not any((folder / name).exists() for name in (CHECKPOINT, "description.json")):
        raise CheckpointError(f"there is no run in {folder} to go on with; leave --resume out to begin one, or name its folder with --out")
    try:
        job, result = _train(voice, config, folder, label or folder.name, resume, minutes, track, make)
    except KeyboardInterrupt:
        saved = (folder / CHECKPOINT).exists()
        voice.say(folder=str(folder), reason="interrupted")
        complain(f"interrupted; --resume goes on from the last checkpoint in {folder}" if saved else
                 "interrupted before there was anything to keep; the same command begins anew")
        raise typer.Exit(INTERRUPTED) from None
    _say_result(voice, job, result, folder)
    if result.reason == "diverged":
        kept = f"; {folder / CHECKPOINT} holds the run as it was before" if (folder / CHECKPOINT).exists() else ""
        complain(f"diverged: {result.failure}{kept}")
        raise typer.Exit(DIVERGED)
    if result.reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _train(voice: Voice, config: Description, folder: Path, label: str, resume: bool, minutes: float | None,
           track: list[tuple[str, str]], make: Callable[[Description, Path], Job] | None = None) -> tuple[Job, Run]:
    from ..studies.build import build
    from ..training import tracking
    from ..training.files import held
    from ..training.keeper import refuse_taken

    with held(folder):
        if not resume:
            refuse_taken(folder)
        trackers = [tracking.tracker(name, folder, run) for name, run in track]
        job = (make or build)(config, folder)
        announce(voice, job)
        with voice.progress("round") as bar:
            metric = config.objective.declared.metric

            def tell(row: dict[str, float]) -> None:
                bar.beside = f"{metric} {row.get(f'test {metric}', row.get(f'validation {metric}', nan)):.3f}"

            return job, job.run(folder, label, resume, minutes, callbacks=[tell, *trackers], bundle=True, on_progress=bar)


def announce(voice: Voice, job: Job) -> None:
    """What is going to be trained, and what that will send."""
    config, data = job.description, job.fed.data
    voice.say(_about(job), algorithm=job.algorithm_name, objective=config.objective.name, data=config.data.source,
              engine=job.fed.engine.name, sites=len(data.names), classes=len(job.test.classes), parameters=job.model.size,
              rows={"training": int(data.sizes.sum()), "validation": int(job.held.sizes.sum()), "test": job.tested})
    for note in job.notes:
        voice.warn(note)
    if (coming := job.forecast()) is not None:
        voice.say(_coming(coming), forecast={"exchanges": coming.exchanges, "bytes": coming.up + coming.down,
                                             "how": coming.how.strip() or "exactly"})


def foretell(voice: Voice, config: Description, minutes: float | None) -> None:
    """What a run would be, without it."""
    from ..studies.build import build
    from ..studies.pace import seconds

    job = build(config)
    announce(voice, job)
    rows = voice.facts["rows"]
    voice.say(f"{voice.facts['classes']} classes; {rows['training']} rows to train on, {rows['validation']} for validation and "
              f"{rows['test']} for the test")
    took = seconds(job)
    if took is None:
        complain("diverged in the first rounds: lower the learning rate")
        raise typer.Exit(DIVERGED)
    took = took if minutes is None else min(took, 60 * minutes)
    voice.say(f"it would take about {duration(took)}; nothing was written", dry_run=True, minutes=took / 60)


def _say_result(voice: Voice, job: Job, result: Run, folder: Path) -> None:
    """The last scores, the bundle, and what it cost."""
    from ..studies.scores import BESIDE

    last = result.history[-1] if result.history else {}
    voice.say(folder=str(folder), reason=result.reason, failure=result.failure, rounds=result.rounds, seconds=result.seconds,
              scores={name: value for name, value in last.items() if name.startswith(("validation ", "test "))})
    if last:
        # how exact a metric from a histogram is stands in the history; the models that sites adapted have lines of their own
        names = [name.removeprefix("test ") for name in last if name.startswith("test ") and not name.endswith(BESIDE)
                 and not name.startswith("test adapted ")]
        table = Table("", *names, title=f"after {last['round']:.0f} rounds ({result.reason})")
        for which in ("validation", "validation adapted", "test", "test adapted"):
            if any(f"{which} {name}" in last for name in names):
                table.add_row(which, *(f"{last[f'{which} {name}']:.4f}" if f"{which} {name}" in last else "–" for name in names))
        voice.say(table)
    say_bundle(voice, folder)
    account = job.fed.ledger["train"]
    crossed = account.bytes_up + account.bytes_down
    voice.say(f"{account.exchanges} exchanges, {crossed / 1e6:.2f} MB, {account.samples} samples; see {folder}, or write a page about it: "
              f"rookery report {shlex.quote(str(folder))}", exchanges=account.exchanges, bytes=crossed, samples=account.samples)


def say_bundle(voice: Voice, folder: Path) -> None:
    """What the bundle of a run is worth on test rows, and how to use it."""
    from ..bundle.bundle import ABOUT
    from ..studies.assessment import sentences
    from ..studies.leaving import BUNDLE

    if not (folder / BUNDLE / ABOUT).exists():
        voice.say(bundle=None)
        return
    told = json.loads((folder / BUNDLE / ABOUT).read_text(encoding="utf-8"))
    for sentence in sentences(told["found"], told["threshold"]):
        voice.say(sentence)
    for warning in told["found"]["warnings"]:
        voice.warn(warning)
    voice.say(f"the model: rookery predict {shlex.quote(str(folder / BUNDLE))} new.csv -o out.csv", bundle=str(folder / BUNDLE),
              threshold=told["threshold"])


def _about(job: Job) -> str:
    config, sizes = job.description, job.fed.data.sizes
    return (f"{job.algorithm_name} on {config.objective.name} of {config.data.source}: {len(sizes)} sites of "
            f"{sizes.min()}–{sizes.max()} rows, {job.model.size} parameters, engine {job.fed.engine.name}" + _unscored(job))


def _unscored(job: Job) -> str:
    """Which sites have too few rows of a split to say anything about them."""
    least, said = job.fed.setting.min_batch, ""
    for split, rows in job.fed.data.splits.items():
        silent = len(job.fed.data.names) - (0 if rows is None else int((rows.sizes >= least).sum()))
        if silent and least > 1:
            said += f"\n{silent} of {len(job.fed.data.names)} sites have fewer than min_batch = {least} {split} rows, which are not scored"
    return said


def _coming(coming: Forecast) -> str:
    from ..report.traffic import size

    up, down = map(size, coming.each)
    return (f"to come: {coming.how}{coming.exchanges} exchanges, {(coming.up + coming.down) / 1e6:.2f} MB in all; in a round a client "
            f"sends {up} and receives {down}")
