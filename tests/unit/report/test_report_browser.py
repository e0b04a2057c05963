"""The page in a real browser, without scripts: nothing is cut off or faint, and what is folded away can be had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser
from page_checks import WIDE, troubles
from report_pages import EVIL, account, make, row, scored, traffic

from rookery.report import load, write


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
                config={"run": {"rounds": 8, "name": "y" * 200}}, machine="z" * 200, reason="diverged", failure="w" * 200, engine="loop",
                ledger={"train": account(exchanges=10**9, floats_up=10**12, calls={"grad": 10**9})},
                sites=[{"site": f"site {k} " + "v" * 50, "rows": 10**6, "AUC": 0.5 + k / 20, "loss": k / 3} for k in range(8)],
                traffic=traffic([("down", "f" * 60, 10**6)], *[[("down", "g", 1), ("up", "g", 1)]] * 200,
                                *[[("up", "h", k)] for k in range(40)]),
                tuning={"metric": "test AUC", "tried": [{"values": {"lr": 0.1}, "score": 0.5}], "chosen": {"lr": 0.1}})))
    return write(records, folder / "page.html", intro="A page. It is " + "long" * 60)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as comparisons leave it: five methods, three seeds, scores of adapted models too, names as they are."""
    folder, records = tmp_path_factory.mktemp("usual"), []
    names = ("loss", "accuracy", "balanced accuracy", "worst class", "Brier", "ECE", "AUC", "AP")
    for k, (label, title) in enumerate({"FedAvg": "cross_entropy by FedAvg", "FedAvg-weighted": "balanced_cross_entropy by FedAvg",
                                        "FCSG-M": "ap_surrogate by FCSG-M", "Acc-FCSG-M": "ap_surrogate by Acc-FCSG-M",
                                        "LocalSCGDAM": "auc by LocalSCGDAM"}.items()):
        for seed in range(3):
            history = [row(20 * r, **{f"{split} {model}{name}": 0.9 - 0.3 / (1 + r) + 0.01 * k * seed for split in ("validation", "test")
                                      for model in ("", "adapted ") for name in names}) for r in range(4)]
            sites = [{"site": f"hospital-{s}", "rows": 120, "positives": 14, "test rows": 40,
                      **{f"{model}{name}": 0.8 + 0.01 * s for model in ("", "adapted ", "alone ") for name in names}} for s in range(8)]
            records.append(load(make(
                folder / f"{label}{seed}", label, seed, history, scored(seed), title=title, engine="auto:vectorised", sites=sites,
                command="rookery compare " + " ".join(f"examples/demo/{name}.toml" for name in "abcdefgh") + " --seeds 3",
                config={"data": {"name": "digits", "test_at": "sites"}, "sites": {"how": "dirichlet"}},
                traffic=traffic([("up", "step", 99)]),
                ledger={"train": account(exchanges=361, floats_up=1_034_896, floats_down=1_053_008, bytes_up=4_139_584,
                                         bytes_down=4_212_032, samples=77_056, calls={"g": 4808, "f_gradient": 2400, "g_vjp": 2400})},
                tuning={"metric": "validation AP", "tried": [{"values": {"algorithm.lr": v}, "score": v} for v in (0.1, 0.3)],
                        "chosen": {"algorithm.lr": 0.3}})))
    return write(records, folder / "page.html")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["compared", "usual"])
def test_nothing_overflows_is_faint_or_asks_for_anything(browser: Browser, request: pytest.FixtureRequest, page: str, width: int,
                                                         dark: bool) -> None:
    narrow = page == "usual" and width == 1280  # words of sixty letters scroll at any width
    assert troubles(browser, request.getfixturevalue(page), width, dark, cut=not narrow) == {}


# what a reader sees of the curves: the captions of the charts that have a size
SEEN = """[...document.querySelectorAll('.chart:not(.square)')].filter(f => f.getClientRects().length)
    .map(f => f.querySelector('figcaption').innerText.split('.')[0])"""


def press(browser: Browser, selector: str) -> None:
    """A real click in the middle of an element."""
    x, y = browser.ask(f"(e => {{e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); "
                       f"return [r.x + r.width / 2, r.y + r.height / 2]}})(document.querySelector('{selector}'))")
    for kind in ("mousePressed", "mouseReleased"):
        browser("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def test_switching_rows_metric_or_axis_changes_the_chart_in_sight_without_scripts(browser: Browser, compared: Path) -> None:
    browser.size(1280)
    browser("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(compared)
        tail = ", mean of 2 seeds and one standard deviation"
        assert browser.ask(SEEN) == ["test AUC against rounds" + tail]
        press(browser, "#axis1 + span")
        assert browser.ask(SEEN) == ["test AUC against MB" + tail]
        press(browser, "#rows0 + span")
        assert browser.ask(SEEN) == []  # there is no AUC of validation rows
        press(browser, "#metric0 + span")
        assert browser.ask(SEEN) == ["validation loss against MB" + tail]
        press(browser, "#axis3 + span")
        assert browser.ask(SEEN) == ["validation loss against seconds" + tail]
        tables = """[...document.querySelectorAll('.pane .scroll')].filter(t => t.getClientRects().length)
            .map(t => t.ariaLabel.split(' ')[0])"""
        assert browser.ask(tables) == ["AUC"]
        press(browser, "#site1 + span")
        assert browser.ask(tables) == ["loss"]
    finally:
        browser("Emulation.setScriptExecutionDisabled", value=False)


def test_what_a_metric_means_is_in_sight_or_a_key_away(browser: Browser, usual: Path) -> None:
    shown = "document.querySelector('.term small').checkVisibility({contentVisibilityAuto: true, visibilityProperty: true})"
    tall = "document.querySelector('.term').getBoundingClientRect().height"
    browser.size(1280)
    browser.open(usual)
    assert browser.ask(tall) > 30
    browser.size(390)
    browser.open(usual)
    assert (browser.ask(shown), browser.ask(tall) < 30) == (False, True)
    browser.ask("document.querySelector('.term summary').focus()")
    for kind in ("keyDown", "keyUp"):
        browser("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    assert (browser.ask(shown), browser.ask(tall) > 30) == (True, True)


def test_lines_stand_out_from_the_paper_by_day_and_by_night(browser: Browser, compared: Path) -> None:
    browser.size(1280)
    papers = []
    for dark in (False, True):
        browser.media(dark=dark)
        browser.open(compared)
        places = [("body", "backgroundColor"), *((f".line.c{k}", "stroke") for k in range(7))]
        paper, *lines = (_luminance(browser.ask(f"getComputedStyle(document.querySelector('{where}')).{key}")) for where, key in places)
        papers.append(paper)
        for line in lines:
            assert (max(line, paper) + 0.05) / (min(line, paper) + 0.05) >= 3.0
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
    page.write_text("<meta name=viewport content='width=device-width'><main><div style='width:2000px'>wide</div>"
                    "<p style='color:#aaa'>pale</p><div class=scroll aria-label=hidden style='width:50px;overflow-x:auto'>"
                    "<p style='width:99px'>more</p></div>"
                    "</main><script>window.hacked=1;nothing()</script><img src=missing.png>")
    found = troubles(browser, page, 390, False)
    assert found["too wide"] > 1000
    assert "2000px" in found["outside"][0]
    assert [text for text, _ in found["faint"]] == ["pale"]
    assert found["scrolls unseen"] == ["hidden"]
    assert any("nothing" in text or "Uncaught" in text for text in found["complaints"])
    assert any(address.endswith("missing.png") for address in found["requests"])
    assert found["hacked"]
    assert browser.ask(WIDE) == ["hidden"]
    browser.complaints.clear()
