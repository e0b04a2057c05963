"""The section on the model in use: how good its decisions are, whether its probabilities come true, whether acting on them is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil
from typing import Any

import numpy as np

from .blocks import Cell, Rows, amount, name, panes, several, switch, table
from .chart import Line, chart
from .numbers import Curve, Method
from .place import tests_at
from .record import Record
from .style import IN_USE
from .terms import INTERVALS
from .whom import interval, known, share, sites, subgroups

SHOWN = 8  # sentences of a list; the others are folded away
GREY, DOTTED = 13, 20  # places in the palette: the last colour, broken and dotted
# [decision] of a description, without which these hold
DECISION = {"threshold": "f1", "sensitivity": 0.9, "false_positive": 1.0, "false_negative": 1.0, "probability": 0.5}
UNCHOSEN = "the threshold is a probability of 0.5, as none could be chosen"  # how the warning begins which says so
CALIBRATORS = {"platt": "Platt's method, which fits a logistic curve", "isotonic": "isotonic regression, which fits a rising curve",
               "temperature": "a temperature, which is one factor for all of them, fitted"}


def in_use(found: Sequence[Method]) -> str:
    """What every method's first assessed run says of its test rows; nothing where no run was assessed."""
    assessed = [(method, [record for record in method.records if record.about.get("assessment")]) for method in found]
    first = [(method, records[0], len(records)) for method, records in assessed if records]
    if not first:
        return ""
    warnings = _told("Warnings", "flags told", [(method, record.about["assessment"]["warnings"]) for method, record, _ in first])
    notes = _told("About the data", "flags told facts", [(method, record.about.get("notes", ())) for method, record, _ in first])
    contents = [(f"<h3>{name(method)}</h3>" if len(found) > 1 else "") + _of_run(method, record, runs) for method, record, runs in first]
    return (f"<style>{IN_USE}</style><h2>In use: probabilities and decisions</h2>{warnings}{notes}"
            + switch("inuse", "Method", [method.label for method, _, _ in first]) + panes("inuse", contents))


def _told(title: str, kind: str, said: Sequence[tuple[Method, Sequence[str]]]) -> str:
    """Sentences of all methods as one list; where they differ, with the methods that they are about."""
    owners: dict[str, list[str]] = {}
    for method, sentences in said:
        for sentence in dict.fromkeys(sentences):
            owners.setdefault(sentence, []).append(method.label)
    lines = [f"<li>{escape(sentence if len(labels) == len(said) else ', '.join(labels) + ': ' + sentence)}</li>"
             for sentence, labels in owners.items()]
    more = f"<details><summary>{len(lines) - SHOWN} more</summary><ul>{''.join(lines[SHOWN:])}</ul></details>" if len(lines) > SHOWN else ""
    return f'<div class="{kind}"><b>{title}</b><ul>{"".join(lines[:SHOWN])}</ul>{more}</div>' if lines else ""


def _of_run(method: Method, record: Record, runs: int) -> str:
    found, server = record.about["assessment"], tests_at(method) == "server"
    which = "" if record.seed is None else f", seed {record.seed}"
    seeds = f" This is the first of {runs} assessed runs of {method.label}{which}; the others are not shown here." if runs > 1 else ""
    if "confusion" not in found:
        words = (f"The model tells {len(found['classes'])} classes apart, so there is no one probability above which the answer is yes. "
                 f"{_calibration(found)}{seeds}")
        return f"<p>{escape(words)}</p>" + sites(method.place, found, server)
    of, positive = found.get("rows", 0), found.get("positives", 0)
    part = f" ({positive / of:.1%})" if of else ""
    chosen = _chosen(found, record.about.get("config", {}))
    content = (f"<p>Of {amount(of)} test rows, {amount(positive)}{part} are {_yes(found)}. {chosen} "
               f"{escape(_calibration(found) + seeds)}</p>")
    content += f'<div class="pair measures fit">{_measures(found, record)}{_matrix(found)}</div><div class="pair">'
    content += f"<div><h3>Do the probabilities come true?</h3>{_reliability(method, found)}</div>"
    content += f"<div><h3>Is it worth acting on?</h3>{_benefit(method, found)}</div></div>"
    return content + subgroups(found) + sites(method.place, found, server)


def _yes(found: Mapping[str, Any], which: int = 1) -> str:
    """The name of a class, as HTML."""
    names = found["classes"]
    return f"‘{escape(names[which])}’" if len(names) == 2 else ("no", "yes")[which]


