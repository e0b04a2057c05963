"""The only loop: rounds of an algorithm, with evaluation beside them, checkpoints under them, and reasons to stop."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from safetensors.torch import load_file, save_file
from torch import Tensor

from . import checkpoint
from .algorithms.base import Algorithm
from .errors import AlgorithmError, CheckpointError, NonFinite
from .fed import Federation
from .ledger import Line

Metrics = dict[str, float]
Reason = Literal["rounds", "minutes", "early stop", "diverged", "interrupted"]
CHECKPOINT = "state.ckpt"
SHARE = 0.1  # of a run's time that evaluation may take, where nobody says how often to evaluate


@dataclass(frozen=True)
class EarlyStop:
    """Stop when `metric` has not become better by more than `least` for `patience` evaluations."""

    metric: str
    patience: int = 5
    larger_is_better: bool = True
    least: float = 0.0

    def reached(self, history: list[Metrics]) -> bool:
        if history and self.metric not in history[-1]:
            raise AlgorithmError(f"early stopping watches {self.metric!r}; the evaluation gives {sorted(history[-1])}")
        sign = 1 if self.larger_is_better else -1
        values = [sign * row[self.metric] for row in history]
        best = -math.inf
        since = 0
        for value in values:
            best, since = (value, 0) if value > best + self.least else (best, since + 1)
        return since >= self.patience


@dataclass
class Run:
    """What a run came to: the last state, a row of history per evaluation, and why it ended."""

    state: Any
    history: list[Metrics] = field(default_factory=list)
    reason: Reason = "rounds"
    rounds: int = 0
    seconds: float = 0.0
    every: int | None = None
    trouble: str | None = None  # what diverged, in words
    traffic: list[Line] = field(default_factory=list)  # what crossed the network in the last round
    output: Tensor | None = None  # the uniformly drawn iterate, where it was asked for and reached

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.history]


Callback = Callable[[Metrics], None]


def run(algorithm: Algorithm, fed: Federation, state: Any, rounds: int, evaluate: Callable[[Any], Metrics] | None = None,
        every: int | None = None, *, folder: Path | str | None = None, resume: bool = False, save_every: int | None = None,
        minutes: float | None = None, stop: EarlyStop | None = None, callbacks: Sequence[Callback] = (),
        output: Literal["last", "uniform"] = "last", before: int = 0, spent: float = 0.0) -> Run:
    """Run up to `rounds` rounds from `state`; evaluate before the first, after every `every`-th and after the last.

    every:      None chooses so that evaluation takes about a tenth of the time, once, from the first round and evaluation
    folder:     where `history.jsonl` and `state.ckpt` go; the checkpoint holds all that is needed to go on
    resume:     go on from the folder's checkpoint, if there is one, bit for bit
    save_every: rounds between checkpoints (default: at evaluations); the end is always saved
    minutes:    a budget of this call; the run can be resumed after it
    stop:       early stopping
    callbacks:  called with each row of history
    output:     "uniform" keeps the iterate that the theorems speak of as well, `Run.output`: the mean of the clients' points after t
                steps, t drawn uniformly before the run; within a round that takes one extra average, booked under the phase `output`.
                Where an algorithm's x is not such a mean, or its local work is in epochs, t counts rounds
    before, spent: rounds made already, by a warm-up, and their seconds; rows of history count from there

    A row has the metrics with the round, and the exchanges, bytes, samples and seconds of training alone so far. Evaluation is booked
    under its own phase and does not change the training. A client's non-finite upload ends the run as "diverged", with the last
    good state; Ctrl-C ends it after the round as "interrupted".
    """
    if rounds < 0 or (every is not None and every < 1) or (save_every is not None and save_every < 1):
        raise AlgorithmError(f"rounds must not be negative, every and save_every at least 1; got {rounds}, {every} and {save_every}")
    result = Run(state, every=every, seconds=spent)
    keeper = None if folder is None else _Keeper(Path(folder), algorithm, fed)
    if resume:
        if keeper is None:
            raise CheckpointError("resume needs the folder of the run: run(..., folder=..., resume=True)")
        keeper.resume(result, rounds if output == "uniform" else None)
    elif keeper is not None:
        keeper.begin()
    loop = _Loop(algorithm, fed, result, evaluate, callbacks, keeper, before)
    chosen = _Uniform(algorithm, fed, rounds) if output == "uniform" else None
    start = time.perf_counter()
    with _interrupts() as interrupted:
        if not result.history and result.rounds == 0:
            loop.evaluate()
        while result.rounds < rounds:
            if minutes is not None and time.perf_counter() - start >= 60 * minutes:
                result.reason = "minutes"
                break
            try:
                if chosen is not None and chosen.round == result.rounds:
                    result.output = chosen.iterate(result.state)
                    if keeper is not None:
                        keeper.keep(result.output)
                loop.round()
            except NonFinite as error:
                result.reason, result.trouble = "diverged", str(error)
                break
            last = result.rounds == rounds
            if evaluate is not None and (last or result.rounds % loop.interval() == 0):
                loop.evaluate()
                if stop is not None and stop.reached(result.history):
                    result.reason = "early stop"
                    break
            if keeper is not None and not last and result.rounds % (save_every or loop.interval()) == 0:
                keeper.save(result, rounds)
            if interrupted:
                result.reason = "interrupted"
                break
    if keeper is not None:
        keeper.save(result, rounds)
    return result


def refuse_taken(folder: Path) -> None:
    """A folder that holds a run already is for resuming only."""
    if (folder / CHECKPOINT).exists():
        raise CheckpointError(f"{folder} holds a run already; go on with it (resume=True, --resume) or take another folder")


class _Loop:
    """One round and one evaluation at a time, with their clocks."""

    def __init__(self, algorithm: Algorithm, fed: Federation, result: Run, evaluate: Callable[[Any], Metrics] | None,
                 callbacks: Sequence[Callback], keeper: _Keeper | None, before: int) -> None:
        self.algorithm, self.fed, self.result, self._evaluate = algorithm, fed, result, evaluate
        self.callbacks, self.keeper, self.before = callbacks, keeper, before
        self.of_round = self.of_evaluation = 0.0

    def round(self) -> None:
        start = time.perf_counter()
        with self.fed.ledger.recording() as self.result.traffic:
            self.result.state = self.algorithm.round(self.fed, self.result.state)
        self.result.rounds += 1
        elapsed = time.perf_counter() - start
        self.result.seconds += elapsed
        # the first round traces and warms up: the quickest so far says what rounds will cost
        self.of_round = elapsed if not self.of_round else min(self.of_round, elapsed)

    def interval(self) -> int:
        """Rounds between evaluations: given, or fixed after the second round from what the two cost."""
        if self.result.every is None:
            if self._evaluate is None or self.result.rounds < 2:
                return 1
            self.result.every = max(1, math.ceil(self.of_evaluation / (SHARE * max(self.of_round, 1e-9))))
        return self.result.every

    def evaluate(self) -> None:
        if self._evaluate is None:
            return
        start = time.perf_counter()
        with self.fed.phase("evaluation"):
            metrics = {name: float(value) for name, value in self._evaluate(self.result.state).items()}
        self.of_evaluation = time.perf_counter() - start
        account = self.fed.ledger["train"]
        row: Metrics = {"round": self.before + self.result.rounds, "exchanges": account.exchanges,
                        "bytes": account.bytes_up + account.bytes_down, "samples": account.samples,
                        "seconds": round(self.result.seconds, 4), **metrics}
        self.result.history.append(row)
        for callback in ((self.keeper.write, *self.callbacks) if self.keeper else self.callbacks):
            callback(row)


class _Uniform:
    """An iterate drawn uniformly from all steps of all rounds, before the first.

    Where a round is a number of local steps, the steps before the chosen one are played ahead of their round, from the same state and
    with the same samples, and averaged; that average is all it costs on the network besides what those steps exchange themselves.
    """

    def __init__(self, algorithm: Algorithm, fed: Federation, rounds: int) -> None:
        self.algorithm, self.fed = algorithm, fed
        steps = getattr(algorithm, "local_steps", 1)
        each = steps if isinstance(steps, int) and algorithm.plain_average else 1
        fed.counters["server:output"] = 0  # so that a resumed run draws the same
        with fed.phase("output"):
            index = fed.integer(each * rounds) if rounds else 0
        self.round, self.step = divmod(index, each)

    def iterate(self, state: Any) -> Tensor:
        if self.step:
            with self.fed.rehearsal():
                state = replace(self.algorithm, local_steps=self.step).round(self.fed, state)  # type: ignore[type-var]
        x: Tensor = state.x
        return x.clone()


class _Keeper:
    """A run's folder: the history as it grows, and the last checkpoint, which holds the history too."""

    def __init__(self, folder: Path, algorithm: Algorithm, fed: Federation) -> None:
        self.folder, self.algorithm, self.fed = folder, algorithm, fed
        self.history, self.checkpoint, self.output = folder / "history.jsonl", folder / CHECKPOINT, folder / "output.safetensors"

    def begin(self) -> None:
        refuse_taken(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.history.write_text("")
        self.output.unlink(missing_ok=True)

    def keep(self, output: Tensor) -> None:
        aside = self.output.with_suffix(".part")
        save_file({"x": output}, aside)
        aside.replace(self.output)

    def write(self, row: Metrics) -> None:
        with self.history.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def save(self, result: Run, planned: int) -> None:
        extra = {"rounds": result.rounds, "seconds": result.seconds, "every": result.every, "history": result.history, "planned": planned,
                 "traffic": [asdict(line) for line in result.traffic]}
        checkpoint.save(self.checkpoint, self.algorithm, self.fed, result.state, extra)

    def resume(self, result: Run, planned: int | None) -> None:
        """Go on from the checkpoint; rows of history beyond it are of rounds that will be run again.

        `planned` is the number of rounds that a uniform iterate is drawn from: it cannot change on the way.
        """
        if not self.checkpoint.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.history.write_text("")
            return
        result.state = checkpoint.load(self.checkpoint, self.algorithm, self.fed)
        extra = checkpoint.extra(self.checkpoint)
        if planned is not None and planned != extra["planned"]:
            raise CheckpointError(f"the uniform iterate of {self.folder} is drawn from {extra['planned']} rounds, and they cannot become "
                                  f"{planned}; resume with that number, or begin anew in another folder")
        result.traffic = [Line(**line) for line in extra["traffic"]]
        result.rounds, result.seconds, result.history = extra["rounds"], extra["seconds"], extra["history"]
        result.every = result.every if result.every is not None else extra["every"]
        if self.output.exists():
            result.output = load_file(self.output)["x"]
        checkpoint.write_whole(self.history, "".join(json.dumps(row) + "\n" for row in result.history))


@contextmanager
def _interrupts() -> Iterator[list[bool]]:
    """Inside, the first Ctrl-C is noted (the list becomes non-empty); the second one interrupts as usual."""
    seen: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(number: int, frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(True)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
