"""The process at a site: it greets runs, keeps each of them apart, answers their frames under its owner's rules, and writes a log."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .. import __version__
from ..data.store import Data
from ..engines.frames import VERSION, expect, natural, pack, unpack
from ..engines.memory import keep_large_blocks
from ..engines.site import Site
from ..errors import (
    ConfigError,
    DataError,
    EngineError,
    FewRows,
    FrameError,
    PlacementError,
    Refused,
    StateLost,
    UploadError,
    WriteError,
)
from ..federation.client import Setting
from ..problems.base import Problem
from ..training.files import write_whole
from .apart import single_rows
from .audit import LONGEST, Audit, Entry
from .rules import Account, Rules

PRECISIONS = {"None": None, "torch.bfloat16": torch.bfloat16, "torch.float16": torch.float16, "torch.float32": torch.float32}
MOST_RUNS = 64  # that are in memory at once
MOST_REFUSALS = 10_000  # of a run that are written down, of one process
LARGEST_LOG = 1 << 24  # bytes of refusals of no run
TOLD = (FewRows, FrameError, PlacementError, Refused, StateLost, UploadError, WriteError)  # errors that have nothing of rows in their words


class Owner(Protocol):
    """Says what a run is about at this site: the rows, which never leave it, and what is computed from them."""

    def prepare(self, asked: dict[str, Any], rules: Rules) -> tuple[Problem, Data]:
        """The problem that a server's words describe, and the site's clients with their rows. `Refused` for what the rules do not allow."""
        ...


@dataclass(frozen=True)
class Own:
    """An owner with a problem and rows of their own, by a function that is given the server's words."""

    make: Callable[[dict[str, Any]], tuple[Problem, Data]]

    def prepare(self, asked: dict[str, Any], rules: Rules) -> tuple[Problem, Data]:
        return self.make(asked)


class _Run:
    """One run at this site: its site, its account, its log, and a digest of its rows."""

    def __init__(self, site: Site, account: Account, audit: Audit, digest: str) -> None:
        self.site, self.account, self.audit, self.digest = site, account, audit, digest
        self.lock = threading.Lock()  # a frame's account is its own, whatever comes beside it
        site.guard, site.on_reply = account, self.note
        for entry in audit.entries():  # of a process before this one
            account.frames += entry.frames
            account.steps, account.bytes = account.steps + entry.steps, account.bytes + entry.bytes
            site.counter = max(site.counter, entry.frame)
        self.written, self.noted, self.refusals = account.used, False, 0

    def note(self, frame: int, sent: Mapping[int, Tensor], size: int) -> None:
        """Written before the reply leaves; what cannot be written does not leave."""
        self.account.moved(size)
        tables = [value for value in sent.values() if value.dtype == torch.uint8 and value.dim() == 2]
        texts = {text.decode(errors="replace") for value in tables for text in _texts(value)}
        shapes = [list(value.shape) for value in sent.values()]
        self.write(Entry(self.site.run, frame, self.account.asked, shapes, sum(map(prod, shapes)), names=sorted(texts - {""})))
        self.noted = True

    def answer(self, frame: bytes, unpacked: tuple[dict[str, Any], dict[int, Tensor]]) -> bytes:
        with self.lock:
            self.account.asked, self.noted = [], False
            self.account.bytes += len(frame)
            try:
                self.account.moved(0)
                reply, failure = self.site.answer(frame, unpacked), self.site.failure
            except Refused as error:
                reply, failure = b"", error
            if failure is not None:
                reply = self.site.error(_told(failure), LONGEST)
                try:
                    self.refuse(failure)
                except WriteError as error:
                    reply = self.site.error(error)
            if not self.noted:
                self.account.bytes += len(reply)
            return reply

    def refuse(self, failure: Exception) -> None:
        """Write down what was refused, as long as it is not so often that nobody will read it."""
        self.refusals += 1
        if self.refusals <= MOST_REFUSALS:
            last = "; what is refused from here on is not written down" if self.refusals == MOST_REFUSALS else ""
            self.write(Entry(self.site.run, 0, self.account.asked, refused=_words(failure)[: LONGEST - len(last)] + last))

    def write(self, entry: Entry) -> None:
        """An entry, with what the run has used up since the last one."""
        used, (frames, steps, size) = self.account.used, self.written
        entry.frames, entry.steps, entry.bytes = used[0] - frames, used[1] - steps, used[2] - size
        self.audit.write(entry)
        self.written = used

    def set_aside(self) -> None:
        """What it has used up is written down before it is forgotten; a frame that is under way does so by itself."""
        if self.written != self.account.used and self.lock.acquire(blocking=False):
            try:
                self.write(Entry(self.site.run, 0, ["set aside for other runs"]))
            finally:
                self.lock.release()


