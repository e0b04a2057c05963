"""What the experiments share: their command, where trials and the record go, data with a fall-back, training, tables and plots.

A run.py puts this folder on the path in its first lines, so that `from common import …` also works in the processes it starts.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from rookery import Algorithm, Federation
from rookery.errors import DataError, Diverged
from rookery.studies.statistics import groups, mean_std, rows
from rookery.studies.trials import Result, Results, Trial, record, study
from rookery.training import Run, run

Row = dict[str, Any]  # of a record: method, setting, metric, mean, std, seeds, paper
STYLE = {"axes.grid": True, "axes.grid.which": "both", "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False,
         "legend.fontsize": 8, "lines.linewidth": 1.4, "lines.markersize": 4}


# the command, the trials and the record


def arguments(about: str | None, name: str, quick: str) -> argparse.ArgumentParser:
    """What every experiment's command takes: --jobs, --out (default runs/NAME, where trials are kept) and --quick."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--out", type=Path, default=Path("runs") / name, help="where the results of the trials are kept")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def available(name: str, stand_in: str, read: Callable[[str], object]) -> str:
    """The data's name where `read` finds them, and otherwise that of what stands in for them, after saying so."""
    try:
        read(name)
    except DataError as error:
        print(f"{stand_in} stands in for {name}, which cannot be read: {error}", flush=True)
        return stand_in
    return name


def announce(number: int, of: int) -> None:
    """A line now and then while a study is at work."""
    if number % 20 == 0 or number == of:
        print(f"{number} of {of} trials", flush=True)


class Experiment:
    """One run of an experiment: trials go to --out, plots and results.json beside run.py, or to --out too where the run is small."""

    def __init__(self, here: Path, args: argparse.Namespace, small: bool) -> None:
        self.here, self.where, self.jobs = here, args.out if small else here, args.jobs
        self.store: Path = args.out / ("quick.jsonl" if small else "trials.jsonl")
        self.seconds = dict[str, float]()

    def study(self, work: Callable[[Trial], Result], todo: Sequence[Trial]) -> Results:
        """The trials with their results; those that are in the store are not made again."""
        done = study(work, todo, self.store, self.jobs, announce)
        self.seconds.update({str(trial): result["seconds"] for trial, result in done})
        return done

    def record(self, table: Sequence[Row], options: str = "") -> None:
        """Write results.json, with the minutes of all trials so far."""
        command = f"python experiments/{self.here.name}/run.py{options}" if self.where == self.here else None
        record(self.where / "results.json", table, sum(self.seconds.values()) / 60 / self.jobs, command)


# one trial


def timed(work: Callable[[Trial], Result]) -> Callable[[Trial], Result]:
    """A trial's work with the processor's seconds that it took in its result: the wall's clock would count what else the machine does."""

    @wraps(work)
    def measured(trial: Trial) -> Result:
        begun = time.process_time()
        return {**work(trial), "seconds": time.process_time() - begun}

    return measured


def run_to_end(algorithm: Algorithm[Any], fed: Federation[Any], state: Any, rounds: int, measure: Callable[[Any], dict[str, float]],
               every: int = 1, may_diverge: bool = False, folder: Path | None = None) -> Run:
    """`rookery.training.run` for a trial: one that was interrupted is no result, and raises, so that the study makes it again.

    With a folder, where a long trial keeps its checkpoints, it then goes on from the last one.
    """
    done = run(algorithm, fed, state, rounds, measure, every, folder=folder, resume=folder is not None)
    if done.reason == "interrupted":
        raise KeyboardInterrupt
    if done.reason == "diverged" and not may_diverge:
        raise Diverged(done.failure)
    return done


def by_class(guesses: Tensor, labels: Tensor) -> dict[int, float]:
    """The accuracy of each class that there are rows of; a small held-out part may lack one."""
    return {int(c): float((guesses[labels == c] == c).double().mean()) for c in labels.unique()}


def guessing(last: Row, classes: int, parts: tuple[str, ...]) -> Row:
    """The accuracies of a run that broke off: those of guessing, and none of the worst class."""
    return {**last, **{key: 0.0 if "worst" in key else 1 / classes for key in last if key.startswith(parts)}}


# tables


def row(method: str, setting: Any, metric: str, mean: float | None, std: float | None, seeds: int, paper: float | None = None) -> Row:
    """One row of a record that is not the mean of trials' results, as those of `rookery.studies.statistics.rows` are."""
    return {"method": method, "setting": setting, "metric": metric, "mean": mean, "std": std, "seeds": seeds, "paper": paper}


def rows_of(compared: dict[str, Results], metrics: Sequence[str], setting: Sequence[str]) -> list[Row]:
    """The rows of several tables, whose names stand first in the rows' settings."""
    return [found | {"setting": {"table": name, **found["setting"]}} for name, done in compared.items()
            for found in rows(done, metrics, setting=setting)]


def percent(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation in %.

    >>> percent([0.5, 0.7])
    '60.0 ± 14.1'
    """
    found = mean_std([100 * value for value in values])
    return f"{found.mean:.{digits}f}" + (f" ± {found.std:.{digits}f}" if found.seeds > 1 else "")


def diverged(found: Sequence[Result]) -> str:
    """How many runs broke off, in brackets; nothing where none did."""
    number = sum(result["diverged"] for result in found)
    return f" ({number:.0f} diverged)" if number else ""


# plots


@contextmanager
def figure(path: Path, columns: int, rows: int = 1, size: tuple[float, float] = (4.4, 4.0), **how: Any) -> Iterator[Any]:
    """The axes of a figure of panels of that size in inches; at the end it is laid out and saved."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with plt.rc_context(STYLE):
        drawing, axes = plt.subplots(rows, columns, figsize=(size[0] * columns, size[1] * rows), **how)
        try:
            yield axes
            drawing.tight_layout()
            drawing.savefig(path, dpi=110)
        finally:
            plt.close(drawing)


def band(ax: Any, x: Sequence[float], curves: Any, number: int, label: str, **how: Any) -> None:
    """The mean of the seeds' curves, and their range, in the colour of that number."""
    y = np.asarray(curves)
    ax.plot(x, y.mean(0), color=f"C{number}", label=label, **how)
    ax.fill_between(x, y.min(0), y.max(0), color=f"C{number}", alpha=0.12, linewidth=0)


def over_local_steps(ax: Any, done: Results, metric: str, number: int, label: str) -> None:
    """Mean and standard deviation of a metric, in %, over the number of local steps."""
    found = {i: mean_std([100 * result[metric] for result in part]) for (i,), part in groups(done, "local_steps").items()}
    ax.errorbar(list(found), [v.mean for v in found.values()], [v.std for v in found.values()], marker="o", color=f"C{number}", label=label)
    ax.set_xscale("log", base=2)
    ax.set(xlabel="local steps I", ylabel=f"{metric}, %")
