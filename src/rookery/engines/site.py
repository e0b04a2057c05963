"""What answers frames where the rows are: a site keeps its clients' values, and runs named functions on them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import EngineError, FrameError, RookeryError, StateLost, UploadError
from ..federation.client import Setting
from ..federation.program import PROGRAMS
from .frames import expect, natural, numbers, pack, unpack
from .programs import digest_of
from .transaction import Transaction
from .version import Guard, Version


class Site:
    """One run at one owner of rows, behind `answer(frame) -> frame`; it may hold several clients.

    Every frame has a number and names the one that it builds on, its base. The site keeps what it held after the base and after its last
    frame, and nothing else: a frame whose reply was lost, or that failed at another site, is sent again or built over, and both give what
    a network without faults would have given. Base 0 is the empty site.
    """

    def __init__(self, setting: Setting, run: str, folder: Path | None = None, name: str | None = None, guard: Guard | None = None) -> None:
        self.run, self.folder, self.guard = run, folder, guard
        self.on_reply: Callable[[int, Mapping[int, Tensor], int], None] | None = None  # told what leaves, before it does
        self.failure: Exception | None = None  # of the last frame
        self.known: set[str] = set()  # programs that the server has the same of
        self.name = setting.data.names[0] if name is None else name
        self.empty = Version({}, ({},) * len(setting.data.names), ({},) * len(setting.data.names), setting)
        self.versions: dict[int, Version] = {}
        self.counter = 0  # the last frame that was executed
        self.last: tuple[bytes, bytes] = (b"", b"")
        self.lock = threading.Lock()

    @property
    def held(self) -> Version:
        """What the site holds after its last frame."""
        return self.versions.get(self.counter, self.empty)

    def answer(self, frame: bytes, unpacked: tuple[dict[str, Any], dict[int, Tensor]] | None = None) -> bytes:
        """Execute a frame. What is wrong with it comes back as an error by name; nothing has changed then."""
        with self.lock:  # a frame that is sent again while it is executed waits for the first one's reply
            try:
                self.failure = None
                return self._answer(frame, *(unpacked or unpack(frame)))
            except Exception as error:  # a fault in a user's loss must reach the server with the site's name
                self.failure = error
                return self.error(error)

    def error(self, error: Exception, longest: int | None = None) -> bytes:
        """A reply that says what is wrong, by name, in so many characters at most."""
        if not isinstance(error, RookeryError):
            error = EngineError(f"{type(error).__name__}: {error}")
        named = error.client if isinstance(error, UploadError) else self.name
        words = str(error).removeprefix(f"client {named!r}: ")[:longest]
        return self._reply({"error": [type(error).__name__, words], "client": named}, {})

    def _answer(self, frame: bytes, header: dict[str, Any], tensors: dict[int, Tensor]) -> bytes:
        digest = frame[-16:]  # which was found to be right
        if digest == self.last[0]:
            return self.last[1]
        if expect(header, "run", str) != self.run:
            raise StateLost(f"this site takes part in run {self.run!r}; the frame is of run {header['run']!r}")
        if header.get("roll") is True:
            return self._reply({"counter": self.counter, "holds": sorted(self.versions)}, {})
        k, base = natural(header, "k"), natural(header, "base")
        if 0 < k <= self.counter and not self.versions:
            raise StateLost(f"state lost: frame {k} came to a process that began after frame {self.counter}")
        if k <= self.counter:
            raise FrameError(f"frame {k} came after frame {self.counter}, and it is not the same again")
        if base != 0 and base not in self.versions:
            raise StateLost(f"state lost: frame {k} builds on frame {base}, and this site holds what was after {sorted(self.versions)}")
        if self.guard is not None:
            self.guard.begin()
        before = self.versions[base] if base else self.empty
        if programs := expect(header, "programs", dict):
            self.known = self.known | _same_programs(programs)
        clients, unfinished = _clients(header, len(before.own)), self.empty.setting.problem
        work = Transaction(before, tensors, clients, unfinished, self.file, self.known, self.guard)
        work.run(expect(header, "ops", list))
        sent = work.uploads(numbers(header, "want"))
        work.forget(numbers(header, "free"))
        gone = [self.file(tag) for tag in expect(header, "forget", list) if expect({"tag": tag}, "tag", str)]
        try:
            reply = self._reply({"k": k, "work": work.work, "loaded": work.loaded}, sent)
        except FrameError as error:
            raise UploadError(self.name, str(error)) from None
        if self.on_reply is not None:
            self.on_reply(k, sent, len(reply))
        work.write_files()
        for path in gone:
            path.unlink(missing_ok=True)
        after = Version(work.shared, tuple(work.own), tuple(work.makers), work.setting)
        self.versions = {**({base: before} if base else {}), k: after}
        self.counter, self.last = k, (digest, reply)
        return reply

    def _reply(self, header: dict[str, Any], tensors: dict[int, Tensor]) -> bytes:
        return pack({"run": self.run, "site": self.name, **header}, tensors)

    def file(self, tag: str) -> Path:
        """Where this site keeps what it was asked to save under a tag."""
        if self.folder is None:
            raise StateLost("this site has no folder for checkpoints; give it one")
        if len(tag) > 100 or not tag.replace("-", "").replace("_", "").isalnum() or not tag.isascii():
            raise FrameError(f"a checkpoint's tag has at most 100 letters, digits, - and _; got {tag[:120]!r}")
        return self.folder / f"{hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()}-{tag}.safetensors"


def _same_programs(digests: dict[str, Any]) -> set[str]:
    """Programs by their full names, which must be here what they are at the server."""
    for name, digest in digests.items():
        if name not in PROGRAMS:
            raise FrameError(f"unknown program {name!r}; import its module at this site")
        if digest != digest_of(name):
            raise FrameError(f"program {name!r} is another one here than at the server: install the same version at both")
    return set(digests)


def _clients(header: dict[str, Any], number: int) -> list[int]:
    """The clients of this site that a frame is about."""
    clients = numbers(header, "clients")
    if clients != sorted(clients) or (clients and not 0 <= clients[0] <= clients[-1] < number):
        raise FrameError(f"'clients' lists some of this site's {number} clients, 0 to {number - 1}, in their order; it has {clients!r}")
    return clients
