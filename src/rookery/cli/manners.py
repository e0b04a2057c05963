"""What commands that train have in common: how much they say and in which form, how far they have come, and their log.

A command takes the options below, and does all its work inside `speaking`, whose voice says it:

    def fit(..., quiet: Quiet = False, as_json: AsJson = False, log_level: LogLevel = "warning") -> None:
        with speaking("fit", quiet, as_json, log_level) as voice:
            voice.say("a sentence, or a table", folder=str(folder))
            with voice.progress("round") as bar:
                job.run(..., on_progress=bar)
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from ..errors import ConfigError
from .console import complain_softly, console, errors

Sets = Annotated[list[str] | None, typer.Option("--set", help="section.key=value, over what the file says")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="say nothing but warnings and errors; results are written all the same")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object; progress and warnings go to the standard error")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="build everything, say what is to come and how long it takes, write nothing")]
Seed = Annotated[int | None, typer.Option("--seed", help="over federation.seed of the file")]
LogLevel = Annotated[str, typer.Option("--log-level", help="what is logged to the standard error: debug, info, warning or error")]

LEVELS = ("debug", "info", "warning", "error")
MOVES, LINES, PART = 0.1, 10.0, 0.1  # seconds between moves of a bar, between lines without a terminal, and the part of all between these


class Bar:
    """How far work has come; called with how much is done and how much there is, as often as one likes. `beside` is shown with it."""

    def __init__(self, show: Callable[[int, int, str], None], pause: float, part: float) -> None:
        self.show, self.pause, self.part, self.beside = show, pause, part, ""
        self.number = self.done = 0
        self.first: tuple[float, int] | None = None  # when the first piece was done, whose time says little about the others
        self.shown = (-math.inf, -math.inf)

    def __call__(self, done: int, number: int) -> None:
        now = time.monotonic()
        if done < self.done or (self.done == self.number != number):  # other work begins
            self.first, self.shown = None, (now, -math.inf) if self.part else (-math.inf, -math.inf)
        elif self.first is None and done > self.done:
            self.first = now, done
        self.number, self.done = number, done
        if now - self.shown[0] >= self.pause and done - self.shown[1] >= self.part * number:
            self.shown = now, done
            self.show(done, number, ", ".join(filter(None, (self.beside, self.left(now)))))

    def left(self, now: float) -> str:
        """How long it will take yet, once that can be said."""
        if self.first is None or self.done <= self.first[1]:
            return ""
        return f"{duration((now - self.first[0]) / (self.done - self.first[1]) * (self.number - self.done))} left"


class Voice:
    """What a command says: to people as it goes on, or at its end as one JSON object of facts, with the sentences under `said`."""

    def __init__(self, command: str, quiet: bool, as_json: bool) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.facts: dict[str, Any] = {"command": command, "said": [], "warnings": []}

    def say(self, what: RenderableType | None = None, **facts: Any) -> None:
        """A sentence or a table for people, and what it says as facts by name."""
        self.facts |= facts
        if isinstance(what, str):
            self.facts["said"].append(what)
        if what is None or self.quiet or self.as_json:
            return
        if isinstance(what, str):
            console.print(what, markup=False, soft_wrap=True)
        else:
            console.print(what)

    def warn(self, sentence: str) -> None:
        """A sentence that is said in any case."""
        self.facts["warnings"].append(sentence)
        complain_softly(sentence)

    def close(self) -> None:
        if self.as_json:
            print(json.dumps(_plain(self.facts)))

    @contextmanager
    def progress(self, what: str) -> Iterator[Bar]:
        """Inside, a bar on the terminal; where there is none, a line now and then."""
        if self.quiet:
            yield Bar(lambda *_: None, math.inf, 0)
        elif not errors.is_terminal:
            yield Bar(lambda done, number, beside: errors.print(", ".join(filter(None, (f"{what} {done} of {number}", beside))),
                                                                markup=False, highlight=False, soft_wrap=True), LINES, PART)
        else:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            with Progress(TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[beside]}"), console=errors,
                          transient=True) as shown:
                task = shown.add_task(what, total=None, beside="")
                yield Bar(lambda done, number, beside: shown.update(task, completed=done, total=number, beside=beside), MOVES, 0)


@contextmanager
def speaking(command: str, quiet: bool, as_json: bool, log_level: str) -> Iterator[Voice]:
    """Inside, a command's voice and the log of Rookery; with `as_json` the object is printed at the end, unless that is an error."""
    if log_level not in LEVELS:
        from ..studies.values import nearest

        raise ConfigError(f"--log-level is one of {', '.join(LEVELS)}; {nearest(log_level, LEVELS)}It was given {log_level!r}")
    voice, logger, handler = Voice(command, quiet, as_json), logging.getLogger("rookery"), _Handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = logger.level
    logger.setLevel(log_level.upper())
    logger.addHandler(handler)
    try:
        yield voice
    except typer.Exit:
        voice.close()
        raise
    else:
        voice.close()
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    """To the standard error, above a bar that may be there."""

    def emit(self, record: logging.LogRecord) -> None:
        errors.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


def overrides(sets: list[str] | None, seed: int | None) -> list[str]:
    """What is said over the file, for `read`."""
    return [*(sets or ()), *([] if seed is None else [f"federation.seed={seed}"])]


def refuse_past(minutes: float | None) -> None:
    """Refuse a time to stop after that is none."""
    if minutes is not None and not minutes >= 0:
        raise ConfigError(f"--minutes must not be negative; got {minutes}")


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(42.4), duration(600), duration(9000)
    ('42 s', '10 minutes', '2.5 hours')
    """
    return f"{seconds:.0f} s" if seconds < 99.5 else f"{seconds / 60:.0f} minutes" if seconds < 5700 else f"{seconds / 3600:.1f} hours"


def _plain(value: Any) -> Any:
    """A value as JSON can have it: numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
