"""For whom and where a model works: its scores by subgroups of the test rows, and by site with intervals drawn side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeGuard

from .blocks import Cell, Rows, amount, several, table
from .chart import COLOURS
from .numbers import HUGE

LARGEST = 30  # sites in the table, at most
GROUPS = 12  # of a field that are in sight, at most


def known(value: float | None) -> TypeGuard[float]:
    """Whether a number is there and means something: it is neither null nor NaN nor huge."""
    return value is not None and abs(value) < HUGE


def share(value: float | None) -> str:
    """
    >>> share(0.12345), share(None)
    ('0.123', 'undefined')
    """
    return f"{value:.3f}" if known(value) else "undefined"


def interval(found: Sequence[float] | None) -> tuple[str, str]:
    """A value, and the ends of its interval.

    >>> interval([0.9, 0.85, 0.94]), interval(None)
    (('0.900', '0.850–0.940'), ('undefined', '–'))
    """
    if found is None or not known(found[0]):
        return "undefined", "–"
    return share(found[0]), f"{share(found[1])}–{share(found[2])}" if known(found[1]) and known(found[2]) else "–"


def _both(found: Sequence[float] | None) -> str:
    value, ends = interval(found)
    return value if ends == "–" else f"{value}<small>{ends}</small>"


def subgroups(found: Mapping[str, Any]) -> str:
    """A table for each field, with what its groups have in common with all rows and what they have not."""
    fields = {field: groups for field, groups in found.get("subgroups", {}).items() if groups}
    if not fields:
        return ""
    held = any(group.get("withheld") for groups in fields.values() for group in groups)
    content = ("<h3>For whom: subgroups of the test rows</h3><p>Sensitivity and specificity are those of one threshold. Predicted is the "
               "mean probability of a group's rows, observed the share of them that is positive; they are marked where they differ by more "
               "than chance and by more than a little. Below values stand 95\u00a0% intervals: where these are wide, a group has too few "
               "rows to tell."
               + " Sites with few rows of a group withhold them, so that they are missing from its line." * held + "</p>")
    for field, groups in fields.items():
        by_size = sorted(groups, key=lambda group: -group["rows"]) if len(groups) > GROUPS else groups
        content += f'<div class="fit groups">{_groups(field, by_size[:GROUPS], len(groups))}'
        if rest := by_size[GROUPS:]:
            words = escape(f"The other {several(len(rest), 'group')} of {field}")
            content += f"<details><summary>{words}</summary>{_groups(field, rest, len(groups), 'smallest')}</details>"
        content += "</div>"
    return content


def _groups(field: str, groups: Sequence[dict[str, Any]], of: int, end: str = "largest") -> str:
    held = any(group.get("withheld") for group in groups)
    rows: Rows = []
    for group in groups:
        off = "worst" * bool(group.get("off"))
        own = [_both(group[key]) for key in ("AUC", "sensitivity", "specificity")]
        line: list[Cell | str] = [escape(group["group"]), amount(group["rows"]), amount(group["positives"]), *own,
                                  Cell(share(group["predicted"]), off), Cell(_both(group["observed"]), off)]
        rows.append([*line, several(group.get("withheld", 0), "site")] if held else line)
    note = f"By {field}" + f", the {end} {len(groups)} of {of} groups" * (len(groups) < of) + "."
    head = [field, "rows", "positives", "AUC", "sensitivity", "specificity", "predicted", "observed", *["withheld by"] * held]
    return table(head, rows, note)


def sites(place: int, found: Mapping[str, Any], server: bool = False) -> str:
    """The largest sites' scores of their own test rows as a forest of intervals; nothing where there is one place only.

    server: whether it is the server that has these rows
    """
    every = [site for site in found.get("sites", ()) if known(site["rows"])]
    if len(every) < 2:
        return ""
    score = "AUC" if any("AUC" in site for site in every) else "accuracy"
    worst = found.get("worst site", {}).get("site")
    by_size = sorted(every, key=lambda site: -site["rows"])
    shown = by_size[:LARGEST] + [site for site in by_size[LARGEST:] if site["site"] == worst]
    middle = found.get("AUC") if score == "AUC" else None  # the sites' accuracy is not that of the threshold
    line = middle[0] if middle is not None and known(middle[0]) else None
    rows: Rows = [["all test rows", _both(middle), Cell(_bar(place, middle, line), "forest")]] if line is not None else []
    for site in shown:
        is_worst = site["site"] == worst
        below = several(round(site["rows"]), "row") + " · the worst" * is_worst
        rows.append([f"{escape(site['site'])}<small>{below}</small>", Cell(_both(site.get(score)), "worst" * is_worst),
                     Cell(_bar(place, site.get(score), line), "forest" + " worst" * is_worst)])
    which = f"The {LARGEST} largest of {len(every)} sites" if len(every) > LARGEST else f"All {len(every)} sites"
    which += ", and the worst one" * (len(shown) > LARGEST)
    without = sum(score not in site for site in every)
    what = score if score == "AUC" else "accuracy, where the likeliest class is the answer,"
    note = f"{which}: {what} of test rows by the site that they are of, with 95 % intervals drawn from 0 to 1."
    note += " The server has these rows." * server
    note += " The broken line is that of all test rows." * (line is not None)
    note += f" It is undefined at {several(without, 'site')}, where a class has no test rows." * (score == "AUC" and without > 0)
    note += " The worst site is that of the least AUC among those whose interval is narrow enough to tell." * (worst is not None)
    ticks = "".join(f'<i style="left:{at * 100:g}%">{at:g}</i>' for at in (0, 0.5, 1))
    head: list[Cell | str] = ["site", score, Cell(f'<span class="axis">{ticks}</span>', "forest")]
    return f'<h3>Where: test rows by site</h3><div class="fit sites">{table(head, rows, note)}</div>'


def _bar(place: int, found: Sequence[float] | None, line: float | None) -> str:
    """A value and its interval on a line from 0 to 1; across all rows of the table, upright lines make a grid."""
    drawn = "".join(f'<path class="grid" d="M{at} 0V10"/>' for at in (0, 250, 500, 750, 1000))
    if line is not None:
        drawn += f'<path class="chance" d="M{_at(line)} 0V10"/>'
    if found is not None and all(map(known, found)):
        value, low, high = map(_at, found)
        ink = f"line c{place % COLOURS} d0"
        drawn += f'<path class="bar {ink}" d="M{low} 5H{high}"/><path class="dot {ink}" d="M{value} 5h0"/>'
    return f'<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'


def _at(value: float) -> int:
    return round(min(max(value, 0.0), 1.0) * 1000)
