"""Several descriptions on the same seeds: tuned alike on the sites' validation rows, then compared with mean, spread and a paired test."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from ..data.folder import locate
from ..errors import ConfigError
from ..training.files import LOCK, held, write_whole
from ..training.result import OnProgress, Run
from .build import build
from .description import Description, describe, parse
from .scores import BESIDE, OwnMetric, larger_is_better
from .statistics import MeanStd, PairedTTest, best, groups, mean_std, paired_ttest
from .trials import Result, Results, Trial, study, trials
from .values import nearest

Tree = dict[str, dict[str, Any]]
TUNING = 10**6  # the first seed for tuning, beyond those that are compared


@dataclass(frozen=True)
class Entry:
    """One method of a comparison: the spread of each test metric, and the difference to the first method."""

    label: str
    chosen: dict[str, Any]
    ends: dict[str, int]  # how often a run ended for which reason
    spreads: dict[str, MeanStd]
    against_first: dict[str, PairedTTest]
    larger_is_better: dict[str, bool | None]  # of each metric; None where nobody said


def compare(descriptions: dict[str, Tree], seeds: int, folder: Path, grid: Mapping[str, Sequence[Any]] | None = None,
            by: str = "validation loss", tuning_seeds: int = 1, jobs: int | None = None,
            on_progress: OnProgress | None = None, first: int = 0) -> list[Entry]:
    """Run every description on so many seeds from `first` on, into `folder`/label/seed-k; done runs are not done again.

    grid: entries (`section.key`) with the values to try, the same for every description; each takes the values that are best by
    the mean of the metric `by` of its sites' validation rows on further seeds. A run that diverges is the worst.
    """
    check(descriptions, seeds, grid, by, tuning_seeds, first)
    with held(folder):
        return _compare(descriptions, range(first, first + seeds), folder, grid or {}, by, tuning_seeds, jobs, on_progress)


def check(descriptions: dict[str, Tree], seeds: int, grid: Mapping[str, Sequence[Any]] | None, by: str, tuning_seeds: int,
          first: int = 0) -> None:
    """Refuse a comparison that cannot be made, before hours of work."""
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1; got {seeds}")
    if not 0 <= first <= TUNING - seeds:
        raise ConfigError(f"the first seed lies between 0 and {TUNING - seeds}: a grid is tried on seeds from {TUNING} on; got {first}")
    if not by.startswith("validation "):
        raise ConfigError(f'by is a metric of the validation rows, such as "validation AP"; got {by!r}')
    if tuning_seeds < 1:
        raise ConfigError(f"a choice from a grid needs at least one tuning seed; got {tuning_seeds}")
    for label, tree in descriptions.items():
        for values in trials(**(grid or {})):
            with_values(tree, values, label)
        job, wanted = build(parse(tree)), by.removeprefix("validation ")
        if wanted not in job.metrics:
            raise ConfigError(f"{label} has no metric {by!r}; {nearest(wanted, job.metrics)}"
                              f"by is one of {', '.join(f'validation {name}' for name in job.metrics)}")
        if grid and larger_is_better(by, job.description.metrics) is None:
            raise ConfigError(f"whether a larger {wanted!r} is better has to be said before it can choose from a grid: write "
                              f"{wanted}.larger_is_better = True, or False, under the function")


def _compare(descriptions: dict[str, Tree], seeds: Sequence[int], folder: Path, grid: Mapping[str, Sequence[Any]], by: str,
             tuning_seeds: int, jobs: int | None, on_progress: OnProgress | None) -> list[Entry]:
    tried = _tune(descriptions, grid, by, range(TUNING, TUNING + tuning_seeds), folder, jobs, on_progress)
    own = {label: parse(tree).metrics for label, tree in descriptions.items()}
    larger = next((way for metrics in own.values() if (way := larger_is_better(by, metrics)) is not None), True)
    wanted = best(tried, ["label"], by, larger) if tried else {}
    todo, digests = [], _digests(descriptions)
    for label, tree in descriptions.items():
        chosen = dict(wanted[(label,)]["values"]) if tried else {}
        scores = [{"values": dict(values), "score": _mean(results, by)}
                  for (name, values), results in groups(tried, "label", "values").items() if name == label]
        told_of = {"metric": by, "chosen": chosen, "tried": scores}
        for seed in seeds:
            todo.append({"label": label, "tree": with_values(tree, {**chosen, "federation.seed": seed}, label), "seed": seed,
                         "data": digests[label], "folder": str(folder / label / f"seed-{seed}"),
                         **({"tuning": told_of} if tried else {})})
    done = study(_train, todo, folder / "runs.jsonl", jobs, on_progress, _there)
    return _entries(done, wanted, bool(tried), own)


def _tune(descriptions: dict[str, Tree], grid: Mapping[str, Sequence[Any]], by: str, seeds: Sequence[int], folder: Path,
          jobs: int | None, on_progress: OnProgress | None) -> Results:
    if not grid:
        return []
    combinations, digests = [[list(item) for item in values.items()] for values in trials(**grid)], _digests(descriptions)
    todo = [{"label": label, "values": values, "seed": seed, "tree": with_values(tree, {**dict(values), "federation.seed": seed}, label),
             "data": digests[label]}
            for label, tree in descriptions.items() for values in combinations for seed in seeds]
    done = study(_try, todo, folder / "tuning.jsonl", jobs, on_progress)
    for label in descriptions:
        if all(by not in result for trial, result in done if trial["label"] == label):
            raise ConfigError(f"no setting of the grid gave {label} a {by!r}: every run diverged, or its validation rows lack a class; "
                              "take a grid of smaller steps, or another metric")
    # for `best`: what belongs to one choice is its label and values
    return [({name: trial[name] for name in ("label", "values", "seed")}, result) for trial, result in done]


def with_values(tree: Tree, values: dict[str, Any], label: str) -> Tree:
    """A description with other values of some entries, written out in full."""
    changed = {section: dict(table) for section, table in tree.items()}
    for key, value in values.items():
        section, _, entry = key.partition(".")
        changed.setdefault(section, {})[entry] = value
    try:
        return describe(parse(changed))
    except ConfigError as error:
        raise ConfigError(f"{label}: {error}") from None


def _digests(descriptions: dict[str, Tree]) -> dict[str, str]:
    return {label: own_digest(parse(tree)) for label, tree in descriptions.items()}


def own_digest(config: Description, here: bool = True) -> str:
    """What one's own files hold, data and modules: another file of the same name is another trial. Empty where there are none.

    here: whether the rows are; real sites have files of their own
    """
    found, data = blake2b(digest_size=16), config.data
    tables = (data.path,) if isinstance(data.path, str) else data.path
    named = [name for name in ((*tables, data.schema, data.npz, data.test, data.images) if here else (data.schema,)) if name]
    own = [locate(name) for name in named] + config.own_files
    for path in own:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            found.update(f"{file} {file.stat().st_size}".encode() if path.is_dir() else file.read_bytes())
    return found.hexdigest() if own else ""


def _there(trial: Trial) -> bool:
    """Whether the trial's folder holds its run, to the end."""
    folder = Path(trial["folder"])
    return _mark(folder) == trial and _json(folder / "about.json") is not None


