"""A remote client: it keeps its own values, runs named functions on them, and answers frames."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..client import Setting
from ..errors import FrameError, RookeryError, StateLost
from ..program import check_client_function, outputs
from .base import Map, Ref, run_one
from .frames import build, expect, pack, unpack


class Site:
    """One client behind `answer(frame) -> frame`.

    Frames are counted: the next one is executed, the last one again is answered from memory, any other one means that state
    was lost. A frame works on a copy of the store, and the copy is kept only if all of it went well.
    """

    def __init__(self, setting: Setting, run: str, folder: Path | None = None) -> None:
        self.setting, self.base, self.run, self.folder = setting, setting.problem, run, folder
        self.name = setting.data.names[0]
        self.store: dict[int, Tensor] = {}
        self.counter = 0
        self.last: tuple[bytes, bytes] = (b"", b"")

    def answer(self, frame: bytes) -> bytes:
        """Execute a frame. What is wrong with it comes back as an error by name; nothing has changed then."""
        try:
            return self._answer(frame)
        except RookeryError as error:
            return self._reply({"error": [type(error).__name__, str(error)]}, {})
        except Exception as error:  # a fault in a user's loss must reach the server with the site's name
            return self._reply({"error": ["EngineError", f"{type(error).__name__}: {error}"]}, {})

    def _answer(self, frame: bytes) -> bytes:
        digest = hashlib.blake2b(frame).digest()
        header, tensors = unpack(frame)
        if expect(header, "run", str) != self.run:
            raise StateLost(f"this site takes part in run {self.run!r}; the frame is of run {header['run']!r}")
        k = expect(header, "k", int)
        if k == self.counter and digest == self.last[0]:
            return self.last[1]
        if k != self.counter + 1:
            raise StateLost(f"state lost: frame {k} came after frame {self.counter}")
        transaction = Transaction(self, tensors)
        for op in expect(header, "ops", list):
            transaction.run(op)
        wants = _ids(header, "want")
        sent = {id: transaction.read(id) for id in wants}
        for id in _ids(header, "free"):
            transaction.store.pop(id, None)
        reply = self._reply({"k": k, "calls": dict(transaction.calls), "samples": transaction.samples,
                             "draws": [list(d) for d in transaction.draws]}, dict(enumerate(sent.values())))
        self.store, self.setting, self.counter, self.last = transaction.store, transaction.setting, k, (digest, reply)
        return reply

    def _reply(self, header: dict[str, Any], tensors: dict[int, Tensor]) -> bytes:
        return pack({"run": self.run, "site": self.name, **header}, tensors)

    def file(self, tag: str) -> Path:
        if self.folder is None:
            raise StateLost("this site has no folder for checkpoints; give it one")
        if not tag.replace("-", "").replace("_", "").isalnum():
            raise FrameError(f"a checkpoint's tag has letters, digits, - and _; got {tag!r}")
        return self.folder / f"{hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()}-{tag}.safetensors"


class Transaction:
    """One frame at work on a copy of the site's store."""

    def __init__(self, site: Site, tensors: dict[int, Tensor]) -> None:
        self.site, self.setting = site, site.setting
        self.store = {**site.store, **tensors}
        self.calls: Counter[str] = Counter()
        self.samples = 0
        self.draws: list[tuple[int, int]] = []

    def read(self, id: int) -> Tensor:
        if id not in self.store:
            raise StateLost(f"value {id} is not at this site")
        return self.store[id]

    def run(self, op: Any) -> None:
        match op:
            case {"op": "map"}:
                self._map(op)
            case {"op": "take", "source": int(source), "default": int(default), "out": int(out)}:
                self.store[out] = self.store[source] if source in self.store else self.read(default)
            case {"op": "put", "pool": int(pool), "source": int(source)}:
                self.store[pool] = self.read(source)
            case {"op": "finish", "total": int(total)}:
                finish = self.site.base.finish
                if finish is None:
                    raise FrameError("this site's problem takes no constants")
                constants = self.read(total)
                self.setting = Setting(finish(constants), self.setting.data, self.setting.seed, self.setting.precision, constants)
            case {"op": "save", "tag": str(tag), "ids": list(ids)}:
                held = {str(id): self.store[id].contiguous() for id in ids if id in self.store}
                save_file({**held, "empty": torch.zeros(0)}, self.site.file(tag))
            case {"op": "load", "tag": str(tag)}:
                if not self.site.file(tag).exists():
                    raise StateLost(f"state lost: no checkpoint {tag!r} at this site")
                self.store.update({int(k): v for k, v in load_file(self.site.file(tag)).items() if k != "empty"})
            case _:
                raise FrameError(f"unknown operation {op!r}")

    @torch.no_grad()
    def _map(self, op: dict[str, Any]) -> None:
        fn = self._function(op.get("fn"))
        count, _ = outputs(fn.__func__)
        out, times = _ids(op, "out"), expect(op, "times", int)
        if len(out) != count or times < 0:
            raise FrameError(f"{fn.__qualname__} returns {count} values {times} times; the frame names {len(out)}")
        arguments = []
        for argument in expect(op, "arguments", list):
            match argument:
                case {"ref": int(id)}:
                    arguments.append(self.read(id))
                case {"value": value}:
                    arguments.append(build(value))
                case _:
                    raise FrameError(f"an argument is a reference or a value; this is {argument!r}")
        job = Map(fn, tuple(Ref(0) for _ in arguments), tuple(out), times, expect(op, "phase", str), expect(op, "call", int), expect(op, "known", int))
        results, work, _ = run_one(self.setting, job, 0, times, arguments)
        self.store.update(zip(out, results, strict=True))
        self.calls.update(work.calls)
        self.samples += work.samples
        self.draws.append((job.call, work.draws))

    def _function(self, note: Any) -> Any:
        match note:
            case ["problem", str(method)]:
                owner: Any = self.setting.problem
            case [dict() as program, str(method)]:
                owner = build(program)
            case _:
                raise FrameError(f"a function is [program, method]; this is {note!r}")
        if method.startswith("_") or not callable(getattr(type(owner), method, None)):
            raise FrameError(f"{type(owner).__name__} has no client function {method!r}")
        fn = getattr(owner, method)
        try:
            check_client_function(fn)
        except RookeryError as error:
            raise FrameError(str(error)) from None
        return fn


def _ids(header: dict[str, Any], key: str) -> list[int]:
    ids = expect(header, key, list)
    if not all(type(id) is int for id in ids):
        raise FrameError(f"{key!r} lists numbers of values; it has {ids!r}")
    return ids