def _chosen(found: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """At which probability the answer is yes, and how that was chosen, as HTML."""
    rule = DECISION | config.get("decision", {})
    said = {key: f"{value:g}" if isinstance(value, float | int) else str(value) for key, value in rule.items()}
    how = {"f1": "chosen on validation rows as the one with the largest F1",
           "sensitivity": f"chosen on validation rows as the highest one with a sensitivity of {said['sensitivity']} or more",
           "cost": f"chosen on validation rows as the one that costs least, where a false alarm costs {said['false_positive']} and a "
                   f"missed positive {said['false_negative']}",
           "probability": "which the description of the run asks for"}.get(said["threshold"], f"chosen by {said['threshold']}")
    if any(warning.startswith(UNCHOSEN) for warning in found["warnings"]):
        how = "as none could be chosen on validation rows"
    at = found.get("threshold")
    if not known(at):
        return "There is no probability above which the answer is yes."
    return f"The answer is {_yes(found)} above a probability of <b>{at:.3g}</b>, the threshold, {escape(how)}."


def _calibration(found: Mapping[str, Any]) -> str:
    method = found.get("calibrator", {}).get("method", "none")
    how = " as they are" if method == "none" else (f", calibrated (moved so that of rows said to be 0.3 likely, three in ten come true) by "
                                                   f"{CALIBRATORS.get(method, method)} to validation rows")
    return f"Probabilities are the model's outputs{how}."


def _measures(found: Mapping[str, Any], record: Record) -> str:
    tp, fp, fn, tn = (found["confusion"][key] for key in ("tp", "fp", "fn", "tn"))
    yes, no = _yes(found), _yes(found, 0)
    kept = [("AUC", "AUC", f"how often a row of {yes} gets a higher probability than one of {no}", None),
            ("sensitivity", "sensitivity", f"of the rows that are {yes}, the share that is found", (tp, tp + fn)),
            ("specificity", "specificity", f"of the rows that are {no}, the share that is left alone", (tn, tn + fp)),
            ("positive predictive value", "ppv", f"of the answers {yes}, the share that is right", (tp, tp + fp)),
            ("negative predictive value", "npv", f"of the answers {no}, the share that is right", (tn, tn + fn)),
            ("accuracy", "accuracy", "of all answers, the share that is right", (tp + tn, tp + fp + fn + tn))]
    rows: Rows = [[f"{title}<small>{words}{f': {amount(of[0])} of {amount(of[1])}' if of else ''}</small>", *interval(found.get(key))]
                  for title, key, words, of in kept]
    rows.append(["F1<small>the harmonic mean of sensitivity and positive predictive value</small>", share(found.get("F1")), "–"])
    note = f"Intervals are DeLong's for the AUC and Wilson's for shares; F1 is no share and has none here. {INTERVALS}"
    note += " The summary's accuracy is another one: there the likelier class is the answer." * ("test accuracy" in record.history[-1])
    return f"<div>{table(['on test rows', 'value', '95 % interval'], rows, note)}</div>"


def _matrix(found: Mapping[str, Any]) -> str:
    """The answers by what the rows are."""
    tp, fp, fn, tn = (found["confusion"][key] for key in ("tp", "fp", "fn", "tn"))
    yes, no = _yes(found), _yes(found, 0)

    def cell(count: int, words: str, kind: str) -> Cell:
        return Cell(f"{amount(count)}<small>{words}</small>", kind)

    rows: Rows = [[f"are {yes}", cell(tp, "found", "best"), cell(fn, "missed", "worst"), amount(tp + fn)],
                  [f"are {no}", cell(fp, "false alarms", "worst"), cell(tn, "left alone", "best"), amount(fp + tn)],
                  ["all", amount(tp + fp), amount(fn + tn), amount(tp + fp + fn + tn)]]
    head = [Cell("rows that …"), Cell(f"answered {yes}"), Cell(f"answered {no}"), Cell("all")]
    note = "The confusion matrix: test rows by what they are, and by what the model answers."
    return f'<div class="matrix">{table(head, rows, note)}</div>'


def _reliability(method: Method, found: Mapping[str, Any]) -> str:
    """The observed against the predicted, before calibration and after it."""
    calibrated = found.get("calibrator", {}).get("method", "none") != "none"
    names = {"before": "before calibration", "after": "after calibration"} if calibrated else {"after": "outputs as they are"}
    lines, numbers, top = [], "", 0.0
    for when, label in names.items():
        entries = [entry for entry in found.get(f"reliability {when}", ()) if all(map(known, entry))]
        if not entries:
            continue
        x, y, low, high, _ = np.array(entries, dtype=np.float64).T
        top = max(top, float(x.max()), float(y.max()), float(high.max()) if when == "after" else 0.0)
        said = [f"{label}: {p:.3f} predicted, {o:.3f} observed ({a:.3f}–{b:.3f}), {several(int(n), 'row')}" for p, o, a, b, n in entries]
        place, bars = (method.place, (low, high)) if when == "after" else (GREY, None)
        lines.append(Line(label, place, Curve(x, y, None, 1), "", said, bars))
        rows: Rows = [[share(p), share(o), f"{share(a)}–{share(b)}", amount(n)] for p, o, a, b, n in entries]
        numbers += table(["predicted", "observed", "95 % interval", "rows"], rows, f"{label[0].upper()}{label[1:]}.")
    if not lines:
        return "<p>There are no test rows to tell it by.</p>"
    error = {when: share(found.get(f"calibration error {when}")) for when in names}
    told = f"{error['before']} before calibration, {error['after']} after it" if calibrated else error["after"]
    caption = ("Rows whose probabilities are alike, and the share of them that came true; on the broken line the two are the same. Bars "
               f"are 95\u00a0% intervals. Calibration error, the mean distance from that line: {told}. (The summary's ECE is "
               "that of the likelier class's outputs as they are.)")
    end = min(1.0, max(0.1, ceil(10 * min(top, 1.0) - 1e-9) / 10))
    return (chart(lines, "predicted probability", "observed share", caption, chance=(0, 1), within=((0, end), (0, end)))
            + f'<details class="fit"><summary>The numbers of this chart</summary>{numbers}</details>')


def _benefit(method: Method, found: Mapping[str, Any]) -> str:
    """The decision curve: net benefit of the model, of acting always and of acting never."""
    points = [point for point in found.get("decision curve", ()) if all(map(known, point))]
    if not points:
        return "<p>There are no test rows to tell it by.</p>"
    p, model, everyone, none = np.array(points, dtype=np.float64).T
    high = float(max(model.max(), everyone.max(), none.max(), 1e-6)) * 1.05
    # treating all falls without end: below a quarter of the height, or half of it where the model goes there, is nothing to see
    low = -max(high / 4, min(high / 2, -float(model.min())))
    threshold = found.get("threshold")
    at = float(threshold) if known(threshold) and 0 <= threshold <= 1 else None
    last = max(float(p[abs(model) > high / 200].max(initial=0.0)), at or 0.0)
    right = min(1.0, max(0.1, ceil(10 * last - 1e-9) / 10))
    lines = [Line(label, place, Curve(p, y, None, 1)) for label, place, y in (
        ("act on all", GREY, everyone), ("act on none", DOTTED, none), ("act by the model", method.place, model))]
    mark = " The upright line is the threshold." if at is not None else ""
    where = _highest(p, model, np.maximum(everyone, none))
    caption = ("The decision curve. Who acts above a probability of 0.2 accepts four needless actions for one that was needed, as 0.8 / "
               "0.2 = 4. Net benefit is the share of rows acted on rightly, less the share acted on needlessly divided by that number. The "
               f"model is worth acting on where its line is the highest: {where}.{mark} The lines are of these test rows and have no "
               "intervals: where they are close, or rows are few, which one is higher may be chance.")
    return chart(lines, "probability above which one acts", "net benefit", caption, within=((0, right), (low, high)), upright=at)


def _highest(p: Any, model: Any, other: Any) -> str:
    """Where the model's line is above the other one, in words.

    >>> _highest(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.3, 0.2, 0.1, 0.1]), np.array([0.2, 0.1, 0.1, 0.0]))
    'from 0.1 to 0.2, and in 1 shorter range'
    """
    above = np.flatnonzero(model > other + 1e-9)
    if not len(above):
        return "nowhere"
    ranges = np.split(above, np.flatnonzero(np.diff(above) > 1) + 1)
    longest = max(ranges, key=len)
    others = f", and in {several(len(ranges) - 1, 'shorter range')}" if len(ranges) > 1 else ""
    return f"from {p[longest[0]]:g} to {p[longest[-1]]:g}{others}"
