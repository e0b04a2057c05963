"""`fit`: the goal's method beside its opponents on the same budget, the best of them kept, and what it is worth said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError
from ..studies.build import Prepared
from ..studies.cells import CELLS, tally
from ..studies.compare import own_digest
from ..studies.description import Description, describe, parse
from ..studies.federating import KEPT, Reached
from ..studies.trials import Workers
from ..training.files import LOCK, held, write_whole
from .bench import ANY, Folder, least_rows, one_thread, prepared, tallied
from .elsewhere import Rows, SitesFolder, refuse_closed
from .finishing import finish
from .goals import Goal, Setting, find_goal, methods
from .measures import about_sites, lacking_group, make_measure
from .options import Fitted, Options, Ready
from .pilot import Pilot, plan
from .search import LRS, SPLITS, Clock, Search
from .training import Tree, tree_of

ROUNDS = 100  # of a trial, where no time is given
PLAN = "plan.json"
USED = ("data", "sites", "model", "federation", "decision")  # sections of a description
Tell = Callable[[str, float, float], None]
"""What is under way, and the seconds of work done and expected in all."""


def ready(base: Tree, goal: str, folder: Path, options: Options, reached: Reached | None = None) -> Ready:
    """Read the rows, and see which methods can be tried on them; `reached` are the real sites that have them, where there are such."""
    found = find_goal(goal)
    if found.name == "fair" and options.sensitive is None:
        raise ConfigError("the goal fair is about groups: name their column as sensitive, such as sex")
    elsewhere = None if reached is None else Rows(reached, options.sensitive, by_site=found.name == "worst_site")
    base, config, rows = _read(found, base, options, elsewhere)
    if reached is not None or config.federation.engine == "ray":
        options = replace(options, jobs=1)  # sites are asked by one process, and a cluster is busy with one trial
    columns = rows.data.fields if elsewhere is None else rows.test.names
    measure = make_measure(found, columns, len(rows.test.classes), rows.test.names, options.sensitive, kind=options.kind, gap=options.gap,
                           max_fpr=options.max_fpr)
    lacking = lacking_group(measure, tallied(rows, measure).train)
    if lacking is not None:
        name = rows.test.names[options.sensitive or ""][lacking]
        rows = _noted(rows, f"The group {name!r} of {options.sensitive!r} has no training rows by which to compare it ({options.kind}), so "
                      "that no method trains for fairness: join it with another group, or leave its rows out.")
    layers = 2 if config.model.describe().get("name", "mlp") != "linear" else 1
    bench = (Folder(folder, measure, base, own_digest(config), options.jobs) if elsewhere is None else
             SitesFolder(folder, measure, base, own_digest(config, here=False), elsewhere))
    least = least_rows(bench, SPLITS) if found.name == "personal" else options.batch
    setting = Setting(options.rounds or ROUNDS, options.local_steps, options.batch, len(rows.test.classes), len(rows.data.names), least,
                      layers, options.sensitive, CELLS if options.sensitive else "labels", options.kind, options.max_fpr,
                      options.group_thresholds, lacking is None, config.federation.min_batch)
    if found.name == "personal" and setting.adapts_on < setting.min_batch:
        rows = _noted(rows, f"No method learns a start for the sites to adapt: its steps would be on {setting.adapts_on} rows, as the "
                      f"smallest site trains on {least}, and federation.min_batch is {setting.min_batch}. Join small sites.")
    start = Ready(found, base, options, rows, measure, bench, setting, methods(found, setting))
    if reached is not None:
        refuse_closed(rows, found.name, [tree_of(base, method, setting, LRS[0], start.seed) for method in start.methods if method.trains])
    return start


def _read(goal: Goal, base: Tree, options: Options, elsewhere: Rows | None) -> tuple[Tree, Description, Prepared]:
    """The sections that all methods have in common, what they say, and the rows with those of the first split held out."""
    unsaid, own = not base.get("sites"), {section: dict(table) for section, table in base.items()}
    if goal.name == "personal" and elsewhere is None:  # a site without training rows has no model to test
        own |= {"data": {**own["data"], "test_at": "sites"}, "sites": {"least": 2, **own.get("sites", {})}}
    config = parse({**ANY, **own})
    if config.federation.only_sums and goal.name in ("worst_site", "personal"):
        raise ConfigError(f"the goal {goal.name} needs scores of single sites, and federation.only_sums keeps them from the server: leave "
                          "it out, or take a goal about all rows, such as accuracy")
    own = {section: table for section, table in describe(config).items() if section in USED}
    if elsewhere is not None:
        return own, config, _told_of(goal, config, options, elsewhere(own, 0))
    digest = own_digest(config)
    rows = prepared(json.dumps(own), 0, options.sensitive, digest)
    spread = config.sites.found(rows.test, config.data.site).how not in ("column", "pooled")
    if goal.name == "worst_site" and spread and config.data.test_at == "server":  # whose rows would be of no site
        own["data"] = {**own["data"], "test_at": "sites"}
        rows = prepared(json.dumps(own), 0, options.sensitive, digest)
    if spread and unsaid:
        rows = _noted(rows, f"The rows name no sites: they are spread over {len(rows.data.names)} that are made up. Name the column of the "
                      "sites, or write sites.how = \"pooled\" for one.")
    return own, config, _told_of(goal, config, options, rows)


def _told_of(goal: Goal, config: Description, options: Options, rows: Prepared) -> Prepared:
    """The rows with what there is to say of sites; a label that is named as sensitive is refused."""
    label = config.data.label if rows.test.rows is None else rows.test.rows.schema.label
    if options.sensitive is not None and options.sensitive == label:
        raise ConfigError(f"the sensitive column is that of groups, and {label!r} is what is to be predicted: name another one")
    if goal.name != "worst_site":
        return rows
    found = tally(rows.data, len(rows.test.classes)) if rows.tally is None else rows.tally
    few = about_sites(found.held, len(rows.data.names))
    return rows if few is None else _noted(rows, few)


def _noted(rows: Prepared, said: str) -> Prepared:
    """The rows with one more note about them."""
    return replace(rows, notes=(*rows.notes, said))


def expected(start: Ready, needed: bool = True) -> Pilot:
    """How long the fit will take, and with how many rounds, from a few rounds of every method; where that is not `needed`, perhaps 0."""
    minutes = None if start.options.rounds else start.options.minutes
    with one_thread():
        return plan(start.bench, start.base, start.methods, start.setting, start.seed, minutes, len(LRS), start.options.jobs, needed)


def fit(base: Tree, goal: str, folder: Path | str, options: Options | None = None, tell: Tell | None = None,
        on_ready: Callable[[Ready], None] | None = None, reached: Reached | None = None) -> Fitted:
    """Train the goal's method beside its opponents, keep what is best on the sites' validation rows, and say what it is worth.

    base:   sections [data], [sites], [model], [federation] and [decision] of a description
    goal:   one of `GOALS`
    folder: where the bundle, the runs and what a report is made of go; a fit that was cut off there goes on
    tell:   told what is under way, and how many seconds of work are done, of how many
    on_ready: told what is known before the first trial
    reached: real sites, which have the rows: trials train there, one after the other
    """
    folder, options, clock = Path(folder), options or Options(), Clock((options or Options()).minutes)
    with held(folder):
        start = ready(base, goal, folder, options, reached)
        if on_ready is not None:
            on_ready(start)
        pilot = _plan(start, folder)
        start = replace(start, setting=replace(start.setting, rounds=pilot.rounds),
                        methods=methods(start.goal, replace(start.setting, rounds=pilot.rounds)))
        start.bench.jobs = pilot.jobs
        done = 0.0

        def made(what: str, seconds: float) -> None:
            nonlocal done
            done += seconds
            if tell is not None:
                tell(what, done, max(pilot.seconds, done))

        search = Search(start.bench, start.base, start.methods, start.setting, start.seed, clock=clock, tell=made)
        with Workers(pilot.jobs) as start.bench.workers:
            chosen = search.run()
        return finish(start, chosen, folder, clock, made)


def _plan(start: Ready, folder: Path) -> Pilot:
    """The number of rounds: that of a fit that was cut off here, or a new one."""
    told = {"base": start.base, "goal": start.goal.name, "options": vars(start.options) | {"jobs": None}, "data": start.bench.digest}
    if (folder / PLAN).exists():
        try:
            there = json.loads((folder / PLAN).read_text(encoding="utf-8"))
            before, pilot = {key: there[key] for key in told}, Pilot(**there["pilot"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{folder / PLAN} is not whole: delete {folder}, or take another folder with --out") from None
        if before != json.loads(json.dumps(told)):
            raise ConfigError(f"{folder} holds a fit of other rows, another goal or other options; take another folder with --out")
        return replace(pilot, jobs=start.options.jobs or pilot.jobs)
    if any(path.name not in (LOCK, KEPT) for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds something else than a fit; take another folder with --out")
    pilot = expected(start, needed=start.options.rounds is None)
    write_whole(folder / PLAN, json.dumps({**told, "pilot": vars(pilot)}, indent=1))
    return pilot
