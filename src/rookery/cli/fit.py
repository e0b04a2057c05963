"""The command `rookery fit`: from a table and a goal to a model in use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..errors import ConfigError
from .commands import say_bundle
from .console import app, complain, escaped
from .exits import INTERRUPTED
from .flare import begin, follow, over_flare, refuse_dry
from .manners import AsJson, Bar, DryRun, LogLevel, Quiet, Seed, Sets, Voice, duration, overrides, speaking

if TYPE_CHECKING:
    from ..fitting.options import Fitted, Options, Ready
    from ..studies.federating import Reached

WAYS = ("grpc", "flare", "ray")
WORK = "seconds of work"


@app.command()
def fit(rows: Annotated[list[str], typer.Argument(help="a CSV or Parquet file, several of one site each, an NPZ file, a folder of "
                                                       "pictures, a data set by name, or a description")],
        goal: Annotated[str, typer.Option("--goal", help="accuracy, auc, ap, partial_auc, worst_site, worst_group, fair or personal")],
        label: Annotated[str | None, typer.Option("--label", help="the column to predict")] = None,
        site: Annotated[str | None, typer.Option("--site", help="the column that says whose a row is")] = None,
        group: Annotated[str | None, typer.Option("--group", help="a column whose rows stay together, such as the patient")] = None,
        positive: Annotated[list[str] | None, typer.Option("--positive", help="the class that is looked for; may be repeated")] = None,
        sensitive: Annotated[str | None, typer.Option("--sensitive", help="the column of the groups of fair and worst_group")] = None,
        minutes: Annotated[float | None, typer.Option("--minutes", help="in all; the rounds follow from it. Default: 100 rounds")] = None,
        rounds: Annotated[int | None, typer.Option("--rounds", help="of every trial, instead of what the minutes allow")] = None,
        net: Annotated[str | None, typer.Option("--net", help="mlp, linear, lenet, …; `rookery list` has them")] = None,
        kind: Annotated[str, typer.Option("--kind", help="of fair: equality of opportunity, equalised odds or demographic parity")]
        = "equality of opportunity",
        gap: Annotated[float, typer.Option("--gap", help="of fair: how far the groups' rates may lie apart")] = 0.05,
        max_fpr: Annotated[float, typer.Option("--max-fpr", help="of partial_auc: false positive rates up to this")] = 0.1,
        pool: Annotated[bool, typer.Option("--pool/--no-pool", help="whether rows may be pooled for reference lines")] = True,
        group_thresholds: Annotated[bool, typer.Option("--group-thresholds/--no-group-thresholds", help="of fair and worst_group: whether "
                                                       "decisions may depend on the sensitive column")] = True,
        set: Sets = None,
        out: Annotated[Path | None, typer.Option("--out", help="the fit's folder; a fit that was cut off there goes on")] = None,
        sites: Annotated[Path | None, typer.Option("--sites", help="the file that says where real sites are, which have the rows; see "
                                                                    "rookery federate")] = None,
        on: Annotated[str, typer.Option("--on", help="of --sites: grpc, or flare for those of a project of NVIDIA FLARE; without: ray, a "
                                                           "simulation on a cluster")] = "grpc",
        jobs: Annotated[int | None, typer.Option("--jobs", help="processes at a time; default: one per core")] = None,
        seed: Seed = None, dry_run: DryRun = False, quiet: Quiet = False, as_json: AsJson = False, log_level: LogLevel = "warning") -> None:
    """Train a goal's method beside its opponents, keep the best, calibrate it, and say whether nesting paid: bundle and report."""
    from ..fitting import Options
    from ..fitting.fit import expected, ready

    with speaking("fit", quiet, as_json, log_level) as voice:
        base = _description(rows, {"label": label, "site": site, "group": group, "positive": tuple(positive or ())}, sensitive, net)
        base = _overridden(base, [*overrides(set, seed), *(['federation.engine="ray"'] if on == "ray" else [])])
        options = Options(minutes=minutes, rounds=rounds, sensitive=sensitive, kind=kind, gap=gap, max_fpr=max_fpr, pool=pool,
                          group_thresholds=group_thresholds, jobs=jobs)
        folder = out or Path("runs") / f"fit-{Path(rows[0]).stem}-{goal}"
        _refuse_mixed(sites, on, rows[0], jobs, dry_run)
        if dry_run and sites is not None:
            with _reached(sites, folder, dry=True) as reached:
                _foretell(voice, ready(base, goal, folder, options, reached))
            return
        if dry_run:
            start = ready(base, goal, folder, options)
            _announce(voice, start)
            pilot = expected(start)
            voice.say(f"{len(start.methods)} methods, {pilot.rounds} rounds a trial in {pilot.jobs} processes: it would take about "
                      f"{duration(pilot.seconds)}; nothing was written", dry_run=True, rounds=pilot.rounds, minutes=pilot.seconds / 60)
            _say_traffic(voice, start, pilot.rounds)
            return
        done = (_over_flare(voice, base, goal, options, sites, folder) if sites is not None and on == "flare" else
                _here(voice, base, goal, options, sites, folder))
        _say(voice, done.told)
        voice.say(folder=str(folder), fit=done.told)
        say_bundle(voice, folder)
        page = _page(done.runs, folder / "report.html", done.told)
        voice.say(f"the page: {page}", page=str(page))