class Host:
    """All runs at one site, behind `answer(frame) -> frame`.

    name:   the site's, by which the server knows it
    owner:  says what a run is about here
    folder: where each run has its log, its salt and its checkpoints; a host that is started again goes on with the runs that it has there
    modules: of one's own, that a run may name
    """

    def __init__(self, name: str, owner: Owner, rules: Rules, folder: Path | str, modules: tuple[str, ...] = ()) -> None:
        self.name, self.owner, self.rules, self.folder, self.modules = name, owner, rules, Path(folder), modules
        self.folder.mkdir(parents=True, exist_ok=True)
        keep_large_blocks()
        self.runs: dict[str, _Run] = {}  # the one that was asked last at the end
        self.failed = 0  # greetings of new runs that came to nothing
        self.lock = threading.Lock()

    def answer(self, frame: bytes) -> bytes:
        """A hello, or a frame of a run that was greeted. Errors come back by name, and are written down."""
        run = ""
        try:
            if len(frame) > 2**20 * self.rules.frame_megabytes:
                raise Refused(f"a frame may have {self.rules.frame_megabytes:g} MB here; this one has {len(frame) / 2**20:.1f}")
            header, tensors = unpack(frame)
            run = _name(header)
            if "hello" in header:
                return self._reply(run, {"welcome": self._welcome(run, expect(header, "hello", dict), len(frame))})
            return self._found(run).answer(frame, (header, tensors))
        except Exception as error:
            told = _told(error)
            try:
                self._refuse(Entry(run, 0, [], refused=_words(error.__cause__ or error)))
            except WriteError as unwritten:
                told = unwritten
            return self._reply(run, {"error": [type(told).__name__, str(told)[:LONGEST]], "client": self.name})

    def _refuse(self, entry: Entry) -> None:
        """Write down what belongs to no run; of much of it, the last."""
        file = self.folder / "refused.jsonl"
        with suppress(OSError):
            if file.stat().st_size > LARGEST_LOG:
                file.replace(file.with_name("refused-before.jsonl"))
        Audit(file).write(entry)

    def _reply(self, run: str, header: dict[str, Any]) -> bytes:
        return pack({"run": run, "site": self.name, **header}, {})

    def place(self, run: str) -> Path:
        """The folder of a run."""
        return self.folder / hashlib.sha256(run.encode()).hexdigest()[:24]

    def _found(self, run: str) -> _Run:
        with self.lock:
            if run not in self.runs:
                file = self.place(run) / "run.json"
                if not file.exists():
                    raise StateLost(f"this site takes part in no run {run!r}")
                told = json.loads(file.read_text(encoding="utf-8"))
                self._keep(run, self._open(run, told["hello"], told["salt"], told.get("digest")))
            self.runs[run] = self.runs.pop(run)
            return self.runs[run]

    def _welcome(self, run: str, hello: dict[str, Any], size: int) -> dict[str, Any]:
        """Greet a run, or one that was greeted before and must then say the same again."""
        _same_version(hello)
        with self.lock:
            file, fresh = self.place(run) / "run.json", run not in self.runs
            begun = file.exists()
            if begun:
                told = json.loads(file.read_text(encoding="utf-8"))
                if told["hello"] != hello:
                    raise Refused(f"run {run!r} was begun here with other words; begin another run")
                salt = told["salt"]
            elif len(list(self.folder.glob("*/run.json"))) + self.failed >= self.rules.runs:
                failed = f" or refused since this process began ({self.failed})" if self.failed else ""
                raise Refused(f"{self.rules.runs} runs may be begun here, and they have been{failed}")
            else:
                salt = 0 if self.rules.salt == "none" else 1 + secrets.randbits(127)
            self.failed += not begun  # whether one is refused may tell of rows, as it does of a class that is not declared
            found = self._open(run, hello, salt, told.get("digest") if begun else None) if fresh else self.runs[run]
            self.failed -= not begun
            if not begun:
                write_whole(file, json.dumps({"run": run, "hello": hello, "digest": found.digest, "salt": salt}))
                file.chmod(0o600)
            if fresh:
                self._keep(run, found)
        data, problem = found.site.empty.setting.data, json.dumps(hello.get("problem"), ensure_ascii=False)[:LONGEST]
        with found.lock:
            found.account.moved(size)
            found.write(Entry(run, 0, [f"hello: {problem}"], numbers=len(data.sizes), names=list(data.names)))
        return {"clients": [[name, int(size)] for name, size in zip(data.names, data.sizes, strict=True)], "counter": found.site.counter,
                "fresh": fresh, "digest": found.digest, "salt": "secret" if salt else "none",
                "min_batch": found.site.empty.setting.min_batch, "splits": {name: _sizes(data, name) for name in sorted(data.splits)}}

    def _open(self, run: str, hello: dict[str, Any], salt: int, digest: str | None) -> _Run:
        if self.rules.salt == "secret" and not salt:
            raise Refused(f"run {run!r} was begun here without a salt, and the rules ask for one now; begin another run")
        precision = expect(hello, "precision", str)
        if precision not in PRECISIONS:
            raise FrameError(f"a precision is one of {', '.join(PRECISIONS)}; got {precision!r}")
        try:
            problem, data = self.owner.prepare(expect(hello, "problem", dict), self.rules)
        except DataError as error:  # its words may have cells of rows
            raise Refused("the rows of this site do not fit this run; the site's log says why") from error
        held_out = [text for name in sorted(data.splits) if (rows := data.split(name)) is not None for text in (name, *rows.fingerprint())]
        # nobody can compare it with that of rows that they guess
        print_of = [*data.fingerprint(), *held_out, *([str(salt)] if salt else [])]
        own = hashlib.sha256("\0".join(print_of).encode()).hexdigest()
        if digest not in (None, own):
            raise Refused(f"run {run!r} was begun here with other rows; begin another run")
        least = max(self.rules.min_batch, natural(hello, "min_batch"))
        setting = Setting(problem, data, natural(hello, "seed"), PRECISIONS[precision], min_batch=least, salt=salt)
        folder = self.place(run)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        account = Account(self.rules, self.modules, single_rows(data, self.rules.min_batch))
        return _Run(Site(setting, run, folder, self.name), account, Audit(folder / "log.jsonl"), own)

    def _keep(self, run: str, found: _Run) -> None:
        while len(self.runs) >= MOST_RUNS:
            self.runs.pop(next(iter(self.runs))).set_aside()  # it is opened again when a frame of it comes, and says then what is lost
        self.runs[run] = found


