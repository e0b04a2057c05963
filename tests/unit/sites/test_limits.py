"""How much a server may ask: what comes to nothing counts as well, and what is asked again, and nothing is written down without end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from hosts import ALL, RUN, answer, error, frame, greeting, host, loss, step, welcome
from hosts import made as rows
from torch import Tensor

from rookery import Data, Minimization, Model, Program
from rookery.data import Batch
from rookery.data.sampling import Replacement, Selection
from rookery.engines.frames import pack, unpack
from rookery.engines.roster import hello
from rookery.errors import ProblemError
from rookery.federation import Client
from rookery.federation import client as clients
from rookery.metrics.federated import RowScores
from rookery.metrics.resampling import DecidedCells
from rookery.objectives import maml
from rookery.sites import Host
from rookery.sites import host as hosts_of_runs
from rookery.sites import run as run_at_site
from rookery.sites.audit import Audit, Entry
from rookery.sites.host import Own


def made(at: Host, *ops: dict[str, Any], k: int = 1, **changes: Any) -> tuple[str, str]:
    return error(at, frame(k, *ops, **changes))


def test_frames_that_come_to_nothing_count(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, frames=3)))
    for _ in range(3):
        assert made(at, step(), want=[99])[0] == "StateLost"
    for each in (at, again := host(tmp_path, replace(ALL, frames=3))):
        if each is again:
            welcome(again)
        assert made(each, step()) == ("Refused", "a run may have 3 frames here, and this one has had them")


def test_frames_that_are_sent_again_count_also_when_the_run_was_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_of_runs, "MOST_RUNS", 1)
    welcome(at := host(tmp_path, replace(ALL, megabytes=0.2)))
    asked = frame(1, step(), want=[2], size=5_000, clients=[0])
    assert "error" not in unpack(at.answer(asked))[0]
    assert "error" not in unpack(at.answer(asked))[0]
    used = at.runs[RUN].account.bytes
    welcome(at, "another")
    welcome(at)
    assert at.runs[RUN].account.bytes > used
    assert made(at, step(), size=5_000)[0] == "StateLost"  # what it held is gone with the process's memory
    assert made(at, step(), size=10_000)[0] == "Refused"
    assert error(at, asked)[0] == "Refused"


def test_a_run_at_work_is_not_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be opened a second time, with an account of its own."""
    monkeypatch.setattr(hosts_of_runs, "MOST_RUNS", 1)
    begun, end = Event(), Event()

    def waits(asked: dict[str, Any]) -> tuple[Minimization, Data]:
        problem, data = rows(asked)
        return replace(problem, sampling=Told(lambda: begun.set() or end.wait(30))), data

    welcome(at := host(tmp_path, owner=Own(waits)))
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(at.answer, frame(1, step("drawn"), clients=[0]))
        assert begun.wait(30)
        own = at.runs[RUN]
        welcome(at, "another")
        assert list(at.runs) == [RUN, "another"]  # until the first one has ended
        assert at.runs[RUN] is own
        end.set()
        assert "error" not in unpack(reply.result(30))[0]
    welcome(at, "a third")
    assert list(at.runs) == ["a third"]
    assert own.gone
    assert own.answer(b"", ({}, {})) is None
    assert not own.greeted(Entry(RUN, 0, []), 1)
    assert made(at, step(), k=2, base=1)[0] == "StateLost"
    assert at.runs[RUN].account.frames == 1


def test_rows_that_take_long_to_read_hold_no_other_run(tmp_path: Path) -> None:
    begun, end = Event(), Event()

    def waits(asked: dict[str, Any]) -> tuple[Minimization, Data]:
        if asked:
            begun.set()
            assert end.wait(30)
        return rows(asked)

    at = host(tmp_path, replace(ALL, runs=2), owner=Own(waits))
    slow = pack({"run": "slow", "hello": hello({"large": True}, 3, None, 1)}, {})
    with ThreadPoolExecutor(2) as pool:
        replies = [pool.submit(at.answer, slow) for _ in range(2)]
        assert begun.wait(30)
        welcome(at)
        answer(at, frame(1, step()))
        assert error(at, greeting("a third"))[0] == "Refused"
        end.set()
        assert [unpack(reply.result(30))[0]["welcome"]["fresh"] for reply in replies] in ([True, False], [False, True])


def test_greetings_count(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, megabytes=0.01)))
    told = [unpack(at.answer(greeting()))[0].get("error", ["welcome"])[0] for _ in range(60)]
    assert set(told) == {"welcome", "Refused"}
    assert told == sorted(told, reverse=True)


def test_greetings_that_are_refused_count_as_runs(tmp_path: Path) -> None:
    at = host(tmp_path, replace(ALL, runs=3), owner=Own(fails_at_first := Failing()))
    assert [error(at, greeting(f"run {k}"))[0] for k in range(3)] == ["EngineError"] * 3
    fails_at_first.done = True
    at = host(tmp_path, replace(ALL, runs=3), owner=Own(fails_at_first))  # its process began anew
    assert error(at, greeting()) == ("Refused", "3 runs may be begun here, and they have been or came to nothing (3)")


def test_runs_that_were_begun_count_once(tmp_path: Path) -> None:
    for again in range(2):
        at = host(tmp_path, replace(ALL, runs=2))
        for run in ("a", "b", "a"):
            welcome(at, run)
        assert error(at, greeting("c")) == ("Refused", "2 runs may be begun here, and they have been")
        if not again:
            at.greeted.unlink()  # as where a site is older, or its owner made room


def test_a_greeting_that_ends_the_process_counts(tmp_path: Path) -> None:
    def ends(asked: dict[str, Any]) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host(tmp_path, owner=Own(ends)).answer(greeting())
    at = host(tmp_path, replace(ALL, runs=1))
    assert error(at, greeting()) == ("Refused", "1 runs may be begun here, and they have been or came to nothing (1)")


