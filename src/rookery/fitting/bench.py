"""Where trials are made: in memory one after the other, or in a folder by several processes, which goes on where it was cut off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from ..studies.build import Prepared, prepare
from ..studies.cells import Tally, number_cells, tally
from ..studies.description import parse
from ..studies.trials import Workers, study
from ..training.files import write_whole
from .goals import GOALS
from .measures import Measure
from .training import LOOKS, Outcome, Tree, train

ANY: Tree = {"algorithm": {"name": "FedAvg", "lr": 0.1}}  # for rows, which do not depend on it
OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class Trial:
    """A description on one split of the rows; `start` is the trial whose model it begins with."""

    tree: Tree
    split: int = 0
    start: Trial | None = None
    looks: int = LOOKS

    @property
    def key(self) -> str:
        """A name for a file, by all that a trial is."""
        return blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=12).hexdigest()


class Bench(Protocol):
    """Makes trials, each once."""

    measure: Measure

    def rows(self, split: int) -> Prepared:
        """The rows with those of a split held out."""
        ...

    def run(self, trials: Sequence[Trial], on_progress: OnProgress | None = None) -> list[Outcome]:
        """The outcomes of trials, in their order; `on_progress` is told how many seconds of work each took that was made."""
        ...


class Memory:
    """Trials one after the other in this process."""

    def __init__(self, rows: Callable[[int], Prepared], measure: Measure) -> None:
        self.rows, self.measure = lru_cache(4)(rows), measure
        self._done: dict[str, Outcome] = {}

    def run(self, trials: Sequence[Trial], on_progress: OnProgress | None = None) -> list[Outcome]:
        found = []
        for trial in trials:
            if trial.key not in self._done:
                start = None if trial.start is None else self.run([trial.start])[0].vector
                began = time.perf_counter()
                self._done[trial.key] = train(trial.tree, self.rows(trial.split), self.measure, start, trial.looks)
                if on_progress is not None:
                    on_progress(time.perf_counter() - began)
            found.append(self._done[trial.key])
        return found


class Folder:
    """Trials in processes; what they came to stands in a file of lines, their models in files beside it.

    jobs: processes at a time (default: one per core), which stay as long as their `workers` do; 1 works in this process
    """

    def __init__(self, folder: Path, measure: Measure, base: Tree, digest: str, jobs: int | None = None) -> None:
        self.folder, self.measure, self.base, self.digest, self.jobs = folder, measure, base, digest, jobs
        self.workers: Workers | None = None

    def rows(self, split: int) -> Prepared:
        return prepared(json.dumps(self.base), split, self.measure.sensitive, self.digest)

    def run(self, trials: Sequence[Trial], on_progress: OnProgress | None = None) -> list[Outcome]:
        """One job works in this process, where nothing has to be started for it."""
        todo = [{"tree": trial.tree, "split": trial.split, "looks": trial.looks, "start": trial.start and trial.start.key,
                 "measure": asdict(self.measure) | {"goal": self.measure.goal.name}, "data": self.digest,
                 "base": json.dumps(self.base), "folder": str(self.folder / "models"), "key": trial.key} for trial in trials]
        told = 0.0

        def tell(done: int, number: int) -> None:
            nonlocal told
            if on_progress is not None and (now := time.perf_counter()) and done:
                on_progress(now - began - told)
                told = now - began

        began = time.perf_counter()
        with one_thread():
            done = study(self.work(), todo, self.folder / "trials.jsonl", self.jobs, tell, _is_there, self.workers)
        return [Outcome(vector=_model(Path(trial["folder"]), trial["key"]), **{**result, "margins": tuple(result["margins"])})
                for trial, result in done]

    def work(self) -> Callable[[dict[str, Any]], dict[str, Any]]:
        """What makes a trial, in any process."""
        return _work


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch has one thread: nets of tables are too small for more, and processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _model(folder: Path, key: str) -> Tensor:
    return load_file(folder / f"{key}.safetensors")["x"]


def _is_there(trial: dict[str, Any]) -> bool:
    return (Path(trial["folder"]) / f"{trial['key']}.safetensors").exists()


def _work(trial: dict[str, Any]) -> dict[str, Any]:
    return made_trial(lambda trial: prepared(trial["base"], trial["split"], trial["measure"]["sensitive"], trial["data"]), trial)


def made_trial(rows: Callable[[dict[str, Any]], Prepared], trial: dict[str, Any]) -> dict[str, Any]:
    """Make a trial on the rows that it is of, and leave its model in a file."""
    measure = Measure(**{**trial["measure"], "goal": GOALS[trial["measure"]["goal"]]})
    folder = Path(trial["folder"])
    outcome = train(trial["tree"], rows(trial), measure, trial["start"] and _model(folder, trial["start"]), trial["looks"])
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{trial['key']}.safetensors", save({"x": outcome.vector.cpu().contiguous()}))
    return outcome.told()


@lru_cache(4)
def prepared(base: str, split: int, sensitive: str | None, digest: str) -> Prepared:
    """The rows that a description names, with those of a split held out; a process reads them once, as long as `digest` stays the same."""
    return with_cells(prepare(parse({**ANY, **json.loads(base)}), split), sensitive)


def least_rows(bench: Bench, splits: int) -> int:
    """The fewest rows that a site trains on; where groups of rows are held out, which real sites do not say, these are others from split
    to split.
    """
    number = splits if "group" in bench.rows(0).data.fields or bench.rows(0).elsewhere is not None else 1
    return min(int(bench.rows(split).data.sizes.min()) for split in range(number))


def with_cells(rows: Prepared, sensitive: str | None) -> Prepared:
    """The rows with a column that numbers what they have of class and group together, where there are groups."""
    if sensitive is None or sensitive not in rows.data.fields:
        return rows
    return replace(rows, data=number_cells(rows.data, sensitive, len(rows.test.classes)))


def tallied(rows: Prepared, measure: Measure) -> Tally:
    """How many rows there are of each class and group: as real sites said, or counted here."""
    return tally(rows.data, len(rows.test.classes), measure.sensitive, measure.groups) if rows.tally is None else rows.tally
