"""The commands `rookery run`, `compare` and `report`. Needs the extra `cli`; each imports what it needs itself."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..errors import CheckpointError, ConfigError
from .console import app, complain, console, errors, escaped
from .exits import DIVERGED, INTERRUPTED

if TYPE_CHECKING:
    from ..studies.compare import Entry
    from ..studies.forecast import Forecast
    from ..studies.job import Job

Sets = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over what the file says")]


@app.command()
def run(file: Annotated[Path, typer.Argument(help="the description of the run")],
        set: Sets = None,
        out: Annotated[Path | None, typer.Option("--out", help="the run's folder; default runs/NAME-OF-FILE")] = None,
        resume: Annotated[bool, typer.Option("--resume", help="go on with the run in that folder")] = False,
        minutes: Annotated[float | None, typer.Option("--minutes", help="stop after so long; --resume goes on for as long again")] = None,
        label: Annotated[str, typer.Option("--label", help="what reports call it; default: the folder's name")] = "",
        track: Annotated[list[str] | None, typer.Option("--track", help="tensorboard or mlflow; needs the extra tracking")] = None) -> None:
    """Train as a file describes; history, checkpoints and predictions go to the run's folder."""
    from ..studies.build import build
    from ..studies.description import read
    from ..studies.scores import BESIDE
    from ..training import tracking
    from ..training.files import held
    from ..training.keeper import CHECKPOINT, refuse_taken

    config = read(file, set or ())
    if minutes is not None and not minutes >= 0:
        raise ConfigError(f"--minutes must not be negative; got {minutes}")
    folder = out or Path("runs") / file.stem
    if resume and not any((folder / name).exists() for name in (CHECKPOINT, "description.json")):
        raise CheckpointError(f"there is no run in {folder} to go on with; leave --resume out to begin one, or name its folder with --out")
    try:
        with held(folder):
            if not resume:
                refuse_taken(folder)
            trackers = [tracking.tracker(name, folder, file.stem) for name in track or ()]
            job = build(config, folder)
            console.print(_about(job), markup=False)
            for note in job.notes:
                errors.print(f"! {note}", style="yellow", markup=False, soft_wrap=True)
            if (coming := job.forecast()) is not None:
                console.print(_coming(coming), markup=False)
            with _bar("round", "{task.fields[score]}") as told:
                metric = config.objective.declared.metric

                def tell(row: dict[str, float]) -> None:
                    score = row.get(f"test {metric}", row.get(f"validation {metric}", nan))
                    told(int(row["round"]), config.run.rounds, f"{metric} {score:.3f}")

                result = job.run(folder, label or folder.name, resume, minutes, callbacks=[tell, *trackers], bundle=True)
    except KeyboardInterrupt:
        saved = (folder / CHECKPOINT).exists()
        complain(f"interrupted; --resume goes on from the last checkpoint in {folder}" if saved else
                 "interrupted before there was anything to keep; the same command begins anew")
        raise typer.Exit(INTERRUPTED) from None
    if result.history:
        last = result.history[-1]
        # how exact a metric from a histogram is stands in the history; the models that sites adapted have lines of their own
        names = [name.removeprefix("test ") for name in last if name.startswith("test ") and not name.endswith(BESIDE)
                 and not name.startswith("test adapted ")]
        table = Table("", *names, title=f"after {last['round']:.0f} rounds ({result.reason})")
        for which in ("validation", "validation adapted", "test", "test adapted"):
            if any(f"{which} {name}" in last for name in names):
                table.add_row(which, *(f"{last[f'{which} {name}']:.4f}" if f"{which} {name}" in last else "–" for name in names))
        console.print(table)
    _say_bundle(folder)
    account = job.fed.ledger["train"]
    megabytes = (account.bytes_up + account.bytes_down) / 1e6
    console.print(f"{account.exchanges} exchanges, {megabytes:.2f} MB, {account.samples} samples; see {folder}, "
                  f"or write a page about it: rookery report {shlex.quote(str(folder))}", markup=False, soft_wrap=True)
    if result.reason == "diverged":
        kept = f"; {folder / CHECKPOINT} holds the run as it was before" if (folder / CHECKPOINT).exists() else ""
        complain(f"diverged: {result.failure}{kept}")
        raise typer.Exit(DIVERGED)
    if result.reason == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _say_bundle(folder: Path) -> None:
    """What the bundle of a run is worth on test rows, and how to use it."""
    from ..bundle.bundle import ABOUT
    from ..studies.assessment import sentences
    from ..studies.job import BUNDLE

    if not (folder / BUNDLE / ABOUT).exists():
        return
    told = json.loads((folder / BUNDLE / ABOUT).read_text(encoding="utf-8"))
    for sentence in sentences(told["found"], told["threshold"]):
        console.print(sentence, markup=False, soft_wrap=True)
    for warning in told["found"]["warnings"]:
        errors.print(f"! {warning}", style="yellow", markup=False, soft_wrap=True)
    console.print(f"the model: rookery predict {shlex.quote(str(folder / BUNDLE))} new.csv -o out.csv", markup=False, soft_wrap=True)


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


