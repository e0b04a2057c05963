"""The command line: `rookery run FILE.toml`, `rookery list`, `rookery show NAME`. Needs the extra `cli`."""

from __future__ import annotations

import inspect
import json
import platform
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from . import __version__
from .config import algorithms, nearest, read
from .errors import RookeryError
from .job import assemble
from .run import run as run_loop

INTERRUPTED, DIVERGED, WRONG = 130, 3, 2  # exit codes

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Federated nested optimisation: train from a description in TOML.")
console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True, width=None if sys.stderr.isatty() else 200)


@app.command()
def run(file: Annotated[Path, typer.Argument(help="the description of the run")],
        set: Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over what the file says")] = None,
        out: Annotated[Path | None, typer.Option("--out", help="the run's folder; default runs/NAME-OF-FILE")] = None,
        resume: Annotated[bool, typer.Option("--resume", help="go on with the run in that folder")] = False,
        minutes: Annotated[float | None, typer.Option("--minutes", help="stop after so long; --resume goes on")] = None) -> None:
    """Train as a file describes; history and checkpoints go to the run's folder."""
    config = read(file, set or ())
    folder = out or Path("runs") / file.stem
    job = assemble(config)
    sizes = job.fed.data.sizes
    console.print(f"{config.algorithm.title} on {config.objective.name} of {config.data.name}: {len(sizes)} sites of "
                  f"{sizes.min()}–{sizes.max()} rows, {job.model.size} parameters, engine {job.fed.engine.name}")
    bar = Progress(TextColumn("round {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.fields[score]}"),
                   TimeRemainingColumn(), console=console, disable=not console.is_terminal, transient=True)
    with bar:
        task = bar.add_task("run", total=config.run.rounds, score="")
        result = run_loop(config.algorithm, job.fed, job.start(), config.run.rounds, job.scores, config.run.every,
                          folder=folder, resume=resume, save_every=config.run.save_every,
                          minutes=minutes if minutes is not None else config.run.minutes,
                          callbacks=[lambda row: bar.update(task, completed=row["round"], score=f"accuracy {row['test accuracy']:.3f}")])
    about = {"command": " ".join(sys.argv), "rookery": __version__, "torch": torch.__version__, "python": platform.python_version(),
             "reason": result.reason, "trouble": result.trouble, "rounds": result.rounds, "seconds": result.seconds,
             "ledger": job.fed.ledger.to_json()}
    (folder / "about.json").write_text(json.dumps(about, indent=1))
    if result.history:
        table = Table("", "loss", "accuracy", "worst class", title=f"after {result.rounds} rounds ({result.reason})")
        last = result.history[-1]
        for part in ("validation", "test"):
            table.add_row(part, *(f"{last[f'{part} {name}']:.4f}" for name in ("loss", "accuracy", "worst class")))
        console.print(table)
    account = job.fed.ledger["train"]
    megabytes = (account.bytes_up + account.bytes_down) / 1e6
    console.print(f"{account.exchanges} exchanges, {megabytes:.2f} MB, {account.samples} samples; see {folder}")
    if result.reason == "diverged":
        errors.print(f"diverged: {result.trouble}; the last good state is in {folder / 'state.ckpt'}", style="red", markup=False)
        raise typer.Exit(DIVERGED)
    if result.reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


@app.command(name="list")
def list_algorithms() -> None:
    """The algorithms, as their papers print them."""
    table = Table("algorithm", "solves", "what it does")
    for title, cls in sorted(algorithms().items(), key=lambda item: item[0].lower()):
        table.add_row(title, cls.solves.__name__, (inspect.getdoc(cls) or "").split("\n")[0])
    console.print(table)


@app.command()
def show(name: Annotated[str, typer.Argument(help="an algorithm, as `rookery list` prints it")]) -> None:
    """An algorithm's formula, paper and hyper-parameters."""
    known = algorithms()
    found = {title.lower(): cls for title, cls in known.items()}.get(name.lower())
    if found is None:
        raise RookeryError(f"there is no algorithm {name!r}; {nearest(name, list(known))}`rookery list` prints them")
    console.print(found.title, style="bold")
    console.print(inspect.getdoc(found) or "", markup=False)
    console.print()
    console.print((inspect.getdoc(inspect.getmodule(found)) or "").strip(), style="dim", markup=False)
    table = Table("hyper-parameter", "type", "default")
    for f in fields(found):  # type: ignore[arg-type]
        table.add_row(f.name, str(f.type), "needed" if f.default is MISSING else str(f.default))
    console.print(table)


def main() -> None:
    """Errors on purpose become one sentence; anything else is a fault and shows its trace."""
    try:
        app()
    except RookeryError as error:
        errors.print(f"rookery: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(WRONG)
