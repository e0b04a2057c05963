"""Some rounds of an algorithm."""

from __future__ import annotations

from typing import Any

from rookery import Federation


def rounds(algorithm: Any, fed: Federation, state: Any, n: int) -> Any:
    for _ in range(n):
        state = algorithm.round(fed, state)
    return state
