"""Local work in passes over a client's own rows."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import AlgorithmError
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
