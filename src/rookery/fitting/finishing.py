"""After the search: every method's model on the test rows, the reference lines, the kept model's bundle, and the verdict."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..studies.build import assemble
from ..studies.description import parse
from ..studies.evaluation import settle
from ..studies.job import Job, number_tested
from ..studies.leaving import leave
from ..studies.scores import row_scores
from ..training.files import write_whole
from ..training.result import Run
from .elsewhere import ALONE, alone_at_sites, tested_at_sites
from .goals import FIRST
from .measures import Scored
from .options import Fitted, Ready
from .references import collected_alone, of_owners, pooled
from .search import LRS, Chosen, Clock, best_of
from .verdict import Tested, bootstrapped, sentence

FIT = "fit.json"


@dataclass(frozen=True, eq=False)
class _TestRows:
    """The test rows, wherever they are, as all models are scored on them; `units` numbers what a bootstrap draws whole."""

    inputs: Tensor
    labels: Tensor
    site: NDArray[np.int64]
    group: NDArray[np.int64]
    units: NDArray[np.int64] | None
    where: str

    def scored(self, outputs: Tensor, margins: tuple[float, ...] = ()) -> Scored:
        return Scored.of(outputs, self.labels, self.site, self.group, margins)


def _test(start: Ready) -> _TestRows:
    later, table = start.rows.data.splits.get("test"), start.rows.test
    fields = table.fields if later is None else later.fields
    zero = np.zeros(len(fields["labels"]), dtype=np.int64)
    column = _site_column(start)
    site = (np.repeat(np.arange(len(later.names)), later.sizes) if later is not None else
            zero if column is None else fields[column].numpy())
    group = zero if start.measure.sensitive is None else fields[start.measure.sensitive].cpu().numpy()
    units = fields["group"].cpu().numpy() if "group" in fields else None
    where = "at the sites" if later is not None else "at the server"
    return _TestRows(fields["inputs"].cpu(), fields["labels"].cpu(), site, group, units, f"{len(zero)} test rows {where}")


def _site_column(start: Ready) -> str | None:
    """The column of the server's test rows that names the sites of the federation; None where they are of no site."""
    named = start.base.get("sites", {}).get("column", "site")
    known = set(start.rows.test.names.get(named, ())) if named in start.rows.test.fields else set()
    return named if known >= set(start.rows.data.names) else None


def finish(start: Ready, chosen: list[Chosen], folder: Path, clock: Clock, made: Callable[[str, float], None]) -> Fitted:
    kept, began, notes = best_of(chosen), time.perf_counter(), list[str]()
    # made where they are used: methods that differ in nothing that sites are told of are one run there, which one after the other may ask
    jobs = {own.label: partial(_job, start, own) for own in chosen}
    if start.rows.elsewhere is not None:
        tested = tested_at_sites(start, [(own.label, own.outcomes[0], jobs[own.label]) for own in chosen])
        number = number_tested(start.rows.data, start.rows.test)
        line, said_of_it = alone_at_sites(start, jobs[FIRST](), LRS)
        tested, references = tested.joined(line), dict.fromkeys(line.values, said_of_it)
        notes += [said_of_it] if said_of_it and not references else []
        notes += ["There are no lines of models that need all rows in one place: the rows stay at the sites."] if start.options.pool else []
        where = f"{number} test rows at the sites"
    else:
        rows = _test(start)
        scored = {own.label: rows.scored(_outputs(jobs[own.label](), own, rows, start), own.outcomes[0].margins) for own in chosen}
        lines = _references(start, jobs[FIRST](), rows)
        tested = bootstrapped(start.measure, scored | {label: own for label, (own, _) in lines.items()}, rows.units, start.seed)
        references = {label: note for label, (_, note) in lines.items()}
        number, where = len(rows.labels), rows.where
    nested = [own for own in chosen if own.method.kind == "nested"]
    others = [own for own in chosen if own.method.kind == "opponent"]
    best_nested = best_of(nested).label if nested else None
    said = sentence(start.goal.metric, best_nested, best_of(others).label, kept.label, tested, number)
    runs = [folder]
    _leave(start, jobs[kept.label](), kept, folder, bundle=True)
    for own in chosen:
        if own.method.trains and own is not kept:
            runs.append(method_folder(folder, own.label))
            _leave(start, jobs[own.label](), own, runs[-1], bundle=False)
    made("what it is worth", time.perf_counter() - began)
    told = {"goal": start.goal.name, "metric": start.goal.metric, "about": start.goal.about, "larger": True, "kept": kept.label,
            "sentence": said, "where": where, "rounds": start.setting.rounds, "splits": len(kept.outcomes),
            "rows": [_row(own, tested, own is kept) for own in chosen]
            + [_reference(label, tested, note) for label, note in references.items()],
            "minutes": round((time.monotonic() - clock.began) / 60, 3), "notes": [*_notes(start, kept), *notes]}
    write_whole(folder / FIT, json.dumps(told, indent=1, ensure_ascii=False))
    return Fitted(folder, told, runs)


def _job(start: Ready, own: Chosen) -> Job:
    return assemble(parse(own.trials[0].tree), start.rows)


def _outputs(job: Job, own: Chosen, rows: _TestRows, start: Ready) -> Tensor:
    vector, later = own.outcomes[0].vector, start.rows.data.splits.get("test")
    settle(job.fed, job.model, vector, job.description.algorithm)
    if job.personal is None or later is None:
        return job.predict(vector, rows.inputs)
    return of_owners(job, job.personal.fed.collect(job.personal.adapted(vector)), later)