@app.command()
def compare(files: Annotated[list[Path], typer.Argument(help="descriptions; the first is what the others are compared with")],
            seeds: Annotated[int, typer.Option("--seeds", help="runs of each, on the same seeds")] = 5,
            grid: Annotated[list[str] | None, typer.Option("--grid", help="section.key=v1,v2,…: tried alike for every file")] = None,
            by: Annotated[str, typer.Option("--by", help="the validation metric that chooses from the grid")] = "validation loss",
            tuning_seeds: Annotated[int, typer.Option("--tuning-seeds", help="further seeds that the choice is made on")] = 1,
            set: Sets = None,
            out: Annotated[Path, typer.Option("--out", help="the comparison's folder; done runs in it are kept")] = Path("runs/compare"),
            title: Annotated[str, typer.Option("--title", help="of the page")] = "",
            intro: Annotated[str, typer.Option("--intro", help="a sentence or two under the title")] = "",
            jobs: Annotated[int | None, typer.Option("--jobs", help="processes at a time; default: one per core")] = None) -> None:
    """Run several descriptions on the same seeds, tuned alike: mean, spread, a paired test, and a page."""
    from ..studies.compare import compare as compare_all
    from ..studies.description import read, read_tree

    labels = [file.stem for file in files]
    if len(labels) > len({*labels}):
        raise ConfigError(f"files are told apart by their names without ending, but two are called {max(labels, key=labels.count)!r}")
    for file in files:
        read(file, set or ())  # what is beside it is then known by its name
    trees = {file.stem: read_tree(file, set or ()) for file in files}
    choices = [_choice(text) for text in grid or ()]
    tried = dict(choices)
    if len(tried) < len(choices):
        raise ConfigError(f"a grid names each entry once; write all values of {max(tried, key=[key for key, _ in choices].count)} in one")
    try:
        with _bar("runs") as told:
            entries = compare_all(trees, seeds, out, tried, by, tuning_seeds, jobs, told)
    except KeyboardInterrupt:
        errors.print(f"interrupted; the same command goes on with what is in {out}", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    console.print(_comparison(entries, seeds))
    for entry in entries:
        for key, value in entry.chosen.items():
            if len(tried[key]) > 2 and value in (tried[key][0], tried[key][-1]):
                console.print(f"{entry.label} chose {key} = {value}, at the edge of the grid: a wider one may suit it better", markup=False)
    _page([out / label / f"seed-{seed}" for label in labels for seed in range(seeds)], out / "report.html", title, intro)
    if any("diverged" in entry.ends for entry in entries):
        raise typer.Exit(DIVERGED)


def _choice(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    if not equals or "." not in key:
        raise ConfigError(f"a grid reads section.key=v1,v2,…, as in algorithm.lr=0.1,0.3; got {text!r}")
    if key.strip() == "federation.seed" or not values.strip():
        raise ConfigError(f"a grid has values to choose from, and seeds are not chosen; got {text!r}")
    try:
        return key.strip(), list(tomllib.loads(f"v = [{values}]")["v"])
    except tomllib.TOMLDecodeError:
        return key.strip(), [_value(value.strip()) for value in values.split(",")]


def _value(text: str) -> Any:
    """A value of TOML; a bare word is a text."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _comparison(entries: list[Entry], seeds: int) -> Table:
    metrics = list(dict.fromkeys(name for entry in entries for name in entry.spreads))
    tuned = any(entry.chosen for entry in entries)
    table = Table("", *(["chosen"] if tuned else []), *(name.removeprefix("test ") for name in metrics),
                  title=f"test rows, mean ± standard deviation over {seeds} seeds; p: paired t-test against {entries[0].label}"
                  if seeds > 1 else "test rows, one seed: nothing can be said about spread")
    leaders = {}
    for name in metrics:
        found = {entry.label: entry.spreads[name].mean for entry in entries if name in entry.spreads and "diverged" not in entry.ends}
        way = next(entry.larger_is_better[name] for entry in entries if name in entry.larger_is_better)
        leaders[name] = (max if way else min)(found, key=lambda label: found[label]) if found and way is not None else None
    for entry in entries:
        cells = []
        for name in metrics:
            cell = str(entry.spreads[name]) if name in entry.spreads else "–"
            test = entry.against_first.get(name)
            p = "" if test is None else "  p –" if isnan(test.p) else f"  p {test.p:.2g}"
            cells.append(f"[bold]{cell}[/bold]{p}" if leaders[name] == entry.label else cell + p)
        chosen = ", ".join(f"{key.partition('.')[2]} {value:g}" if isinstance(value, float) else f"{key.partition('.')[2]} {value}"
                           for key, value in entry.chosen.items())
        ends = "".join(f" ({number} {reason})" for reason, number in entry.ends.items() if reason != "rounds")
        table.add_row(escaped(entry.label + ends), *([chosen] if tuned else []), *cells)
    return table


@app.command()
def report(folders: Annotated[list[Path], typer.Argument(help="run folders; runs of the same label are seeds of one method")],
           out: Annotated[Path, typer.Option("--out", help="the page")] = Path("report.html"),
           title: Annotated[str, typer.Option("--title", help="of the page")] = "",
           intro: Annotated[str, typer.Option("--intro", help="a sentence or two under the title")] = "") -> None:
    """Write one self-contained HTML page about runs."""
    _page(folders, out, title, intro)


def _page(folders: list[Path], out: Path, title: str, intro: str) -> None:
    from .. import report as reports

    words = {name: text for name, text in (("title", title), ("intro", intro)) if text}
    console.print(f"the page: {reports.write([reports.load(folder) for folder in folders], out, **words)}", markup=False)


@contextmanager
def _bar(what: str, beside: str = "") -> Iterator[Callable[..., None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(beside), TimeRemainingColumn(), console=console,
                   disable=not console.is_terminal, transient=True)
    with bar:
        task = bar.add_task(what, score="")
        yield lambda done, number, score="": bar.update(task, completed=done, total=number, score=score)
