"""Pieces of HTML: numbers, tables, and a switch that needs no script. Text from a file is escaped where it enters HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from .chart import swatch
from .numbers import Method, Stat


class Cell(NamedTuple):
    """A cell of a table: HTML, and what it is (`best`, `worst`, `text`)."""

    html: str
    kind: str = ""


Rows = list[list[Cell | str]]


def number(value: float, like: float | None = None) -> str:
    """A metric: four decimals, or three digits where these would hide it; a spread has the decimals of the mean it is `like`.

    >>> number(0.91234), number(1234.567), number(0.0000123), number(0.0005, like=0.9), number(0.00001, like=0.9)
    ('0.9123', '1,234.57', '1.23e-05', '0.0005', '< 0.0001')
    """
    size = abs(value if like is None else like)
    if size and (size < 1e-3 or size >= 1e6):
        return f"{value:.3g}"
    decimals = 4 if size < 100 else 2
    return f"< {10**-decimals}" if like is not None and 0 < value < 10**-decimals / 2 else f"{value:,.{decimals}f}"


def amount(value: float, like: float | None = None) -> str:
    """A cost: whole where it, or the mean it is `like`, is large.

    >>> amount(12000), amount(173.33), amount(12.345), amount(0.004)
    ('12,000', '173', '12.35', '0.004')
    """
    size = abs(value if like is None else like)
    return f"{value:,.0f}" if value == int(value) or size >= 100 else f"{value:,.2f}" if size >= 0.1 else f"{value:.2g}"


def several(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def name(method: Method, *small: str) -> str:
    """A method with the colour of its lines; `small` are texts below."""
    below = "".join(f"<small>{escape(text).replace('_', '_<wbr>')}</small>" for text in small if text)
    return f'<span class="method">{swatch(method.place)}<span>{escape(method.label)}{below}</span></span>'


def metric(found: Stat | None, seeds: int, apart: str = "<small>{}</small>") -> str:
    """Mean ± standard deviation of a metric, with the number of runs where some had no value; `apart` sets what follows the mean."""
    if found is None:
        return "–"
    spread = apart.format(f"± {number(found.std, found.mean)}") if found.n > 1 else ""
    return number(found.mean) + spread + (apart.format(f"{found.n} of {seeds} runs") if found.n < seeds else "")


def cost(found: Stat | None) -> str:
    """Mean ± standard deviation of a cost; the spread is left out where there is none."""
    if found is None:
        return "–"
    varies = math.isfinite(found.std) and found.std > 1e-9 * abs(found.mean)
    return amount(found.mean) + (f"<small>± {amount(found.std, found.mean)}</small>" if varies else "")


def marked(means: Sequence[float | None], sign: int) -> list[bool]:
    """Which are the largest (sign +1) or smallest (−1) as printed; none where nobody knows, or where there is nothing to compare.

    >>> marked([0.5, 0.91234, None, 0.91233], 1)
    [False, True, False, True]
    """
    known = [mean for mean in means if mean is not None]
    if not sign or len({number(mean) for mean in known}) < 2:
        return [False] * len(means)
    best = number((max if sign > 0 else min)(known))
    return [mean is not None and number(mean) == best for mean in means]


def table(head: Sequence[Cell | str], rows: Rows, note: str) -> str:
    """A table that scrolls in its own box; the first cell of a row names it. `head` and `note` are text, cells are HTML in either."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    titles = [title if isinstance(title, Cell) else Cell(escape(title), "text" * (cell.kind == "text"))
              for title, cell in zip(head, cells[0], strict=True)]
    top = "".join(f'<th scope="col"{_class(title)}>{title.html}</th>' for title in titles)
    body = "".join(f'<tr><th scope="row">{first.html}</th>' + "".join(f"<td{_class(cell)}>{cell.html}</td>" for cell in rest) + "</tr>"
                   for first, *rest in cells)
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(note)}"><table><thead><tr>{top}</tr></thead>'
            f'<tbody>{body}</tbody></table></div><p class="note">{escape(note)}</p>')


def _class(cell: Cell) -> str:
    return f' class="{cell.kind}"' if cell.kind else ""


def switch(group: str, legend: str, names: Sequence[str], chosen: int = 0) -> str:
    """Radio buttons; `panes` follow them by style alone, so a page without scripts switches too."""
    buttons = "".join(f'<label><input type="radio" name="{group}" id="{group}{k}"{" checked" if k == chosen else ""}>'
                      f"<span>{escape(title)}</span></label>" for k, title in enumerate(names))
    shown = "".join(f"section:has(#{group}{k}:checked) .{group}{k}{{display:block}}" for k in range(len(names)))
    return f'<style>{shown}</style><fieldset{" hidden" if len(names) < 2 else ""}><legend>{escape(legend)}</legend>{buttons}</fieldset>'


def panes(group: str, contents: Sequence[str]) -> str:
    """The contents, of which the switch of this name shows one."""
    return "".join(f'<div class="pane {group}{k}">{content}</div>' for k, content in enumerate(contents))
