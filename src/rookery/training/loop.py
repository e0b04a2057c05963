"""The only loop: rounds of an algorithm, or stages of several, with evaluation beside them, checkpoints under them, and reasons to stop."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from torch import Tensor

from ..algorithms.base import Algorithm
from ..errors import AlgorithmError, CheckpointError, Diverged, NonFinite, StateLost
from ..federation.federation import Federation
from ..problems.base import Problem
from .again import again
from .files import held
from .keeper import Keeper
from .result import Callback, EarlyStop, Metrics, OnProgress, Reason, Run
from .stage import Stage
from .uniform import Uniform

LOG = logging.getLogger(__name__)
EVALUATION = 0.1  # of a run's time that it may take, where nobody says how often to evaluate
BACK = 3  # times that a run goes back to its checkpoint from the same round
EXPLODED = 1e3  # a loss that is so many times the one that the run began with has diverged, finite or not


def run(algorithm: Algorithm[Any], fed: Federation[Problem], state: Any, rounds: int, evaluate: Callable[[Any], Metrics] | None = None,
        every: int | None = None, *, folder: Path | str | None = None, resume: bool = False, save_every: int | None = None,
        minutes: float | None = None, stop: EarlyStop | None = None, callbacks: Sequence[Callback] = (),
        on_progress: OnProgress | None = None, output: Literal["last", "uniform"] = "last", loss: str | None = None) -> Run:
    """Run up to `rounds` rounds from `state`; evaluate before the first, after every `every`-th and after the last.

    every:      None chooses so that evaluation takes about a tenth of the time, once, from the first round and evaluation
    folder:     where `history.jsonl` and `state.ckpt` go; the checkpoint holds all that is needed to go on
    resume:     go on from the folder's checkpoint, if there is one, bit for bit
    save_every: rounds between checkpoints (default: at evaluations); the end is always saved
    minutes:    a budget of this call; the run can be resumed after it
    stop:       early stopping
    callbacks:  called with each row of history
    on_progress: called with the number of rounds made and the number of all, at the beginning and after every round
    output:     "uniform" keeps the iterate that the theorems speak of as well, `Run.output`: the mean of the clients' points after t
                steps, t drawn uniformly from 1 to T before the run; within a round that takes one extra average, in the phase `output`.
                Where an algorithm's x is not such a mean, or its local work is in epochs, t counts rounds
    loss:       the metric that tells whether training explodes

    A row has the metrics with the round, and the exchanges, bytes, samples and seconds of training alone so far. Evaluation is booked
    under its own phase and does not change the training. Ctrl-C ends the run after the round as "interrupted". It ends as "diverged",
    with the reason in words, where

    - a client's upload is not finite: the state is that before the round;
    - the evaluation raises `Diverged`, or the metric `loss` is not finite or more than 1 000 times the larger of 1 and its first value:
      the state has the vectors of the last good evaluation, no row is written, and the folder's checkpoint stays as it was.
    """
    return run_stages([Stage(algorithm, fed, rounds, lambda _: state, evaluate)], every, folder=folder, resume=resume,
                      save_every=save_every, minutes=minutes, stop=stop, callbacks=callbacks, on_progress=on_progress, output=output,
                      loss=loss)


def run_stages(stages: Sequence[Stage], every: int | None = None, *, folder: Path | str | None = None, resume: bool = False,
               save_every: int | None = None, minutes: float | None = None, stop: EarlyStop | None = None,
               callbacks: Sequence[Callback] = (), on_progress: OnProgress | None = None,
               output: Literal["last", "uniform"] = "last", loss: str | None = None) -> Run:
    """Run stages one after the other as one run: rounds, costs and history go through, and so do budgets, interruptions and resuming.

    Options are those of `run`. Rounds between evaluations and between checkpoints are counted from the beginning of a stage; `stop` and
    the uniform output are the last stage's.
    """
    if any(stage.rounds < 0 for stage in stages) or (every is not None and every < 1) or (save_every is not None and save_every < 1):
        raise AlgorithmError(f"rounds must not be negative, every and save_every at least 1; got {[stage.rounds for stage in stages]}, "
                             f"{every} and {save_every}")
    if resume and folder is None:
        raise CheckpointError("resume needs the folder of the run: run(..., folder=..., resume=True)")
    result = Run(None, every=every)
    with nullcontext() if folder is None else held(Path(folder)), _interrupts() as interrupted:
        keeper = None if folder is None else Keeper(Path(folder), stages)
        resumed = False
        if keeper is not None and resume:
            resumed = keeper.resume(result, output == "uniform")
        elif keeper is not None:
            keeper.begin()
        loop = _Loop(stages, result, callbacks, on_progress, keeper, loss, every, save_every, stop, output == "uniform")
        ends = None if minutes is None else time.perf_counter() + 60 * minutes
        try:
            for number in range(result.stage, len(stages)):
                if not resumed:
                    loop.enter(number)
                resumed = False
                reason = loop.stay(interrupted, ends)
                if reason is not None:
                    result.reason = reason
                    break
        except NonFinite as error:
            result.reason, result.failure = "diverged", f"{loop.where()}, {error}"
        except Diverged as error:
            result.reason, result.failure = "diverged", str(error)
            loop.go_back()
            return result
        if keeper is not None and result.state is not None:
            keeper.save(result)
    return result


class _Loop:
    """One round and one evaluation at a time, with their clocks."""

    def __init__(self, stages: Sequence[Stage], result: Run, callbacks: Sequence[Callback], on_progress: OnProgress | None,
                 keeper: Keeper | None, loss: str | None, every: int | None, save_every: int | None, stop: EarlyStop | None,
                 uniform: bool) -> None:
        self.stages, self.result, self.callbacks, self.on_progress, self.keeper = stages, result, callbacks, on_progress, keeper
        self.loss, self.every, self.save_every, self.stop, self.uniform = loss, every, save_every, stop, uniform
        self.good: tuple[int, dict[str, Tensor]] | None = None  # the stage and the vectors of the last good evaluation
        self.left: Any = None  # the last state of the stage before, until there was a good evaluation in this one
        self.of_round = self.of_evaluation = 0.0
        self.under_way = False  # whether the next failure is one of a round
        self.went_back: list[int] = []  # from which rounds to a checkpoint

    @property
    def stage(self) -> Stage:
        return self.stages[self.result.stage]

    @property
    def made(self) -> int:
        """Rounds made in this stage."""
        return self.result.rounds - sum(stage.rounds for stage in self.stages[: self.result.stage])

    @property
    def _named(self) -> str:
        return f", {self.stage.name}" if self.stage.name else ""

    def where(self) -> str:
        """Where a client's upload was not finite."""
        number = self.result.rounds + 1
        if self.under_way:
            return f"in round {number}{self._named}"
        return "before the first round" if number == 1 else f"before round {number}"

    def enter(self, number: int) -> None:
        """Begin a stage: its ledger goes on from the one before, its first state is made and evaluated."""
        result, stage, began = self.result, self.stages[number], time.perf_counter()
        self.under_way = False
        if number:
            stage.fed.ledger.load(self.stages[number - 1].fed.ledger.to_json())
        state = stage.start(result.state)
        self.left, result.state, result.stage, result.every = result.state, state, number, self.every
        self.of_round = 0.0
        if number:
            result.seconds += time.perf_counter() - began
        self.evaluate()

    def stay(self, interrupted: list[bool], ends: float | None) -> Reason | None:
        """The rounds of a stage; the reason to end the run before they are done."""
        result, stage, last = self.result, self.stage, self.result.stage == len(self.stages) - 1
        chosen = Uniform(stage.algorithm, stage.fed, stage.rounds) if self.uniform and last else None
        self.progress()
        while self.made < stage.rounds:
            if interrupted:
                return "interrupted"
            if ends is not None and time.perf_counter() >= ends:
                return "minutes"
            if chosen is not None:
                chosen.look(self.made, result, self.keeper)
            if not self._done(self.round):
                continue
            done = self.made == stage.rounds
            if chosen is not None and done:
                chosen.look(self.made, result, self.keeper)
            # a stage begins with an evaluation, so that the one before it need not end with one
            if stage.evaluate is not None and (last if done else self.made % self.interval() == 0):
                if not self._done(self.evaluate):
                    continue
                if last and self.stop is not None and self.stop.reached(self.rows()):
                    return "early stop"
            if self.keeper is not None and not (done and last) and self.made % (self.save_every or self.interval()) == 0:
                self._done(lambda: self.keeper.save(result))  # type: ignore[union-attr]
        return None

    def _done(self, work: Callable[[], None]) -> bool:
        """Whether something was done; where a site has lost values that are in use, the run goes back to its checkpoint instead."""
        try:
            work()
            return True
        except StateLost as error:
            there = self.keeper is not None and self.keeper.checkpoint.exists()
            if not there or self.went_back.count(self.result.rounds) == BACK:
                raise
            self.went_back.append(self.result.rounds)
            stage = self.result.stage
            assert self.keeper is not None
            self.keeper.resume(self.result, self.uniform)
            if self.result.stage != stage:
                raise
            LOG.warning("%s: the run goes back to its checkpoint after round %d", error, self.result.rounds)
            return False

    def round(self) -> None:
        stage, began = self.stage, time.perf_counter()
        self.under_way = True
        with stage.fed.ledger.recording() as self.result.traffic:
            self.result.state = again(stage.fed, f"round {self.result.rounds + 1}",
                                      lambda: stage.algorithm.round(stage.fed, self.result.state))
        self.result.rounds += 1
        elapsed = time.perf_counter() - began
        self.result.seconds += elapsed
        # the first round traces and warms up: the quickest so far says what rounds will cost
        self.of_round = elapsed if not self.of_round else min(self.of_round, elapsed)
        LOG.debug("round %d: %.4f s, %d bytes", self.result.rounds, elapsed, sum(line.bytes * line.clients for line in self.result.traffic))
        self.progress()

    def progress(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.result.rounds, sum(stage.rounds for stage in self.stages))

    def interval(self) -> int:
        """Rounds between evaluations: given, or fixed after the second round of a stage from what the two cost."""
        if self.result.every is None:
            if self.stage.evaluate is None or self.made < 2:
                return 1
            self.result.every = max(1, math.ceil(self.of_evaluation / (EVALUATION * max(self.of_round, 1e-9))))
        return self.result.every

    def rows(self) -> list[Metrics]:
        """The history of this stage."""
        return [row for row in self.result.history if row["round"] >= self.result.rounds - self.made]

    def evaluate(self) -> None:
        stage, result = self.stage, self.result
        if stage.evaluate is None:
            self.left = None
            return
        began = time.perf_counter()
        try:
            with stage.fed.phase("evaluation"):
                found = again(stage.fed, f"the evaluation after round {result.rounds}", lambda: stage.evaluate(result.state))  # type: ignore[misc]
                metrics = {name: float(value) for name, value in found.items()}
            self._refuse_exploded(metrics)
        except (Diverged, NonFinite) as error:
            raise Diverged(f"in the evaluation after round {result.rounds}{self._named}, {error}") from None
        vectors = {name: value for name, value in getattr(result.state, "_asdict", dict)().items() if isinstance(value, Tensor)}
        self.good, self.left = (result.stage, vectors), None
        self.of_evaluation = time.perf_counter() - began
        account = stage.fed.ledger["train"]
        row: Metrics = {"round": result.rounds, "exchanges": account.exchanges, "bytes": account.bytes_up + account.bytes_down,
                        "samples": account.samples, "seconds": round(result.seconds, 4), **metrics}
        result.history.append(row)
        LOG.info("after round %d: %.2f s of training, %d exchanges, %d bytes; evaluated in %.2f s", result.rounds, result.seconds,
                 account.exchanges, row["bytes"], self.of_evaluation)
        for callback in ((self.keeper.write, *self.callbacks) if self.keeper else self.callbacks):
            callback(row)

    def go_back(self) -> None:
        """The vectors of the last good evaluation into the state; the state of the stage before, where it was there."""
        if self.good is None or not self.good[1]:
            return
        stage, vectors = self.good
        if stage != self.result.stage:
            self.result.stage, self.result.state = stage, self.left
        self.result.state = self.result.state._replace(**vectors)

    def _refuse_exploded(self, metrics: Metrics) -> None:
        if self.loss is None or self.loss not in metrics:
            return
        value, rows = metrics[self.loss], self.result.history
        first = rows[0].get(self.loss, value) if rows else value
        if not math.isfinite(value) or value > EXPLODED * max(1.0, first):
            raise Diverged(f"the {self.loss} is {value:.6g}, where the run began at {first:.6g}: lower the learning rate")


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
