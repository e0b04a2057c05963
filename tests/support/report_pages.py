"""Runs' folders as the command line leaves them, and what a page about them says."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from rookery.report import load, write

# a text that would like to be an element, a script or a style, and half a character
EVIL = '"><script>window.hacked=1</script><img src=x onerror="window.hacked=1">&amp;</style>\ud800'


def row(round: int, **metrics: float | None) -> dict[str, Any]:
    return {"round": round, "exchanges": 2 * round, "bytes": 1000 * round, "samples": 64 * round, "seconds": round / 8, **metrics}


def make(folder: Path, label: str, seed: int | None = 0, history: list[dict[str, Any]] | None = None,
         predictions: tuple[Any, Any] | None = None, **about: Any) -> Path:
    """A run's folder as the command line leaves it."""
    folder.mkdir(parents=True)
    history = history or [row(r, **{"test loss": 1 / (1 + r), "test AUC": 1 - 0.5 / (1 + r)}) for r in range(5)]
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))
    (folder / "about.json").write_text(json.dumps({"label": label, "seed": seed, "rounds": history[-1]["round"], **about}))
    if predictions:
        np.savez(folder / "predictions.npz", labels=predictions[0], scores=predictions[1])
    return folder


class Page(HTMLParser):
    """What a page says: its tables as rows of (text, class), its other texts by tag, and every element with its attributes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tables: list[list[list[tuple[str, str]]]] = []
        self.texts: list[tuple[str, str]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "br", "img", "path", "rect", "wbr"):
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append(("", dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag):]

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))
        if "td" in self._open or "th" in self._open:
            text, kind = self.tables[-1][-1][-1]
            self.tables[-1][-1][-1] = (f"{text} {data}".strip(), kind)

    def column(self, table: int, name: str) -> list[tuple[str, str]]:
        head, *body = self.tables[table]
        place = [text for text, _ in head].index(name)
        return [line[place] for line in body]

    def line(self, table: int, name: str) -> list[tuple[str, str]]:
        """The cells of the line of a name, behind which a table may say what it means."""
        return next(rest for (first, _), *rest in self.tables[table] if f"{first} ".startswith(f"{name} "))

    def headings(self) -> list[str]:
        return [text for tag, text in self.texts if tag == "h2"]


def account(**counts: Any) -> dict[str, Any]:
    return {**dict.fromkeys(("exchanges", "floats_up", "floats_down", "bytes_up", "bytes_down", "samples"), 0), "calls": {}, **counts}


def scored(seed: int, n: int = 400, logits: bool = False) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.2).astype(int)
    scores = np.round(rng.normal(size=n) + 1.3 * labels, 1)  # rounded: ties must count by half
    return labels, np.stack([np.zeros(n), scores], axis=1) if logits else scores


def paged(tmp_path: Path, *folders: Path, **words: Any) -> Page:
    return Page(write([load(folder) for folder in folders], tmp_path / "out" / "report.html", **words))


def traffic(*exchanges: list[tuple[str, str, int]]) -> list[dict[str, Any]]:
    return [{"direction": way, "what": what, "floats": floats, "bytes": 4 * floats, "clients": 8, "exchange": number}
            for number, items in enumerate(exchanges, 1) for way, what, floats in items]