def _refuse_mixed(sites: Path | None, on: str, first: str, jobs: int | None, dry_run: bool) -> None:
    """Words that do not go together."""
    if on not in WAYS:
        raise ConfigError(f"--on is one of {', '.join(WAYS)}; got {on!r}")
    if on == "flare" and sites is None:
        raise ConfigError("--on flare goes with --sites federation.toml, which says where the sites are; it was left out")
    if on == "ray" and sites is not None:
        raise ConfigError("--on ray is a simulation on a cluster, and --sites names real sites: leave one of them out")
    if on == "ray" and jobs not in (None, 1):
        raise ConfigError(f"a fit on a cluster makes one trial after the other, each over all of the cluster: leave out --jobs {jobs}")
    if sites is not None and not first.endswith(".toml"):
        raise ConfigError("--sites goes with a description, whose [data] names a schema: write rookery fit fit.toml --sites "
                          f"federation.toml; got {first}")
    if dry_run and on == "flare":
        refuse_dry()


def _here(voice: Voice, base: dict[str, Any], goal: str, options: Options, sites: Path | None, folder: Path) -> Fitted:
    """Make the fit in this process, over its own rows or those of sites."""
    from ..fitting import fit as fit_all

    try:
        with voice.progress(WORK) as bar:
            def tell(what: str, done: float, number: float) -> None:
                bar.beside = what
                bar(round(done), round(number))

            with _reached(sites, folder) as reached:
                return fit_all(base, goal, folder, options, tell, lambda start: _announce(voice, start), reached)
    except KeyboardInterrupt:
        voice.say(folder=str(folder), reason="interrupted")
        complain(f"interrupted; the same command goes on with what is in {folder}")
        raise typer.Exit(INTERRUPTED) from None


