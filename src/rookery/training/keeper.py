"""What a run keeps in its folder on the way: the history as it grows, and the last checkpoint, from which it goes on."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import CheckpointError
from ..federation.ledger import Line
from . import checkpoint
from .again import again
from .files import append, aside, write_whole
from .result import Metrics, Run
from .stage import Stage

CHECKPOINT = "state.ckpt"
LOG = logging.getLogger(__name__)


def refuse_taken(folder: Path) -> None:
    """A folder that holds a run already is for resuming only."""
    if (folder / CHECKPOINT).exists():
        raise CheckpointError(f"{folder} holds a run already; go on with it (resume=True, --resume) or take another folder")


class Keeper:
    """A run's folder: the history as it grows, and the last checkpoint, which holds the history too."""

    def __init__(self, folder: Path, stages: Sequence[Stage]) -> None:
        self.folder, self.stages = folder, stages
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

    def save(self, result: Run) -> None:
        extra = {"rounds": result.rounds, "seconds": result.seconds, "every": result.every, "history": result.history,
                 "planned": self.stages[-1].rounds, "stage": result.stage, "traffic": [asdict(line) for line in result.traffic]}
        stage = self.stages[result.stage]
        again(stage.fed, f"the checkpoint after round {result.rounds}",
              lambda: checkpoint.save(self.checkpoint, stage.algorithm, stage.fed, result.state, extra))
        LOG.debug("round %d: saved %s", result.rounds, self.checkpoint)

    def resume(self, result: Run, uniform: bool) -> bool:
        """Go on from the checkpoint, if there is one; rows of history beyond it are of rounds that will be run again.

        The number of rounds that a uniform iterate is drawn from cannot change on the way.
        """
        if not self.checkpoint.exists():
            write_whole(self.history, "")
            return False
        extra, planned = checkpoint.extra(self.checkpoint), self.stages[-1].rounds
        if not isinstance(extra, dict) or not extra.keys() >= {"planned", "traffic", "rounds", "seconds", "every", "history", "stage"}:
            raise CheckpointError(f"{self.checkpoint} holds a state but no run to go on with; read it with rookery.training.load, "
                                  "and begin in another folder")
        if not 0 <= extra["stage"] < len(self.stages):
            raise CheckpointError(f"{self.checkpoint} was saved in stage {extra['stage'] + 1} of a run, and this one has "
                                  f"{len(self.stages)}; resume with the stages that it had, or begin anew in another folder")
        result.stage, stage = extra["stage"], self.stages[extra["stage"]]
        result.state = checkpoint.load(self.checkpoint, stage.algorithm, stage.fed)
        if uniform and planned != extra["planned"]:
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
        return True
