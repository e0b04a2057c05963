"""Damaged files of a run, and disks that are full while a page is written."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
from running import GOOD, changed, command, toml

from rookery import report as reports
from rookery.studies.compare import compare


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run.toml").write_text(toml(GOOD))
    assert command(monkeypatch, "run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")) == 0
    return tmp_path / "out"


@pytest.mark.parametrize("content", ["", "{", "\0\0", "[1, 2"])
@pytest.mark.parametrize(("name", "words"), [
    ("description.json", "description.json is not whole .* delete it to go on all the same"),
    ("state.ckpt", "state.ckpt is not a whole checkpoint .* put a copy in its place, or delete it to begin anew")])
def test_a_damaged_file_is_named_when_a_run_goes_on(content: str, name: str, words: str, out: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (out / name).write_text(content)
    arguments = ["run", str(out.parent / "run.toml"), "--out", str(out), "--resume"]
    assert command(monkeypatch, *arguments) == 2
    told = capsys.readouterr().err
    assert re.search(words, told), told
    (out / name).unlink()
    assert command(monkeypatch, *arguments) == 0


@pytest.mark.parametrize("content", ["", "{", "\0\0", "[1, 2"])
@pytest.mark.parametrize("name", ["about.json", "history.jsonl"])
def test_a_damaged_file_is_named_by_a_report_and_mended_by_resuming(content: str, name: str, out: Path, monkeypatch: pytest.MonkeyPatch,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    (out / name).write_text(content)
    page = out.parent / "page.html"
    assert command(monkeypatch, "report", str(out), "--out", str(page)) == 2
    told = capsys.readouterr().err
    assert name in told
    assert "--resume" in told
    assert not page.exists()
    assert command(monkeypatch, "run", str(out.parent / "run.toml"), "--out", str(out), "--resume") == 0
    assert command(monkeypatch, "report", str(out), "--out", str(page)) == 0


def test_a_comparison_mends_a_damaged_run(tmp_path: Path) -> None:
    tree = changed(run={"rounds": 1, "every": 1})
    first = compare({"m": tree}, 1, tmp_path, jobs=1)
    (tmp_path / "m" / "seed-0" / "about.json").write_text("{")
    assert compare({"m": tree}, 1, tmp_path, jobs=1) == first
    reports.load(tmp_path / "m" / "seed-0")


def test_a_page_that_does_not_fit_leaves_the_one_that_was_there(out: Path, monkeypatch: pytest.MonkeyPatch,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    page = out.parent / "page.html"
    page.write_text("the old one")
    genuine = Path.write_bytes

    def half(self: Path, content: bytes) -> int:
        genuine(self, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    assert command(monkeypatch, "report", str(out), "--out", str(page)) == 2
    assert "page.html could not be written (No space left on device)" in capsys.readouterr().err
    assert page.read_text() == "the old one"
    assert not list(out.parent.glob(".*.part"))
