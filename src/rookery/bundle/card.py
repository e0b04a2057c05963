"""A model card: what a model is for, what it is made of, what it is worth, and for whom, in Markdown.

Mitchell et al., "Model cards for model reporting", FAT* 2019.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..data.tables.schema import Schema
from ..metrics.calibration import Calibrator


def card(about: Mapping[str, Any], found: Mapping[str, Any], classes: Sequence[str], threshold: float | None, calibrator: Calibrator,
         schema: Schema | None, by_group: Mapping[str, Any] | None = None) -> str:
    """The card as a text."""
    lines = [f"# {about.get('title', 'A trained model')}", ""]
    lines += [f"Predicts {_quoted(schema.label) if schema else 'the class'} ({', '.join(classes)})"
              + (f" of rows of `{about['data']}`" if about.get("data") else "")
              + f", trained over {about.get('sites', '?')} sites with Rookery.", ""]
    lines += ["## How to use it", "", "    rookery predict BUNDLE new.csv -o out.csv", "",
              "or in Python, `rookery.load(BUNDLE).predict_proba(frame)`. " + _decides(classes, threshold, calibrator, by_group), ""]
    if schema is not None:
        lines += ["It needs these columns:", "", "| column | kind |", "|---|---|"]
        lines += [f"| {_cell(name)} | {schema.columns[name].kind} |" for name in schema.inputs] + [""]
    lines += _results(found)
    if found.get("warnings"):
        lines += ["## Know before you use it", "", *(f"- {warning}" for warning in found["warnings"]), ""]
    lines += ["## Where it is from", "", "| | |", "|---|---|"]
    for name in ("algorithm", "objective", "data", "data digest", "rows", "sites", "rounds", "seed", "command", "rookery", "torch",
                 "python", "date"):
        if about.get(name) not in (None, ""):
            lines.append(f"| {name} | {_cell(about[name])} |")
    return "\n".join([*lines, ""])


def _decides(classes: Sequence[str], threshold: float | None, calibrator: Calibrator, by_group: Mapping[str, Any] | None) -> str:
    how = {"none": "Probabilities are the net's own", "platt": "Probabilities are calibrated by Platt's method",
           "isotonic": "Probabilities are calibrated by isotonic regression",
           "temperature": "Probabilities are calibrated by a temperature"}
    said = f"{how[calibrator.method]}."
    if by_group is not None:
        each = ", ".join(f"{limit:.4g} where it is {value!r}" for value, limit in by_group["thresholds"].items())
        return (f"{said} The answer is {classes[1]!r} above a probability that depends on {by_group['column']!r}: {each}; elsewhere above "
                f"{threshold:.4g}. Ask whether that column may be used for decisions where you are.")
    return said if threshold is None else f"{said} The answer is {classes[1]!r} above a probability of {threshold:.4g}."


def _results(found: Mapping[str, Any]) -> list[str]:
    lines = ["## What came out on test rows", ""]
    if not found.get("rows"):
        return [*lines, "Nothing was measured.", ""] if not found.get("sites") else [*lines, *_sites(found)]
    lines += ["| | value | 95 % interval |", "|---|---|---|", f"| rows | {found['rows']} | |", f"| positives | {found['positives']} | |"]
    names = {"AUC": "AUC", "sensitivity": "sensitivity", "specificity": "specificity", "ppv": "positive predictive value",
             "npv": "negative predictive value", "accuracy": "accuracy"}
    for name, words in names.items():
        lines.append(f"| {words} | {_value(found.get(name))} |")
    for name in ("AP", "F1", "calibration error before", "calibration error after"):
        lines.append(f"| {name} | {_number(found.get(name))} | |")
    confusion = found["confusion"]
    lines += ["", "| | decided yes | decided no |", "|---|---|---|", f"| is positive | {confusion['tp']} | {confusion['fn']} |",
              f"| is negative | {confusion['fp']} | {confusion['tn']} |", ""]
    for field, groups in found.get("subgroups", {}).items():
        lines += [f"By {field}:", "", "| | rows | positives | AUC | sensitivity | specificity |", "|---|---|---|---|---|---|"]
        lines += [f"| {_cell(group['group'])} | {group['rows']} | {group['positives']} | {_one(group['AUC'])} | "
                  f"{_one(group['sensitivity'])} | {_one(group['specificity'])} |" for group in groups] + [""]
    return lines + _sites(found)


def _sites(found: Mapping[str, Any]) -> list[str]:
    sites = found.get("sites", [])
    if len(sites) < 2:
        return []
    shown = sorted(sites, key=lambda site: -site["rows"])[:30]
    lines = ["By site" + (f", the {len(shown)} largest of {len(sites)}" if len(shown) < len(sites) else "") + ":", "",
             "| site | rows | AUC | accuracy |", "|---|---|---|---|"]
    lines += [f"| {_cell(site['site'])} | {site['rows']} | {_one(site.get('AUC'))} | {_one(site.get('accuracy'))} |" for site in shown]
    return [*lines, ""]


def _value(interval: Any) -> str:
    return "undefined | " if interval is None else f"{interval[0]:.4f} | {interval[1]:.4f} to {interval[2]:.4f}"


def _one(interval: Any) -> str:
    return "undefined" if interval is None else f"{interval[0]:.3f} ({interval[1]:.3f}–{interval[2]:.3f})"


def _number(value: Any) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _quoted(text: str) -> str:
    return f"`{text}`"


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