def _sizes(data: Data, split: str) -> list[int]:
    """How many rows each client has of a split."""
    rows = data.split(split)
    own = {} if rows is None else dict(zip(rows.names, rows.sizes.tolist(), strict=True))
    return [own.get(name, 0) for name in data.names]


def _texts(value: Tensor) -> list[bytes]:
    """The different rows of bytes, without the zeros that fill them up."""
    rows = np.ascontiguousarray(value.numpy(force=True))
    return np.unique(rows.view(f"S{rows.shape[1]}")).tolist() if rows.size else []


def _told(error: Exception) -> Exception:
    """What a server is told of an error: words that may be those of rows stay here."""
    plain = isinstance(error, TOLD) or (isinstance(error, ConfigError) and error.__cause__ is None)
    return error if plain else EngineError(f"{type(error).__name__}; the site's log has its words")


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _name(header: dict[str, Any]) -> str:
    """The name of a run, which goes into logs."""
    run: str = expect(header, "run", str)
    if not 1 <= len(run) <= 100 or not run.isprintable():
        raise FrameError(f"the name of a run has 1 to 100 printable characters; this one has {len(run)}")
    return run


def _same_version(hello: dict[str, Any]) -> None:
    versions = expect(hello, "versions", dict)
    own = {"rookery": __version__, "frames": VERSION}
    if versions != own:
        raise Refused(f"this site runs {own}, and the server {versions}: install the same version at both")
