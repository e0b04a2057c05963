"""Save a run's state and continue it bit for bit. One safetensors file, written aside and renamed; never pickle."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..algorithms.base import Algorithm
from ..data.sampling import Balanced
from ..engines.programs import describe
from ..errors import CheckpointError, FrameError, StateLost
from ..federation.federation import Cohort, Federation
from ..federation.placed import Placed
from ..problems.base import Problem
from .files import aside

FORMAT = "rookery-2"


def save(path: Path | str, algorithm: Algorithm[Any], fed: Federation[Problem], state: Any, extra: dict[str, Any] | None = None) -> None:
    """Write `state`, the counters behind the random draws, the ledger, and what else the caller wants back (JSON, see `extra`).

    On a remote engine each site keeps its own values, under a tag that the file records.
    """
    path = Path(path)
    before = _tags(path)
    fed.pending.finish()
    tensors: dict[str, Tensor] = {}
    fields: dict[str, Any] = {}
    for name, value in state._asdict().items():
        if isinstance(value, Tensor):
            tensors[name] = value.detach().clone()
            fields[name] = "tensor"
        elif isinstance(value, Placed):
            if value.spent:
                raise CheckpointError(f"the state's {name} {value.spent}; save the newest state")
            everyone = value.place is fed
            fields[name] = {"id": value.id, "pool": value.pool, "cohort": None if everyone else value.place.index.tolist()}
        elif value is None or isinstance(value, int):
            fields[name] = value
        else:
            raise CheckpointError(f"a state holds tensors, values at the clients and ints; {name} is {type(value).__name__}")
    tag = uuid.uuid4().hex
    tensors |= fed.engine.save(tag, [note["id"] for note in fields.values() if isinstance(note, dict)])
    if fed.setting.constants is not None:
        tensors["rookery.constants"] = fed.setting.constants
    header = {"format": FORMAT, "run": fingerprint(algorithm, fed), "fields": fields, "counters": fed.counters,
              "ledger": fed.ledger.to_json(), "tag": tag, "extra": extra}
    with aside(path) as beside:
        save_file(tensors, beside, metadata={"rookery": json.dumps(header)})
    fed.engine.forget(before)


def load(path: Path | str, algorithm: Algorithm[Any], fed: Federation[Problem]) -> Any:
    """The state in a checkpoint, with the federation set to go on from there. `fed` must be set up as when it was saved."""
    header, tensors = _read(Path(path))
    if header["run"] != fingerprint(algorithm, fed):
        raise CheckpointError(f"{path} belongs to another run: the algorithm with its hyper-parameters, the seed, the clients and their "
                              "sizes must be those it was saved with")
    _agree(path, fed, tensors.get("rookery.constants"))
    fed.counters = dict(header["counters"])
    fed.ledger.load(header["ledger"])
    notes = {name: note for name, note in header["fields"].items() if isinstance(note, dict)}
    fresh = {name: fed.pending.number() for name in notes}  # other handles of this federation may still hold the old numbers
    lost = fed.engine.load(header["tag"], {note["id"]: fresh[name] for name, note in notes.items()}, tensors)
    if lost and fed.population - len(lost) < fed.quorum:
        raise StateLost(f"{path} was saved without {', '.join(sorted(lost))}, and of {fed.population} clients the quorum asks for "
                        f"{fed.quorum}: begin another run, or lower the quorum")
    fed.away = fed.away | lost
    cohorts: dict[tuple[int, ...], Cohort[Problem]] = {}
    values: dict[str, Any] = {}
    for name, note in header["fields"].items():
        if note == "tensor":
            # in memory of its own: products may round by where their factors lie
            values[name] = tensors[name].to(fed.data.device, copy=True)
        elif name in notes:
            cohort: Cohort[Problem] = fed
            if note["cohort"] is not None:
                index = tuple(note["cohort"])
                cohort = cohorts.setdefault(index, Cohort(fed, np.asarray(index), fed.cohorts == "weighted"))
            fed.pending.stored.add(fresh[name])
            values[name] = fed.pending.handle(cohort, fresh[name], pool=note["pool"])
        else:
            values[name] = note
    return algorithm.State(**values)


def _agree(path: Path | str, fed: Federation[Problem], constants: Tensor | None) -> None:
    """The constants of `prepare` as they were: taken from the file, or compared with those agreed anew."""
    own = fed.setting.constants
    if constants is not None and own is None and fed.problem.finish is not None:
        constants = constants.to(fed.data.device)
        fed.use(fed.problem.finish(constants), constants)
    elif (own is None) != (constants is None) or (own is not None and constants is not None and not torch.equal(own, constants)):
        raise CheckpointError(f"{path} was saved with other constants of the problem than these clients agreed on; load it before prepare, "
                              "or prepare at the same point")


def extra(path: Path | str) -> Any:
    """What was given to `save` beside the state."""
    return _read(Path(path))[0]["extra"]


def fingerprint(algorithm: Algorithm[Any], fed: Federation[Problem]) -> str:
    """What must be the same for a run to go on: algorithm, seed, clients, weights, participation, data, kind of problem, sampling."""
    try:
        program = json.dumps(describe(algorithm), sort_keys=True)
    except FrameError as error:
        raise CheckpointError(str(error)) from None
    problem = [type(fed.problem).__name__, repr(fed.problem.sampling), str(fed.setting.precision)]
    least, sampling = fed.setting.min_batch, fed.problem.sampling
    problem += ["distinct rows"] if least > 1 else []  # which changes what is drawn; how large it is changes which groups are drawn as one
    problem += [f"groups of {least}"] if least > 1 and isinstance(sampling, Balanced) and sampling.field != "labels" else []
    texts = [program, str(fed.setting.seed), str(fed.clients_per_round), fed.cohorts, *fed.data.names, str(fed.data.sizes.tolist()),
             str(fed.weights.tolist()), *fed.data.fingerprint(), *problem]
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _tags(path: Path) -> list[str]:
    """What the sites kept for the checkpoint that is there, if any."""
    try:
        with safe_open(path, framework="pt") as file:
            return [json.loads((file.metadata() or {})["rookery"])["tag"]]
    except (SafetensorError, KeyError, ValueError, OSError):
        return []


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["rookery"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(f"{path} is not a whole checkpoint of this program ({error}); put a copy in its place, or delete it "
                              "to begin anew") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CheckpointError(f"{path} is of another format; this version reads {FORMAT!r}")
    return header, tensors
