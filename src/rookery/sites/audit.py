"""A site's log: what was asked, what left and how much, a line a frame, for people and for the counts that limits go by."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..training.files import Lines

LONGEST = 2000  # characters of what a server said that are written down
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False)


@dataclass
class Entry:
    """One frame or hello. `left` has the shape of every value that left the site; what was refused changed nothing.

    `frames`, `steps` and `bytes` are what the run has used up since the entry before.
    """

    run: str
    frame: int
    asked: list[str]
    left: list[list[int]] = field(default_factory=list)
    numbers: int = 0
    bytes: int = 0
    frames: int = 0
    steps: int = 0
    refused: str = ""
    when: str = ""
    names: list[str] = field(default_factory=list)  # texts that left, such as categories

    @property
    def sentence(self) -> str:
        """The entry in words."""
        done = ", ".join(self.asked) or "nothing"
        if self.refused:
            return shown(f"{self.when}  refused: {self.refused} ({done})")
        left = f"{self.numbers} numbers left" if self.numbers else "nothing left"
        told = f", and the names {', '.join(self.names)}" if self.names else ""
        what = f"frame {self.frame}" if self.frame else "greeting"
        return shown(f"{self.when}  {what}: {done}; {left}{told}")


def shown(text: str) -> str:
    """A line for a terminal, which what came over the network can neither break nor colour."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


class Audit:
    """The log of one run, a file of lines that only grows."""

    def __init__(self, file: Path) -> None:
        self.file, self.lines = file, Lines(file)

    def write(self, entry: Entry) -> None:
        """Add an entry as a line of its own; or `WriteError`, and the file is as it was."""
        entry.when, entry.refused = time.strftime("%Y-%m-%d %H:%M:%S"), entry.refused[:LONGEST]
        self.lines.append(_ENCODER.encode(vars(entry)))

    def entries(self) -> Iterator[Entry]:
        """What was written down; a last line that is not whole was being written when the process ended."""
        if not self.file.exists():
            return
        with self.file.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    yield Entry(**json.loads(line))
                except (ValueError, TypeError):
                    continue
