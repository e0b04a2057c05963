"""A fit over real sites: trials that train there, and test rows that are scored there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import Refused, RookeryError
from ..federation.federation import Federation
from ..federation.placed import Placed
from ..metrics.histogram import auc, average_precision, partial_auc
from ..metrics.resampling import decided_cells, resampled, resampled_by_client
from ..studies.agreement import count_rows
from ..studies.build import Prepared, assemble, plain_federation
from ..studies.description import parse
from ..studies.evaluation import Evaluation, settle
from ..studies.federating import AtSites, Reached, prepare_at
from ..studies.job import Job
from .bench import ANY, Folder, made_trial
from .measures import METRICS, Measure
from .options import Ready
from .references import alone
from .training import Outcome, Tree
from .verdict import DRAWS, Tested, ends

ALONE = "every site alone"


class SitesFolder(Folder):
    """Trials one after the other at real sites, whose rows this process never has."""

    def __init__(self, folder: Path, measure: Measure, base: Tree, digest: str, rows: Rows) -> None:
        super().__init__(folder, measure, base, digest, jobs=1)
        self._rows = rows

    def rows(self, split: int) -> Prepared:
        return self._rows(self.base, split)

    def work(self) -> Any:
        return partial(made_trial, lambda trial: self.rows(trial["split"]))


class Rows:
    """The rows of sites with those of a split held out; they agree once on each, and say how many they have.

    sensitive: the column of the groups, where there is one
    by_site:   whether every site says how many validation rows of each class it has, or all of them together
    """

    def __init__(self, reached: Reached, sensitive: str | None = None, by_site: bool = False) -> None:
        self.reached, self.sensitive, self.by_site, self._kept = reached, sensitive, by_site, lru_cache(8)(self._prepared)

    def __call__(self, base: Tree, split: int) -> Prepared:
        return self._kept(json.dumps(base), split)

    def _prepared(self, base: str, split: int) -> Prepared:
        config = parse({**ANY, **json.loads(base)})
        rows = prepare_at(config, self.reached, split)
        groups = len(rows.test.names.get(self.sensitive or "", ()))
        fed, field = plain_federation(config, rows), self.sensitive if groups else None
        found = count_rows(fed, len(rows.test.classes), field, max(1, groups), self.by_site)
        rows.setup.absorb(fed.ledger)
        assert isinstance(rows.elsewhere, AtSites)
        told = replace(rows.elsewhere.terms, sensitive=field, cells=found.cells if field else ())
        return replace(rows, tally=found, elsewhere=replace(rows.elsewhere, terms=told))


def refuse_closed(rows: Prepared, goal: str, trees: Sequence[Tree]) -> None:
    """Ask the sites for everything that a fit will train before anything is trained; where one refuses, say what all of it is."""
    try:
        for tree in trees:
            assemble(parse(tree), rows)
    except Refused as error:
        needed = {section: sorted({tree.get(section, {}).get("name", "cross_entropy") for tree in trees})
                  for section in ("algorithm", "objective")}
        beside = {"cross_entropy"} | {"balanced_cross_entropy" for tree in trees if tree.get("warm_up", {}).get("rounds")}
        needed["objective"] = sorted({*needed["objective"], *beside})  # by which rows are counted, and what goes before
        raise Refused(f"{error}. A fit for {goal} needs, under [may] at every site, algorithms = {json.dumps(needed['algorithm'])}, "
                      f"objectives = {json.dumps(needed['objective'])} and others = [\"evaluation\", \"set-up\"]") from None


def tested_at_sites(start: Ready, chosen: Sequence[tuple[str, Outcome, Callable[[], Job]]]) -> Tested:
    """Every model's value on the sites' test rows, with intervals and differences from rows that are drawn anew where they are.

    chosen: labels, outcomes, and what makes a job of each
    """
    found: dict[str, NDArray[np.float64]] = {}
    for label, outcome, made in chosen:
        job = made()
        settle(job.fed, job.model, outcome.vector, job.description.algorithm)
        fed, x = (job.fed, outcome.vector) if job.personal is None else (job.personal.fed, job.personal.adapted(outcome.vector))
        found[label] = _values(start, job.evaluation, fed, x, outcome.margins)
    return _tested(found)


def alone_at_sites(start: Ready, job: Job, lrs: tuple[float, ...]) -> tuple[Tested, str]:
    """The reference line of sites that train alone, whose models stay where they are, and what there is to say of it; it may be empty."""
    setting = start.setting
    if len(start.rows.data.names) < 2 or job.fed.only_sums:
        return Tested({}, {}), ""
    try:
        fed = plain_federation(job.description, start.rows)
        own, lr = alone(fed, job, setting.rounds, setting.local_steps, setting.batch, lrs)
        found = _values(start, job.evaluation, fed, own, start.measure.margins_at(fed, own))
    except RookeryError as error:  # what was trained is worth more than this line
        return Tested({}, {}), f"There is no line of {ALONE}: {error}"
    return _tested({ALONE: found}), f"each site's rows by its own model, step size {lr:g}"


def _tested(found: Mapping[str, NDArray[np.float64]]) -> Tested:
    draws = {label: own[1:] for label, own in found.items()}
    return Tested({label: (float(own[0]), *ends(draws[label])) for label, own in found.items()}, draws)


def _values(start: Ready, evaluation: Evaluation, fed: Federation[Any], x: Tensor | Placed,
            margins: Sequence[float]) -> NDArray[np.float64]:
    """The goal's value on the sites' test rows, by one model or by each site's own, and that of every draw of them."""
    measure, draws, seed = start.measure, DRAWS, start.seed
    match measure.goal.name:
        case "auc" | "ap" | "partial_auc":
            value = evaluation.at_clients(fed, x, "test").get(METRICS[measure.goal.name], float("nan"))
            metric = {"auc": auc, "ap": average_precision}.get(measure.goal.name, partial(partial_auc, max_fpr=measure.max_fpr))
            each = [metric(sums) for sums in resampled(fed, x, "test", measure.classes, draws, seed)]
            return np.asarray([value, *(float("nan") if one is None else one.value for one in each)])
        case "worst_site":
            return measure.of_sites(resampled_by_client(fed, x, "test", measure.classes, draws, seed))
        case name:
            field, groups = (measure.sensitive, measure.groups) if name in ("worst_group", "fair") else (None, 1)
            cells = decided_cells(fed, x, "test", measure.classes, field=field, groups=groups, margins=margins, draws=draws, seed=seed)
            return np.asarray([measure.of_cells(one) for one in cells.numpy()])
