"""The section on personal models: at each site the common model, the site's adapted one, and one that the site trained alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import ceil
from typing import Any

from .blocks import Cell, Rows, marked, metric, name, number, panes, several, switch, table
from .numbers import Method, Stat, direction, metrics, stat
from .terms import defined

MODELS = {"common": "", "adapted": "adapted ", "alone": "alone "}


def personal(found: Sequence[Method]) -> str:
    """A table for each method and metric; nothing where no method has adapted models."""
    known = {method.label: [row for record in method.records for row in record.about.get("sites", ())] for method in found}
    known = {label: rows for label, rows in known.items() if any(key.startswith("adapted ") for row in rows for key in row)}
    if not known:
        return ""
    every = metrics(row for rows in known.values() for row in rows)
    titles = [title for title in every if f"adapted {title}" in every and not title.endswith((" low", " high"))]
    shown = [title for title in ("accuracy", "AUC", "AP", "loss") if title in titles]
    tables = ["".join(_table(method, known[method.label], title) for method in found if method.label in known) for title in shown]
    split = "test" if "test rows" in every else "validation"
    intro = (f"<p>Three models at each site, by its own {split} rows. Common: the trained model, the same at all sites. Adapted: that "
             "model after a few steps on the site's own training rows. Alone: a model that the site trains on its own rows only, from the "
             "first weights, without any federation. Adapting and training alone send nothing. The worst tenth is each model's own.</p>")
    return f"<h2>Personal models</h2>{intro}" + switch("personal", "Metric", shown) + panes("personal", tables)


def _table(method: Method, rows: Sequence[dict[str, Any]], title: str) -> str:
    sites, runs, sign = metrics([[row["site"] for row in rows]]), len(method.records), direction(title)
    found = {site: [stat(row.get(f"{prefix}{title}") for row in rows if row["site"] == site) for prefix in MODELS.values()]
             for site in sites}
    columns = [[s.mean for s in column if s is not None] for column in zip(*found.values(), strict=True)]
    body: Rows = []
    for line, some in (("all sites, mean", columns), ("the worst tenth of them", [_worst(column, sign) for column in columns])):
        means = [s.mean if (s := stat(column)) else None for column in some]
        body.append([line, *_cells(["–" if mean is None else number(mean) for mean in means], means, sign)])
    for site, own in found.items():
        body.append([escape(site), *_cells([metric(s, runs) for s in own], [s.mean if s else None for s in own], sign)])
    spread = ", mean and spread over seeds" * (runs > 1)
    note = f"{title} at each site{spread}; the best of a line is marked. {_told(list(found.values()), sign)}{defined(title)}"
    return f"<h3>{name(method)}</h3>" + table(["site", *MODELS], body, note)


def _cells(texts: Sequence[str], means: Sequence[float | None], sign: int) -> list[Cell]:
    return [Cell(text, "best" * best) for text, best in zip(texts, marked(means, sign), strict=True)]


def _worst(values: Sequence[float], sign: int) -> list[float]:
    """The worst tenth, one at least.

    >>> _worst([0.9, 0.5, 0.8], 1), _worst([0.9, 0.5, 0.8], -1)
    ([0.5], [0.9])
    """
    return sorted(values, reverse=sign < 0)[: ceil(len(values) / 10)]


def _told(found: Sequence[Sequence[Stat | None]], sign: int) -> str:
    """At how many sites the adapted model is the better one, and at how many the worse one."""
    said = []
    for other, words in ((0, "the common one"), (2, "the one trained alone")):
        gains = [sign * (own[1].mean - own[other].mean) for own in found if own[1] and own[other]]  # type: ignore[union-attr]
        if gains:
            better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
            said.append(f"Of {several(len(gains), 'site')}, the adapted model is better than {words} at {better} and worse at {worse}.")
    return " ".join(said)
