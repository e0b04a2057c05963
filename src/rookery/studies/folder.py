"""A run's folder: whose run it holds, of which rows, and what there is to go on from."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..data import Data
from ..errors import CheckpointError
from ..training import checkpoint
from ..training.files import write_whole
from ..training.keeper import CHECKPOINT, refuse_taken
from .description import Description, describe


def claim(folder: Path, description: Description, resume: bool) -> None:
    """Refuse a folder that holds another run, before any work is done."""
    kept = folder / "description.json"
    own = describe(description)
    own["run"] = {name: value for name, value in own.get("run", {}).items() if name == "output"}  # a run may go on for longer
    if not resume:
        refuse_taken(folder)
    elif kept.exists() and _description(kept) != json.loads(json.dumps(own)):
        raise CheckpointError(f"{folder} holds a run of another description; resume it as {kept} says, or take another folder")
    write_whole(kept, json.dumps(own))


def what_is_kept(folder: Path) -> str:
    """What there is to go on from after a file could not be written."""
    try:
        rounds = int(checkpoint.extra(folder / CHECKPOINT)["rounds"])
    except CheckpointError:
        return f"{folder} has no checkpoint yet: make room, and begin anew"
    return (f"{folder / CHECKPOINT} is whole and holds the run after round {rounds}: make room, and go on with --resume, "
            "or with the same comparison again")


def digest(data: Data) -> str:
    """A SHA-256 of the clients' names and training rows."""
    found = hashlib.sha256("\n".join([*data.names, *data.fingerprint()]).encode())
    for _, column in sorted(data.fields.items()) if data.in_memory else ():
        found.update(column.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _description(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not whole ({error}); delete it to go on all the same: the algorithm, the seed and the data "
                              f"are compared with {CHECKPOINT} too") from None
