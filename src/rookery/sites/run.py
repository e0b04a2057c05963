"""One run at a site: what it holds and has used up, its log, and what is told of what fails."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..engines.site import Site
from ..errors import ConfigError, EngineError, FewRows, FrameError, PlacementError, Refused, StateLost, UploadError, WriteError
from .audit import LONGEST, Audit, Entry
from .rules import Account

MOST_REFUSALS = 10_000  # of a run that are written down, of one process
TOLD = (FewRows, FrameError, PlacementError, Refused, StateLost, UploadError, WriteError)  # errors that have nothing of rows in their words


class Run:
    """One run at this site: its site, its account, its log, and a digest of its rows."""

    def __init__(self, site: Site, account: Account, audit: Audit, digest: str) -> None:
        self.site, self.account, self.audit, self.digest = site, account, audit, digest
        self.lock = threading.Lock()  # a frame's account is its own, whatever comes beside it
        self.gone = False  # set aside for other runs: who had it in hand looks for it again
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

    def greeted(self, entry: Entry, size: int) -> bool:
        """Whether a greeting of so many bytes is counted and written down; not where the run was set aside."""
        with self.lock:
            if not self.gone:
                self.account.moved(size)
                self.write(entry)
            return not self.gone

    def answer(self, frame: bytes, unpacked: tuple[dict[str, Any], dict[int, Tensor]]) -> bytes | None:
        """The reply; None where the run was set aside."""
        with self.lock:
            if self.gone:
                return None
            self.account.asked, self.noted = [], False
            self.account.bytes += len(frame)
            try:
                self.account.moved(0)
                reply, failure = self.site.answer(frame, unpacked), self.site.failure
            except Refused as error:
                reply, failure = b"", error
            if failure is not None:
                reply = self.site.error(told(failure), LONGEST)
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
            self.write(Entry(self.site.run, 0, self.account.asked, refused=words(failure)[: LONGEST - len(last)] + last))

    def write(self, entry: Entry) -> None:
        """An entry, with what the run has used up since the last one."""
        used, (frames, steps, size) = self.account.used, self.written
        entry.frames, entry.steps, entry.bytes = used[0] - frames, used[1] - steps, used[2] - size
        self.audit.write(entry)
        self.written = used

    def set_aside(self) -> bool:
        """Whether it is gone from here on, what it has used up being written down; not while a frame of it is under way."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            if self.written != self.account.used:
                self.write(Entry(self.site.run, 0, ["set aside for other runs"]))
            self.gone = True
        finally:
            self.lock.release()
        return True


def _texts(value: Tensor) -> list[bytes]:
    """The different rows of bytes, without the zeros that fill them up."""
    rows = np.ascontiguousarray(value.numpy(force=True))
    return np.unique(rows.view(f"S{rows.shape[1]}")).tolist() if rows.size else []


def told(error: Exception) -> Exception:
    """What a server is told of an error: words that may be those of rows stay here."""
    plain = isinstance(error, TOLD) or (isinstance(error, ConfigError) and error.__cause__ is None)
    return error if plain else EngineError(f"{type(error).__name__}; the site's log has its words")


def words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


