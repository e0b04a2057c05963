"""A drawing of one round: what goes down to the clients and what comes up, in order."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

ROWS = 30  # arrows in a drawing, at most
_WIDTH, _SERVER, _CLIENTS, _TOP, _STEP = 320, 50, 262, 62, 42
_MIDDLE = (_SERVER + _CLIENTS) // 2


class Arrow(NamedTuple):
    """`times` values of so many floats and bytes for each of `clients`, read or made by `what`."""

    down: bool
    what: str
    floats: int
    bytes: int
    clients: int
    times: int = 1


Exchange = tuple[Arrow, ...]


def exchanges(traffic: Sequence[dict[str, Any]]) -> list[Exchange]:
    """The round by exchanges; values alike that travel together share an arrow."""
    found = []
    for _, items in groupby(traffic, key=lambda item: item["exchange"]):
        arrows = (Arrow(i["direction"] == "down", i["what"], i["floats"], i["bytes"], i["clients"]) for i in items)
        found.append(tuple(arrow._replace(times=len(list(same))) for arrow, same in groupby(arrows)))
    return found


def collapse(items: Sequence[Any]) -> list[tuple[Sequence[Any], int]]:
    """Runs of a repeated block, the block that saves most first.

    >>> collapse("abbbcdcde")
    [('a', 1), ('b', 3), ('cd', 2), ('e', 1)]
    """
    found, at = [], 0
    while at < len(items):
        period, times = 1, 1
        for p in range(1, (len(items) - at) // 2 + 1):
            k = 1
            while items[at + k * p:at + (k + 1) * p] == items[at:at + p]:
                k += 1
            if (k - 1) * p > (times - 1) * period:
                period, times = p, k
        found.append((items[at:at + period], times))
        at += period * times
    return found


def size(count: float) -> str:
    """Bytes in a unit that suits them.

    >>> size(31400), size(12), size(2.5e6)
    ('31.4 kB', '12 B', '2.5 MB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"


def _words(arrow: Arrow, most: int) -> str:
    several = f"{arrow.times} × " if arrow.times > 1 else ""
    some = f" · {arrow.clients} client{'s' * (arrow.clients != 1)}" if arrow.clients != most else ""
    return f"{several}{arrow.floats:,} float{'s' * (arrow.floats != 1)} · {size(arrow.bytes * arrow.times)}{some}"


def _arrow(arrow: Arrow, y: float, most: int, heaviest: int) -> str:
    start, end = (_SERVER, _CLIENTS) if arrow.down else (_CLIENTS, _SERVER)
    sign = 1 if arrow.down else -1
    width = 1.2 + 3.3 * (arrow.bytes * arrow.times / heaviest) ** 0.5
    head = 4 + width
    name = arrow.what if len(arrow.what) <= 26 else arrow.what[:25] + "…"
    return (f'<g class="{"down" if arrow.down else "up"}"><title>{escape(arrow.what)}</title>'
            f'<path class="shaft" stroke-width="{width:.1f}" d="M{start} {y}H{end - sign * (head + 3):.1f}"/>'
            f'<path class="head" d="M{end - sign * 3} {y}l{-sign * head * 1.5:.1f} {-head:.1f}v{2 * head:.1f}z"/>'
            f'<text class="name" x="{_MIDDLE}" y="{y - 7}">{escape(name)}</text>'
            f'<text class="size" x="{_MIDDLE}" y="{y + 15}">{_words(arrow, most)}</text></g>')


def drawing(label: str, traffic: Sequence[dict[str, Any]]) -> str:
    """One round as a figure, time running down; arrows are thicker for more bytes."""
    rows = exchanges(traffic)
    most = max(arrow.clients for row in rows for arrow in row)
    heaviest = max(1, *(arrow.bytes * arrow.times for row in rows for arrow in row))
    parts, told, y, number, drawn = "", [], _TOP + 22.0, 1, 0
    for block, times in collapse(rows):
        if drawn + sum(map(len, block)) > ROWS and drawn:
            break
        top = y - 22
        for index, exchange in enumerate(block):
            through = f"–{number + times - 1}" if times > 1 and len(block) == 1 else ""
            parts += f'<text x="15" y="{y + 4}">{number + index}{through}</text>'
            for arrow in exchange:
                parts += _arrow(arrow, y, most, heaviest)
                told.append(f"{'down to' if arrow.down else 'up from'} {arrow.what}: {_words(arrow, most)}")
                y, drawn = y + _STEP, drawn + 1
        if times > 1:
            told[-1] += f" (exchanges {number} to {number + len(block) * times - 1}: {len(block)} repeated {times} times)"
            width, height = _CLIENTS - _SERVER + 36, y - top - 19
            parts += (f'<rect class="again" x="{_SERVER - 18}" y="{top + 2}" width="{width}" height="{height}" rx="8"/>'
                      f'<text class="times" x="{_CLIENTS + 22}" y="{(top + y - 22) / 2 + 4}">×{times}</text>')
        number, y = number + len(block) * times, y + 12
    if number <= len(rows):
        parts += f'<text class="size" x="{_MIDDLE}" y="{y}">… and {len(rows) - number + 1} more exchanges</text>'
        y += 24
    bottom = y - 26
    life = "".join(f'<path class="life" d="M{x} {_TOP - 10}V{bottom}"/>' for x in (_SERVER, _CLIENTS))
    stack = "".join(f'<rect class="box" x="{x}" y="{x - _CLIENTS + 56}" width="80" height="30" rx="6"/>'
                    for x in range(_CLIENTS - 44, _CLIENTS - 32, 4)[:most])
    down = sum(a.bytes * a.times for row in rows for a in row if a.down)
    up = sum(a.bytes * a.times for row in rows for a in row if not a.down)
    total = f"{len(rows)} exchange{'s' * (len(rows) != 1)} a round; {size(down)} down and {size(up)} up per client"
    words = escape(f"One round of {label}, in order: {'; '.join(told)}")
    return (f'<figure class="round"><figcaption><b>{escape(label)}</b><br>{total}</figcaption>'
            f'<svg viewBox="0 0 {_WIDTH} {bottom + 6}" role="img" aria-label="{words}">{life}'
            f'<rect class="box" x="{_SERVER - 36}" y="16" width="72" height="30" rx="6"/>'
            f'<text class="who" x="{_SERVER}" y="36">server</text>'
            f'{stack}<text class="who" x="{_CLIENTS + 2}" y="38">{most} client{"s" * (most != 1)}</text>{parts}</svg></figure>')
