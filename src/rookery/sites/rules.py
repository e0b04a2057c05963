"""An owner's rules: what a server may run at a site, on how many rows at once, and how much of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from types import MethodType
from typing import Literal

from ..engines.version import FROM_SERVER, Maker
from ..errors import ConfigError, Refused
from ..federation.program import PROGRAMS
from ..objectives.declare import objectives
from ..studies.modules import find_allowed
from ..studies.values import nearest
from .apart import Apart

GROUPS = {"evaluation": ("rookery.metrics.", "rookery.studies.evaluation.", "rookery.objectives."),
          "set-up": ("rookery.studies.agreement.", "rookery.federation.program.", "rookery.models.norm.", "rookery.studies.job.")}
"""Programs beside algorithms, by the modules they are in: scores of rows that were held out, and what sites agree on before training."""
STAYS = "rookery.metrics.personal."
"""Programs whose results are for those of others, and leave only where the owner names them."""


@dataclass(frozen=True)
class Rules:
    """What may run, and how much of it. Everything else is refused, and the log says so.

    algorithms: those whose functions may run, by their names, as "FedDRO", or some of their functions, as "FedDRO.track"
    objectives: what may be minimised, by name, as "cross_entropy"; where the rows are of one's own function, that says it
    values:     what may leave of that which algorithms' functions make: all results of some, as "FedDRO.track", or one of several, counted
                from 0, as "SOAP.descend[0]"; by default all results of all that may run. `rookery show SOAP` says what SOAP sends
    others:     groups of functions that are no algorithm's: "evaluation", "set-up"
    min_batch:  nothing is computed from fewer different rows at once
    salt:       "secret": draws depend on a number that never leaves the site, so that no server can choose or foresee them; "none": they
                are those of a simulation, for rehearsals and tests
    runs:       that may be begun here, at most: every one has draws and limits of its own
    frames:     of a run, at most
    steps:      of all functions and clients of a run, at most
    megabytes:  that come and go in a run, at most
    frame_megabytes: of one frame, at most
    """

    algorithms: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None
    others: tuple[str, ...] = ("evaluation", "set-up")
    min_batch: int = 5
    salt: Literal["secret", "none"] = "secret"
    runs: int = 1000
    frames: int = 100_000
    steps: int = 10_000_000
    megabytes: float = 100_000.0
    frame_megabytes: float = 512.0

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.others) - set(GROUPS)):
            raise ConfigError(f"others has groups of functions, {' and '.join(GROUPS)}; got {unknown[0]!r}")
        if self.salt not in ("secret", "none"):
            raise ConfigError(f'salt is "secret" or "none"; got {self.salt!r}')
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, int | float) and not value > 0:
                raise ConfigError(f"{entry.name} is a positive number; got {value}")

    def allows(self, fn: MethodType) -> bool:
        """Whether a function may run."""
        program = type(fn.__self__)
        full = f"{program.__module__}.{program.__qualname__}"
        if any(full.startswith(GROUPS[group]) for group in self.others):
            return True
        names = _names(program)
        return any(entry in names or entry in {f"{name}.{fn.__name__}" for name in names} for entry in self.algorithms)

    def sends(self, maker: Maker | None) -> bool:
        """Whether a value may leave."""
        if maker == FROM_SERVER:
            return True
        stays = maker is not None and maker.program.startswith(STAYS)
        if self.values is None and not stays:
            return True
        if maker is None or maker.program not in PROGRAMS:
            return False
        if not stays and any(maker.program.startswith(GROUPS[group]) for group in self.others):
            return True
        whole = {f"{name}.{maker.method}" for name in _names(PROGRAMS[maker.program])}
        return any(entry in whole or entry in {f"{name}[{maker.place}]" for name in whole} for entry in self.values or ())

    def knows(self, program: type) -> bool:
        """Whether some function of a program may run."""
        return any(entry == name or entry.startswith(f"{name}.") for entry in self.algorithms for name in _names(program))

    def check(self) -> None:
        """Refuse algorithms that no program here has the name of, and unknown objectives, once all modules are imported."""
        known = {name: program for program in PROGRAMS.values() for name in _names(program)}
        for entry in self.algorithms:
            name, _, method = entry.rpartition(".")
            if entry not in known and not (name in known and hasattr(known[name], method)):
                raise ConfigError(f"may.algorithms has algorithms, as \"FedAvg\", or their functions, as \"FedAvg.step\"; {entry!r} is "
                                  "neither: correct it, or name its module in site.modules")
        for entry in self.values or ():
            name, _, method = re.sub(r"\[\d+\]$", "", entry).rpartition(".")
            if not (name in known and hasattr(known[name], method)):
                raise ConfigError(f"may.values has results of functions, as \"FedAvg.step\", or one of several, as \"SOAP.descend[0]\"; "
                                  f"{entry!r} is neither: correct it, or name its module in site.modules")
        for entry in self.objectives:
            if entry not in (every := objectives()) and ":" not in entry:
                raise ConfigError(f"may.objectives has objectives by their names; {nearest(entry, list(every))}It has {entry!r}, and known "
                                  f"are {', '.join(every)}")


def _names(program: type) -> set[str]:
    return {str(vars(program).get("title") or program.__name__), program.__name__}


@dataclass
class Account:
    """What a run has used up of what its rules allow."""

    rules: Rules
    modules: tuple[str, ...] = ()  # of one's own, that functions may name
    apart: Apart | None = None  # tells which columns functions may not name
    frames: int = 0
    steps: int = 0
    bytes: int = 0
    asked: list[str] = field(default_factory=list)  # functions of the frame at hand, in words
    sent: set[Maker | None] = field(default_factory=set)  # what the rules were found to let leave
    allowed: set[tuple[type, str]] = field(default_factory=set)  # classes and methods that the rules were found to allow

    @property
    def used(self) -> tuple[int, int, int]:
        return self.frames, self.steps, self.bytes

    def begin(self) -> None:
        if self.frames >= self.rules.frames:
            raise Refused(f"a run may have {self.rules.frames} frames here, and this one has had them")
        self.frames += 1

    def drew(self) -> None:
        """Drawing many batches in one step is as much work as many steps."""
        if self.steps + 1 > self.rules.steps:
            raise Refused(f"a run may take {self.rules.steps} steps here, or draw as many batches, and this one has, or would")
        self.steps += 1

    def moved(self, size: int) -> None:
        """So many bytes have come, are to leave, or are kept in a file."""
        if self.bytes + size > 2**20 * self.rules.megabytes:
            raise Refused(f"a run may bring and take {self.rules.megabytes:g} MB here, and this one has, or would")
        self.bytes += size

    def operation(self, kind: str) -> None:
        self.asked.append(kind)

    def leaves(self, maker: Maker | None) -> None:
        if maker in self.sent or self.rules.sends(maker):
            self.sent.add(maker)
            return
        what = "a value of which nobody knows what made it" if maker is None else \
            f"result {maker.place} of {maker.program.rpartition('.')[2]}.{maker.method}"
        raise Refused(f"{what} is not among the values that may leave here (may.values)")

    def function(self, fn: MethodType, times: int) -> None:
        name = fn.__qualname__
        own = type(fn.__self__), fn.__name__
        if own not in self.allowed and self.rules.allows(fn):
            self.allowed.add(own)
        if own not in self.allowed:
            self.asked.append(f"{name} (refused)")
            full = f"{own[0].__module__}.{own[0].__qualname__}"
            group = next((group for group, starts in GROUPS.items() if full.startswith(starts)), None)
            raise Refused(f"{name} is not among what may run here (" + ("may.algorithms)" if group is None else f'may.others, "{group}")'))
        if getattr(fn.__self__, "least", self.rules.min_batch) < self.rules.min_batch:
            self.asked.append(f"{name} (refused)")
            raise Refused(f"{name} with least={fn.__self__.least} tells of fewer than the min_batch={self.rules.min_batch} different rows "  # type: ignore[attr-defined]
                          "that anything here is computed from")
        if self.apart is not None and (named := self.apart.among(fn.__self__)):
            self.asked.append(f"{name} (refused)")
            raise Refused(f"{name} names the column {named[0]!r}, which is not one of groups here: its values have fewer than "
                          f"min_batch={self.rules.min_batch} rows on average")
        for metric in getattr(fn.__self__, "metrics", ()):
            try:
                find_allowed(str(metric), name, self.modules)
            except Refused:
                self.asked.append(f"{name} (refused)")
                raise
        if self.steps + times > self.rules.steps:
            self.asked.append(f"{name} {times} times (refused)")
            raise Refused(f"a run may take {self.rules.steps} steps here; this one has taken {self.steps}, and asks for {times} more")
        self.steps += times
        self.asked.append(name if times == 1 else f"{name} {times} times")