class Failing:
    """An owner whose rows cannot be read at first."""

    done = False

    def __call__(self, asked: dict[str, Any]) -> Any:
        if not self.done:
            raise ValueError("Mrs Smith")
        return rows(asked)


def test_refusals_are_not_written_down_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_at_site, "MOST_REFUSALS", 5)
    monkeypatch.setattr(hosts_of_runs, "LARGEST_LOG", 1000)
    welcome(at := host(tmp_path))
    for _ in range(20):
        assert made(at, step("_own"))[0] == "FrameError"
        assert error(at, frame(1, run="x" * 100))[0] == "StateLost"
    refused = [entry.refused for entry in Audit(at.place(RUN) / "log.jsonl").entries() if entry.refused]
    assert len(refused) == 5
    assert refused[-1].endswith("; what is refused from here on is not written down")
    assert sum(file.stat().st_size for file in tmp_path.glob("refused*.jsonl")) < 4000


def test_batches_that_one_step_draws_count_as_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    welcome(at := host(tmp_path, replace(ALL, steps=50)))
    many = {**step("many"), "arguments": [{"ref": 1}, {"value": 20}]}
    answer(at, frame(1, many, clients=[0]))
    assert at.runs[RUN].account.steps == 20
    assert made(at, many, k=2, base=1) == ("Refused", "a run may take 50 steps here, or draw as many batches, and this one has, or would")
    assert at.runs[RUN].account.steps == 50  # counted as they were drawn
    monkeypatch.setattr(clients, "MOST_DRAWS", 3)
    welcome(at, "another")
    assert made(at, many, clients=[0], run="another") == ("EngineError", "AlgorithmError; the site's log has its words")


def test_columns_that_tell_rows_apart_are_named_by_no_function(tmp_path: Path) -> None:
    def persons(asked: dict[str, Any]) -> tuple[Minimization, Data]:
        number = torch.arange(40)
        held = Data.from_parts({"a": {"u": torch.zeros(40, 1), "labels": number % 2, "ward": number % 4, "person": number}})
        return Minimization(loss), held.only(np.arange(5)).with_splits(test=held)  # few rows to train on

    welcome(at := host(tmp_path, replace(ALL, min_batch=5, algorithms=("Subset",)), owner=Own(persons)))
    apart = at.runs[RUN].account.apart
    assert apart is not None
    assert not apart.known  # nothing was looked at
    nested = Subset(RowScores("test", 2, "group_dro", (("field", "person"), ("groups", 40))))
    for program in (DecidedCells("test", "person", 40, 2, 0, 0), nested):
        named = made(at, step("total", program=program) | {"arguments": [{"ref": 1}] * (1 if program is nested else 3)}, clients=[0])
        assert named[0] == "Refused"
        assert "names the column 'person', which is not one of groups here: its values have fewer than min_batch=5 rows" in named[1]
    other = step("total", program=DecidedCells("person", "ward", 4, 2, 0, 0)) | {"arguments": [{"ref": 1}] * 3}  # a split's name is none
    assert made(at, other, clients=[0])[0] == "EngineError"


def test_batches_of_functions_that_fail_count_and_none_is_drawn_beyond_the_bound(tmp_path: Path) -> None:
    drawn: list[int] = []

    def counted(asked: dict[str, Any]) -> tuple[Minimization, Data]:
        problem, data = rows(asked)
        return replace(problem, sampling=Told(lambda: drawn.append(1))), data

    welcome(at := host(tmp_path, replace(ALL, steps=50), owner=Own(counted)))
    many = {**step("many"), "arguments": [{"ref": 1}, {"value": 20}], "times": 4}
    assert made(at, many, clients=[0])[0] == "Refused"
    assert (at.runs[RUN].account.steps, len(drawn)) == (50, 49)  # 4 repetitions begin 3 times, with 46 further batches
    assert made(at, step())[0] == "Refused"


@dataclass(frozen=True)
class Told(Replacement):
    """Tells of every batch."""

    tell: Callable[[], object]

    def fetch(self, data: Data, selection: Selection) -> Batch:
        self.tell()
        return super().fetch(data, selection)


def test_one_step_asks_no_oracle_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    welcome(at := host(tmp_path))
    monkeypatch.setattr(clients, "MOST_DRAWS", 3)
    asks = {**step("asks"), "arguments": [{"ref": 1}, {"value": 3}]}
    answer(at, frame(1, asks, clients=[0]))
    assert made(at, {**asks, "arguments": [{"ref": 1}, {"value": 4}]}, k=2, base=1, clients=[0])[0] == "EngineError"
    with pytest.raises(ProblemError, match="a task is adapted to by 1 to 1000 steps of a positive size"):
        maml(Model(torch.nn.Linear(2, 2)), steps=100_000)


@dataclass(frozen=True)
class Subset(Program):
    """A program within a program."""

    inner: Program

    def total(self, c: Client, x: Tensor) -> Tensor:
        return x


def test_what_is_kept_in_files_counts(tmp_path: Path) -> None:
    welcome(at := host(tmp_path, replace(ALL, megabytes=0.1)))
    answer(at, frame(1, step(), size=1000))
    saves = [{"op": "save", "tag": f"tag{k}", "ids": [2]} for k in range(20)]
    assert made(at, *saves, k=2, base=1)[0] == "Refused"
    assert not list(at.place(RUN).glob("*.safetensors"))
    nothing = [{"op": "save", "tag": f"tag{k}", "ids": []} for k in range(30)]  # files all the same
    assert made(at, *nothing, k=2, base=1)[0] == "Refused"
