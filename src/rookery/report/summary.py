"""The summary: what every method came to and what that cost, a line for each metric, which says what it is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .blocks import Cell, Rows, cost, marked, metric, name, number, several, table
from .numbers import Method, direction, metrics, paired_p, stat
from .record import COUNTS, Record
from .terms import ADAPTED, COSTS, SEEDS, SPREAD, meaning, paired

BESIDE = (" bound", " exact")  # of a metric from a histogram: how far the exact one may be away, and that one itself


def names(found: Sequence[Method]) -> list[str]:
    """The metrics of the histories; how exact one of them is stands with it, and is none itself."""
    every = metrics((row for method in found for record in method.records for row in record.history), COUNTS)
    return [title for title in every if not title.endswith(BESIDE)]


def summary(found: Sequence[Method]) -> str:
    titles = names(found)
    if any(title.startswith("test ") for title in titles):  # those of the sites' rows are below, as curves and by site
        titles = [title for title in titles if not title.startswith("validation ")]
    # a method with a diverged seed shows values of before it went wrong: they cannot be the best, and are compared with nothing
    safe = [not _ended(method, "diverged") for method in found]
    comparable, tested = safe[0] and _alike(found), False
    rows: Rows = []
    for title in titles:
        stats = [method.last(title) for method in found]
        best = marked([s.mean if s and ok else None for s, ok in zip(stats, safe, strict=True)], direction(title))
        again = "adapted " in title and title.replace("adapted ", "", 1) in titles
        line: list[Cell | str] = [_named(title, ADAPTED if again else meaning(title))]
        for method, s, ok, is_best in zip(found, stats, safe, best, strict=True):
            p = paired_p(method, found[0], title) if method is not found[0] and ok and comparable else None
            tested |= p is not None
            line.append(Cell(metric(s, len(method.records)) + (f"<small>p {p:.2g}</small>" if p is not None else ""), "best" * is_best))
        rows.append(line)
    for title, axis in zip(COSTS, COUNTS, strict=True):
        by = 1e6 if axis == "bytes" else 1
        rows.append([_named(title, COSTS[title]),
                     *(cost(stat(record.history[-1][axis] / by for record in method.records)) for method in found)])
    head = [Cell(""), *(Cell(name(method, method.first("title") or "", *_ends(method))) for method in found)]
    several_seeds = any(len(method.records) > 1 for method in found)
    note = "The last evaluation of each run; costs are of training."
    note += f" {SPREAD}" if several_seeds else " Values are of single runs: another seed gives others, and nothing here says how different."
    note += f" p: of a paired t-test against {found[0].label}." * tested
    note += " The best of a line is marked where it is known which way is better; it may be so by chance." * (len(found) > 1)
    more = _more(found, several_seeds, tested)
    return f'<h2>Summary</h2>{_flags(found)}<div class="summary">{table(head, rows, note)}</div>{more}'


def _named(title: str, words: str) -> str:
    """A line's name, which unfolds to what it means; where there is room, that is in sight anyway."""
    return f'<details class="term"><summary>{escape(title)}</summary><small>{escape(words)}</small></details>' if words else escape(title)


def _more(found: Sequence[Method], several_seeds: bool, tested: bool) -> str:
    """What the values are of and what follows from them: rows, seeds, tests."""
    said = []
    if any(title.startswith("test ") for title in names(found)):
        said.append("Test rows took no part in training, in choosing settings, or in calibration. Loss, Brier score and ECE are of the "
                    "model's outputs as they are, before any calibration; methods that train a ranking or weigh rows do not put out "
                    f"probabilities, so that these, and accuracies, say little of them.{_doubt(found)}")
    said += [SEEDS] * several_seeds + [paired(found[0].label)] * tested
    title = "What the values are of" + (f", and what ± {'and p say' if tested else 'says'}" if several_seeds else "")
    return f"<details><summary>{title}</summary>{''.join(f'<p>{escape(sentence)}</p>' for sentence in said)}</details>" if said else ""


def _ended(method: Method, reason: str) -> list[Record]:
    return [record for record in method.records if record.reason == reason]


def _ends(method: Method) -> list[str]:
    ends = [f"{len(ended)} {reason}" for reason in ("diverged", "interrupted") if (ended := _ended(method, reason))]
    return [", ".join([several(len(method.records), "seed"), *ends])]


def _alike(found: Sequence[Method]) -> bool:
    """Whether all methods that say what their data are have the same."""
    return len({str(config.get("data")) for method in found if (config := method.first("config"))}) < 2


def _flags(found: Sequence[Method]) -> str:
    """What a reader has to know before the numbers: runs that went wrong, and methods that cannot be compared."""
    flags = []
    if not _alike(found):
        flags.append("The methods are of different data, so that their values do not compare.")
    for method in found:
        for reason in ("diverged", "interrupted"):
            for record in _ended(method, reason):
                failure = f": {record.about['failure']}" if record.about.get("failure") else ""
                who = method.label if record.seed is None else f"{method.label}, seed {record.seed},"
                flags.append(f"{who} {reason} after {several(record.rounds, 'round')}{failure}")
    return f'<ul class="flags">{"".join(f"<li>{escape(flag)}</li>" for flag in flags)}</ul>' if flags else ""


def _doubt(found: Sequence[Method]) -> str:
    """What to say of metrics from histograms: how far the exact ones may be away."""
    ends = [record.history[-1] for method in found for record in method.records]
    bounds = [value for row in ends for title, value in row.items() if title.endswith(BESIDE[0])]
    if max(bounds, default=0.0) < 5e-5:  # which four decimals do not show
        return ""
    away = [abs(row[title] - row[f"{title}{BESIDE[1]}"]) for row in ends for title in row if f"{title}{BESIDE[1]}" in row]
    seen = f"; this simulation knows those too, and they are {number(max(away))} away at most" if away else ""
    return (f" AUC and AP of rows that are at the sites come from histograms of scores that sites add up, at most {number(max(bounds))} "
            f"from those of the rows themselves{seen}.")
