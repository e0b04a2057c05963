"""The only loop: rounds of an algorithm, with evaluation beside them, checkpoints under them, and reasons to stop."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from torch import Tensor

from ..algorithms.base import Algorithm
from ..errors import AlgorithmError, CheckpointError, Diverged, NonFinite
from ..federation.federation import Federation
from ..federation.ledger import Line
from ..problems.base import Problem
from .files import held
from .keeper import Keeper

Metrics = dict[str, float]
Reason = Literal["rounds", "minutes", "early stop", "diverged", "interrupted"]
COUNTS = ("round", "exchanges", "bytes", "samples", "seconds")  # of training so far: the axes of a row, not its metrics
SHARE = 0.1  # of a run's time that evaluation may take, where nobody says how often to evaluate
EXPLODED = 1e3  # a loss that is so many times the one that the run began with has diverged, finite or not


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
    failure: str | None = None  # what diverged, in words
    traffic: list[Line] = field(default_factory=list)  # what crossed the network in the last round
    output: Tensor | None = None  # the uniformly drawn iterate, where it was asked for and reached

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.history]


Callback = Callable[[Metrics], None]


def run(algorithm: Algorithm[Any], fed: Federation[Problem], state: Any, rounds: int, evaluate: Callable[[Any], Metrics] | None = None,
        every: int | None = None, *, folder: Path | str | None = None, resume: bool = False, save_every: int | None = None,
        minutes: float | None = None, stop: EarlyStop | None = None, callbacks: Sequence[Callback] = (),
        output: Literal["last", "uniform"] = "last", before: int = 0, spent: float = 0.0, loss: str | None = None,
        first: float | None = None) -> Run:
    """Run up to `rounds` rounds from `state`; evaluate before the first, after every `every`-th and after the last.

    every:      None chooses so that evaluation takes about a tenth of the time, once, from the first round and evaluation
    folder:     where `history.jsonl` and `state.ckpt` go; the checkpoint holds all that is needed to go on
    resume:     go on from the folder's checkpoint, if there is one, bit for bit
    save_every: rounds between checkpoints (default: at evaluations); the end is always saved
    minutes:    a budget of this call; the run can be resumed after it
    stop:       early stopping
    callbacks:  called with each row of history
    output:     "uniform" keeps the iterate that the theorems speak of as well, `Run.output`: the mean of the clients' points after t
                steps, t drawn uniformly from 1 to T before the run; within a round that takes one extra average, in the phase `output`.
                Where an algorithm's x is not such a mean, or its local work is in epochs, t counts rounds
    before, spent: rounds made already, by a warm-up, and their seconds; rows of history count from there
    loss:       the metric that tells whether training explodes; `first` is its value at the beginning (default: in the first row)

    A row has the metrics with the round, and the exchanges, bytes, samples and seconds of training alone so far. Evaluation is booked
    under its own phase and does not change the training. Ctrl-C ends the run after the round as "interrupted". It ends as "diverged",
    with the reason in words, where

    - a client's upload is not finite: the state is that before the round;
    - the evaluation raises `Diverged`, or the metric `loss` is not finite or more than 1 000 times the larger of 1 and `first`: the
      state has the x of the last good evaluation, no row is written, and the folder's checkpoint stays as it was.
    """
    if rounds < 0 or (every is not None and every < 1) or (save_every is not None and save_every < 1):
        raise AlgorithmError(f"rounds must not be negative, every and save_every at least 1; got {rounds}, {every} and {save_every}")
    result = Run(state, every=every, seconds=spent)
    if resume and folder is None:
        raise CheckpointError("resume needs the folder of the run: run(..., folder=..., resume=True)")
    with nullcontext() if folder is None else held(Path(folder)), _interrupts() as interrupted:
        keeper = None if folder is None else Keeper(Path(folder), algorithm, fed)
        if keeper is not None and resume:
            keeper.resume(result, rounds if output == "uniform" else None)
        elif keeper is not None:
            keeper.begin()
        loop = _Loop(algorithm, fed, result, evaluate, callbacks, keeper, before, loss, first)
        chosen = _Uniform(algorithm, fed, rounds) if output == "uniform" else None
        start = time.perf_counter()
        try:
            if not result.history and result.rounds == 0:
                loop.evaluate()
            while result.rounds < rounds:
                if interrupted:
                    result.reason = "interrupted"
                    break
                if minutes is not None and time.perf_counter() - start >= 60 * minutes:
                    result.reason = "minutes"
                    break
                if chosen is not None:
                    chosen.look(result, keeper)
                loop.round()
                last = result.rounds == rounds
                if chosen is not None and last:
                    chosen.look(result, keeper)
                if evaluate is not None and (last or result.rounds % loop.interval() == 0):
                    loop.evaluate()
                    if stop is not None and stop.reached(result.history):
                        result.reason = "early stop"
                        break
                if keeper is not None and not last and result.rounds % (save_every or loop.interval()) == 0:
                    keeper.save(result, rounds)
        except NonFinite as error:
            result.reason, result.failure = "diverged", f"in round {before + result.rounds + 1}, {error}"
        except Diverged as error:
            result.reason, result.failure = "diverged", str(error)
            if loop.good is not None:
                result.state = result.state._replace(x=loop.good)
            return result
        if keeper is not None:
            keeper.save(result, rounds)
    return result


class _Loop:
    """One round and one evaluation at a time, with their clocks."""

    def __init__(self, algorithm: Algorithm[Any], fed: Federation[Problem], result: Run, evaluate: Callable[[Any], Metrics] | None,
                 callbacks: Sequence[Callback], keeper: Keeper | None, before: int, loss: str | None, first: float | None) -> None:
        self.algorithm, self.fed, self.result, self._evaluate = algorithm, fed, result, evaluate
        self.callbacks, self.keeper, self.before, self.loss, self.first = callbacks, keeper, before, loss, first
        self.good: Tensor | None = None  # x at the last good evaluation
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
        try:
            with self.fed.phase("evaluation"):
                metrics = {name: float(value) for name, value in self._evaluate(self.result.state).items()}
            self._refuse_exploded(metrics)
        except (Diverged, NonFinite) as error:
            raise Diverged(f"in the evaluation after round {self.before + self.result.rounds}, {error}") from None
        self.good = getattr(self.result.state, "x", None)
        self.of_evaluation = time.perf_counter() - start
        account = self.fed.ledger["train"]
        row: Metrics = {"round": self.before + self.result.rounds, "exchanges": account.exchanges,
                        "bytes": account.bytes_up + account.bytes_down, "samples": account.samples,
                        "seconds": round(self.result.seconds, 4), **metrics}
        self.result.history.append(row)
        for callback in ((self.keeper.write, *self.callbacks) if self.keeper else self.callbacks):
            callback(row)

    def _refuse_exploded(self, metrics: Metrics) -> None:
        if self.loss is None or self.loss not in metrics:
            return
        value, rows = metrics[self.loss], self.result.history
        first = self.first if self.first is not None else rows[0].get(self.loss, value) if rows else value
        if not math.isfinite(value) or value > EXPLODED * max(1.0, first):
            raise Diverged(f"the {self.loss} is {value:.6g}, where the run began at {first:.6g}: lower the learning rate")


class _Uniform:
    """An iterate after one of the steps 1 … T of all rounds, drawn uniformly before the first.

    Where a round is a number of local steps, the steps before the chosen one are played ahead of their round, from the same state and
    with the same samples, and averaged; that average is all it costs on the network besides what those steps exchange themselves.
    """

    def __init__(self, algorithm: Algorithm[Any], fed: Federation[Problem], rounds: int) -> None:
        self.algorithm, self.fed = algorithm, fed
        steps = getattr(algorithm, "local_steps", 1)
        each = steps if isinstance(steps, int) and algorithm.plain_average else 1
        fed.counters["server:output"] = 0  # so that a resumed run draws the same
        with fed.phase("output"):
            step = 1 + fed.integer(each * rounds) if rounds else 0
        self.round, self.step = divmod(step, each)

    def look(self, result: Run, keeper: Keeper | None) -> None:
        """Keep the iterate, if it is the one after the rounds made so far, or within the next."""
        if self.round == result.rounds:
            result.output = self.iterate(result.state)
            if keeper is not None:
                keeper.keep(result.output)

    def iterate(self, state: Any) -> Tensor:
        if self.step:
            with self.fed.replay():
                state = replace(self.algorithm, local_steps=self.step).round(self.fed, state)  # type: ignore[type-var]
        x: Tensor = state.x
        return x.clone()


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
