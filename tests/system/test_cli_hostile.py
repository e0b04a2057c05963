"""Odd words, odd files and odd moments at the command line: a sentence and an exit code, never a trace, never silence."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from running import GOOD, changed, command, toml

from rookery import FedAvg, Federation
from rookery import report as reports
from rookery.problems import testproblems as known
from rookery.studies import parse, read
from rookery.studies.build import build
from rookery.training import run


@pytest.mark.parametrize(("arguments", "words"), [
    (["run", "good.toml", "--out", "a-file"], "a-file is not a folder, and a run needs one of its own; name another with --out"),
    (["run", "good.toml", "--out", "a-file/below"], "a-file/below is not a folder"),
    (["compare", "good.toml", "--out", "a-file"], "a-file is not a folder"),
    (["run", "good.toml", "--minutes", "-1"], "--minutes must not be negative; got -1.0"),
    (["run", "good.toml", "--minutes", "nan"], "--minutes must not be negative; got nan"),
    (["federate", "good.toml", "--on", "ray", "--minutes", "-1", "--dry-run"], "--minutes must not be negative; got -1.0"),
    (["run", "good.toml", "--set", "run.every=0"], r"\[run\]: every is a number of rounds, at least 1; got 0"),
    (["run", "good.toml", "--set", "run.save_every=0"], r"\[run\]: save_every is a number of rounds, at least 1; got 0"),
    (["run", "good.toml", "--track", "wandb"], "tracked by tensorboard or mlflow"),
    (["compare", "good.toml", "--grid", "algorithm.lr=0.1", "--grid", "algorithm.lr=0.3"], "names each entry once; .* algorithm.lr in one"),
    (["compare", "good.toml", "--grid", "algorithm.lr=0.1,fast"], "good: algorithm.lr must be a number .* given 'fast'"),
    (["compare", "good.toml", "--by", "validation AP"], "good has no metric 'validation AP'"),
    (["report", "empty"], "empty/history.jsonl is missing; a report needs the folder of a run that has ended"),
    (["report", "nowhere"], "nowhere is not a folder")], ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_a_sentence_before_any_work(arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.toml").write_text(toml(GOOD))
    Path("a-file").write_text("")
    Path("empty").mkdir()
    monkeypatch.setattr("rookery.studies.build.Job.run", None)
    assert command(monkeypatch, *arguments) == 2
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert re.search(words, told.err.replace("\n", " ")), told.err
    assert "to come" not in told.out
    assert Path("a-file").read_text() == ""


def test_a_folder_that_may_only_be_read_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.toml").write_text(toml(GOOD))
    genuine = Path.open

    def refuse(self: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        if "r" not in mode:
            raise PermissionError(13, "Permission denied", str(self))
        return genuine(self, mode, *rest, **named)

    monkeypatch.setattr(Path, "open", refuse)
    assert command(monkeypatch, "run", str(tmp_path / "good.toml"), "--out", str(tmp_path / "out")) == 2
    assert "out cannot be written to (Permission denied); name another folder with --out" in capsys.readouterr().err.replace("\n", " ")


def test_a_description_with_a_byte_order_mark_and_other_line_ends(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(toml(GOOD).replace("\n", "\r\n").encode("utf-8-sig"))
    assert read(tmp_path / "run.toml") == parse(GOOD)


def test_no_minutes_at_all_leave_a_run_to_go_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a run.toml").write_text(toml(GOOD))
    words = ["run", str(tmp_path / "a run.toml"), "--out", str(tmp_path / "läuft noch")]
    assert command(monkeypatch, *words, "--minutes", "0") == 0
    assert f"rookery report '{tmp_path / 'läuft noch'}'" in capsys.readouterr().out
    assert json.loads((tmp_path / "läuft noch" / "about.json").read_text())["reason"] == "minutes"
    assert command(monkeypatch, *words, "--resume") == 0
    assert json.loads((tmp_path / "läuft noch" / "about.json").read_text())["rounds"] == 4


def test_ctrl_c_in_the_first_evaluation_ends_before_the_first_round(tmp_path: Path) -> None:
    k, algorithm = known.minimization(), FedAvg(0.1, 2, 2)

    def evaluate(state: Any) -> dict[str, float]:
        if not (tmp_path / "state.ckpt").exists():
            os.kill(os.getpid(), signal.SIGINT)
        return {"norm": float(state.x.norm())}

    fed = Federation(k.problem, k.data, engine="loop")
    result = run(algorithm, fed, algorithm.init(fed, k.x0), 5, evaluate, 1, folder=tmp_path)
    assert (result.reason, result.rounds, len(result.history)) == ("interrupted", 0, 1)
    fed, whole = Federation(k.problem, k.data, engine="loop"), Federation(k.problem, k.data, engine="loop")
    resumed = run(algorithm, fed, algorithm.init(fed, k.x0), 5, evaluate, 1, folder=tmp_path, resume=True)
    unbroken = run(algorithm, whole, algorithm.init(whole, k.x0), 5, evaluate, 1)
    assert torch.equal(resumed.state.x, unbroken.state.x)
    assert resumed.column("norm") == unbroken.column("norm")


@pytest.mark.parametrize("place", ["rookery.studies.job.Job.initial_state", "rookery.cli.commands._coming"])
def test_ctrl_c_before_there_is_anything_to_keep(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    (tmp_path / "run.toml").write_text(toml(GOOD))
    with monkeypatch.context() as patched:
        patched.setattr(place, interrupt)
        assert command(patched, "run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")) == 130
    assert "interrupted before there was anything to keep; the same command begins anew" in capsys.readouterr().err.replace("\n", " ")
    assert command(monkeypatch, "run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")) == 0


def test_a_site_without_rows_that_count_for_fairness_has_no_gap(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    ill = [int(site == "a" and r.random() < 0.5) for site in "ab" for _ in range(60)]  # nobody at the second site
    lines = [f"{r.normal() + y:.2f},{r.choice(['f', 'm'])},{'ab'[i // 60]},{y}" for i, y in enumerate(ill)]
    (tmp_path / "mine.csv").write_text("\n".join(["age,sex,site,ill", *lines]))
    tree = changed(data={"name": ..., "csv": str(tmp_path / "mine.csv"), "label": "ill", "keep": ["sex"], "site": "site"},
                   sites={"how": "column"}, objective={"name": "fair", "field": "sex"}, algorithm={"name": "FedDRO"},
                   federation={"engine": "loop"})
    build(parse(tree)).run(tmp_path / "out", "x")
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert ["gap" in row for row in about["sites"]] == [True, False]
    assert "gap" in reports.write([reports.load(tmp_path / "out")], tmp_path / "page.html").read_text()
