"""A remote client: it keeps its own values, runs named functions on them, and answers frames."""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..errors import FrameError, RookeryError, StateLost, UploadError
from ..federation.client import Setting
from ..federation.ledger import PHASES
from ..federation.operations import Map
from ..federation.program import check_client_function, outputs
from .execute import run_one
from .frames import build, expect, natural, numbers, pack, unpack

SERVERS = ("init", "round")  # methods of an algorithm that the server runs, not a client


class Site:
    """One client behind `answer(frame) -> frame`.

    Frames are counted: the next one is executed, the last one again is answered from memory, any other one means that state
    was lost. A frame works on a copy of the store, and the copy is kept only if all of it went well.
    """

    def __init__(self, setting: Setting, run: str, folder: Path | None = None) -> None:
        self.setting, self.base, self.run, self.folder = setting, setting.problem, run, folder
        self.name = setting.data.names[0]
        self.store: dict[int, Tensor] = {}
        self.staged: dict[int, Tensor] = {}  # what the last frame put into the population's state: kept once the server says it ended well
        self.counter = 0
        self.last: tuple[bytes, bytes] = (b"", b"")

    def answer(self, frame: bytes) -> bytes:
        """Execute a frame. What is wrong with it comes back as an error by name; nothing has changed then."""
        try:
            return self._answer(frame)
        except RookeryError as error:
            return self._reply({"error": [type(error).__name__, str(error).removeprefix(f"client {self.name!r}: ")]}, {})
        except Exception as error:  # a fault in a user's loss must reach the server with the site's name
            return self._reply({"error": ["EngineError", f"{type(error).__name__}: {error}"]}, {})

    def _answer(self, frame: bytes) -> bytes:
        digest = hashlib.blake2b(frame).digest()
        header, tensors = unpack(frame)
        if expect(header, "run", str) != self.run:
            raise StateLost(f"this site takes part in run {self.run!r}; the frame is of run {header['run']!r}")
        k = natural(header, "k")
        if k == self.counter and digest == self.last[0]:
            return self.last[1]
        if k != self.counter + 1:
            raise StateLost(f"state lost: frame {k} came after frame {self.counter}")
        ops, wants, free, drop = expect(header, "ops", list), numbers(header, "want"), numbers(header, "free"), numbers(header, "drop")
        transaction = Transaction(self, self.staged if expect(header, "commit", bool) else {}, set(free), tensors)
        for op in ops:
            transaction.run(op)
        sent = dict(enumerate(transaction.read(id) for id in wants))
        for id in drop:  # made by this frame and not used beyond it
            transaction.store.pop(id, None)
        try:
            reply = self._reply({"k": k, "work": transaction.work, "loaded": transaction.loaded}, sent)
        except FrameError as error:
            raise UploadError(self.name, str(error)) from None
        transaction.write_files()
        self.store, self.staged, self.setting = transaction.store, transaction.staged, transaction.setting
        self.counter, self.last = k, (digest, reply)
        return reply

    def _reply(self, header: dict[str, Any], tensors: dict[int, Tensor]) -> bytes:
        return pack({"run": self.run, "site": self.name, **header}, tensors)

    def file(self, tag: str) -> Path:
        if self.folder is None:
            raise StateLost("this site has no folder for checkpoints; give it one")
        if len(tag) > 100 or not tag.replace("-", "").replace("_", "").isalnum() or not tag.isascii():
            raise FrameError(f"a checkpoint's tag has at most 100 letters, digits, - and _; got {tag[:120]!r}")
        return self.folder / f"{hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()}-{tag}.safetensors"


