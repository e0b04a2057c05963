"""The block that a page about a fit begins with: whether nesting paid, and every method that was tried, with its interval drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from .blocks import Cell, Rows, table
from .chart import Scale
from .record import MAYBE, OTHERS, TEXT, Numbers, ReportError, complaint
from .terms import meaning
from .whom import known

_FOUND = Numbers(3, maybe=True, holes=True)
FIT = {
    "goal": str, "metric": str, "larger": bool, "kept": TEXT, "sentence": str, "about?": TEXT, "where?": TEXT,
    "minutes?": MAYBE, "notes?": [str],
    "rows": [{"label": str, "kind": frozenset({"opponent", "nested", "reference"}), "setting": {OTHERS: object}, "validation": MAYBE,
              "test": _FOUND, "difference": _FOUND, "kept": bool, "note?": TEXT}],
}
AGAINST = "FedAvg"  # what differences are to
KINDS = {"opponent": "not nested", "nested": "nested", "reference": "no candidate"}
INKS = {"opponent": "line c1 d0", "nested": "line c0 d0", "reference": "line c6 d0"}


def verdict(fit: Mapping[str, Any]) -> str:
    """The sentence of a fit, large, and its methods: values and differences with 95 % intervals, drawn against FedAvg's; then references.

    fit: what the file `fit.json` has: goal, metric, about (what it is), larger (is better), kept, sentence, where, minutes, notes, and
    rows with label, kind ("opponent", "nested" or "reference"), setting, validation, test, difference, kept and note. Test and difference
    are [value, low, high]; null stands for what is not known
    """
    if wrong := complaint(fit, FIT, "fit"):
        raise ReportError(f"{wrong}; write fit.json anew with rookery fit, or leave the fit out")
    metric, rows = fit["metric"], fit["rows"]
    candidates = [row for row in rows if row["kind"] != "reference"]
    references = [row for row in rows if row["kind"] == "reference"]
    line = next((row["test"][0] for row in candidates if row["label"] == AGAINST and row["test"] and known(row["test"][0])), None)
    scale = _scale([row["test"] for row in rows])
    content = f'<h2>Did nesting pay?</h2><p class="said">{escape(fit["sentence"])}</p>'
    content += f"<p>{escape(_words(fit))}</p>"
    if candidates:
        note = (f"Dots are {metric} of test rows, bars 95 % intervals." + f" The broken line is {AGAINST}." * (line is not None)
                + f" The difference to {AGAINST} is of the same test rows, whose luck both share: bars may overlap where the "
                "interval of the difference leaves 0 out.")
        content += _table(candidates, metric, scale, line, note)
    if references:
        content += "<h3>For reference</h3><p>These are no candidates, so that none could be kept; they show what else can be had.</p>"
        content += _table(references, metric, scale, line, "Drawn as above.")
    if notes := fit.get("notes"):
        content += "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
    return f'<div class="verdict">{content}</div>'


def _words(fit: Mapping[str, Any]) -> str:
    """What the numbers are: of which rows, which way is better, what was kept and how it was chosen."""
    told = fit.get("about") or meaning(fit["metric"])
    better = "" if "is better" in told else f"; {'larger' if fit['larger'] else 'smaller'} is better"
    said = f"{fit['metric']}{f' ({told})' if told else ''}, of {fit.get('where') or 'test rows'}{better}. "
    said += "Settings and the method that is kept were chosen on validation rows, which sites held out; test rows chose nothing."
    said += f" Kept: {fit['kept']}." if fit["kept"] else ""
    return said + (f" It took {fit['minutes']:.1f} minutes." if known(fit.get("minutes")) else "")


def _scale(tests: Sequence[Sequence[float | None] | None]) -> Scale:
    """From the least to the largest end of an interval, with some room."""
    ends = [end for found in tests for end in found or () if known(end)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    room = 0.06 * (high - low)
    return Scale(low - room, high + room)


def _ticks(scale: Scale) -> list[tuple[float, str]]:
    """Three of them at most, which a telephone has room for."""
    every = scale.ticks()
    return every[:: -(-len(every) // 3)]


def _table(rows: Sequence[Mapping[str, Any]], metric: str, scale: Scale, line: float | None, note: str) -> str:
    body: Rows = []
    for row in rows:
        setting = ", ".join(f"{key.rpartition('.')[2]} {value:g}" if isinstance(value, float) else f"{key.rpartition('.')[2]} {value}"
                            for key, value in row["setting"].items())
        below = "".join(f"<small>{escape(text)}</small>" for text in (KINDS[row["kind"]], setting, row.get("note")) if text)
        mark = '<b class="kept">kept</b><br>' * row["kept"]
        validation = f"{row['validation']:.3f}" if known(row["validation"]) else "–"
        best = "best" * row["kept"]
        body.append([f"{mark}{escape(row['label'])}{below}", Cell(_bar(row, scale, line), f"forest {best}".strip()),
                     *(Cell(text, best) for text in (_both(row["test"]), _both(row["difference"], "+"), validation))])
    ticks = "".join(f'<i style="left:{at:.1f}%">{name}</i>' for at, name in _ticks(scale))
    head: list[Cell | str] = ["method", Cell(f'<span class="axis">{ticks}</span>', "forest"), f"test {metric}", f"more than {AGAINST}",
                              f"validation {metric}"]
    return table(head, body, note)


def _both(found: Sequence[float | None] | None, sign: str = "") -> str:
    """A value above its interval; with a sign where it is a difference."""
    if found is None or not known(found[0]):
        return "–"
    value, low, high = (f"{round(end, 3) + 0.0:{sign}.3f}".replace("-", "−") if known(end) else "" for end in found)
    return value + f"<small>{low}{' to ' if sign else '–'}{high}</small>" * bool(low and high)


def _bar(row: Mapping[str, Any], scale: Scale, line: float | None) -> str:
    """A value and its interval along the scale; grid lines and FedAvg's go through all rows of the table."""
    drawn = "".join(f'<path class="grid" d="M{at * 10:.0f} 0V10"/>' for at, _ in _ticks(scale))
    if line is not None:
        drawn += f'<path class="chance" d="M{float(scale(np.array(line))) * 10:.0f} 0V10"/>'
    at = [f"{float(scale(np.array(end))) * 10:.0f}" if known(end) else "" for end in row["test"] or (None,) * 3]
    ink = INKS[row["kind"]]
    drawn += f'<path class="bar {ink}" d="M{at[1]} 5H{at[2]}"/>' * bool(at[1] and at[2])
    drawn += f'<path class="dot {ink}" d="M{at[0]} 5h0"/>' * bool(at[0])
    return f'<svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