def _references(start: Ready, job: Job, rows: _TestRows) -> dict[str, tuple[Scored, str]]:
    """Lines to compare with that are never kept: sites alone, and models of pooled rows."""
    found: dict[str, tuple[Scored, str]] = {}
    names, later, held = start.rows.data.names, start.rows.data.splits.get("test"), job.held
    if (later is not None or _site_column(start) is not None) and len(names) > 1 and not job.fed.only_sums:
        vectors, lr = collected_alone(job, start.setting.rounds, start.setting.local_steps, start.setting.batch, LRS)
        outputs = of_owners(job, vectors, later) if later is not None else _by_site(start, job, vectors, rows)
        margins = start.measure.margins(of_owners(job, vectors, held), held)
        found[ALONE] = (rows.scored(outputs, margins), f"each site's rows by its own model, step size {lr:g}")
    if start.options.pool:
        balanced = start.goal.name in ("worst_group", "fair")
        for label, outputs_of in pooled(start.rows, start.seed, balanced).items():
            margins = start.measure.margins(outputs_of(held.fields["inputs"]), held)
            found[label] = (rows.scored(outputs_of(rows.inputs), margins), "needs all rows in one place")
    return found


def _by_site(start: Ready, job: Job, vectors: Tensor, rows: _TestRows) -> Tensor:
    """Outputs of the server's test rows, each by the model of the site that it is of; of a site without one, by the mean of all models."""
    names, outputs = start.rows.test.names[_site_column(start) or ""], torch.zeros(len(rows.labels), len(start.rows.test.classes))
    for place in np.unique(rows.site):
        own = torch.from_numpy(rows.site == place)
        known = names[place] in job.fed.data.names
        vector = vectors[job.fed.data.names.index(names[place])] if known else vectors.mean(0)
        outputs[own] = job.predict(vector, rows.inputs[own])
    return outputs


def _leave(start: Ready, job: Job, own: Chosen, folder: Path, bundle: bool) -> None:
    """What a report reads, as a run leaves it."""
    outcome = own.outcomes[0]
    folder.mkdir(parents=True, exist_ok=True)
    if outcome.ledger:
        job.fed.ledger.load(outcome.ledger)
    last = outcome.history[-1] if outcome.history else {"round": 0.0}
    if "test" not in job.fed.data.splits:
        fields = job.test.fields
        found = row_scores(job.predict(outcome.vector, fields["inputs"]), fields["labels"], job.description.run.max_fpr)
        last = last | {f"test {name}": value for name, value in found.items()}
    history = [*outcome.history[:-1], last]
    write_whole(folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in history))
    names = start.rows.test.names.get(start.measure.sensitive or "", ())
    margins: dict[str, float] | float | None = None
    if own.method.by_group:
        margins = dict(zip(names, outcome.margins, strict=True))
    elif outcome.margins:
        margins = outcome.margins[0]
    elif start.goal.name in ("accuracy", "personal") and start.measure.classes == 2 and "decision" not in start.base:
        margins = 0.0  # the likelier class, as the goal was scored
    about = {"tuning": {"metric": f"validation {start.goal.metric}", "chosen": {"algorithm.lr": own.lr},
                        "tried": [{"values": {"algorithm.lr": lr}, "score": value} for lr, value in own.tried]},
             "sensitive": start.measure.sensitive}
    result = Run(None, history, "rounds", int(last["round"]), outcome.seconds)
    leave(job, folder, own.label, result, outcome.vector, about, bundle, margins)


def _row(own: Chosen, tested: Tested, kept: bool) -> dict[str, Any]:
    note = "" if own.outcomes[0].reason != "diverged" else "diverged later on"
    return {"label": own.label, "kind": own.method.kind, "setting": {"algorithm.lr": own.lr}, "validation": _plain(own.value),
            "test": [_plain(value) for value in tested.values[own.label]],
            "difference": None if own.label == FIRST else [_plain(value) for value in tested.difference(own.label, FIRST)],
            "kept": kept, "note": note}


def _reference(label: str, tested: Tested, note: str) -> dict[str, Any]:
    return {"label": label, "kind": "reference", "setting": {}, "validation": None, "test": [_plain(v) for v in tested.values[label]],
            "difference": [_plain(value) for value in tested.difference(label, FIRST)], "kept": False, "note": note}


def _plain(value: float) -> float | None:
    return None if not math.isfinite(value) else round(value, 6)


def _notes(start: Ready, kept: Chosen) -> list[str]:
    said = list(start.rows.notes)
    if kept.method.by_group:
        said.append(f"The model decides by a threshold for each value of {start.measure.sensitive!r}: it may only be used where that "
                    "column may be used for decisions. What is said below of decisions is at one threshold, the mean of these.")
    elif any(method.by_group for method in start.methods):
        said.append(f"Thresholds by group need {start.measure.sensitive!r} at prediction. Where it may be used they contain most of what "
                    "training for fairness can reach.")
    if "personal" in kept.method.sections:
        said.append("The bundle holds the common model, before sites adapt it, and what is said below of its use is about that one.")
    return said


def method_folder(folder: Path, label: str) -> Path:
    """Where a fit leaves the run of a method that was not kept."""
    return folder / "methods" / "".join(c if c.isalnum() or c in "-+" else "-" for c in label).strip("-")
