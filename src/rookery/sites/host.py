"""The process at a site: it greets runs, keeps each of them apart, answers their frames under its owner's rules, and writes a log."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import __version__
from ..data.store import Data
from ..engines.frames import VERSION, expect, natural, pack, unpack
from ..engines.site import Site
from ..errors import FrameError, Refused, RookeryError, StateLost
from ..federation.client import Setting
from ..problems.base import Problem
from ..training.files import write_whole
from .audit import Audit, Entry
from .rules import Account, Rules

PRECISIONS = {"None": None, "torch.bfloat16": torch.bfloat16, "torch.float16": torch.float16, "torch.float32": torch.float32}
MOST_RUNS = 64  # that are in memory at once


class Owner(Protocol):
    """Says what a run is about at this site: the rows, which never leave it, and what is computed from them."""

    def prepare(self, asked: dict[str, Any], rules: Rules) -> tuple[Problem, Data]:
        """The problem that a server's words describe, and the site's clients with their rows. `Refused` for what the rules do not allow."""
        ...


@dataclass(frozen=True)
class Own:
    """An owner with a problem and rows of their own, whatever a server says of it."""

    make: Callable[[], tuple[Problem, Data]]

    def prepare(self, asked: dict[str, Any], rules: Rules) -> tuple[Problem, Data]:
        return self.make()


class _Run:
    """One run at this site: its site, its account, its log."""

    def __init__(self, site: Site, account: Account, audit: Audit) -> None:
        self.site, self.account, self.audit = site, account, audit
        site.guard, site.on_reply = account, self.note
        for entry in audit.entries():  # of a process before this one
            account.frames += entry.frame > 0
            account.steps, account.bytes = account.steps + entry.steps, account.bytes + entry.bytes
            site.counter = max(site.counter, entry.frame if not entry.refused else 0)
        self.steps = account.steps

    def note(self, frame: int, sent: Mapping[int, Tensor], size: int) -> None:
        """Written before the reply leaves."""
        account = self.account
        account.frames, account.bytes = account.frames + 1, account.bytes + size
        texts = [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for value in sent.values()
                 if value.dtype == torch.uint8 and value.dim() == 2 for row in value]
        self.audit.write(Entry(self.site.run, frame, account.asked, [list(value.shape) for value in sent.values()],
                               sum(value.numel() for value in sent.values()), size, account.steps - self.steps,
                               names=sorted(set(texts) - {""})))
        self.steps = account.steps

    def answer(self, frame: bytes) -> bytes:
        try:
            self.account.begin(len(frame))
        except Refused as error:
            self.refused(error)
            return self.site.error(error)
        reply = self.site.answer(frame)
        if self.site.failure is not None:
            self.refused(self.site.failure)
        return reply

    def refused(self, error: Exception) -> None:
        self.audit.write(Entry(self.site.run, 0, self.account.asked, bytes=0, steps=self.account.steps - self.steps,
                               refused=f"{type(error).__name__}: {error}"))
        self.steps = self.account.steps


class Host:
    """All runs at one site, behind `answer(frame) -> frame`.

    name:   the site's, by which the server knows it
    owner:  says what a run is about here
    folder: where each run has its log, its salt and its checkpoints; a host that is started again goes on with the runs that it has there
    """

    def __init__(self, name: str, owner: Owner, rules: Rules, folder: Path | str) -> None:
        self.name, self.owner, self.rules, self.folder = name, owner, rules, Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runs: dict[str, _Run] = {}
        self.lock = threading.Lock()

    def answer(self, frame: bytes) -> bytes:
        """A hello, or a frame of a run that was greeted. Errors come back by name, and are written down."""
        run = ""
        try:
            if len(frame) > 2**20 * self.rules.frame_megabytes:
                raise Refused(f"a frame may have {self.rules.frame_megabytes:g} MB here; this one has {len(frame) / 2**20:.1f}")
            header, _ = unpack(frame)
            run = expect(header, "run", str)
            if "hello" in header:
                return self._reply(run, {"welcome": self._welcome(run, expect(header, "hello", dict))})
            return self._found(run).answer(frame)
        except RookeryError as error:
            Audit(self.folder / "refused.jsonl").write(Entry(run, 0, [], refused=f"{type(error).__name__}: {error}"))
            return self._reply(run, {"error": [type(error).__name__, str(error)], "client": self.name})

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
                self._open(run, told["hello"], told["salt"])
            return self.runs[run]

    def _welcome(self, run: str, hello: dict[str, Any]) -> dict[str, Any]:
        """Greet a run, or one that was greeted before and must then say the same again."""
        if not 1 <= len(run) <= 100:
            raise FrameError(f"the name of a run has 1 to 100 characters; this one has {len(run)}")
        _same_version(hello)
        folder = self.place(run)
        with self.lock:
            file, fresh = folder / "run.json", run not in self.runs
            if file.exists():
                told = json.loads(file.read_text(encoding="utf-8"))
                if told["hello"] != hello:
                    raise Refused(f"run {run!r} was begun here with other words; begin another run")
                salt = told["salt"]
            else:
                salt = 0 if self.rules.salt == "none" else 1 + secrets.randbits(62)
            if fresh:
                self._open(run, hello, salt)
            if not file.exists():
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(file, json.dumps({"run": run, "hello": hello, "salt": salt}))
                file.chmod(0o600)
            site = self.runs[run].site
            self.runs[run].audit.write(Entry(run, 0, [f"hello: {json.dumps(hello.get('problem'), ensure_ascii=False)[:2000]}"]))
        data = site.empty.setting.data
        return {"clients": [[name, int(size)] for name, size in zip(data.names, data.sizes, strict=True)], "counter": site.counter,
                "fresh": fresh, "digest": hashlib.sha256("\0".join(data.fingerprint()).encode()).hexdigest(), "salt": self.rules.salt,
                "min_batch": site.empty.setting.min_batch, "splits": sorted(data.splits)}

    def _open(self, run: str, hello: dict[str, Any], salt: int) -> None:
        precision = expect(hello, "precision", str)
        if precision not in PRECISIONS:
            raise FrameError(f"a precision is one of {', '.join(PRECISIONS)}; got {precision!r}")
        problem, data = self.owner.prepare(expect(hello, "problem", dict), self.rules)
        least = max(self.rules.min_batch, natural(hello, "min_batch"))
        setting = Setting(problem, data, natural(hello, "seed"), PRECISIONS[precision], min_batch=least, salt=salt)
        folder = self.place(run)
        folder.mkdir(parents=True, exist_ok=True)
        while len(self.runs) >= MOST_RUNS:
            self.runs.pop(next(iter(self.runs)))  # it is opened again when a frame of it comes, and says then what is lost
        self.runs[run] = _Run(Site(setting, run, folder, self.name), Account(self.rules), Audit(folder / "log.jsonl"))


def _same_version(hello: dict[str, Any]) -> None:
    versions = expect(hello, "versions", dict)
    own = {"rookery": __version__, "frames": VERSION}
    if versions != own:
        raise Refused(f"this site runs {own}, and the server {versions}: install the same version at both")
