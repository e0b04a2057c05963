"""Experiments of several parts: each can be made by itself, what is there already stays in the record, and --done makes nothing new."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from common import Experiment, Row, arguments

from rookery.studies.trials import Result, Results, Trial

Part = Iterator[tuple[str, Results]]
S = TypeVar("S", bound="InParts")


class Missing(Exception):
    """A trial that is not in the store, where none is to be made."""


class InParts(Experiment):
    """An experiment whose parts look up first what the store has."""

    def __init__(self, here: Path, args: argparse.Namespace, small: bool, work: Callable[[Trial], Result]) -> None:
        super().__init__(here, args, small)
        self.small, self.done, self.work = small, args.done, work

    def __call__(self, todo: Sequence[Trial], slow: Callable[[Trial], bool] = lambda trial: False) -> Results:
        """The trials with their results; the slow ones begin first, so that no process waits long for the last one."""
        if self.done and not self.there(todo):
            raise Missing
        order = sorted(range(len(todo)), key=lambda i: not slow(todo[i]))
        done = dict(zip(order, self.study(self.work, [todo[i] for i in order]), strict=True))
        return [done[i] for i in range(len(todo))]

    def there(self, todo: Sequence[Trial]) -> bool:
        """Whether the store has all of these trials."""
        lines = self.store.read_text().splitlines(keepends=True) if self.store.exists() else []
        known = {json.dumps(json.loads(line)["trial"], sort_keys=True) for line in lines if line.endswith("\n")}
        return bool(todo) and all(json.dumps(trial, sort_keys=True) in known for trial in todo)

    def each(self, some: Sequence[Trial], seeds: Sequence[int]) -> Results:
        """All seeds of settings whose hyper-parameters are chosen; with --done of those settings that have all seeds."""
        every = [[{**s, "seed": seed} for seed in seeds] for s in some]
        return self([trial for one in every if not self.done or self.there(one) for trial in one])


def part_arguments(about: str | None, name: str, quick: str, parts: Sequence[str], default: int | None = None) -> argparse.ArgumentParser:
    """The command line of such an experiment; the first `default` parts, or all, are made unless others are named."""
    parser = arguments(about, name, quick)
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts)[:default], help="which parts, in the order of this list")
    parser.add_argument("--done", action="store_true", help="make no new trials: parts that lack some are left out")
    return parser


def make_parts(s: S, parts: Mapping[str, Callable[[S], Part]], args: argparse.Namespace, report: Callable[[str, Results], str],
               rows: Callable[[dict[str, Results]], Sequence[Row]], plot: Callable[[dict[str, Results], Path], Any], options: str = "",
               default: int | None = None) -> None:
    """Make the parts that were asked for; tables, plots and the record have all that is there, of other parts too."""
    compared = dict[str, Results]()
    asked = ("" if args.parts == list(parts)[:default] else f" --parts {' '.join(args.parts)}") + options
    if not s.small:  # what is there already comes first, so that a run that goes on takes nothing from the record
        s.done = True
        for part in parts.values():
            with suppress(Missing):
                compared |= part(s)
        s.done = args.done
    for name in args.parts:
        try:
            for table, done in parts[name](s):
                compared[table] = done
                print(report(table, done), flush=True)
                if not args.done:
                    s.record(rows(compared), asked)
        except Missing:
            print(f"{name}: not all of it is there", flush=True)
        if compared and not args.done:
            plot(compared, s.where)
    if compared:
        plot(compared, s.where)
        s.record(rows(compared), asked)
