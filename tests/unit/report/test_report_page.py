"""Reports of broken, foreign and hostile folders; then the page in a real browser, without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from report_pages import account, make, paged, row, scored, traffic

from rookery.report import ReportError, load, write

EVIL = '"><script>window.hacked=1</script><img src=x onerror="window.hacked=1">&amp;</style>\ud800'
SECTIONS = ["Summary", "Curves", "How the test rows are ranked", "Sites", "What crossed the network", "How it was tuned",
            "How to repeat it"]


def test_missing_parts_leave_their_sections_out(tmp_path: Path) -> None:
    bare = make(tmp_path / "bare", "A")
    assert paged(tmp_path, bare).headings() == ["Summary", "Curves"]
    texts = paged(tmp_path, bare, title="Mine", intro="One. Two.").texts
    assert [text for tag, text in texts if tag in ("title", "h1", "p")][:3] == ["Mine", "Mine", "One. Two."]
    whole = make(tmp_path / "whole", "B", predictions=scored(0), sites=[{"site": "s", "AUC": 0.5}], traffic=traffic([("up", "f", 1)]),
                 tuning={"metric": "m", "tried": [], "chosen": {}}, command="c")
    assert paged(tmp_path, bare, whole).headings() == SECTIONS


def hostile(tmp_path: Path) -> list[Path]:
    config = {EVIL: {EVIL: EVIL}}
    history = [row(0, **{EVIL: 1.0}), row(1, **{EVIL: 2.0})]
    return [make(tmp_path / str(k), EVIL + str(k), k, history, scored(k), title=EVIL, command=EVIL, config=config,
                 versions={EVIL: EVIL}, machine=EVIL, reason="diverged", failure=EVIL, ledger={EVIL: account(exchanges=1, calls={EVIL: 1})},
                 sites=[{"site": EVIL, EVIL: 0.5}], traffic=traffic([("down", EVIL, 3)]),
                 tuning={"metric": EVIL, "tried": [{"values": config[EVIL], "score": 1.0}], "chosen": config[EVIL]}) for k in range(2)]


def test_no_text_of_a_file_becomes_an_element(tmp_path: Path) -> None:
    page = paged(tmp_path, *hostile(tmp_path), title=EVIL, intro=EVIL)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "iframe", "object", "base", "form"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    kept = EVIL.replace("\ud800", "?")
    assert sum(kept in text for _, text in page.texts) > 20
    assert page.headings() == SECTIONS


def test_the_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    page = paged(tmp_path, make(tmp_path / "a", "A", predictions=scored(0)))
    links = [value for _, attributes in page.elements for name, value in attributes.items() if name in ("src", "href", "action", "srcset")]
    assert links == ["data:,"]
    assert not re.search(r"https?:|url\(|@import|//", page.source)
    assert "default-src 'none'" in page.source


def broken(folder: Path, file: str, content: str | bytes | None) -> Path:
    make(folder, "A")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def assessment(change: dict[str, Any], sentence: str) -> tuple[str, str, str]:
    found = {key: value for key, value in ({"classes": ["no", "yes"], "warnings": []} | change).items() if value is not ...}
    return "about.json", json.dumps({"label": "A", "assessment": found}), sentence


GOOD_ROW = json.dumps(row(0))
BROKEN: dict[str, tuple[str, str | bytes | None, str]] = {
    "no history": ("history.jsonl", None, "is missing"),
    "empty history": ("history.jsonl", "\n", "holds none"),
    "history cut off": ("history.jsonl", GOOD_ROW + "\n" + GOOD_ROW[:20], "line 2, is not JSON"),
    "history of texts": ("history.jsonl", '"a"', "line 1: the row must be an object; it is 'a'"),
    "history without rounds": ("history.jsonl", '{"loss": 1}', "must have round, exchanges, bytes, samples, seconds"),
    "a metric that is a text": ("history.jsonl", json.dumps(row(0) | {"loss": "low"}), r"row.loss must be a number; it is 'low'"),
    "history of bytes": ("history.jsonl", b"\xff\xfe\x00", "cannot be read"),
    "no about": ("about.json", None, "is missing"),
    "about is a list": ("about.json", "[]", "must be an object with \"label\""),
    "about without a label": ("about.json", "{}", "must be an object with \"label\""),
    "about nested without end": ("about.json", "[" * 100_000, "is not JSON"),
    "a label that is a number": ("about.json", '{"label": 3}', "label must be a text; it is 3"),
    "sites that are no list": ("about.json", '{"label": "A", "sites": 3}', "sites must be a list; it is 3"),
    "a site without a name": ("about.json", '{"label": "A", "sites": [{"rows": 3}]}', r"sites\[0\] must have site"),
    "a site's metric in words": ("about.json", '{"label": "A", "sites": [{"site": "s", "AUC": "good"}]}',
                                 r"sites\[0\].AUC must be a number"),
    "sideways traffic": ("about.json", json.dumps({"label": "A", "traffic": traffic([("left", "f", 1)])}),
                         r"traffic\[0\].direction must be one of \['down', 'up'\]; it is 'left'"),
    "a ledger without counts": ("about.json", '{"label": "A", "ledger": {"train": {}}}', "ledger.train must have exchanges"),
    "tuning without a choice": ("about.json", '{"label": "A", "tuning": {"metric": "m", "tried": []}}', "tuning must have chosen"),
    "a config without sections": ("about.json", '{"label": "A", "config": {"lr": 1}}', "config.lr must be an object"),
    "notes that are no list": ("about.json", '{"label": "A", "notes": "few rows"}', "notes must be a list; it is 'few rows'"),
    "an assessment without classes": assessment({"classes": ...}, "assessment must have classes"),
    "an AUC without its interval": assessment({"AUC": 0.5}, "assessment.AUC must be a list of 3 numbers; it is 0.5"),
    "half a confusion": assessment({"confusion": {"tp": 1}}, "assessment.confusion must have fp, fn, tn"),
    "half a decision curve": assessment({"decision curve": [[0.1, 0.2]]}, r"decision curve\[0\] must be a list of 4 numbers"),
    "a subgroup without rows": assessment({"subgroups": {"sex": [{"group": "F"}]}}, r"subgroups.sex\[0\] must have rows, positives"),
    "an interval with one end": assessment({"sites": [{"site": "s", "rows": 3, "AUC": [1, 2, None]}]},
                                           r"sites\[0\].AUC must be a list of 3"),
    "a calibrator without a name": assessment({"calibrator": {}}, "calibrator must have method"),
    "predictions that are none": ("predictions.npz", b"PK\x03\x04 and then nothing", "must hold the arrays"),
    "predictions that are a text": ("predictions.npz", "hello", "must hold the arrays"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_folder_is_answered_by_a_sentence_with_its_name(tmp_path: Path, case: str) -> None:
    file, content, sentence = BROKEN[case]
    with pytest.raises(ReportError, match=sentence) as caught:
        load(broken(tmp_path / "the-run", file, content))
    assert str(tmp_path / "the-run" / file) in str(caught.value)


@pytest.mark.parametrize(("labels", "scores"), [(np.zeros(3, int), np.zeros(4)), (np.zeros(3), np.zeros(3)),
                                                (np.zeros((3, 1), int), np.zeros(3))])
def test_predictions_of_another_form_are_refused(tmp_path: Path, labels: Any, scores: Any) -> None:
    with pytest.raises(ReportError, match="whole numbers \"labels\""):
        load(make(tmp_path / "a", "A", predictions=(labels, scores)))


def test_runs_that_cannot_be_told_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="is not a folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(ReportError, match="none came"):
        write([], tmp_path / "page.html")
    records = [load(make(tmp_path / name, "A", 7)) for name in ("a", "b")]
    with pytest.raises(ReportError, match=r"'A' has seed 7 in .*a and in .*b"):
        write(records, tmp_path / "page.html")
    nameless = load(make(tmp_path / "c", "A", None))
    with pytest.raises(ReportError, match="each seed"):
        write([nameless, nameless], tmp_path / "page.html")


# in a browser

@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every section and long words everywhere: seven methods, one for each colour, two seeds, eight sites."""
    folder = tmp_path_factory.mktemp("runs")
    records = []
    for method in ("FedAvg", "FCSG-M with a long name", "M" * 60, EVIL, "e", "f", "g"):
        for seed in range(2):
            history = [row(r, **{"validation loss": 3.0 / (1 + r), "test AUC": 1 - 0.5 / (1 + r), "test gap": 10.0**-r})
                       for r in range(0, 9, 1 + seed)]
            records.append(load(make(
                folder / f"{len(records)}", method, seed, history, scored(seed), title="a surrogate by a method", command="x" * 300,
                config={"run": {"rounds": 8, "name": "y" * 200}}, machine="z" * 200, reason="diverged", failure="w" * 200,
                ledger={"train": account(exchanges=10**9, floats_up=10**12, calls={"grad": 10**9})},
                sites=[{"site": f"site {k} " + "v" * 50, "rows": 10**6, "AUC": 0.5 + k / 20, "loss": k / 3} for k in range(8)],
                traffic=traffic([("down", "f" * 60, 10**6)], *[[("down", "g", 1), ("up", "g", 1)]] * 200,
                                *[[("up", "h", k)] for k in range(40)]),
                tuning={"metric": "test AUC", "tried": [{"values": {"lr": 0.1}, "score": 0.5}], "chosen": {"lr": 0.1}})))
    return write(records, folder / "page.html", intro="A page. It is " + "long" * 60)


OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# what a reader sees of the curves: the captions of the charts that have a size
SEEN = """[...document.querySelectorAll('.chart:not(.square)')].filter(f => f.getClientRects().length)
    .map(f => f.querySelector('figcaption').innerText)"""


def press(browser: Browser, selector: str) -> None:
    """A real click in the middle of the button that belongs to a radio."""
    x, y = browser.ask(f"(e => {{e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); "
                       f"return [r.x + r.width / 2, r.y + r.height / 2]}})(document.querySelector('{selector} + span'))")
    for kind in ("mousePressed", "mouseReleased"):
        browser("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_no_wider_than_the_window_and_complains_of_nothing(browser: Browser, compared: Path, width: int) -> None:
    browser.size(width)
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(compared)
    assert browser.ask("innerWidth") == width
    assert browser.ask(OVERFLOW) == 0
    # nothing sticks out of the page or of its box, but in boxes that scroll
    assert browser.ask("""[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, .plot svg')
        && e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 200))""") == []
    assert browser.complaints == []
    assert browser.requests == [compared.resolve().as_uri()]
    assert browser.ask("typeof window.hacked") == "undefined"


def test_switching_the_metric_or_the_axis_changes_the_chart_in_sight_without_scripts(browser: Browser, compared: Path) -> None:
    browser.size(1280)
    browser("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(compared)
        tail = ", mean of 2 seeds and one standard deviation."
        assert browser.ask(SEEN) == ["test AUC against rounds" + tail]
        press(browser, "#axis1")
        assert browser.ask(SEEN) == ["test AUC against MB" + tail]
        press(browser, "#metric0")
        assert browser.ask(SEEN) == ["validation loss against MB" + tail]
        press(browser, "#axis3")
        assert browser.ask(SEEN) == ["validation loss against seconds" + tail]
        tables = """[...document.querySelectorAll('.pane .scroll')].filter(t => t.getClientRects().length)
            .map(t => t.ariaLabel.split(' ')[0])"""
        assert browser.ask(tables) == ["AUC"]
        press(browser, "#site1")
        assert browser.ask(tables) == ["loss"]
    finally:
        browser("Emulation.setScriptExecutionDisabled", value=False)


def test_text_and_lines_stand_out_from_the_paper_by_day_and_by_night(browser: Browser, compared: Path) -> None:
    browser.size(1280)
    papers = []
    for dark in (False, True):
        browser.media(dark=dark)
        browser.open(compared)
        places = [("body", "backgroundColor"), ("body", "color"), ("figcaption", "color"), *((f".line.c{k}", "stroke") for k in range(7))]
        paper, ink, soft, *lines = (_luminance(browser.ask(f"getComputedStyle(document.querySelector('{where}')).{key}"))
                                    for where, key in places)
        papers.append(paper)
        for value, least in ((ink, 7.0), (soft, 4.5), *((line, 3.0) for line in lines)):
            assert (max(value, paper) + 0.05) / (min(value, paper) + 0.05) >= least
    browser.media()
    assert papers[0] > 0.9
    assert papers[1] < 0.1


def _luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour, as the guidelines for accessible pages define it."""
    parts = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_browser_notices_what_these_tests_look_for(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<meta name=viewport content='width=device-width'><div style='width:2000px'>wide</div><script>nothing()</script>"
                    "<img src=missing.png>")
    browser.size(360)
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(page)
    assert browser.ask(OVERFLOW) > 1000
    assert any("nothing" in text or "Uncaught" in text for text in browser.complaints)
    assert any(address.endswith("missing.png") for address in browser.requests)
    browser.complaints.clear()
