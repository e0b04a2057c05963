"""The section on a model in use: its numbers against about.json, what is undefined, names that are hostile, and the page in a browser."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from page_checks import troubles
from report_pages import Page, make, paged, scored
from running import changed

from rookery.metrics.decisions import Confusion
from rookery.metrics.intervals import wilson
from rookery.report import load, write
from rookery.report.inuse import CALIBRATORS, DECISION, UNCHOSEN
from rookery.studies import assessment as studied
from rookery.studies import parse
from rookery.studies.build import build

TITLE = "In use: probabilities and decisions"
EVIL = '"><script>window.hacked=1</script><b>bold</b>&amp;</style>'
LONG = "Hospital" + "x" * 120


def decided(tp: int, fp: int, fn: int, tn: int) -> dict[str, Any]:
    confusion = Confusion(tp, fp, fn, tn)
    return {"confusion": confusion._asdict(), "F1": confusion.f1} | {
        name: None if (found := getattr(confusion, name)) is None else list(found)
        for name in ("sensitivity", "specificity", "ppv", "npv", "accuracy")}


def group(title: str, tp: int, fp: int, fn: int, tn: int, **more: Any) -> dict[str, Any]:
    rows = tp + fp + fn + tn
    return {"group": title, "rows": rows, "positives": tp + fn, "withheld": 0, "AUC": [0.7, 0.6, 0.8] if tp + fn else None,
            "predicted": 0.2 if rows else None, "observed": list(wilson(tp + fn, rows)) if rows else None, "off": None,
            **decided(tp, fp, fn, tn), **more}


def site(title: str, rows: int, area: float | None = None) -> dict[str, Any]:
    return {"site": title, "rows": rows, "accuracy": list(wilson(rows // 2, rows)), "Brier": 0.1} | (
        {} if area is None else {"AUC": [area, area / 2, (1 + area) / 2]})


def assessed(number: int = 3, **changes: Any) -> dict[str, Any]:
    """An assessment as a run leaves it, of a number of sites that get smaller and worse."""
    every = [site(f"site {k}", 1000 - 10 * k, 0.9 - 0.01 * k) for k in range(number)]
    curve = [[p / 100, 0.2 - 0.5 * p / 100, 0.3 - 0.7 * (p / 100) / (1 - p / 100), 0.0] for p in range(1, 100)]
    return {"classes": ["no", "yes"], "rows": 1000, "positives": 300, "AUC": [0.81234, 0.78, 0.84567], **decided(200, 70, 100, 630),
            "reliability before": [[0.125, 0.05, 0.04, 0.07, 600], [0.75, 0.675, 0.6, 0.7, 400]], "calibration error before": 0.07512,
            "reliability after": [[0.05, 0.06, 0.03, 0.09, 600], [0.65, 0.66, 0.6, 0.72, 400]], "calibration error after": 0.01049,
            "decision curve": curve, "subgroups": {"sex": [group("F", 90, 30, 40, 300), group("M", 110, 40, 60, 330)]}, "sites": every,
            "worst site": every[-1], "warnings": [], "threshold": 0.3141592, "calibrator": {"method": "platt", "note": ""}, **changes}


def cells(table: list[list[tuple[str, str]]]) -> list[list[str]]:
    return [[text for text, _ in line] for line in table]


def of(page: Page, *head: str) -> list[list[list[tuple[str, str]]]]:
    """The tables whose heads begin so."""
    return [table for table in page.tables if [text for text, _ in table[0]][: len(head)] == list(head)]


def shown(found: list[float] | None) -> str:
    return "undefined" if found is None else f"{found[0]:.3f} {found[1]:.3f}–{found[2]:.3f}"


def drawn(page: Page, ink: str) -> list[np.ndarray[Any, Any]]:
    """The points of the lines of an ink, in per mille of the plot; not the pieces in legends."""
    paths = [a["d"] or "" for tag, a in page.elements if tag == "path" and a["class"] == ink]
    return [np.cumsum(np.array(d[1:].split(), dtype=float).reshape(-1, 2), axis=0) for d in paths if d.startswith("m")]


def test_the_tables_say_what_about_json_says(tmp_path: Path) -> None:
    found = assessed()
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=found))
    _, *measures = cells(of(page, "on test rows", "value", "95 % interval")[0])
    assert [line[0].split()[0] for line in measures] == ["AUC", "sensitivity", "specificity", "positive", "negative", "accuracy", "F1"]
    for line, key in zip(measures[:-1], ("AUC", "sensitivity", "specificity", "ppv", "npv", "accuracy"), strict=True):
        assert " ".join(line[1:]) == shown(found[key])
    assert measures[-1][1:] == [f"{found['F1']:.3f}", "–"]
    counts = ["200 of 300", "630 of 700", "200 of 270", "630 of 730", "830 of 1,000"]
    assert [line[0].rpartition(": ")[2] for line in measures[1:-1]] == counts
    assert cells(of(page, "rows that …")[0])[1:] == [
        ["are ‘yes’", "200 found", "100 missed", "300"], ["are ‘no’", "70 false alarms", "630 left alone", "700"],
        ["all", "270", "730", "1,000"]]
    for line, own in zip(cells(of(page, "sex")[0])[1:], found["subgroups"]["sex"], strict=True):
        assert line == [own["group"], str(own["rows"]), str(own["positives"]), shown(own["AUC"]), shown(own["sensitivity"]),
                        shown(own["specificity"]), f"{own['predicted']:.3f}", shown(own["observed"])]
    by_site = of(page, "site", "AUC", "0 0.5 1")[0]
    assert [line[1] for line in cells(by_site)[1:]] == [shown(entry["AUC"]) for entry in (found, *found["sites"])]
    assert [kind for _, kind in (line[1] for line in by_site[1:])] == ["", "", "", "worst"]


def test_what_is_undefined_stays_undefined(tmp_path: Path) -> None:
    none = assessed(rows=50, positives=0, AUC=None, threshold=None, subgroups={"sex": [group("F", 0, 0, 0, 0, withheld=3)]},
                    sites=[site("a", 30), site("b", 20)], **decided(0, 0, 0, 50))
    none |= {"decision curve": [], **{f"reliability {when}": [] for when in ("before", "after")},
             **{f"calibration error {when}": None for when in ("before", "after")}}
    del none["worst site"]
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=none))
    values = {line[0].split(" ", 1)[0]: line[1:] for line in cells(of(page, "on test rows")[0])[1:]}
    assert [title for title, line in values.items() if line == ["undefined", "–"]] == ["AUC", "sensitivity", "positive", "F1"]
    assert values["accuracy"] == ["1.000", f"{none['accuracy'][1]:.3f}–{none['accuracy'][2]:.3f}"]
    assert cells(of(page, "sex")[0])[1] == ["F", "0", "0", *["undefined"] * 5, "3 sites"]
    assert "There is no probability above which the answer is yes." in page.source
    assert [line[1] for line in cells(of(page, "site", "accuracy")[0])[1:]] == [shown(entry["accuracy"]) for entry in none["sites"]]
    nan = assessed(AUC=[float("nan")] * 3, threshold=float("nan"), **{"decision curve": [[0.1, float("inf"), 0.1, 0.0]]})
    assert cells(of(paged(tmp_path, make(tmp_path / "b", "B", assessment=nan)), "on test rows")[0])[1][1:] == ["undefined", "–"]


def test_the_reliability_diagram_is_drawn_where_the_numbers_are(tmp_path: Path) -> None:
    found = assessed()
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=found))
    end = 0.8  # of both axes: the largest number is 0.75
    for when, ink in (("after", "line c0 d0"), ("before", "line c6 d1")):
        expected = np.array([[x / end, 1 - y / end] for x, y, *_ in found[f"reliability {when}"]]) * 1000
        assert any(line.shape == expected.shape and np.allclose(line, expected, atol=0.51) for line in drawn(page, ink))
    plot = page.source[page.source.index("Do the probabilities come true?"):page.source.index("Is it worth acting on?")]
    bars = [[float(number) for number in bar] for bar in re.findall(r'class="bar line c0 d0" d="M(\S+) (\S+)V(\S+)"', plot)]
    wanted = [[x / end * 1000, 1000 - low / end * 1000, 1000 - high / end * 1000] for x, _, low, high, _ in found["reliability after"]]
    np.testing.assert_allclose(bars, wanted, atol=0.51)
    assert 'class="chance" d="M0 1000L1000 0"' in plot
    assert "that line: 0.075 before calibration, 0.010 after it." in plot
    assert cells(of(page, "predicted", "observed")[1])[1:] == [
        [f"{x:.3f}", f"{y:.3f}", f"{low:.3f}–{high:.3f}", str(rows)] for x, y, low, high, rows in found["reliability after"]]
    plain = paged(tmp_path, make(tmp_path / "b", "B", assessment=assessed(calibrator={"method": "none"}))).source
    assert ("that line: 0.010." in plain, "before calibration" in plain) == (True, False)


def test_the_decision_curve_is_drawn_where_the_numbers_are_and_cut_off_below(tmp_path: Path) -> None:
    found = assessed()
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=found))
    p, model, everyone, _ = np.array(found["decision curve"]).T
    high = 1.05 * everyone.max()
    low = -max(high / 4, min(high / 2, -model.min()))
    for y, ink in ((model, "line c0 d0"), (everyone, "line c6 d1")):
        expected = np.stack([p * 1000, (high - y) / (high - low) * 1000], axis=1)
        line = next(line for line in drawn(page, ink) if len(line) == len(p))
        near = expected[:, 1] < 5000
        np.testing.assert_allclose(line[near], expected[near], atol=0.51)
    assert '<div class="plot cut">' in page.source
    assert f'class="chance" d="M{found["threshold"] * 1000:.0f} 1000V0"' in page.source
    above = p[model > np.maximum(everyone, 0)]
    assert f"the highest: from {above[0]:g} to {above[-1]:g}." in page.source


@pytest.mark.parametrize(("decision", "how"), [
    ({}, "chosen on validation rows as the one with the largest F1."),
    ({"threshold": "sensitivity", "sensitivity": 0.95}, "chosen on validation rows as the highest one with a sensitivity of 0.95 or more."),
    ({"threshold": "cost", "false_negative": 20},
     "chosen on validation rows as the one that costs least, where a false alarm costs 1 and a missed positive 20."),
    ({"threshold": "probability", "probability": 0.314}, "which the description of the run asks for."),
    ({"threshold": EVIL, "sensitivity": []}, f"chosen by {EVIL}.".replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
                                             .replace('"', "&quot;"))])
def test_one_sentence_says_where_the_answer_is_yes_and_how_that_was_chosen(tmp_path: Path, decision: dict[str, Any], how: str) -> None:
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=assessed(), config={"decision": decision}))
    assert f"The answer is ‘yes’ above a probability of <b>0.314</b>, the threshold, {how}" in page.source


def test_what_the_page_knows_of_decisions_is_what_studies_do(tmp_path: Path) -> None:
    default = asdict(studied.DecisionSection())
    assert {key: default[key] for key in DECISION} == DECISION
    assert UNCHOSEN in inspect.getsource(studied)
    assert {*CALIBRATORS, "none"} == set(studied.Method.__args__)  # type: ignore[attr-defined]
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=assessed(warnings=[f"{UNCHOSEN}: no rows"])))
    assert "above a probability of <b>0.314</b>, the threshold, as none could be chosen on validation rows." in page.source


@pytest.mark.parametrize("positive", [[5, 6, 7, 8, 9], ...])
def test_a_run_from_a_description_has_the_section(tmp_path: Path, positive: Any) -> None:
    build(parse(changed(data={"positive": positive}, run={"rounds": 2, "every": 2}))).run(tmp_path / "a", "A", bundle=True)
    found = json.loads((tmp_path / "a" / "about.json").read_text())["assessment"]
    page = paged(tmp_path, tmp_path / "a")
    assert TITLE in page.headings()
    if positive is ...:
        assert "The model tells 10 classes apart" in page.source
        assert not of(page, "on test rows")
    else:
        assert " ".join(cells(of(page, "on test rows")[0])[1][1:]) == shown(found["AUC"])
        assert f"<b>{found['threshold']:.3g}</b>" in page.source


# which runs, sites, groups and sentences


def test_without_an_assessment_the_page_is_as_it_was(tmp_path: Path) -> None:
    about = {"predictions": scored(0), "sites": [{"site": "s", "AUC": 0.5}], "command": "c"}
    old = paged(tmp_path, make(tmp_path / "old", "A", **about))
    null = paged(tmp_path, make(tmp_path / "null", "A", **about, notes=None, assessment=None))
    compared = paged(tmp_path, make(tmp_path / "compared", "A", **about, notes=["a note"]))
    new = paged(tmp_path, make(tmp_path / "new", "A", **about, notes=["a note"], assessment=assessed()))
    assert old.source == null.source == compared.source
    assert TITLE not in old.headings()
    assert TITLE in new.headings()
    assert re.sub(rf"<section><style>[^<]*</style><h2>{TITLE}.*?</section>", "", new.source, flags=re.DOTALL) == old.source


def test_of_several_seeds_the_first_that_was_assessed_is_shown_and_said_so(tmp_path: Path) -> None:
    seeds = [None, assessed(AUC=[0.71, 0.7, 0.72]), assessed(AUC=[0.91, 0.9, 0.92])]
    page = paged(tmp_path, *(make(tmp_path / str(k), "A", k, assessment=found) for k, found in enumerate(seeds)))
    assert [line[1] for line in cells(of(page, "on test rows")[0])[1:2]] == ["0.710"]
    assert "This is the first of 2 assessed runs of A, seed 1; the others are not shown here." in page.source


def test_every_method_is_a_pane_and_sentences_name_the_methods_they_are_about(tmp_path: Path) -> None:
    a = make(tmp_path / "a", "A", assessment=assessed(warnings=["it is off"]), notes=["rows are few"])
    b = make(tmp_path / "b", "B", assessment=assessed(AUC=[0.71, 0.7, 0.72], warnings=[]), notes=["rows are few"])
    page = paged(tmp_path, a, b, make(tmp_path / "c", "C"))
    assert [table[1][1][0] for table in of(page, "on test rows")] == ["0.812", "0.710"]
    assert [said for tag, said in page.texts if tag == "li" and said[-3:] in ("off", "few")] == ["A: it is off", "rows are few"]
    assert ['id="inuse1"' in page.source, 'id="inuse2"' in page.source] == [True, False]
    many = paged(tmp_path, make(tmp_path / "d", "D", assessment=assessed(warnings=[f"warning {k}" for k in range(20)])))
    assert [said for tag, said in many.texts if tag == "li"][:20] == [f"warning {k}" for k in range(20)]
    assert "<summary>12 more</summary>" in many.source


def test_at_most_thirty_sites_are_shown_the_largest_and_the_worst(tmp_path: Path) -> None:
    found = assessed(50)
    page = paged(tmp_path, make(tmp_path / "a", "A", assessment=found))
    names = [line[0] for line in cells(of(page, "site", "AUC", "0 0.5 1")[0])[2:]]
    assert names == [*(f"site {k} {1000 - 10 * k} rows" for k in range(30)), "site 49 510 rows · the worst"]
    assert "The 30 largest of 50 sites, and the worst one" in page.source
    groups = {"age": [group(str(k), k, 0, 0, 0) for k in range(20)]}
    page = paged(tmp_path, make(tmp_path / "b", "B", assessment=assessed(subgroups=groups)))
    assert [line[0] for table in of(page, "age") for line in cells(table)[1:]] == [str(k) for k in range(19, -1, -1)]
    assert [len(table) for table in of(page, "age")] == [1 + 12, 1 + 8]
    assert "The other 8 groups of age" in page.source
    one = paged(tmp_path, make(tmp_path / "c", "C", assessment=assessed(1)))
    assert not of(one, "site", "AUC", "0 0.5 1")


# hostile folders, and a browser


def hostile() -> dict[str, Any]:
    sites = [site(EVIL, 300, 0.8), site(LONG, 200, 0.6), site("c", 100)]
    return {"notes": [EVIL, LONG], "config": {"decision": {"threshold": EVIL}}, "assessment": assessed(
        classes=[EVIL, LONG], warnings=[EVIL, LONG], sites=sites, calibrator={"method": EVIL},
        subgroups={EVIL: [group(EVIL, 1, 2, 3, 4, off=EVIL)], LONG: [group(LONG, 100000, 200000, 300000, 400000, withheld=1000)]},
        **{"worst site": sites[1]})}


def test_no_text_of_an_assessment_becomes_an_element(tmp_path: Path) -> None:
    classes = {"classes": [EVIL] * 3, "warnings": [EVIL], "calibrator": {"method": EVIL}, "sites": [site(EVIL, 9), site(LONG, 8)]}
    page = paged(tmp_path, make(tmp_path / "a", "A", **hostile()), make(tmp_path / "b", EVIL, **hostile()),
                 *(make(tmp_path / f"c{seed}", f"C{EVIL}", seed, assessment=classes) for seed in range(2)))
    assert not {tag for tag, _ in page.elements} & {"script", "img", "iframe"}
    assert "<b>bold" not in page.source
    assert sum(EVIL in said for _, said in page.texts) > 20


# texts of the section in sight that lie on one another; the first column of a table that scrolls lies on others with a reason
OVERLAPS = """(() => {
    const texts = '.ty, .tx, .xlabel, .ylabel, .legend li, figcaption, .axis i, td:not(.forest), th:not(.forest), p, h3, summary';
    const seen = [...document.querySelectorAll(`.inuse0 :is(${texts})`)].filter(e => !e.closest('.groups, details table, details p'))
        .map(e => [e, e.getBoundingClientRect()]);
    const beside = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]) <= 1;
    return seen.flatMap(([e, a], i) => seen.slice(i + 1)
        .filter(([f, b]) => !beside(a, b, 'left', 'right') && !beside(a, b, 'top', 'bottom'))
        .map(([f]) => [e.innerText, f.innerText]))})()"""
# how much wider than their boxes the tables are; those of subgroups are wider than a telephone
SCROLLED = """[...document.querySelectorAll('.inuse0 .fit:not(.groups):not(details) .scroll')].map(e => e.scrollWidth - e.clientWidth)"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["plain", "hostile"])
def test_nothing_is_cut_off_and_no_text_lies_on_another(browser: Browser, tmp_path: Path, width: int, kind: str, dark: bool) -> None:
    about = {"assessment": assessed(40), "notes": ["a note"]} if kind == "plain" else hostile()
    path = write([load(make(tmp_path / "a", "A", **about))], tmp_path / "page.html")
    assert troubles(browser, path, width, dark) == {}
    assert browser.ask(OVERLAPS) == []
    assert browser.ask(SCROLLED) == [0, 0, 0]
