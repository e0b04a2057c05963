"""The log of a site: every frame and every refusal, whole lines only, and nothing leaves that could not be written down."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hosts import RUN, Probe, answer, error, frame, greeting, host, step, welcome

from rookery.engines.frames import pack
from rookery.errors import WriteError
from rookery.sites import Host
from rookery.sites.audit import Audit, Entry
from rookery.training.files import Lines


def entries(at: Host, run: str = RUN) -> list[Entry]:
    return list(Audit(at.place(run) / "log.jsonl").entries())


def test_every_frame_is_there_with_what_was_asked_and_what_left(tmp_path: Path) -> None:
    at = host(tmp_path)
    welcome(at, problem={"kind": "own"})
    first = frame(1, step(times=3), step("drawn", out=3), want=[2, 3])
    assert at.answer(first) == at.answer(first)
    answer(at, frame(2, {"op": "save", "tag": "tag", "ids": [2]}, base=1, clients=[]))
    answer(at, frame(3, base=2, want=[3], clients=[1]))
    hello, *found = entries(at)
    assert (hello.asked, hello.frame, hello.names) == (['hello: {"kind": "own"}'], 0, ["a", "b"])
    assert [(entry.frame, entry.asked, entry.left, entry.numbers, entry.steps) for entry in found] == [
        (1, ["Probe.same 6 times", "Probe.drawn 2 times"], [[1], [5], [1], [5]], 12, 8), (2, ["save"], [], 0, 0), (3, [], [[5]], 5, 0)]
    assert all(entry.run == RUN and entry.bytes > 100 and entry.when and not entry.refused for entry in found)
    assert found[0].sentence == f"{found[0].when}  frame 1: Probe.same 6 times, Probe.drawn 2 times; 12 numbers left"
    assert found[1].sentence.endswith("frame 2: save; nothing left")


def test_names_that_left_are_told(tmp_path: Path) -> None:
    """As text that a terminal shows as it is."""
    at = host(tmp_path)
    welcome(at)
    answer(at, frame(1, step("told"), want=[2], clients=[0]))
    entry = entries(at)[-1]
    assert entry.names == ["north", "s\ufffdd\n"]
    assert entry.sentence.endswith("10 numbers left, and the names north, s\ufffdd\ufffd")


def test_every_refusal_is_told(tmp_path: Path) -> None:
    at = host(tmp_path)
    error(at, greeting(versions={}))
    error(at, frame(1))
    welcome(at)
    for asked in (step("fails"), step("_own"), step(times=2**62), step("drawn", program=Probe(batch=0))):
        error(at, frame(1, asked))
    assert [entry.refused.partition(":")[0] for entry in Audit(tmp_path / "refused.jsonl").entries()] == ["Refused", "StateLost"]
    found = entries(at)[1:]
    assert [entry.refused.partition(":")[0] for entry in found] == ["ZeroDivisionError", "FrameError", "Refused", "AlgorithmError"]
    assert [entry.asked for entry in found] == [["Probe.fails 2 times"], [], [f"Probe.same {2**63} times (refused)"],
                                                ["Probe.drawn 2 times"]]
    assert all("refused: " in entry.sentence and entry.numbers == entry.frame == 0 for entry in found)


def test_a_refusal_is_written_down_in_part_where_the_server_made_it_long(tmp_path: Path) -> None:
    at = host(tmp_path)
    welcome(at)
    error(at, frame(1, {"op": "map", "fn": "x" * 1_000_000}))
    error(at, frame(1, {"op": "\x1b[2J\n forged"}))
    assert (at.place(RUN) / "log.jsonl").stat().st_size < 10_000
    assert all("\n" not in entry.sentence and "\x1b" not in entry.sentence for entry in entries(at))


@pytest.mark.parametrize("cut", [1, 20, 100])
def test_a_last_line_that_was_cut_takes_no_other_with_it(tmp_path: Path, cut: int) -> None:
    at = host(tmp_path)
    welcome(at)
    for k in (1, 2, 3):
        answer(at, frame(k, step()))
    log = at.place(RUN) / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-cut])
    at = host(tmp_path)
    assert welcome(at)["counter"] == (3 if cut == 1 else 2)
    answer(at, frame(4, step()))
    assert [entry.frame for entry in entries(at) if entry.frame] == ([1, 2, 3, 4] if cut == 1 else [1, 2, 4])


def test_lines_that_are_no_entries_are_passed_over(tmp_path: Path) -> None:
    log = Audit(tmp_path / "log.jsonl")
    log.file.write_bytes(b'\xff\xfe\n[]\n{"run": 1}\n{"strange": 1}\n\n')
    log.write(Entry("\ud800", 1, ["ö"]))
    assert [(entry.run, entry.asked) for entry in log.entries()] == [("?", ["ö"])]


def _no_space(lines: Lines, line: str) -> None:
    raise WriteError(f"{lines.path.name} could not be written (No space left on device)")


def test_what_cannot_be_written_down_does_not_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = host(tmp_path)
    welcome(at)
    answer(at, frame(1, step()))
    site, account = at.runs[RUN].site, at.runs[RUN].account
    before = site.versions, site.counter, site.last
    with monkeypatch.context() as full:
        full.setattr(Lines, "append", _no_space)
        for asked in (frame(2, step(out=3), base=1, want=[3]), frame(2, step("fails"))):
            assert error(at, asked) == ("WriteError", "log.jsonl could not be written (No space left on device)")
        for asked in (greeting(), greeting("new"), frame(1, run="unknown")):
            assert error(at, asked) == ("WriteError", "refused.jsonl could not be written (No space left on device)")
    assert (site.versions, site.counter, site.last) == before
    assert account.frames == 3  # what was tried counts
    assert torch.equal(answer(at, frame(2, step(out=3), base=1, want=[3]))[0], torch.ones(1, dtype=torch.float64))
    assert [entry.frame for entry in entries(at) if entry.frame] == [1, 2]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    at = host(tmp_path)
    welcome(at)
    answer(at, frame(1, step()))
    log = at.place(RUN) / "log.jsonl"
    before = log.read_bytes()
    log.unlink()
    log.symlink_to("/dev/full")
    assert error(at, frame(2, step(), base=1, want=[2]))[0] == "WriteError"
    log.unlink()
    log.write_bytes(before)
    answer(at, frame(3, step(), base=1, want=[2]))
    assert [entry.frame for entry in entries(at) if entry.frame] == [1, 3]


def test_a_frame_beside_does_not_wipe_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slow(self: Probe, c: Any, x: torch.Tensor) -> torch.Tensor:
        entered.set()
        assert go_on.wait(60)
        return x

    at = host(tmp_path)
    welcome(at)
    asked = frame(1, step(), want=[2], clients=[0])
    slow.__qualname__ = "Probe.same"
    monkeypatch.setattr(Probe, "same", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(at.answer, asked)
        assert entered.wait(60)
        second = pool.submit(at.answer, pack({"run": RUN, "roll": True}, {}))
        go_on.set()
        assert first.result() != second.result()
    assert entries(at)[-1].asked == ["Probe.same"]
