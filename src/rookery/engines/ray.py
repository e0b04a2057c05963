"""Shards in the actors of a Ray cluster: trusted simulation on many cores and machines."""

from __future__ import annotations

import copyreg
import gc
import io
import os
import pickle
import sys
import warnings
from collections import ChainMap
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakSet, finalize

import numpy as np
import torch
from torch import Tensor

from ..errors import EngineError, StateLost
from ..federation.client import Setting
from .memory import keep_large_blocks
from .shard import Shard
from .shards import Shards

SHARED = 100_000  # bytes; larger arguments go through the object store, once for all actors
START = 300.0  # seconds until all actors must run

Packed = bytes | tuple[bytes, list[np.ndarray[Any, np.dtype[np.uint8]]]]


class Ray(Shards):
    """Cuts the clients into shards, and runs each in an actor of Ray, on one thread.

    actors:  how many; no more than there are clients
    inner:   the engine of each, "auto", "loop" or "vectorised"
    address: of a running cluster, as `ray.init` takes it; by default the one this process is connected to, or one that is started here

    The results are those of `Shards(actors, inner)`. Rows go to the actors once. Problems and client functions are pickled, so the cluster
    must be trusted. `close()`, or the end of a `with` block, ends the actors, and Ray if it was started here. The next engine takes
    over the actors of one that nobody uses any more and that was not closed.
    """

    name = "ray"

    def __init__(self, actors: int = 4, inner: str = "auto", address: str | None = None) -> None:
        super().__init__(actors, inner)
        self.address = address
        self.shards: list[Any] = []
        self.ray = _ray()

    def bind(self, setting: Setting) -> None:
        if setting.data.device.type != "cpu":
            raise EngineError(f'the actors of the ray engine compute on processors: write device="cpu"; got {setting.data.device}')
        super().bind(setting)

    def start(self, count: int) -> None:
        if not self.ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            self.ray.init(address=self.address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
            _STARTED.add(self.ray)
        _OPEN.add(self)
        keep_large_blocks()
        if len(_IDLE) < count:
            gc.collect()  # a federation that nobody uses any more may still be there, and its engine with it
        start = self.inner, [os.path.abspath(folder) for folder in sys.path]
        self.shards = [idle for idle in [_IDLE.pop() for _ in range(min(count, len(_IDLE)))] if self._takes(idle, start)]
        finalize(self, _IDLE.extend, self.shards).atexit = False
        actor = self.ray.remote(scheduling_strategy="SPREAD")(Worker)
        made = [actor.remote() for _ in range(count - len(self.shards))]
        self.shards += made
        begun = [one.begin.remote(*start) for one in made]
        late = self.ray.wait(begun, num_returns=len(begun), timeout=START)[1] if begun else []
        if late:
            self.close()
            raise EngineError(f"{len(late)} of {count} actors did not start within {START:.0f} seconds: the cluster has too few cores; "
                              "ask for fewer actors")

    def _takes(self, idle: Any, start: tuple[str, list[str]]) -> bool:
        """Whether an actor of an engine before this one is still there."""
        try:
            self.ray.get(idle.begin.remote(*start), timeout=START)
        except Exception:  # it has ended, or Ray was ended and started again meanwhile
            return False
        return True

    def ask(self, method: str, tasks: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        if not self.shards:
            raise EngineError("this engine was closed, and its clients' values are gone; make another one")
        code = method != "run" or any(part.programs for part, _ in tasks.values())
        packed: dict[int, Any] = {}  # by identity: what several shards are given is packed once
        for argument in {id(a): a for arguments in tasks.values() for a in arguments}.values():
            found = pack(argument, code)
            packed[id(argument)] = found if isinstance(found, bytes) and len(found) <= SHARED else self.ray.put(found)
        answers = {}
        for k, arguments in tasks.items():
            sent = [packed[id(argument)] for argument in arguments]
            small = [one if isinstance(one, bytes) else None for one in sent]
            large = [one for one in sent if not isinstance(one, bytes)]
            answers[k] = self.shards[k].call.remote(pickle.dumps((method, small)), *large)
        try:
            return dict(zip(answers, map(unpack, self.ray.get(list(answers.values()))), strict=True))
        except self.ray.exceptions.RayError:
            errors = [self._error(k, answer) for k, answer in answers.items()]
            raise next(error for error in errors if error is not None) from None

    def _error(self, k: int, answer: Any) -> Exception | None:
        """What a shard has raised, or that its actor has ended."""
        try:
            self.ray.get(answer)
        except self.ray.exceptions.RayTaskError as error:
            return error.cause  # type: ignore[no-any-return]
        except self.ray.exceptions.RayActorError:
            first, last = self.names[self.bounds[k]], self.names[self.bounds[k + 1] - 1]
            return StateLost(f"the actor of shard {k + 1} of {len(self.shards)} has ended, and what its clients {first!r} to {last!r} held "
                             "is lost: make another engine, and go on from a checkpoint")
        except self.ray.exceptions.RayError as error:
            return error  # type: ignore[no-any-return]
        return None

    def close(self) -> None:
        """End the actors, and Ray if it was started here and no other engine uses it."""
        _OPEN.discard(self)
        for shard in self.shards if _OPEN else [*self.shards, *_IDLE]:
            self.ray.kill(shard)
        self.shards.clear()
        if not _OPEN:
            _IDLE.clear()
        if _STARTED and not _OPEN:
            _STARTED.clear()
            self.ray.shutdown()

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_OPEN: WeakSet[Ray] = WeakSet()
_STARTED: set[Any] = set()  # Ray itself, where it was started here
_IDLE: list[Any] = []  # actors of engines that nobody uses any more


class Worker:
    """The actor: a shard that is called with packed arguments."""

    def begin(self, inner: str, path: list[str]) -> None:
        """Be a new shard, whatever it was before."""
        torch.set_num_threads(1)  # there is an actor for each core
        sys.path += [folder for folder in path if folder not in sys.path]  # client functions are found where the driver finds them
        self.shard = Shard(inner)

    def call(self, message: bytes, *large: Packed) -> Packed:
        method, small = pickle.loads(message)
        rest = iter(large)
        return pack(getattr(self.shard, method)(*(unpack(next(rest) if one is None else one) for one in small)))


def pack(value: Any, code: bool = False) -> Packed:
    """A value as a pickle, and its large tensors and arrays as bytes that Ray need not copy; with `code`, also what no module has."""
    file, large = io.BytesIO(), list[pickle.PickleBuffer]()

    def inside(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes <= SHARED:
            return True
        large.append(buffer)
        return False

    pickler = _code_pickler() if code else Pickler
    pickler(file, protocol=5, buffer_callback=inside).dump(value)
    return (file.getvalue(), [np.frombuffer(buffer.raw(), dtype=np.uint8) for buffer in large]) if large else file.getvalue()


def unpack(packed: Packed) -> Any:
    text, large = (packed, []) if isinstance(packed, bytes) else packed
    return pickle.loads(text, buffers=large)


def _flat(value: Tensor) -> Any:
    return _tensor, (value.detach().contiguous().reshape(-1).view(torch.uint8).numpy(), value.dtype, value.shape)


def _tensor(numbers: np.ndarray[Any, np.dtype[np.uint8]], dtype: torch.dtype, shape: torch.Size) -> Tensor:
    if not numbers.flags.writeable:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # values at the clients are not written to
            return torch.from_numpy(numbers).view(dtype).reshape(shape)
    return torch.from_numpy(numbers).view(dtype).reshape(shape)


_TABLE: Any = ChainMap[Any, Any]({Tensor: _flat}, copyreg.dispatch_table)


class Pickler(pickle.Pickler):
    """Takes tensors apart."""

    dispatch_table = _TABLE


@cache
def _code_pickler() -> Any:
    cloud = _ray().cloudpickle.CloudPickler
    return type("CodePickler", (cloud,), {"dispatch_table": ChainMap({Tensor: _flat}, cloud.dispatch_table)})


@cache
def _ray() -> Any:
    try:
        return import_module("ray")
    except ModuleNotFoundError:
        raise EngineError("the ray engine needs Ray, which is not installed: pip install 'rookery[ray]'") from None
