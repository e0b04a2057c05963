"""Local work: a number of steps, one for each client, or passes over a client's own rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import AlgorithmError
from .operations import Index
from .program import Program


@dataclass(frozen=True)
class Epochs(Program):
    """Local work in passes over the client's own rows instead of steps: `local_steps=Epochs(5)`.

    All rows count, also where an objective uses some of them as validation rows: a pass over n rows is n/batch steps.
    """

    number: float

    def __post_init__(self) -> None:
        if not self.number > 0:
            raise AlgorithmError(f"Epochs takes a positive number; got {self.number}")


def local_work(local_steps: int | Epochs | tuple[int, ...], batch: int | None, sizes: Index, clients: Index, name: str) -> int | Index:
    """The steps of these clients, of whose federation `sizes` are the rows: one number, or one each."""
    if isinstance(local_steps, int):
        return local_steps
    if isinstance(local_steps, tuple):
        if len(local_steps) != len(sizes) or any(not isinstance(n, int) or n < 1 for n in local_steps):
            raise AlgorithmError(f"{name} as a tuple holds one whole number of at least 1 for each of the {len(sizes)} "
                                 f"clients, in the order of fed.names; got {local_steps!r}")
        return np.asarray(local_steps, dtype=np.int64)[clients]
    if not isinstance(local_steps, Epochs):
        raise AlgorithmError(f"{name} is a whole number, one for each client, or Epochs(…); got {local_steps!r}")
    if batch is None:
        return math.ceil(local_steps.number)
    return np.maximum(1, np.ceil(local_steps.number * sizes[clients] / batch)).astype(np.int64)
