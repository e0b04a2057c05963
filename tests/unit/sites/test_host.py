"""A site against a server that asks for too much, or for something else than it said: refused by name, and nothing has changed."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hosts import ALL, ROWS, RUN, Probe, answer, error, frame, greeting, host, made, step, welcome

from rookery.data import Data
from rookery.engines.frames import VERSION, pack, unpack
from rookery.errors import WriteError
from rookery.sites import Host
from rookery.sites import host as hosting
from rookery.sites.host import Own

SECRET = replace(ALL, salt="secret")


def drawn(at: Host, k: int = 1, run: str = RUN, **changes: Any) -> list[float]:
    found: list[float] = answer(at, frame(k, step("drawn", **changes), run=run, want=[2], clients=[0]))[0].tolist()
    return found


# hello


def test_another_version_is_refused(tmp_path: Path) -> None:
    versions = {"rookery": "0", "frames": VERSION}
    name, message = error(host(tmp_path), greeting(versions=versions))
    assert name == "Refused"
    assert message.endswith(f"and the server {versions}: install the same version at both")
    assert error(host(tmp_path), frame(1)) == ("StateLost", f"this site takes part in no run {RUN!r}")


@pytest.mark.parametrize("changes", [{"seed": 4}, {"min_batch": 2}, {"problem": {"kind": "another"}}, {"precision": "torch.float16"}])
def test_a_run_that_goes_on_with_other_words_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    at = host(tmp_path)
    assert welcome(at) | {"fresh": False} == welcome(at)
    for each in (at, host(tmp_path)):
        assert error(each, greeting(**changes)) == ("Refused", f"run {RUN!r} was begun here with other words; begin another run")
        assert welcome(each)["counter"] == 0


def test_a_run_that_goes_on_with_other_rows_is_refused(tmp_path: Path) -> None:
    """A fit keeps the trials that it has made, which were of the rows of then."""
    def changed(words: dict[str, Any]) -> Any:
        problem, data = made(words)
        name, column = next((name, column) for name, column in data.fields.items() if column.is_floating_point())
        return problem, Data(data.fields | {name: column + 1}, data.names, data.sizes)

    at, other = host(tmp_path), host(tmp_path, owner=Own(changed))
    welcome(at)
    sentence = f"run {RUN!r} was begun here with other rows; begin another run"
    assert error(other, greeting()) == ("Refused", sentence)
    assert error(other, frame(1)) == ("Refused", sentence)
    assert welcome(at)["counter"] == 0
    assert welcome(other, "another") == welcome(host(tmp_path, owner=Own(changed)), "another")


def test_a_run_that_goes_on_with_other_rows_held_out_is_refused(tmp_path: Path) -> None:
    def held_out(more: float) -> Any:
        def rows(words: dict[str, Any]) -> Any:
            problem, data = made(words)
            return problem, data.with_splits(test=Data.from_parts({"b": {"u": torch.tensor([[1.0 + more]], dtype=torch.float64)}}))

        return host(tmp_path, owner=Own(rows))

    welcome(held_out(0.0))
    assert error(held_out(1.0), greeting()) == ("Refused", f"run {RUN!r} was begun here with other rows; begin another run")
    assert welcome(held_out(0.0))["counter"] == 0


@pytest.mark.parametrize("changes", [{"seed": -1}, {"seed": True}, {"min_batch": 2.5}, {"problem": []}, {"precision": "torch.int8"},
                                     {"precision": None}, {"versions": None}])
def test_a_hello_of_another_form_is_refused_and_begins_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    at = host(tmp_path)
    assert error(at, greeting(**changes))[0] == "FrameError"
    assert not list(tmp_path.glob("*/run.json"))
    assert error(at, frame(1))[0] == "StateLost"


@pytest.mark.parametrize("name", ["", "x" * 101, "x" * 10_000_000, "a\nb", "\x1b[2J", "\ud800", None, 3, ["x" * 100_000]])
def test_a_name_that_no_run_may_have(tmp_path: Path, name: Any) -> None:
    at = host(tmp_path)
    for asked in (greeting(name), frame(1, run=name)):
        reply = at.answer(asked)
        assert unpack(reply)[0]["error"][0] == "FrameError"
        assert len(reply) < 5000
    assert [path.name for path in tmp_path.iterdir()] == ["refused.jsonl"]
    assert (tmp_path / "refused.jsonl").stat().st_size < 10_000


@pytest.mark.parametrize("name", ["../x", "/etc", "..", "ö", "a" * 100, "C:\\x", "run.json"])
def test_an_odd_name_has_a_folder_inside_the_sites(tmp_path: Path, name: str) -> None:
    at = host(tmp_path / "inside")
    welcome(at, name)
    assert drawn(at, run=name)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert at.place(name).parent == tmp_path / "inside"


def test_a_frame_before_a_hello_is_refused(tmp_path: Path) -> None:
    at = host(tmp_path)
    for asked in (frame(1, step()), pack({"run": RUN, "roll": True}, {})):
        assert error(at, asked) == ("StateLost", f"this site takes part in no run {RUN!r}")


def test_what_is_no_frame_is_refused(tmp_path: Path) -> None:
    at = host(tmp_path)
    for asked in (b"", b"RKR1", b"\0" * 100, greeting()[:-1]):
        assert error(at, asked)[0] == "FrameError"
    assert (tmp_path / "refused.jsonl").read_text().count("FrameError") == 4


def test_the_words_of_an_owners_error_stay_at_the_site(tmp_path: Path) -> None:
    def fails(asked: dict[str, Any]) -> Any:
        raise ValueError("could not convert string 'Mrs Smith'")

    at = host(tmp_path, owner=Own(fails))
    assert error(at, greeting()) == ("EngineError", "ValueError; the site's log has its words")
    assert "Mrs Smith" in (tmp_path / "refused.jsonl").read_text()


def test_the_digest_of_rows_says_nothing_to_who_guesses_them(tmp_path: Path) -> None:
    """It is that of the run, before and after a restart."""
    secret = [welcome(host(tmp_path / "secret", SECRET), run)["digest"] for run in ("one", "one", "two")]
    assert secret[0] == secret[1] != secret[2]
    open_ = [welcome(host(tmp_path / "none"), run)["digest"] for run in ("one", "two")]
    assert open_[0] == open_[1]


# draws


def test_under_a_secret_salt_the_rows_are_not_those_that_a_server_predicts(tmp_path: Path) -> None:
    calls = range(1, 9)
    announced, found = {}, {}
    for salt in ("none", "secret"):
        for copy in ("one", "two"):
            at = host(tmp_path / salt / copy, replace(ALL, salt=salt))  # type: ignore[arg-type]
            announced[salt, copy] = welcome(at)["salt"]
            found[salt, copy] = [drawn(at, k, call=k) for k in calls]
    assert announced == {(salt, copy): salt for salt in ("none", "secret") for copy in ("one", "two")}
    assert found["none", "one"] == found["none", "two"]
    for copy in ("one", "two"):
        assert not any(a == b for a, b in zip(found["secret", copy], found["none", "one"], strict=True))
    assert not any(a == b for a, b in zip(found["secret", "one"], found["secret", "two"], strict=True))


def test_the_salt_is_kept_over_a_restart_where_nobody_else_can_read_it(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, SECRET))
    before = [drawn(at, k, call=7) for k in (1, 2)]
    again = host(tmp_path, SECRET)
    assert welcome(again)["digest"] == welcome(at)["digest"]
    assert [drawn(again, k, call=7) for k in (3, 4)] == before
    file = at.place(RUN) / "run.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    salt = file.read_text().rpartition(" ")[2].rstrip("}")
    assert int(salt) > 0
    assert all(salt.encode() not in at.answer(asked) for asked in (greeting(), pack({"run": RUN, "roll": True}, {})))


def test_a_salt_that_could_not_be_kept_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = host(tmp_path, SECRET)
    with monkeypatch.context() as full:
        full.setattr(hosting, "write_whole", _full)
        assert error(at, greeting())[0] == "WriteError"
    assert error(at, frame(1))[0] == "StateLost"
    welcome(at)
    before = drawn(at, 1, call=7)
    assert drawn(host(tmp_path, SECRET), 2, call=7) == before


def _full(*more: Any) -> None:
    raise WriteError("no space left on device")


def test_a_run_without_a_salt_ends_where_the_rules_ask_for_one(tmp_path: Path) -> None:
    welcome(host(tmp_path))
    for asked in (greeting(), frame(1)):
        assert error(host(tmp_path, SECRET), asked)[0] == "Refused"
    welcome(host(tmp_path / "other", SECRET))
    assert welcome(host(tmp_path / "other", ALL))["salt"] == "secret"


@pytest.mark.parametrize(("own", "asked"), [(8, 1), (1, 8), (8, 5)])
def test_the_larger_min_batch_holds(tmp_path: Path, own: int, asked: int) -> None:
    at = host(tmp_path, replace(ALL, min_batch=own))
    assert welcome(at, min_batch=asked)["min_batch"] == 8
    name, message = error(at, frame(1, step("drawn", program=Probe(7)), want=[2]))
    assert name == "FewRows"
    assert "min_batch=8" in message
    assert "a batch of 7 was drawn" in message
    rows = drawn(at, 2, program=Probe(8))
    assert len(set(rows)) == 8


def test_no_call_draws_a_row_twice_under_min_batch(tmp_path: Path) -> None:
    at = host(tmp_path, replace(ALL, min_batch=5))
    welcome(at)
    found = [drawn(at, k, program=Probe(5), call=2**62 + k) for k in range(1, 40)]
    assert all(len(set(rows)) == 5 for rows in found)
    assert len(set(map(tuple, found))) > 30


# runs


def test_two_runs_are_apart(tmp_path: Path) -> None:
    """Values, counters and checkpoints of one cannot be reached from the other."""
    at = host(tmp_path)
    for run in ("one", "two"):
        welcome(at, run)
    save = {"op": "save", "tag": "tag", "ids": [2]}
    assert answer(at, frame(1, step(out=2), run="one", want=[2]))[0].tolist() == [1.0]
    answer(at, frame(2, save, run="one", base=1, clients=[]))
    assert error(at, frame(1, run="two", base=1))[0] == "StateLost"
    assert error(at, frame(1, run="two", want=[2])) == ("StateLost", "value 2 is not at this site")
    load = {"op": "load", "tag": "tag", "ids": [[2, 2]]}
    assert error(at, frame(1, load, run="two", clients=[])) == ("StateLost", "state lost: no checkpoint 'tag' at this site")
    answer(at, frame(1, step(out=9), run="two", forget=["tag"]))
    answer(at, frame(3, load, run="one", clients=[]))
    assert answer(at, frame(4, run="one", base=3, want=[2]))[0].tolist() == [1.0]
    assert error(at, frame(2, run="two", base=1, want=[2]))[0] == "StateLost"
    assert [unpack(at.answer(pack({"run": run, "roll": True}, {})))[0]["counter"] for run in ("one", "two")] == [4, 1]


def test_a_restarted_host_says_what_is_lost_and_goes_on_counting(tmp_path: Path) -> None:
    """Also where the frame had been executed, and only its reply was lost: the server would else take it for a mistake of its own."""
    welcome(at := host(tmp_path))
    first, second = frame(1, step(), want=[2]), frame(2, step("drawn", out=3), base=1, want=[3])
    for asked in (first, second):
        assert at.answer(asked) == at.answer(asked)
    again = host(tmp_path)
    for asked in (first, second, frame(3, base=2)):
        name, message = error(again, asked)
        assert name == "StateLost"
        assert message.startswith("state lost: frame")
    assert welcome(again)["counter"] == 2
    assert drawn(again, 3)


def test_the_run_that_was_asked_longest_ago_leaves_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "MOST_RUNS", 3)
    at = host(tmp_path)
    for run in ("one", "two", "three"):
        welcome(at, run)
        answer(at, frame(1, step(), run=run))
    answer(at, frame(2, run="one", base=1))
    welcome(at, "four")
    assert list(at.runs) == ["three", "one", "four"]
    answer(at, frame(3, run="one", base=2, want=[2]))
    assert error(at, frame(2, run="two", base=1))[0] == "StateLost"
    assert len(at.runs) == 3
    answer(at, frame(2, run="two"))


def test_no_more_runs_than_the_rules_allow(tmp_path: Path) -> None:
    at = host(tmp_path, replace(ALL, runs=2))
    welcome(at, "one")
    welcome(at, "two")
    for each in (at, host(tmp_path, replace(ALL, runs=2))):
        assert error(each, greeting("three")) == ("Refused", "2 runs may be begun here, and they have been")
        assert welcome(each, "one")["counter"] == 0


def test_the_owners_function_hears_the_servers_words(tmp_path: Path) -> None:
    heard = []

    def listening(asked: dict[str, Any]) -> tuple[Any, Data]:
        heard.append(asked)
        return made(asked)

    at = host(tmp_path, owner=Own(listening))
    assert welcome(at, problem={"case": 3})["clients"] == [["a", ROWS], ["b", ROWS]]
    assert heard == [{"case": 3}]


def test_a_mistake_in_a_function_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    at = host(tmp_path)
    welcome(at)
    answer(at, frame(1, step()))
    site = at.runs[RUN].site
    before = site.versions, site.counter, site.last
    name, message = error(at, frame(2, step("same", out=3), step("fails", out=4), base=1))
    assert (name, message) == ("EngineError", "ZeroDivisionError; the site's log has its words")
    assert (site.versions, site.counter, site.last) == before
    assert torch.equal(answer(at, frame(3, base=1, want=[2]))[0], torch.ones(1, dtype=torch.float64))
