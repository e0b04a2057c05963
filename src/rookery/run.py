"""The only loop: rounds of an algorithm, with evaluation beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .algorithms.base import Algorithm
from .errors import AlgorithmError
from .fed import Federation

Metrics = dict[str, float]


def run(algorithm: Algorithm, fed: Federation, state: Any, rounds: int, evaluate: Callable[[Any], Metrics] | None = None,
        every: int = 1) -> tuple[Any, list[Metrics]]:
    """Run `rounds` rounds from `state`; evaluate before the first, after every `every`-th and after the last.

    A row of the history has the metrics with the round, exchanges, bytes and samples of training so far. Evaluation draws and
    exchanges are booked under their own phase and do not change the training.
    """
    if rounds < 0 or every < 1:
        raise AlgorithmError(f"rounds must not be negative and every at least 1; got {rounds} and {every}")
    history: list[Metrics] = []
    for t in range(rounds + 1):
        if t:
            state = algorithm.round(fed, state)
        if evaluate is not None and (t % every == 0 or t == rounds):
            with fed.phase("evaluation"):
                metrics = evaluate(state)
            account = fed.ledger["train"]
            history.append({"round": t, "exchanges": account.exchanges, "bytes": account.bytes_up + account.bytes_down,
                            "samples": account.samples, **metrics})
    return state, history
