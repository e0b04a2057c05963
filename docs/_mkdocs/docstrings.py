"""Our docstrings as Markdown, for the reference pages.

They are plain text, so that `help(…)` reads well: paragraphs, lists of "name:  meaning" with aligned or indented continuation lines, lists
with dashes, indented formulas and doctests. Markdown would join a list's lines into one paragraph, take x* … y* for emphasis and >>> for
a quotation. This extension of griffe writes each of these in Markdown's own form, and escapes what is meant as a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import griffe

NAME = r"[a-z_*][\w.]*(?:=\"[^\"]*\")?"
ENTRY = re.compile(rf"(?P<names>{NAME}(?:(?:, | with ){NAME})*):\s+(?P<text>\S.*)")
SPECIAL = re.compile(r"([\\*_\[\]<>#|~])")


class PlainText(griffe.Extension):
    """Rewrites every docstring that griffe has read, and keeps class variables out of the signatures of dataclasses."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        if str(attr.annotation) == "ClassVar":  # without brackets griffe takes it for a field
            attr.labels.discard("instance-attribute")

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring in Markdown."""
    return "\n\n".join(piece for number, block in enumerate(_blocks(text.splitlines())) for piece in _written(block, number == 0))


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines between blank ones."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _written(block: list[str], first_of_all: bool) -> Iterator[str]:
    """A block of lines as paragraphs, lists and code."""
    if block[0].lstrip().startswith(">>>"):
        yield _code(block, "pycon")
        return
    entries = not first_of_all and _is_list(block)  # a docstring begins with a sentence, be there a colon in it or not
    while block:
        first, rest = block[0], block[1:]
        below = next((i for i, line in enumerate(rest) if not line.startswith(" ")), len(rest))
        if first.startswith(" "):
            yield _code([first, *rest[:below]], "text")
            block = rest[below:]
        elif entries and (entry := ENTRY.fullmatch(first)):
            names = ", ".join(f"`{name}`" for name in entry["names"].split(", "))
            yield f"- {names}: {escaped(' '.join([entry['text'], *map(str.strip, rest[:below])]))}"
            block = rest[below:]
        elif first.startswith("- "):
            yield f"- {escaped(' '.join([first[2:], *map(str.strip, rest[:below])]))}"
            block = rest[below:]
        else:
            end = next((i for i, line in enumerate(rest) if line.startswith((" ", "- ", ">>>"))), len(rest))
            yield escaped(" ".join([first, *rest[:end]]))
            block = rest[end:]


def _is_list(block: list[str]) -> bool:
    """Whether every line that is not indented begins with a name and a colon: else it is a sentence that happens to have one."""
    return all(ENTRY.fullmatch(line) and not line.startswith("Reference:") for line in block if not line.startswith(" "))


def _code(lines: list[str], language: str) -> str:
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join([f"```{language}", *(line[margin:] for line in lines), "```"])


def escaped(text: str) -> str:
    """The text with Markdown's characters escaped outside of backticks."""
    return "".join(part if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(re.split(r"(`[^`]*`)", text)))
