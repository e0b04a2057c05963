"""The page: one HTML file with everything in it, which asks nothing of the network and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..training.files import write_whole
from .blocks import Cell, Rows, amount, marked, metric, number, panes, several, switch, table
from .chart import Line, chart
from .details import network, repeat, tuning
from .inuse import in_use
from .numbers import Method, Stat, curve, direction, methods, metrics, ranking, stat
from .personal import personal
from .place import place
from .record import Record, ReportError
from .style import STYLE
from .summary import names as metric_names
from .summary import summary
from .terms import defined
from .verdict import verdict

AXES = {"round": "rounds", "bytes": "MB", "samples": "samples", "seconds": "seconds"}
# what is known of a site before any training
SITE = {"rows": "training rows", "positives": "of them positive", "validation rows": "validation rows", "test rows": "test rows"}
ENDS = (" low", " high")  # of an interval
OWN = ("adapted ", "alone ")  # a site's scores by its own models, which have a section of their own
# what the page may load: its own styles. A text that slipped through the escapes could still not run or fetch anything
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write(records: Sequence[Record], path: Path | str, title: str = "Report of runs", intro: str = "", *,
          fit: dict[str, Any] | None = None) -> Path:
    """Write the page about these runs; those of the same label are seeds of one method.

    fit: what `rookery fit` found and kept, as its file `fit.json` has it, which is then shown first
    """
    if not records:
        raise ReportError("a report needs one run or more; none came: name the folders of runs")
    found = methods(records)
    parts = (summary, _curves, _rankings, in_use, _sites, personal, network, tuning, repeat)
    body = "".join(f"<section>{content}</section>" for part in parts if (content := part(found)))
    first = "" if fit is None else f"<section>{verdict(fit)}</section>"
    where = f"<p>{escape(said)}</p>" if (said := place(found)) else ""
    page = (f'<!doctype html><html lang="en-GB"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">'
            f'<title>{escape(title)}</title><style>{STYLE}</style></head><body><main><h1>{escape(title)}</h1>{first}'
            f'<p class="intro">{escape(intro or _intro(found))}</p>{where}{body}</main></body></html>\n')
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page.encode("utf-8", "replace"))  # a text from JSON may hold half a character
    return path


def _seeds(found: Sequence[Method]) -> str:
    counts = sorted({len(method.records) for method in found})
    return several(counts[0], "seed") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"


def _intro(found: Sequence[Method]) -> str:
    if len(found) > 1:
        return f"{several(len(found), 'method')} side by side, {_seeds(found)} each."
    return f"{found[0].label}, {_seeds(found)}."


def _main(names: Sequence[str]) -> int:
    """The metric a reader wants first: the last score of the test rows that should be large, or of any rows, or the first of all."""
    large = [k for k, title in enumerate(names) if direction(title) > 0 and "worst" not in title]
    return max([k for k in large if names[k].startswith("test ")] or large or [0])


def _curves(found: Sequence[Method]) -> str:
    names = metric_names(found)
    if not names:
        return ""
    kinds = metrics([[_rows(title) for title in names]])
    bases = metrics([[title.removeprefix(f"{_rows(title)} ") for title in names]])
    by_kind = []
    for kind in kinds:
        titles = {title.removeprefix(f"{kind} "): title for title in names if _rows(title) == kind}
        by_kind.append(panes("metric", [_along(found, titles[base]) if base in titles else
                                        f"<p>{escape(f'There is no {base} of these rows.')}</p>" for base in bases]))
    records = [record for method in found for record in method.records]
    drawn = [title for title in names if any(sum(title in row for row in record.history) > 1 for record in records)] or names
    first = drawn[_main(drawn)]
    held = "Validation rows are held out at the sites; settings, calibration and threshold are chosen on them. "
    content = f"<p>How training went. {held * ('validation' in kinds)}Lines join evaluations."
    content += " Each covers the range that all seeds of its method reached." * any(len(method.records) > 1 for method in found)
    return ("<h2>Curves</h2>" + content + "</p>" + switch("rows", "Rows", kinds, kinds.index(_rows(first)))
            + switch("metric", "Metric", bases, bases.index(first.removeprefix(f"{_rows(first)} ")))
            + switch("axis", "Against", list(AXES.values())) + panes("rows", by_kind))


def _rows(title: str) -> str:
    """The rows that a metric is of."""
    return next((split for split in ("test", "validation") if title.startswith(f"{split} ")), "other")


def _along(found: Sequence[Method], title: str) -> str:
    """A metric against each of the axes."""
    by_axis = []
    for axis, words in AXES.items():
        lines = [Line(method.label, method.place, c._replace(x=c.x / 1e6) if axis == "bytes" else c)
                 for method in found if (c := curve(method.records, title, axis)) is not None]
        spread = f", mean of {_seeds(found)} and one standard deviation" if any(line.curve.n > 1 for line in lines) else ""
        without = ", ".join(method.label for method in found if method.place not in {line.place for line in lines})
        caption = f"{title} against {words}{spread}.{f' Nothing to draw for {without}.' if without else ''}{defined(title)}"
        by_axis.append(chart(lines, words, title, caption) if lines else f"<p>{escape(caption)}</p>")
    return panes("axis", by_axis)


def _rankings(found: Sequence[Method]) -> str:
    known = [(method, r) for method in found if (r := ranking(method.records)) is not None]
    if not known:
        return ""

    def note(s: Stat, method: Method) -> str:
        return metric(s, len(method.records), " {}")

    share = sum(r.positives for _, r in known) / len(known)
    roc = [Line(m.label, m.place, r.roc, note(r.auc, m)) for m, r in known]
    pr = [Line(m.label, m.place, r.pr, note(r.ap, m)) for m, r in known]
    mean = " lines are averaged over seeds at each point of the horizontal axis." * any(len(m.records) > 1 for m, _ in known)
    return ("<h2>How the test rows are ranked</h2><p>Rows are flagged from the highest score down, and the lines show what every place to "
            f"stop would give, at the end of the runs.{mean and f' The{mean}'} The broken line is chance; {share:.1%} of the test rows are "
            'positive.</p><div class="pair"><div><h3>ROC</h3>'
            + chart(roc, "false positive rate", "true positive rate", "ROC curves, with the area under each, the AUC. True positive rate "
                    "(sensitivity, recall): the share of positive rows that is flagged. False positive rate: that of negative ones.",
                    unit=True, chance=(0, 1))
            + "</div><div><h3>Precision and recall</h3>"
            + chart(pr, "recall", "precision", "PR curves, with the average precision of each, AP. Precision: the share of flagged rows "
                    "that is positive. Recall: the share of positive rows that is flagged.", unit=True, chance=(share, share))
            + "</div></div>")


def _sites(found: Sequence[Method]) -> str:
    known = [method for method in found if method.first("sites")]
    reports = {method.label: [row for record in method.records for row in record.about.get("sites", ())] for method in known}
    rows = [row for report in reports.values() for row in report]
    sites = metrics([[row["site"] for row in rows]])
    names = [title for title in metrics(rows, ("site", *SITE)) if not title.endswith(ENDS) and not title.startswith(OWN)]
    if not names:
        return ""
    own = {site: [row for row in rows if row["site"] == site] for site in sites}
    facts = {site: [f"{span} {words}" for fact, words in SITE.items() if (span := _range([row.get(fact) for row in own[site]]))]
             for site in sites}
    seeds = any(len(method.records) > 1 for method in known)
    ways = {title: 0 if title == "AP" else direction(title) for title in names}  # an AP depends on the site's share of positives
    first = max((k for k, title in enumerate(names) if ways[title] > 0 and "worst" not in title), default=0)
    tables = []
    for title in names:
        body: Rows = [[f"{escape(site)}<small>{', '.join(facts[site])}</small>"] for site in sites]
        for method in known:
            column = [stat(row.get(title) for row in reports[method.label] if row["site"] == site) for site in sites]
            worst = marked([None if s is None else s.mean for s in column], -ways[title])
            for line, site, s, bad in zip(body, sites, column, worst, strict=True):
                line.append(Cell(metric(s, len(method.records)) + _interval(reports[method.label], site, title), "worst" * bad))
        mark = " The worst site of each method is marked." * bool(ways[title])
        alone = [row for method in known if len(method.records) == 1 for row in reports[method.label]]
        mark += " In brackets the 95 % interval of a single run." * any(f"{title}{ENDS[0]}" in row for row in alone)
        head = ["site", *(method.label for method in known)]
        said = f"{title} at each site{', mean and spread over seeds' * seeds}.{mark}{defined(title)}"
        tables.append(table(head, body, said))
    split = "test" if any("test rows" in row for row in rows) else "validation" if any("validation rows" in row for row in rows) else ""
    content = f"Scores of each site's own {split + ' ' * bool(split)}rows. Where these are few, a site may be the worst by chance."
    if split == "validation":
        content += " They are not the test rows: settings, calibration and threshold are chosen on them."
    if seeds and any(len({row.get("rows") for row in some}) > 1 for some in own.values()):
        content += " A site of one name has other rows from seed to seed, as its counts show, and its mean is over these."
    return f"<h2>Sites</h2><p>{content}</p>" + switch("site", "Metric", names, first) + panes("site", tables)


def _interval(report: Sequence[dict[str, Any]], site: str, title: str) -> str:
    """The interval of a site's score, where there is one run and it has one."""
    own = [row for row in report if row["site"] == site]
    low, high = (own[0].get(f"{title}{end}") if len(own) == 1 else None for end in ENDS)
    return "" if low is None or high is None else f"<small>[{number(low)}, {number(high)}]</small>"


def _range(values: Sequence[float | None]) -> str:
    """One count, or the least and the most where seeds spread the rows differently; nothing where none is known."""
    known = sorted({value for value in values if value is not None})
    return "–".join(amount(value) for value in (known if len(known) < 2 else (known[0], known[-1])))
