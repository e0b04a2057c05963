"""How to fit, what is known before the first trial, and what a fit came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..studies.build import Prepared
from ..studies.leaving import BUNDLE
from .bench import Folder
from .goals import Goal, Method, Setting, check_choices
from .measures import Measure
from .training import Tree


@dataclass(frozen=True)
class Options:
    """How to fit.

    minutes:   in all; the number of rounds follows from it. Without it `rounds` counts
    rounds:    of every trial; by default as many as the minutes allow, or 100
    local_steps, batch: of every method
    sensitive: the column of the groups, for the goals fair and worst_group
    kind, gap: of fair: which rates the groups are to have in common, and how far they may lie apart
    max_fpr:   of partial_auc
    pool:      whether the rows may be pooled for reference lines
    group_thresholds: whether decisions may depend on the sensitive column
    """

    minutes: float | None = None
    rounds: int | None = None
    local_steps: int = 5
    batch: int = 32
    sensitive: str | None = None
    kind: str = "equality of opportunity"
    gap: float = 0.05
    max_fpr: float = 0.1
    pool: bool = True
    group_thresholds: bool = True
    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"minutes must be positive; got {self.minutes}")
        if self.rounds is not None and self.rounds < 1:
            raise ConfigError(f"rounds must be at least 1; got {self.rounds}")
        if self.local_steps < 1 or self.batch < 4:
            raise ConfigError(f"a round has one local step at least, and a step four rows; got {self.local_steps} and {self.batch}")
        check_choices(self.kind, self.gap, self.max_fpr)


@dataclass(frozen=True)
class Fitted:
    """What a fit came to: the folder with bundle and report, and what its page begins with."""

    folder: Path
    told: dict[str, Any]
    runs: list[Path] = field(default_factory=list)

    @property
    def bundle(self) -> Path:
        return self.folder / BUNDLE


@dataclass(frozen=True, eq=False)
class Ready:
    """All that is known before the first trial."""

    goal: Goal
    base: Tree
    options: Options
    rows: Prepared
    measure: Measure
    bench: Folder
    setting: Setting
    methods: list[Method]

    @property
    def seed(self) -> int:
        return int(self.base.get("federation", {}).get("seed", 0))
