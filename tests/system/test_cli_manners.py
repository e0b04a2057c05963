"""How commands that train behave: quietly, as JSON, without doing anything, with a log, and with their progress."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console
from running import changed, command, toml

from rookery.cli import manners
from rookery.cli.manners import Bar, duration, speaking
from rookery.errors import ConfigError

RARE = {"data": {"name": "breast-cancer"}, "federation": {"engine": "loop"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(toml(changed(**RARE)))
    return tmp_path / "run.toml"


def ledger(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "about.json").read_text())["ledger"]["train"]
    return found


def test_json_is_all_that_is_printed_and_says_what_the_run_came_to(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                   capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "run", str(file), "--out", str(tmp_path / "out"), "--json", "--seed", "3") == 0
    told = json.loads(capsys.readouterr().out)
    about, account = json.loads((tmp_path / "out" / "about.json").read_text()), ledger(tmp_path / "out")
    assert (told["folder"], told["reason"], told["rounds"]) == (str(tmp_path / "out"), "rounds", 4)
    assert (told["exchanges"], told["bytes"]) == (account["exchanges"], account["bytes_up"] + account["bytes_down"])
    assert Path(told["bundle"]).is_dir()
    assert about["seed"] == 3
    last = json.loads((tmp_path / "out" / "history.jsonl").read_text().splitlines()[-1])
    assert f"the model: rookery predict {told['bundle']} new.csv -o out.csv" in told["said"]
    assert told["scores"] == {name: value for name, value in last.items() if name.startswith(("test ", "validation "))}


def test_quiet_says_nothing_and_does_everything(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "run", str(file), "--out", str(tmp_path / "out"), "--quiet") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert all(line.startswith("! ") for line in said.err.splitlines())  # warnings
    assert (tmp_path / "out" / "bundle").is_dir()
    assert command(monkeypatch, "run", str(file), "--out", str(tmp_path / "out"), "--quiet") == 2
    assert "holds a run already" in capsys.readouterr().err


def test_a_dry_run_writes_nothing_and_foretells_the_ledger(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(monkeypatch, "run", "run.toml", "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]
    assert command(monkeypatch, "run", "run.toml", "--out", "out", "-q") == 0
    account = ledger(Path("out"))
    assert told["forecast"] == {"exchanges": account["exchanges"], "bytes": account["bytes_up"] + account["bytes_down"], "how": "exactly"}
    assert (told["sites"], told["classes"], sum(told["rows"].values()), told["parameters"]) == (4, 2, 569, 62)
    assert told["minutes"] > 0
    capsys.readouterr()
    assert command(monkeypatch, "run", "run.toml", "--dry-run") == 0
    assert "nothing was written" in capsys.readouterr().out
    assert command(monkeypatch, "run", "run.toml", "--dry-run", "--set", "algorithm.lr=1e38") == 3
    assert "lower the learning rate" in capsys.readouterr().err


def test_a_comparison_has_the_same_manners(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["compare", "run.toml", "--seeds", "2", "--seed", "5", "--jobs", "1", "--out", "out", "--no-opponents"]
    assert command(monkeypatch, *words, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["processes"]) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]
    assert command(monkeypatch, *words, "--quiet") == 0
    assert capsys.readouterr().out == ""
    accounts = [ledger(tmp_path / "out" / "run" / f"seed-{seed}") for seed in (5, 6)]
    assert told["forecast"]["exchanges"] == sum(account["exchanges"] for account in accounts)
    assert command(monkeypatch, *words, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seeds"], told["methods"][0]["ends"]) == ([5, 6], {"rounds": 2})
    assert told["methods"][0]["scores"]["test accuracy"].keys() == {"mean", "std"}
    assert Path(told["page"]).is_file()
    assert command(monkeypatch, *words, "--dry-run", "--by", "validation acuracy") == 2
    assert "did you mean 'accuracy'" in capsys.readouterr().err


def test_a_log_comes_with_its_level_and_goes_with_the_command(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    for level, lines in (("debug", True), ("info", True), ("warning", False)):
        assert command(monkeypatch, "run", str(file), "--out", str(tmp_path / level), "--log-level", level, "--json") == 0
        said = capsys.readouterr()
        assert ("INFO rookery.training.loop: after round 4" in said.err) == lines
        assert ("DEBUG rookery.training.loop: round 4" in said.err) == (level == "debug")
        json.loads(said.out)
    assert not logging.getLogger("rookery").handlers
    assert command(monkeypatch, "run", str(file), "--log-level", "inf") == 2
    assert "--log-level is one of debug, info, warning, error; did you mean 'info'?" in capsys.readouterr().err


def test_json_has_null_where_a_number_is_not_finite_and_nothing_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    def end(error: Exception) -> None:
        with speaking("run", False, True, "error") as voice:
            voice.say("a sentence", scores={"p": float("nan"), "list": (1, float("inf"))})
            raise error

    with pytest.raises(typer.Exit):
        end(typer.Exit(3))
    assert json.loads(capsys.readouterr().out)["scores"] == {"p": None, "list": [1, None]}
    with pytest.raises(ConfigError):
        end(ConfigError("no"))
    assert capsys.readouterr().out == ""


# progress


class Clock:
    """Work of some seconds a piece."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(manners, "time", SimpleNamespace(monotonic=lambda: self.now))

    def work(self, bar: Bar, number: int, each: float, first: float = 0.0) -> None:
        bar(0, number)
        for done in range(1, number + 1):
            self.now += each + (first if done == 1 else 0)
            bar(done, number)