def _over_flare(voice: Voice, base: dict[str, Any], goal: str, options: Options, sites: Path, folder: Path) -> Fitted:
    """Give FLARE the fit as a job, follow it, and fetch what it left; the same command goes on with it in another job."""
    from ..engines.flare import RECORD
    from ..fitting.serving import MADE, fit_words, fitted
    from ..studies.federating import KEPT
    from ..training.files import write_whole

    meeting = over_flare(sites)
    words = fit_words(base, goal, options, meeting)
    if folder.exists() and not (folder / RECORD).exists() and any(path.name != KEPT for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds something else than a fit over FLARE; take another folder with --out")
    job = begin(voice, meeting, "rookery.fitting.serving:serve", words, folder, (folder / KEPT).exists())
    write_whole(folder / RECORD, json.dumps({"job": job.id}))

    def told(bar: Bar, progress: dict[str, Any]) -> None:
        bar.beside = progress["what"]
        bar(round(progress["done"]), round(progress["of"]))

    follow(voice, job, WORK, told, f"the same command goes on with the fit of {folder} in another job")
    job.fetch(folder, MADE)
    return fitted(folder)


@contextmanager
def _reached(sites: Path | None, folder: Path, dry: bool = False) -> Iterator[Reached | None]:
    """Real sites, where a file says where they are; a fit that was cut off goes on under the name that they know it by.

    dry: under a name of which nothing is kept
    """
    if sites is None:
        yield None
        return
    from ..studies.federating import KEPT, Meeting, name_of, passing_name

    meeting = Meeting.read(sites)
    with meeting.transport() as transport:
        yield meeting.reached(transport, passing_name() if dry else name_of(folder, (folder / KEPT).exists()))


def _foretell(voice: Voice, start: Ready) -> None:
    """What a fit over real sites would do; they were asked what they have and allow, and nothing is trained to time it."""
    from dataclasses import replace

    from ..fitting.search import LRS, SPLITS
    from ..studies.build import stand_in

    _announce(voice, start)
    rounds, minutes = start.setting.rounds, start.options.minutes if start.options.rounds is None else None
    trials = (len(LRS) + SPLITS - 1) * sum(method.trains for method in start.methods)
    begins = "" if minutes is None else f"; how many {minutes:g} minutes allow is found out from the first ones"
    voice.say(f"{len(start.methods)} methods, {', '.join(method.label for method in start.methods)}: {trials} trials or more, one after "
              f"the other, of {rounds} rounds{begins}; nothing was trained, nor written here", dry_run=True, rounds=rounds, trials=trials)
    _say_traffic(voice, replace(start, rows=stand_in(start.rows, start.measure.sensitive)), rounds)


def _description(rows: list[str], columns: dict[str, Any], sensitive: str | None, net: str | None) -> dict[str, Any]:
    """The sections that the arguments stand for."""
    from ..data.readers import DATASETS, ROWS
    from ..data.readers.sites import name_of
    from ..fitting.fit import USED
    from ..studies.description import read_tree

    first, given = rows[0], {key: value for key, value in columns.items() if value}
    tree: dict[str, Any]
    if first.endswith(".toml"):
        tree = {section: table for section, table in read_tree(first).items() if section in USED}
        tree["data"] = {**tree.get("data", {}), **given}
    elif name_of(first) is not None or first in DATASETS or first in ROWS:
        tree = {"data": {"name": first, **given}}
    elif first.lower().endswith(".npz"):
        tree = {"data": {"npz": first, **given}}
    elif Path(first).is_dir():
        tree = {"data": {"images": first, **given}}
    else:
        if "label" not in given:
            raise ConfigError(f"say which column of {first} is to be predicted, with --label")
        tree = {"data": {"table": first if len(rows) == 1 else tuple(rows), **given}}
    if sensitive is not None and {"table", "csv", "schema"} & tree["data"].keys():
        tree["data"]["keep"] = tuple(dict.fromkeys((*tree["data"].get("keep", ()), sensitive)))
    if len(rows) > 1 and "table" not in tree["data"]:
        raise ConfigError(f"several files are those of one table, one for each site; {first} is something else")
    if net is not None:
        tree["model"] = {**tree.get("model", {}), "name": net}
    return tree


def _overridden(tree: dict[str, Any], said: list[str]) -> dict[str, Any]:
    from ..fitting.fit import USED
    from ..studies.description import override
    from ..studies.values import nearest

    for one in said:
        override(tree, one)
    other = [section for section in tree if section not in USED]
    if other:
        raise ConfigError(f"--set is for entries of {', '.join(USED)}; {nearest(other[0], USED)}It was given [{other[0]}], and how to "
                          "train a fit finds out by itself")
    return tree


def _announce(voice: Voice, start: Ready) -> None:
    """What is there to train on, before anything is."""
    from ..studies.job import number_tested

    sizes, held, classes = start.rows.data.sizes, start.rows.data.split("validation"), start.rows.test.classes
    tested = number_tested(start.rows.data, start.rows.test)
    voice.say(f"goal {start.goal.name}: {start.goal.metric}, {start.goal.about}. {int(sizes.sum())} rows to train on at {len(sizes)} sites "
              f"of {sizes.min()}–{sizes.max()}, {0 if held is None else int(held.sizes.sum())} for validation, {tested} for "
              f"the test; classes {', '.join(classes)}", goal=start.goal.name, sites=len(sizes), classes=list(classes),
              rows={"training": int(sizes.sum()), "validation": 0 if held is None else int(held.sizes.sum()), "test": tested},
              methods=[method.label for method in start.methods])
    for note in start.rows.notes:
        voice.warn(note)


def _say_traffic(voice: Voice, start: Ready, rounds: int) -> None:
    """What the methods would send, each once."""
    from dataclasses import replace

    from ..fitting.training import tree_of
    from ..studies.build import assemble
    from ..studies.description import parse

    setting, sent, exchanges = replace(start.setting, rounds=rounds), 0, 0
    for method in start.methods:
        if method.trains:
            coming = assemble(parse(tree_of(start.base, method, setting, 0.1, start.seed)), start.rows).forecast()
            sent, exchanges = (sent, exchanges) if coming is None else (sent + coming.up + coming.down, exchanges + coming.exchanges)
    voice.say(f"one trial of every method would send {sent / 1e6:.2f} MB over a network, in {exchanges} exchanges", bytes=sent,
              exchanges=exchanges)


def _say(voice: Voice, told: dict[str, Any]) -> None:
    table = Table("", "step size", "validation", f"test {told['metric']}", "more than FedAvg",
                  title=f"{told['where']}; {told['rounds']} rounds; 95 % intervals of the test rows")
    for row in told["rows"]:
        name = f"[bold]{escaped(row['label'])}, kept[/bold]" if row["kept"] else escaped(row["label"])
        lr = row["setting"].get("algorithm.lr")
        table.add_row(name, "–" if lr is None else f"{lr:g}", "–" if row["validation"] is None else f"{row['validation']:.4f}",
                      _interval(row["test"]), _interval(row["difference"], "+"))
    voice.say(table)
    voice.say(told["sentence"])
    for note in told["notes"]:
        voice.say(note)


def _interval(found: list[float | None] | None, sign: str = "") -> str:
    if found is None or found[0] is None:
        return "–"
    ends = "" if None in found else f" ({found[1]:{sign}.3f} to {found[2]:{sign}.3f})"
    return f"{found[0]:{sign}.4f}{ends}"


def _page(folders: list[Path], out: Path, told: dict[str, Any]) -> Path:
    from .. import report as reports

    title = f"A model for {told['metric']}"
    return reports.write([reports.load(folder) for folder in folders], out, title, fit=told)
