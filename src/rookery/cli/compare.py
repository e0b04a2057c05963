"""The commands `rookery compare` and `report`."""

from __future__ import annotations

import tomllib
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..errors import ConfigError
from .console import app, complain, console, escaped
from .exits import DIVERGED, INTERRUPTED
from .manners import AsJson, DryRun, LogLevel, Quiet, Sets, Voice, duration, speaking

if TYPE_CHECKING:
    from ..studies.compare import Entry


@app.command()
def compare(files: Annotated[list[Path], typer.Argument(help="descriptions; the first is what the others are compared with")],
            seeds: Annotated[int, typer.Option("--seeds", help="runs of each, on the same seeds")] = 5,
            grid: Annotated[list[str] | None, typer.Option("--grid", help="section.key=v1,v2,…: tried alike for every file")] = None,
            by: Annotated[str, typer.Option("--by", help="the validation metric that chooses from the grid")] = "validation loss",
            tuning_seeds: Annotated[int, typer.Option("--tuning-seeds", help="further seeds that the choice is made on")] = 1,
            set: Sets = None,
            opponents: Annotated[bool, typer.Option("--opponents/--no-opponents", help="compare with FedAvg, class weights and balanced "
                                                    "batches as well, on the rows, net and rounds of the first file")] = True,
            out: Annotated[Path, typer.Option("--out", help="the comparison's folder; done runs in it are kept")] = Path("runs/compare"),
            title: Annotated[str, typer.Option("--title", help="of the page")] = "",
            intro: Annotated[str, typer.Option("--intro", help="a sentence or two under the title")] = "",
            jobs: Annotated[int | None, typer.Option("--jobs", help="processes at a time; default: one per core")] = None,
            seed: Annotated[int, typer.Option("--seed", help="the first of the seeds")] = 0,
            dry_run: DryRun = False, quiet: Quiet = False, as_json: AsJson = False, log_level: LogLevel = "warning") -> None:
    """Run several descriptions on the same seeds, tuned alike: mean, spread, a paired test, and a page."""
    from ..studies.compare import check
    from ..studies.compare import compare as compare_all
    from ..studies.description import read, read_tree
    from ..studies.opponents import opponents as opponents_of

    with speaking("compare", quiet, as_json, log_level) as voice:
        labels = [file.stem for file in files]
        if len(labels) > len({*labels}):
            raise ConfigError(f"files are told apart by their names without ending, but two are called {max(labels, key=labels.count)!r}")
        configs = {file.stem: read(file, set or ()) for file in files}
        trees = {file.stem: read_tree(file, set or ()) for file in files}
        choices = [_choice(text) for text in grid or ()]
        tried = dict(choices)
        if len(tried) < len(choices):
            raise ConfigError(f"a grid names each entry once; write all values of {max(tried, key=[key for key, _ in choices].count)} in "
                              "one")
        if opponents:
            others = opponents_of(configs)
            lacking = [key for key in tried if _lacks(others, key)]
            if lacking:
                voice.say(f"no opponents are compared with: FedAvg has no {lacking[0]} to choose from the grid")
            elif others and any(by.removeprefix("validation ") in config.objective.declared.metrics for config in configs.values()):
                voice.say(f"no opponents are compared with: they have no {by!r}, which is a metric of the objective's own")
            else:
                trees |= others
                labels = list(trees)
        if dry_run:
            check(trees, seeds, tried, by, tuning_seeds, seed)
            _foretell(voice, trees, seeds, tried, tuning_seeds, jobs)
            return
        try:
            with voice.progress("runs") as bar:
                entries = compare_all(trees, seeds, out, tried, by, tuning_seeds, jobs, bar, seed)
        except KeyboardInterrupt:
            voice.say(folder=str(out), reason="interrupted")
            complain(f"interrupted; the same command goes on with what is in {out}")
            raise typer.Exit(INTERRUPTED) from None
        voice.say(_comparison(entries, seeds), folder=str(out), seeds=list(range(seed, seed + seeds)), methods=[_facts(e) for e in entries])
        for entry in entries:
            for key, value in entry.chosen.items():
                if len(tried[key]) > 2 and value in (tried[key][0], tried[key][-1]):
                    voice.say(f"{entry.label} chose {key} = {value}, at the edge of the grid: a wider one may suit it better")
        folders = [out / label / f"seed-{one}" for label in labels for one in range(seed, seed + seeds)]
        page = _page(folders, out / "report.html", title, intro)
        voice.say(f"the page: {page}", page=str(page))
        if any("diverged" in entry.ends for entry in entries):
            raise typer.Exit(DIVERGED)


def _lacks(trees: dict[str, Any], key: str) -> bool:
    """Whether opponents have no such entry, whatever its value."""
    from dataclasses import fields

    from ..algorithms import FedAvg

    section, _, entry = key.partition(".")
    own = {"algorithm": {f.name for f in fields(FedAvg)} | {"epochs"}, "objective": set[str]()}
    return bool(trees) and section in own and entry not in own[section]


def _facts(entry: Entry) -> dict[str, Any]:
    """What a comparison says of a method, as plain values."""
    return {"label": entry.label, "chosen": entry.chosen, "ends": entry.ends,
            "scores": {name: {"mean": spread.mean, "std": spread.std} for name, spread in entry.spreads.items()},
            "against_first": {name: {"difference": test.mean, "p": test.p} for name, test in entry.against_first.items()}}


def _foretell(voice: Voice, trees: dict[str, Any], seeds: int, grid: dict[str, list[Any]], tuning_seeds: int, jobs: int | None) -> None:
    """What a comparison would take, without it."""
    from ..studies.plan import plan

    coming = plan(trees, seeds, grid, tuning_seeds, jobs)
    sent = "what they send is not known" if coming.exchanges is None or coming.bytes is None else (
        f"{coming.how}{coming.exchanges} exchanges and {coming.bytes / 1e6:.2f} MB in all")
    tuned = f", {coming.runs - len(trees) * seeds} of them to choose from the grid" if grid else ""
    voice.say(f"{coming.runs} runs{tuned}: {sent}", runs=coming.runs, processes=coming.processes,
              forecast={"exchanges": coming.exchanges, "bytes": coming.bytes, "how": coming.how.strip() or "exactly"})
    if coming.seconds is None:
        complain("one of the descriptions diverges in its first rounds, whatever the values of the grid: lower the learning rate")
        raise typer.Exit(DIVERGED)
    voice.say(f"in {coming.processes} processes they would take about {duration(coming.seconds)}; nothing was written", dry_run=True,
              minutes=coming.seconds / 60)


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
    console.print(f"the page: {_page(folders, out, title, intro)}", markup=False)


def _page(folders: list[Path], out: Path, title: str, intro: str) -> Path:
    from .. import report as reports

    return reports.write([reports.load(folder) for folder in folders], out, title or "Report of runs", intro)