def test_lines_of_progress_are_ten_seconds_and_a_tenth_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown = Clock(monkeypatch), list[tuple[int, float, str]]()
    bar = Bar(lambda done, number, beside: shown.append((done, clock.now, beside)), manners.LINES, manners.PART)
    clock.work(bar, 1000, 0.001)
    assert shown == []
    clock.now = 0.0
    clock.work(bar, 2000, 1.0)
    assert [done for done, _, _ in shown] == [10, *range(210, 2001, 200)]
    shown.clear()
    clock.now = 0.0
    clock.work(bar, 20, 2.0)
    assert all(b[1] - a[1] >= 10 for a, b in pairwise(shown))


def test_the_time_left_follows_from_the_pieces_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shown = Clock(monkeypatch), list[str]()
    bar = Bar(lambda done, number, beside: shown.append(beside), 0.0, 0.0)
    bar.beside = "AUC 0.9"
    clock.work(bar, 4, 10.0, first=500.0)
    assert shown == ["AUC 0.9", "AUC 0.9", "AUC 0.9, 20 s left", "AUC 0.9, 10 s left", "AUC 0.9, 0 s left"]
    shown.clear()
    clock.work(bar, 3, 7.0)  # other work, with a clock of its own
    bar(3, 4)
    assert shown == ["AUC 0.9", "AUC 0.9", "AUC 0.9, 7 s left", "AUC 0.9, 0 s left", "AUC 0.9"]
    for done, number in ((1, 9), (2, 8), (3, 9)):  # what there is to do is estimated anew
        clock.now += 3.0
        bar(done, number)
    assert shown[-1] == "AUC 0.9, 18 s left"
    assert [duration(99), duration(100), duration(5699), duration(5701)] == ["99 s", "2 minutes", "95 minutes", "1.6 hours"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_moves_every_round_on_a_terminal_and_elsewhere_there_are_no_control_characters(
        terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(manners, "errors", Console(file=written, force_terminal=terminal, width=100))
    clock = Clock(monkeypatch)
    with speaking("run", False, False, "error") as voice, voice.progress("round") as bar:
        clock.work(bar, 30, 6.0)
    assert ("\x1b" in written.getvalue()) == terminal
    assert "30/30" in written.getvalue() if terminal else written.getvalue().splitlines()[0] == "round 2 of 30, 3 minutes left"
    written.seek(0), written.truncate()
    with speaking("run", True, False, "error") as voice, voice.progress("round") as bar:
        clock.work(bar, 30, 6.0)
    assert written.getvalue() == ""


# completion


def test_names_are_completed_without_anything_heavy() -> None:
    program = """
import os, sys
os.environ |= {"_ROOKERY_COMPLETE": "complete_bash", "COMP_WORDS": "rookery show Fed", "COMP_CWORD": "2"}
sys.argv = ["rookery"]
from rookery.cli import main
try:
    main()
except SystemExit:
    pass
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"FedAvg", "FedDRO"} <= set(done.stdout.split())
