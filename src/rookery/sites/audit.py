"""A site's log: what was asked, what left and how much, a line a frame, for people and for the counts that limits go by."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """One frame or hello. `left` has the shape of every value that left the site; what was refused changed nothing."""

    run: str
    frame: int
    asked: list[str]
    left: list[list[int]] = field(default_factory=list)
    numbers: int = 0
    bytes: int = 0
    steps: int = 0
    refused: str = ""
    when: str = ""
    names: list[str] = field(default_factory=list)  # texts that left, such as categories

    @property
    def sentence(self) -> str:
        """The entry in words."""
        done = ", ".join(self.asked) or "nothing"
        if self.refused:
            return f"{self.when}  refused: {self.refused} ({done})"
        left = f"{self.numbers} numbers left" if self.numbers else "nothing left"
        told = f", and the names {', '.join(self.names)}" if self.names else ""
        return f"{self.when}  frame {self.frame}: {done}; {left}{told}"


class Audit:
    """The log of one run, a file of lines that only grows."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def write(self, entry: Entry) -> None:
        entry = Entry(**{**asdict(entry), "when": time.strftime("%Y-%m-%d %H:%M:%S")})
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry), ensure_ascii=False) + "\n")

    def entries(self) -> Iterator[Entry]:
        """What was written down; a last line that is not whole was being written when the process ended."""
        if not self.file.exists():
            return
        with self.file.open(encoding="utf-8") as file:
            for line in file:
                try:
                    yield Entry(**json.loads(line))
                except (ValueError, TypeError):
                    continue
