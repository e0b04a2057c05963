"""The process at a site: it greets runs, keeps each of them apart, answers their frames under its owner's rules, and writes a log."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch

from .. import __version__
from ..data.store import Data
from ..engines.frames import VERSION, expect, natural, pack, unpack
from ..engines.memory import keep_large_blocks
from ..engines.site import Site
from ..errors import DataError, FrameError, Refused, StateLost, WriteError
from ..federation.client import Setting
from ..problems.base import Problem
from ..training.files import write_whole
from .apart import Apart
from .audit import LONGEST, Audit, Entry
from .rules import Account, Rules
from .run import Run, told, words

PRECISIONS = {"None": None, "torch.bfloat16": torch.bfloat16, "torch.float16": torch.float16, "torch.float32": torch.float32}
MOST_RUNS = 64  # that are in memory at once
LARGEST_LOG = 1 << 24  # bytes of refusals of no run


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
        self.runs: dict[str, Run] = {}  # the one that was asked last at the end
        self.lock = threading.Lock()
        self.opening = WeakValueDictionary[str, threading.Lock]()  # by run: rows may take long to read, and other runs go on meanwhile
        self.greeted = self.folder / "greeted"  # has a byte for each greeting of a new run, also of one that came to nothing

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
            while (reply := self._found(run).answer(frame, (header, tensors))) is None:
                pass
            return reply
        except Exception as error:
            answered = told(error)
            try:
                self._refuse(Entry(run, 0, [], refused=words(error.__cause__ or error)))
            except WriteError as unwritten:
                answered = unwritten
            return self._reply(run, {"error": [type(answered).__name__, str(answered)[:LONGEST]], "client": self.name})

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

    def _alone(self, run: str) -> threading.Lock:
        """What is held while a run is opened, which no other run waits for."""
        with self.lock:
            return self.opening.setdefault(run, threading.Lock())

    def _kept(self, run: str) -> Run | None:
        with self.lock:
            if run in self.runs:
                self.runs[run] = self.runs.pop(run)
            return self.runs.get(run)

    def _found(self, run: str) -> Run:
        found = self._kept(run)
        if found is None:
            with self._alone(run):
                found = self._kept(run)
                if found is None:
                    file = self.place(run) / "run.json"
                    if not file.exists():
                        raise StateLost(f"this site takes part in no run {run!r}")
                    begun_as = json.loads(file.read_text(encoding="utf-8"))
                    found = self._open(run, begun_as["hello"], begun_as["salt"], begun_as.get("digest"))
                    self._keep(run, found)
        return found

    def _welcome(self, run: str, hello: dict[str, Any], size: int) -> dict[str, Any]:
        """Greet a run, or one that was greeted before and must then say the same again."""
        _same_version(hello)
        entry = Entry(run, 0, [f"hello: {json.dumps(hello.get('problem'), ensure_ascii=False)[:LONGEST]}"])
        while True:
            with self._alone(run):
                file, found = self.place(run) / "run.json", self._kept(run)
                fresh, begun = found is None, file.exists()
                if begun:
                    begun_as = json.loads(file.read_text(encoding="utf-8"))
                    if begun_as["hello"] != hello:
                        raise Refused(f"run {run!r} was begun here with other words; begin another run")
                    found = found or self._open(run, hello, begun_as["salt"], begun_as.get("digest"))
                else:
                    self._count()  # whether one is refused may tell of rows, as it does of a class that is not declared
                    salt = 0 if self.rules.salt == "none" else 1 + secrets.randbits(127)
                    found = self._open(run, hello, salt, None)
                    write_whole(file, json.dumps({"run": run, "hello": hello, "digest": found.digest, "salt": salt}))
                    file.chmod(0o600)
                if fresh:
                    self._keep(run, found)
            setting = found.site.empty.setting
            data, entry.numbers, entry.names = setting.data, len(setting.data.sizes), list(setting.data.names)
            if found.greeted(entry, size):
                break
        return {"clients": [[name, int(size)] for name, size in zip(data.names, data.sizes, strict=True)], "counter": found.site.counter,
                "fresh": fresh, "digest": found.digest, "salt": "secret" if setting.salt else "none",
                "min_batch": setting.min_batch, "splits": {name: _sizes(data, name) for name in sorted(data.splits)}}

    def _count(self) -> None:
        """One more greeting of a new run, also if it ends the process."""
        with self.lock:
            begun = len(list(self.folder.glob("*/run.json")))
            greeted = max(begun, self.greeted.stat().st_size if self.greeted.exists() else 0)
            if greeted >= self.rules.runs:
                nothing = f" or came to nothing ({greeted - begun})" if greeted > begun else ""
                raise Refused(f"{self.rules.runs} runs may be begun here, and they have been{nothing}")
            try:
                with self.greeted.open("ab") as file:
                    file.write(b"." * (greeted + 1 - file.tell()))
            except OSError as error:
                raise WriteError(f"{self.folder} could not be written ({error.strerror})") from None

    def _open(self, run: str, hello: dict[str, Any], salt: int, digest: str | None) -> Run:
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
        account = Account(self.rules, self.modules, Apart(data, self.rules.min_batch))
        return Run(Site(setting, run, folder, self.name), account, Audit(folder / "log.jsonl"), own)

    def _keep(self, run: str, found: Run) -> None:
        """In the place of those that were asked longest ago, which are opened again when a frame of them comes."""
        with self.lock:
            for other in list(self.runs):
                if len(self.runs) < MOST_RUNS:
                    break
                if self.runs[other].set_aside():
                    del self.runs[other]
            self.runs[run] = found


def _sizes(data: Data, split: str) -> list[int]:
    """How many rows each client has of a split."""
    rows = data.split(split)
    own = {} if rows is None else dict(zip(rows.names, rows.sizes.tolist(), strict=True))
    return [own.get(name, 0) for name in data.names]


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
