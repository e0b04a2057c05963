"""The page: one HTML file with everything in it, which asks nothing of the network and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..training.files import write_whole
from .blocks import Cell, Rows, amount, cost, marked, metric, name, number, panes, several, switch, table
from .chart import Line, chart
from .details import network, repeat, tuning
from .inuse import in_use
from .numbers import Method, Stat, curve, direction, methods, metrics, ranking, stat
from .personal import personal
from .record import COUNTS, Record, ReportError
from .style import STYLE

AXES = {"round": "rounds", "bytes": "MB", "samples": "samples", "seconds": "seconds"}
SITE = ("site", "rows", "positives", "validation rows", "test rows")  # what is known of a site before any training
BESIDE = (" bound", " exact")  # of a metric from a histogram: how far the exact one may be away, and that one itself
ENDS = (" low", " high")  # of an interval
OWN = ("adapted ", "alone ")  # a site's scores by its own models, which have a section of their own
# what the page may load: its own styles. A text that slipped through the escapes could still not run or fetch anything
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write(records: Sequence[Record], path: Path | str, title: str = "Report of runs", intro: str = "") -> Path:
    """Write the page about these runs; those of the same label are seeds of one method."""
    if not records:
        raise ReportError("a report needs one run or more; none came: name the folders of runs")
    found = methods(records)
    parts = (_summary, _curves, _rankings, in_use, _sites, personal, network, tuning, repeat)
    body = "".join(f"<section>{content}</section>" for part in parts if (content := part(found)))
    page = (f'<!doctype html><html lang="en-GB"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
            f'<title>{escape(title)}</title><style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>'
            f'<p class="intro">{escape(intro or _intro(found))}</p>{body}</main></body></html>\n')
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page.encode("utf-8", "replace"))  # a text from JSON may hold half a character
    return path


def _seeds(found: Sequence[Method]) -> str:
    counts = sorted({len(method.records) for method in found})
    return several(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def _intro(found: Sequence[Method]) -> str:
    sites = len({site["site"] for method in found for record in method.records for site in record.about.get("sites", ())})
    who = f"{several(len(found), 'method')}, {_seeds(found)} each" if len(found) > 1 else f"{found[0].label}, {_seeds(found)}"
    where = f", trained at {several(sites, 'site')} whose rows stay where they are" if sites else ""
    over = "means over the seeds; ± and the bands are one standard deviation (divisor n\u00a0−\u00a01)"
    return f"{who}{where}. Values are {over if any(len(method.records) > 1 for method in found) else 'those of single runs'}."


def _ended(method: Method, reason: str) -> list[Record]:
    return [record for record in method.records if record.reason == reason]


def _names(found: Sequence[Method]) -> list[str]:
    """The metrics of the histories; how exact one of them is stands with it, and is none itself."""
    every = metrics((row for method in found for record in method.records for row in record.history), COUNTS)
    return [title for title in every if not title.endswith(BESIDE)]


def _main(names: Sequence[str]) -> int:
    """The metric a reader wants first: the last score of the test rows that should be large, or of any rows, or the first of all."""
    large = [k for k, title in enumerate(names) if direction(title) > 0 and "worst" not in title]
    return max([k for k in large if names[k].startswith("test ")] or large or [0])


def _doubt(found: Sequence[Method]) -> str:
    """What to say of metrics from histograms: how far the exact ones may be away."""
    ends = [record.history[-1] for method in found for record in method.records]
    bounds = [value for row in ends for title, value in row.items() if title.endswith(BESIDE[0])]
    if not bounds:
        return ""
    away = [abs(row[title] - row[f"{title}{BESIDE[1]}"]) for row in ends for title in row if f"{title}{BESIDE[1]}" in row]
    seen = f"; here, in a simulation, they are {number(max(away))} away at most" if away else ""
    return (f" AUC and AP of the sites' rows come from summed histograms of scores, whose own bounds leave {number(max(bounds))} to the "
            f"exact ones at most{seen}.")


def _summary(found: Sequence[Method]) -> str:
    names = _names(found)
    if any(title.startswith("test ") for title in names):  # those of the sites' rows are below, as curves and by site
        names = [title for title in names if not title.startswith("validation ")]
    columns = {title: [method.last(title) for method in found] for title in names}
    # a method with a diverged seed shows values of before it went wrong: they cannot be the best
    safe = [not _ended(method, "diverged") for method in found]
    best = {title: marked([s.mean if s and ok else None for s, ok in zip(stats, safe, strict=True)], direction(title))
            for title, stats in columns.items()}
    rows: Rows = []
    flags = ""
    for i, method in enumerate(found):
        seeds = len(method.records)
        words = [several(seeds, "seed")]
        for reason in ("diverged", "interrupted"):
            if ended := _ended(method, reason):
                words.append(f"{len(ended)} {reason}")
            for record in ended:
                failure = f": {record.about['failure']}" if record.about.get("failure") else ""
                who = method.label if record.seed is None else f"{method.label}, seed {record.seed},"
                flags += f"<li>{escape(f'{who} {reason} after')} {several(record.rounds, 'round')}{escape(failure)}</li>"
        values = (Cell(metric(columns[title][i], seeds), "best" * best[title][i]) for title in names)
        costs = (cost(stat(record.history[-1][axis] / (1e6 if axis == "bytes" else 1) for record in method.records)) for axis in COUNTS)
        rows.append([name(method, method.first("title") or "", ", ".join(words)), *values, *costs])
    mark = "The best of a column is marked where a direction is known. " * (len(found) > 1)
    return ("<h2>Summary</h2>" + (f'<ul class="flags">{flags}</ul>' if flags else "")
            + table(["method", *names, "rounds", "exchanges", "MB", "samples", "seconds"], rows,
                    f"Last evaluation of each run. {mark}Costs are of training.{_doubt(found)}"))


def _curves(found: Sequence[Method]) -> str:
    names = _names(found)
    by_metric = []
    for title in names:
        by_axis = []
        for axis, words in AXES.items():
            lines = [Line(method.label, method.place, c._replace(x=c.x / 1e6) if axis == "bytes" else c)
                     for method in found if (c := curve(method.records, title, axis)) is not None]
            spread = f", mean of {_seeds(found)} and one standard deviation" if any(line.curve.n > 1 for line in lines) else ""
            without = ", ".join(method.label for method in found if method.place not in {line.place for line in lines})
            caption = f"{title} against {words}{spread}.{f' Nothing to draw for {without}.' if without else ''}"
            by_axis.append(chart(lines, words, title, caption) if lines else f"<p>{escape(caption)}</p>")
        by_metric.append(panes("axis", by_axis))
    note = '<p class="note">A line covers the range that all seeds of its method reached; between evaluations it is interpolated.</p>'
    return ("<h2>Curves</h2>" + switch("metric", "Metric", names, _main(names)) + switch("axis", "Against", list(AXES.values()))
            + panes("metric", by_metric) + note * any(len(method.records) > 1 for method in found)) if names else ""


def _rankings(found: Sequence[Method]) -> str:
    known = [(method, r) for method in found if (r := ranking(method.records)) is not None]
    if not known:
        return ""

    def note(s: Stat, method: Method) -> str:
        return metric(s, len(method.records), " {}")

    share = sum(r.positives for _, r in known) / len(known)
    roc = [Line(m.label, m.place, r.roc, note(r.auc, m)) for m, r in known]
    pr = [Line(m.label, m.place, r.pr, note(r.ap, m)) for m, r in known]
    return ("<h2>How the test rows are ranked</h2><p>At the end of the runs; lines are averaged over seeds at each point of the "
            f'horizontal axis. The broken line is chance; {share:.1%} of the test rows are positive.</p><div class="pair"><div><h3>ROC</h3>'
            + chart(roc, "false positive rate", "true positive rate", "ROC curves, with the area under each.", unit=True, chance=(0, 1))
            + "</div><div><h3>Precision and recall</h3>"
            + chart(pr, "recall", "precision", "PR curves, with the average precision of each.", unit=True, chance=(share, share))
            + "</div></div>")


def _sites(found: Sequence[Method]) -> str:
    known = [method for method in found if method.first("sites")]
    reports = {method.label: [row for record in method.records for row in record.about.get("sites", ())] for method in known}
    rows = [row for report in reports.values() for row in report]
    sites = metrics([[row["site"] for row in rows]])
    names = [title for title in metrics(rows, SITE) if not title.endswith(ENDS) and not title.startswith(OWN)]
    facts = {site: [f"{span} {fact}" for fact in SITE[1:] if (span := _range([row.get(fact) for row in rows if row["site"] == site]))]
             for site in sites}
    tables = []
    for title in names:
        body: Rows = [[f"{escape(site)}<small>{', '.join(facts[site])}</small>"] for site in sites]
        for method in known:
            column = [stat(row.get(title) for row in reports[method.label] if row["site"] == site) for site in sites]
            worst = marked([None if s is None else s.mean for s in column], -direction(title))
            for line, site, s, bad in zip(body, sites, column, worst, strict=True):
                line.append(Cell(metric(s, len(method.records)) + _interval(reports[method.label], site, title), "worst" * bad))
        mark = " The worst site of each method is marked." * bool(direction(title))
        mark += " In brackets the 95 % interval of a single run." * any(f"{title}{ENDS[0]}" in row for row in rows)
        head = ["site", *(method.label for method in known)]
        tables.append(table(head, body, f"{title} at each site, mean and spread over seeds.{mark}"))
    return "<h2>Sites</h2>" + switch("site", "Metric", names, _main(names)) + panes("site", tables) if names else ""


def _interval(report: Sequence[dict[str, Any]], site: str, title: str) -> str:
    """The interval of a site's score, where there is one run and it has one."""
    own = [row for row in report if row["site"] == site]
    low, high = (own[0].get(f"{title}{end}") if len(own) == 1 else None for end in ENDS)
    return "" if low is None or high is None else f"<small>[{number(low)}, {number(high)}]</small>"


def _range(values: Sequence[float | None]) -> str:
    """One count, or the least and the most where seeds spread the rows differently; nothing where none is known."""
    known = sorted({value for value in values if value is not None})
    return "–".join(amount(value) for value in (known if len(known) < 2 else (known[0], known[-1])))