class Transaction:
    """One frame at work on a copy of the site's store."""

    def __init__(self, site: Site, committed: dict[int, Tensor], free: set[int], tensors: dict[int, Tensor]) -> None:
        self.site, self.setting = site, site.setting
        self.store = {id: value for id, value in (site.store | committed).items() if id not in free} | tensors
        self.staged: dict[int, Tensor] = {}
        self.work: list[list[Any]] = []  # phase, call, oracle calls, samples, draws of each map
        self.drawn: dict[tuple[str, int], int] = {}
        self.files: dict[Path, dict[str, Tensor]] = {}
        self.loaded: list[int] = []

    def read(self, id: int) -> Tensor:
        if id not in self.store:
            raise StateLost(f"value {id} is not at this site")
        return self.store[id]

    def run(self, op: Any) -> None:
        if not isinstance(op, dict):
            raise FrameError(f"an operation is an object; this is {op!r}")
        match op.get("op"):
            case "map":
                self._map(op)
            case "take":
                default, out = natural(op, "default"), natural(op, "out")
                self.store[out] = self.read(default if op.get("source", 0) is None else natural(op, "source"))  # null: it has none
            case "put":
                self.staged[natural(op, "pool")] = self.read(natural(op, "source"))
            case "finish":
                finish = self.site.base.finish
                if finish is None:
                    raise FrameError("this site's problem takes no constants")
                constants = self.read(natural(op, "total"))
                self.setting = replace(self.setting, problem=finish(constants), constants=constants, checked=set())
            case "save":
                held = {str(id): self.store[id].clone() for id in numbers(op, "ids") if id in self.store}
                self.files[self.site.file(expect(op, "tag", str))] = {**held, "empty": torch.zeros(0)}
            case "load":
                self._load(expect(op, "tag", str), expect(op, "ids", list))
            case other:
                raise FrameError(f"unknown operation {other!r}")

    def _load(self, tag: str, pairs: list[Any]) -> None:
        if not all(isinstance(pair, list) and [type(n) for n in pair] == [int, int] for pair in pairs):
            raise FrameError(f"values are loaded as [saved number, new number]; got {pairs!r}")
        try:
            held = load_file(self.site.file(tag))
        except FileNotFoundError:
            raise StateLost(f"state lost: no checkpoint {tag!r} at this site") from None
        except SafetensorError as error:
            raise StateLost(f"state lost: the checkpoint {tag!r} at this site is damaged ({error})") from None
        found = {new: held[str(old)] for old, new in pairs if str(old) in held}
        self.store.update(found)
        self.loaded += found

    def write_files(self) -> None:
        for path, tensors in self.files.items():
            aside = path.with_suffix(".part")
            save_file(tensors, aside)
            aside.replace(path)

    @torch.no_grad()
    def _map(self, op: dict[str, Any]) -> None:
        fn = self._function(op.get("fn"))
        count, _ = outputs(fn.__func__)
        out, times = numbers(op, "out"), natural(op, "times")
        phase, call, known = expect(op, "phase", str), natural(op, "call"), natural(op, "known")
        arguments = [self._argument(a) for a in expect(op, "arguments", list)]
        if phase not in PHASES:
            raise FrameError(f"the phases are {', '.join(PHASES)}; got {phase!r}")
        if len(out) != count:
            raise FrameError(f"{fn.__qualname__} returns {count} values; the frame names {len(out)}")
        try:
            inspect.signature(fn).bind(None, *arguments)
        except TypeError as error:
            raise FrameError(f"{fn.__qualname__}: {error}") from None
        if times != 1 and count > len(arguments):
            raise FrameError(f"{fn.__qualname__} returns {count} values and takes {len(arguments)}; it cannot be repeated")
        earlier = Map(fn, (), (), 1, phase, call, drawn=[max(known, self.drawn.get((phase, call), 0))])
        job = Map(fn, (), tuple(out), times, phase, call, earlier)
        results, work, _ = run_one(self.setting, job, 0, times, arguments)
        self.store.update(zip(out, results, strict=True))
        self.work.append([phase, call, dict(work.calls), work.samples, work.draws])
        self.drawn[phase, call] = work.draws

    def _argument(self, note: Any) -> Any:
        match note:
            case {"ref": _}:
                return self.read(natural(note, "ref"))
            case {"value": value}:
                return build(value)
        raise FrameError(f"an argument is a reference or a value; this is {note!r}")

    def _function(self, note: Any) -> Any:
        match note:
            case [dict() as program, str(method)]:
                owner: Any = build(program)
            case _:
                raise FrameError(f"a function is [program, method]; this is {note!r}")
        if method.startswith("_") or method in SERVERS or not isinstance(inspect.getattr_static(type(owner), method, None), FunctionType):
            raise FrameError(f"{type(owner).__name__} has no client function {method!r}")
        fn = getattr(owner, method)
        try:
            check_client_function(fn)
            outputs(fn.__func__)
        except RookeryError as error:
            raise FrameError(str(error)) from None
        return fn


def booked(header: dict[str, Any]) -> list[tuple[str, int, Counter[str], int, int]]:
    """The work a reply reports, checked."""
    out = []
    for entry in expect(header, "work", list):
        match entry:
            case [str(phase), int(call), dict(calls), int(samples), int(draws)] if phase in PHASES and min(samples, draws) >= 0 and all(
                    type(n) is int and n >= 0 for n in calls.values()):
                out.append((phase, call, Counter(calls), samples, draws))
            case _:
                raise FrameError(f"work is reported as [phase, call, oracle calls, samples, draws]; this is {entry!r}")
    return out
