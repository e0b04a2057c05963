"""What a run keeps in its folder on the way: the history as it grows, and the last checkpoint, from which it goes on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..algorithms.base import Algorithm
from ..errors import CheckpointError
from ..federation.federation import Federation
from ..federation.ledger import Line
from ..problems.base import Problem
from . import checkpoint
from .files import append, aside, write_whole

if TYPE_CHECKING:
    from .loop import Metrics, Run

CHECKPOINT = "state.ckpt"


def refuse_taken(folder: Path) -> None:
    """A folder that holds a run already is for resuming only."""
    if (folder / CHECKPOINT).exists():
        raise CheckpointError(f"{folder} holds a run already; go on with it (resume=True, --resume) or take another folder")


class Keeper:
    """A run's folder: the history as it grows, and the last checkpoint, which holds the history too."""

    def __init__(self, folder: Path, algorithm: Algorithm[Any], fed: Federation[Problem]) -> None:
        self.folder, self.algorithm, self.fed = folder, algorithm, fed
        self.history, self.checkpoint, self.output = folder / "history.jsonl", folder / CHECKPOINT, folder / "output.safetensors"

    def begin(self) -> None:
        refuse_taken(self.folder)
        write_whole(self.history, "")
        self.output.unlink(missing_ok=True)

    def keep(self, output: Tensor) -> None:
        with aside(self.output) as beside:
            save_file({"x": output}, beside)

    def write(self, row: Metrics) -> None:
        append(self.history, json.dumps(row))

    def save(self, result: Run, planned: int) -> None:
        extra = {"rounds": result.rounds, "seconds": result.seconds, "every": result.every, "history": result.history, "planned": planned,
                 "traffic": [asdict(line) for line in result.traffic]}
        checkpoint.save(self.checkpoint, self.algorithm, self.fed, result.state, extra)

    def resume(self, result: Run, planned: int | None) -> None:
        """Go on from the checkpoint; rows of history beyond it are of rounds that will be run again.

        `planned` is the number of rounds that a uniform iterate is drawn from: it cannot change on the way.
        """
        if not self.checkpoint.exists():
            write_whole(self.history, "")
            return
        result.state = checkpoint.load(self.checkpoint, self.algorithm, self.fed)
        extra = checkpoint.extra(self.checkpoint)
        if not isinstance(extra, dict) or not extra.keys() >= {"planned", "traffic", "rounds", "seconds", "every", "history"}:
            raise CheckpointError(f"{self.checkpoint} holds a state but no run to go on with; read it with rookery.training.load, "
                                  "and begin in another folder")
        if planned is not None and planned != extra["planned"]:
            raise CheckpointError(f"the uniform iterate of {self.folder} is drawn from {extra['planned']} rounds, and they cannot become "
                                  f"{planned}; resume with that number, or begin anew in another folder")
        result.traffic = [Line(**line) for line in extra["traffic"]]
        result.rounds, result.seconds, result.history = extra["rounds"], extra["seconds"], extra["history"]
        result.every = result.every if result.every is not None else extra["every"]
        if self.output.exists():
            try:
                result.output = load_file(self.output)["x"]
            except (SafetensorError, KeyError, OSError) as error:
                raise CheckpointError(f"{self.output} is not whole ({error}); put a copy in its place, or begin anew in another folder") \
                    from None
        write_whole(self.history, "".join(json.dumps(row) + "\n" for row in result.history))
