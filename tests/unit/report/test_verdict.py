"""The block about a fit: its sentence, its table and its drawing against the dictionary, and a dictionary that is wrong or hostile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from page_checks import troubles
from report_pages import EVIL, Page, make, paged

from rookery.report import ReportError, load, write
from rookery.report.verdict import verdict

SENTENCE = "Nesting paid: 1.4 points of AUC more than FedAvg."


def method(label: str, kind: str, test: list[Any] | None, difference: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"label": label, "kind": kind, "setting": {"algorithm.lr": 0.1}, "validation": 0.91, "test": test, "difference": difference,
            "kept": False, "note": "", **more}


def fitted(**changes: Any) -> dict[str, Any]:
    rows = [method("FedAvg", "opponent", [0.9, 0.88, 0.92]),
            method("LocalSCGDAM", "nested", [0.914, 0.896, 0.932], [0.014, 0.003, 0.025], kept=True,
                   setting={"algorithm.lr": 2.0, "algorithm.local_steps": 8}),
            method("FCSG-M", "nested", None, validation=None, note="diverged"),
            method("pooled", "reference", [0.94, 0.93, 0.98], [-0.0001, -0.01, 0.05])]
    return {"goal": "auc", "metric": "AUC", "larger": True, "kept": "LocalSCGDAM", "sentence": SENTENCE, "where": "test rows at the server",
            "rows": rows, "minutes": 3.2, "notes": ["a note"], **changes}


def cells(page: Page, table: int) -> list[list[str]]:
    return [[text for text, _ in line] for line in page.tables[table][1:]]


def test_the_verdict_stands_first_and_says_what_the_fit_says(tmp_path: Path) -> None:
    page = paged(tmp_path, make(tmp_path / "a", "A"), fit=fitted())
    assert page.headings()[:2] == ["Did nesting pay?", "Summary"]
    texts = [text for tag, text in page.texts if tag == "p"]
    assert texts[0] == SENTENCE
    assert "test rows at the server" in texts[1]
    assert "larger is better" in texts[1]
    assert "Kept: LocalSCGDAM. It took 3.2 minutes." in texts[1]
    assert next(text for tag, text in page.texts if tag == "li") == "a note"
    assert "Did nesting pay?" not in paged(tmp_path, tmp_path / "a").headings()


def test_candidates_and_references_have_tables_of_their_own_and_the_kept_one_is_marked(tmp_path: Path) -> None:
    page = paged(tmp_path, make(tmp_path / "a", "A"), fit=fitted())
    assert cells(page, 0) == [
        ["FedAvg not nested lr 0.1", "", "0.900 0.880–0.920", "–", "0.910"],
        ["kept LocalSCGDAM nested lr 2, local_steps 8", "", "0.914 0.896–0.932", "+0.014 +0.003 to +0.025", "0.910"],
        ["FCSG-M nested lr 0.1 diverged", "", "–", "–", "–"]]
    assert cells(page, 1) == [["pooled no candidate lr 0.1", "", "0.940 0.930–0.980", "+0.000 −0.010 to +0.050", "0.910"]]
    marked = [line[0][0] for table in page.tables[:2] for line in table if any("best" in kind for _, kind in line)]
    assert marked == ["kept LocalSCGDAM nested lr 2, local_steps 8"]
    assert "These are no candidates" in page.source
    alone = paged(tmp_path, tmp_path / "a", fit=fitted(rows=fitted()["rows"][:1]))
    assert "These are no candidates" not in alone.source


def test_intervals_are_drawn_where_the_numbers_are_with_a_line_at_fedavg() -> None:
    drawn = verdict(fitted())
    low, high = 0.88 - 0.06 * 0.1, 0.98 + 0.06 * 0.1  # the least and the largest end, and some room
    at = {value: round((value - low) / (high - low) * 1000) for value in (0.9, 0.88, 0.92, 0.914, 0.896, 0.932, 0.94, 0.93, 0.98)}
    bars = [tuple(map(int, bar)) for bar in re.findall(r'class="bar[^"]*" d="M(\d+) 5H(\d+)"', drawn)]
    assert bars == [(at[0.88], at[0.92]), (at[0.896], at[0.932]), (at[0.93], at[0.98])]
    assert [int(x) for x in re.findall(r'class="dot[^"]*" d="M(\d+) 5h0"', drawn)] == [at[0.9], at[0.914], at[0.94]]
    assert {int(x) for x in re.findall(r'class="chance" d="M(\d+) 0V10"', drawn)} == {at[0.9]}
    assert "The broken line is FedAvg" in drawn
    without = verdict(fitted(rows=fitted()["rows"][1:]))
    assert ('class="chance"' in without, "The broken line" in without) == (False, False)


def test_a_fit_of_a_metric_that_is_better_when_small_says_so_once() -> None:
    assert verdict(fitted(metric="Brier", larger=False)).count("smaller is better") == 1
    assert verdict(fitted(metric="mine", larger=False)).count("smaller is better") == 1
    assert "mine (what I want), of test rows" in verdict(fitted(metric="mine", about="what I want"))


@pytest.mark.parametrize(("change", "sentence"), [
    ({"rows": 3}, "fit.rows must be a list"), ({"sentence": None}, "fit.sentence must be a text"),
    ({"larger": "yes"}, "fit.larger must be true or false; it is 'yes'"),
    ({"rows": [method("A", "friend", None)]}, r"fit.rows\[0\].kind must be one of \['nested', 'opponent', 'reference'\]"),
    ({"rows": [method("A", "nested", [0.5])]}, r"fit.rows\[0\].test must be a list of 3 numbers")])
def test_a_wrong_dictionary_is_answered_by_a_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ReportError, match=sentence):
        verdict(fitted(**change))


def test_an_empty_fit_and_values_that_are_nan_leave_a_page(tmp_path: Path) -> None:
    assert SENTENCE in verdict(fitted(rows=[], notes=[], minutes=None, kept=None, where=None))
    half = verdict(fitted(rows=[method("FedAvg", "opponent", [0.9, None, None]), method("A", "nested", [None] * 3, [None] * 3)]))
    assert (half.count('class="dot'), half.count('class="bar'), "<td>0.900</td>" in half) == (1, 0, True)
    nan = float("nan")
    page = paged(tmp_path, make(tmp_path / "a", "A"), fit=fitted(rows=[method("FedAvg", "opponent", [nan, nan, nan], validation=nan)]))
    assert cells(page, 0) == [["FedAvg not nested lr 0.1", "", "–", "–", "–"]]


def hostile() -> dict[str, Any]:
    rows = [method(EVIL, kind, [0.5, 0.4, 0.6], [0.1, 0.0, 0.2], note=EVIL, setting={EVIL: EVIL, "x" * 200: "y" * 200}, kept=True)
            for kind in ("opponent", "nested", "reference")]
    return fitted(metric=EVIL, sentence=EVIL, where=EVIL, kept=EVIL, notes=[EVIL, "z" * 300], rows=rows)


def test_no_text_of_a_fit_becomes_an_element(tmp_path: Path) -> None:
    page = paged(tmp_path, make(tmp_path / "a", "A"), fit=hostile())
    assert not {tag for tag, _ in page.elements} & {"script", "img"}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["plain", "hostile"])
def test_the_verdict_fits_the_window(browser: Browser, tmp_path: Path, width: int, dark: bool, kind: str) -> None:
    path = write([load(make(tmp_path / "a", "A"))], tmp_path / "page.html", fit=fitted() if kind == "plain" else hostile())
    assert troubles(browser, path, width, dark, cut=kind == "hostile" or width == 390) == {}
