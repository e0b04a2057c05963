"""The search: every method on the same grid of step sizes, then the best of each on further splits, and the choice between them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean

from ..errors import ConfigError
from ..studies.build import assemble
from ..studies.cells import Tally
from ..studies.description import parse
from .bench import Bench, Trial, tallied
from .goals import FIRST, Method, Setting
from .training import Outcome, Tree, decide, tree_of

LRS = (0.1, 0.3, 1.0)
GROWTH = 3  # how often a grid may grow by one value beyond its edge
SPLITS = 3  # further splits of training and validation rows, and the first
RARE = 20  # validation rows of a class below which another split may well have none
TRIED = 5  # splits that are looked at for each that is wanted
Tell = Callable[[str, float], None]


@dataclass
class Chosen:
    """A method at the step size that suits it best, with its model on each split; `value` is the goal's mean over them."""

    method: Method
    lr: float | None
    outcomes: list[Outcome]
    tried: list[tuple[float, float | None]] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    @property
    def value(self) -> float:
        values = [-math.inf if outcome.value is None else outcome.value for outcome in self.outcomes]
        return fmean(values)

    @property
    def label(self) -> str:
        return self.method.label


@dataclass
class Clock:
    """The time that is left, where it is bounded."""

    minutes: float | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds."""
        return math.inf if self.minutes is None else 60 * self.minutes - (time.monotonic() - self.began)


@dataclass
class Search:
    """Methods on one bench.

    base: what all descriptions have in common; seed: of first weights and draws on the first split, the others have those after it
    """

    bench: Bench
    base: Tree
    methods: Sequence[Method]
    setting: Setting
    seed: int = 0
    lrs: Sequence[float] = LRS
    splits: int = SPLITS
    clock: Clock = field(default_factory=Clock)
    tell: Tell | None = None

    def run(self) -> list[Chosen]:
        """Every method at its best, in their order."""
        first = [method for method in self.methods if method.trains and method.after is None]
        chosen = self._tuned(first, {})
        later = [method for method in self.methods if method.trains and method.after is not None]
        chosen |= self._tuned(later, chosen)
        for split in further(self.bench, self.splits):
            if self.clock.left < self._cost(chosen):
                break
            self._finals(chosen, split)
        for method in self.methods:
            if not method.trains and method.after in chosen:
                chosen[method.label] = self._decided(method, chosen[method.after])
        return [chosen[method.label] for method in self.methods if method.label in chosen]

    def _trial(self, method: Method, lr: float, split: int, before: dict[str, Chosen]) -> Trial:
        start = None if method.after is None else next(own for own in before[method.after].trials if own.split == split)
        return Trial(tree_of(self.base, method, self.setting, lr, self.seed + split), split, start)

    def _tuned(self, methods: Sequence[Method], before: dict[str, Chosen]) -> dict[str, Chosen]:
        methods = [method for method in methods if method.after is None or method.after in before]
        tried: dict[str, dict[float, Outcome]] = {method.label: {} for method in methods}
        wanted = [(method, lr) for method in methods for lr in self.lrs]
        for _ in range(1 + GROWTH):
            done = self.bench.run([self._trial(method, lr, 0, before) for method, lr in wanted], self._told("step sizes"))
            for (method, lr), outcome in zip(wanted, done, strict=True):
                tried[method.label][lr] = outcome
            wanted = [(method, beyond) for method in methods if (beyond := _beyond(tried[method.label])) is not None]
            if not wanted or self.clock.left < sum(outcome.seconds for outcome in done):
                break
        found = {}
        for method in methods:
            size = _best(tried[method.label])
            if size is None:
                if method.label == FIRST:
                    raise ConfigError(f"{FIRST} diverged at every step size of {sorted(tried[FIRST])}, on these rows: give smaller ones")
                continue  # the others may do without it
            curve = sorted((lr, outcome.value) for lr, outcome in tried[method.label].items())
            found[method.label] = Chosen(method, size, [tried[method.label][size]], curve, [self._trial(method, size, 0, before)])
        return found

    def _finals(self, chosen: dict[str, Chosen], split: int) -> None:
        """Every method's best step size on another split; those that start from another's model after it."""
        for later in (False, True):
            some = [own for own in chosen.values() if (own.method.after is not None) is later]
            for own in some:
                assert own.lr is not None
                own.trials.append(self._trial(own.method, own.lr, split, chosen))
            for own, outcome in zip(some, self.bench.run([own.trials[-1] for own in some], self._told("further splits")), strict=True):
                own.outcomes.append(outcome)

    def _cost(self, chosen: dict[str, Chosen]) -> float:
        """Seconds that one more split takes."""
        return sum(own.outcomes[0].seconds for own in chosen.values())

    def _decided(self, method: Method, after: Chosen) -> Chosen:
        """The models of another method with thresholds by group."""
        outcomes = []
        for trial, outcome in zip(after.trials, after.outcomes, strict=True):
            job = assemble(parse(trial.tree), self.bench.rows(trial.split))
            found = decide(job, outcome.vector, self.bench.measure, by_group=method.by_group)
            outcomes.append(replace(outcome, value=found.value, margins=found.margins))
        return Chosen(method, after.lr, outcomes, [], after.trials)

    def _told(self, what: str) -> Callable[[float], None] | None:
        return None if self.tell is None else lambda seconds: self.tell(what, seconds)  # type: ignore[misc]


def further(bench: Bench, splits: int) -> Iterator[int]:
    """The numbers of further splits; where a class or group is rare, splits are passed over that leave it out and the first does not."""
    first = tallied(bench.rows(0), bench.measure)
    usable = (split for split in range(1, TRIED * splits)
              if not 0 < first.rarest < RARE or _as_whole(tallied(bench.rows(split), bench.measure), first))
    return islice(usable, splits - 1)


def _as_whole(rows: Tally, first: Tally) -> bool:
    """Whether both parts have rows of every class, and the training rows of as many classes and groups as the first split's have."""
    return rows.rarest > 0 and len(rows.cells) == len(first.cells)


def best_of(chosen: Sequence[Chosen]) -> Chosen:
    """The one with the largest mean value; of equals the first, which is the plainer."""
    return max(chosen, key=lambda own: own.value)


def _best(tried: dict[float, Outcome]) -> float | None:
    known = {lr: outcome.value for lr, outcome in tried.items() if outcome.value is not None}
    return max(sorted(known), key=lambda lr: known[lr]) if known else None


def _beyond(tried: dict[float, Outcome]) -> float | None:
    """The next step size of 1, 3, 10, … where the best one is at an edge of those tried; a smaller one where all diverge."""
    lr, known = _best(tried), sorted(tried)
    sizes = [float(f"{digit}e{power}") for power in range(-8, 5) for digit in (1, 3)]
    if lr == known[-1]:
        return min((size for size in sizes if size > 1.5 * lr), default=None)
    if lr is None or lr == known[0]:
        return max((size for size in sizes if size < known[0] / 1.5), default=None)
    return None
