"""Reports of broken, foreign and hostile folders."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import EVIL, account, make, paged, row, scored, traffic

from rookery.report import ReportError, load, write

SECTIONS = ["Summary", "Curves", "How the test rows are ranked", "Sites", "What would have crossed the network",
            "How it was tuned", "How to repeat it"]


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