def _mark(folder: Path) -> Any:
    """The trial that a folder is of; None where it is of none."""
    return _json(folder / "trial.json")


def _json(path: Path) -> Any:
    """What a file holds; None where it is not there, or not whole."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _mean(results: Sequence[Result], metric: str) -> float | None:
    values = [result[metric] for result in results if metric in result]
    return fmean(values) if len(values) == len(results) else None


def _try(trial: Trial) -> Result:
    """One set of values: its last scores."""
    result = _whole(build(parse(trial["tree"])).run(None, trial["label"]))
    return {} if result.reason == "diverged" else _finite(result.history[-1])


def _train(trial: Trial) -> Result:
    """One run into its folder; a folder of another trial makes way, one that was cut off goes on."""
    folder = Path(trial["folder"])
    with held(folder):
        if _mark(folder) != trial:
            there = [file for file in folder.iterdir() if file.name != LOCK]
            if there and not (folder / "trial.json").exists():
                raise ConfigError(f"{folder} holds something else than a run of a comparison; take another --out")
            for file in there:
                shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink()
        write_whole(folder / "trial.json", json.dumps(trial))
        about = {"tuning": trial["tuning"]} if "tuning" in trial else {}
        result = _whole(build(parse(trial["tree"]), folder).run(folder, trial["label"], resume=True, about=about))
    return {"reason": result.reason, **_finite(result.history[-1])}


def _whole(result: Run) -> Run:
    """A run that Ctrl-C ended is no result."""
    if result.reason == "interrupted":
        raise KeyboardInterrupt
    return result


def _finite(row: dict[str, float]) -> Result:
    return {name: value for name, value in row.items() if math.isfinite(value)}


def _entries(done: Results, wanted: dict[tuple[Any, ...], Trial], tuned: bool, own: dict[str, tuple[OwnMetric, ...]]) -> list[Entry]:
    by_label = {key[0]: results for key, results in groups(done, "label").items()}
    first = next(iter(by_label.values()))
    entries = []
    for label, results in by_label.items():
        ends = dict(Counter(result["reason"] for result in results))
        metrics = [name for name in results[0] if name.startswith("test ") and not name.endswith(BESIDE)
                   and all(name in result for result in results)]
        columns = {name: [float(result[name]) for result in results] for name in metrics}
        against = {name: paired_ttest(values, [float(result[name]) for result in first]) for name, values in columns.items()
                   if results is not first and len(results) > 1 and all(name in result for result in first)}
        entries.append(Entry(label, dict(wanted[(label,)]["values"]) if tuned else {}, ends,
                             {name: mean_std(values) for name, values in columns.items()}, against,
                             {name: larger_is_better(name, own[label]) for name in metrics}))
    return entries
