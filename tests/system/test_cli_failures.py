"""Runs that go wrong: training that explodes, folders that are taken or gone, full disks, damaged files. Each ends with a sentence."""

from __future__ import annotations

import errno
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from running import GOOD, changed, command, toml

from rookery import FedAvg, Federation, RookeryError
from rookery import report as reports
from rookery.errors import Diverged
from rookery.problems import testproblems as known
from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.compare import compare
from rookery.training import checkpoint, files, run

CANCER: dict[str, Any] = {"data": {"name": "breast-cancer"}, "model": {"name": "mlp"},
                          "algorithm": {"name": "FedAvg", "lr": 0.1, "local_steps": 3, "batch": 16}, "run": {"rounds": 6, "every": 1}}
K = known.minimization()


def exploding(lr: float, local_steps: int = 3, **sections: Any) -> dict[str, Any]:
    return changed(**{**CANCER, **sections, "algorithm": {**CANCER["algorithm"], "lr": lr, "local_steps": local_steps}})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "run.toml").write_text(toml(GOOD))
    return tmp_path / "run.toml"


# divergence

@pytest.mark.parametrize(("tree", "words"), [
    (exploding(1e4), r"in the evaluation after round \d, the validation loss is [\d.e+]+, where the run began at 0.\d+"),
    (exploding(1e20, 1), r"in the evaluation after round 1, client 'site-\d': its upload holds a non-finite value"),
    (exploding(1e38), r"in round 1, client 'site-\d': its upload holds a non-finite value"),
    (exploding(0.1, warm_up={"rounds": 3, "lr": 1e38, "local_steps": 2}), "in round 1, in the warm-up, client 'site-"),
    (exploding(0.1, warm_up={"rounds": 3, "lr": 1e6}), "in the evaluation after round 1, in the warm-up, the validation loss is"),
    (exploding(0.1, warm_up={"rounds": 3, "lr": 1e6}, run={"every": 5}), "in the evaluation after round 3, the validation loss is"),
], ids=["finite", "outputs", "upload", "warm-up", "warm-up, finite", "at the end of the warm-up"])
def test_a_run_that_explodes_ends_as_diverged_and_says_where(tree: dict[str, Any], words: str, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.toml").write_text(toml(tree))
    out = tmp_path / "out"
    assert command(monkeypatch, "run", str(tmp_path / "run.toml"), "--out", str(out)) == 3
    told = capsys.readouterr().err
    assert re.search(words, told), told
    about = json.loads((out / "about.json").read_text())
    assert about["reason"] == "diverged"
    assert re.search(words, about["failure"])
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert rows
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert rows[-1]["validation loss"] <= 1e3 * max(1, rows[0]["validation loss"])
    if not (out / "state.ckpt").exists():  # there is nothing to go on from, and nothing in the way
        assert command(monkeypatch, "run", str(tmp_path / "run.toml"), "--out", str(out)) == 3
        assert [json.loads(line)["round"] for line in (out / "history.jsonl").read_text().splitlines()] == [row["round"] for row in rows]
    assert command(monkeypatch, "report", str(out), "--out", str(tmp_path / "page.html")) == 0
    assert "diverged after" in (tmp_path / "page.html").read_text()


def test_the_state_after_a_bad_evaluation_is_that_of_the_last_good_one(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []
    values = iter([0.5, 0.4, 0.6, 1001.0])

    def evaluate(state: Any) -> dict[str, float]:
        seen.append(state.x)
        return {"loss": next(values)}

    fed, algorithm = Federation(K.problem, K.data, engine="loop"), FedAvg(0.1)
    result = run(algorithm, fed, algorithm.init(fed, K.x0), 9, evaluate, 1, folder=tmp_path, loss="loss")
    assert (result.reason, result.rounds, result.column("loss")) == ("diverged", 3, [0.5, 0.4, 0.6])
    assert result.failure == "in the evaluation after round 3, the loss is 1001, where the run began at 0.5: lower the learning rate"
    assert torch.equal(result.state.x, seen[2])
    assert torch.equal(checkpoint.load(tmp_path / "state.ckpt", algorithm, fed).x, seen[2])
    assert not torch.equal(seen[2], seen[3])


@pytest.mark.parametrize(("value", "ends"), [(999.0, "rounds"), (math.nan, "diverged"), (math.inf, "diverged")])
def test_what_counts_as_exploded(value: float, ends: str) -> None:
    fed, algorithm = Federation(K.problem, K.data, engine="loop"), FedAvg(0.1)
    values = iter([0.0, value])
    assert run(algorithm, fed, algorithm.init(fed, K.x0), 1, lambda s: {"loss": next(values)}, 1, loss="loss").reason == ends
    large = iter([5e5, 4e5])  # a run that begins there may come down from there
    assert run(algorithm, fed, algorithm.init(fed, K.x0), 1, lambda s: {"loss": next(large)}, 1, loss="loss").reason == "rounds"
    job = build(parse(GOOD))
    with pytest.raises(Diverged, match=r"outputs for 2 of 2 validation rows are not finite"):
        job.evaluation.of_rows(torch.full((2, 10), math.nan), {"labels": torch.tensor([0, 1])}, "validation")


def test_a_diverged_setting_never_wins_and_a_diverged_seed_is_told(tmp_path: Path) -> None:
    tree = exploding(0.1, run={"rounds": 2, "every": 1})
    for place, bad in enumerate((1e4, 1e15, 1e38)):
        entries = compare({"m": tree}, 1, tmp_path / str(place), {"algorithm.lr": [bad, 0.1]}, "validation AP", jobs=1)
        assert entries[0].chosen == {"algorithm.lr": 0.1}
    worse = exploding(0.1, run={"rounds": 3, "every": 1}, warm_up={"rounds": 2, "lr": 1e38})
    entries = compare({"good": tree, "bad": worse}, 1, tmp_path / "warm", jobs=1)
    assert [entry.ends for entry in entries] == [{"rounds": 1}, {"diverged": 1}]
    page = reports.write([reports.load(tmp_path / "warm" / label / "seed-0") for label in ("good", "bad")], tmp_path / "page.html")
    assert "in the warm-up" in page.read_text()
    with pytest.raises(RookeryError, match="no setting of the grid gave m a 'validation loss': every run diverged"):
        compare({"m": tree}, 1, tmp_path / "none", {"algorithm.lr": [1e15, 1e38]}, jobs=1)


# folders

HOLDER = """
import sys, time
from pathlib import Path
from rookery.training.files import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(100)
"""


def test_a_folder_in_use_is_refused_until_its_process_is_gone(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert command(monkeypatch, "run", str(file), "--out", str(out)) == 0
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(out)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for arguments in (["run", str(file), "--out", str(out), "--resume"], ["compare", str(file), "--out", str(out), "--seeds", "1"]):
            capsys.readouterr()
            assert command(monkeypatch, *arguments) == 2
            assert f"{out} is in use by another run (process {process.pid}); wait for its end" in capsys.readouterr().err
        assert command(monkeypatch, "report", str(out), "--out", str(tmp_path / "page.html")) == 2
        assert "a run is under way in it" in capsys.readouterr().err
        process.kill()
    assert command(monkeypatch, "run", str(file), "--out", str(out), "--resume") == 0


def test_a_lock_is_the_threads_own_and_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    (tmp_path / ".state.ckpt.1.part").write_text("half")
    with files.held(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        assert files.in_use(tmp_path)
        with files.held(tmp_path / "." / ""):
            pass
        assert files.in_use(tmp_path)
    assert not files.in_use(tmp_path)
    assert not files.in_use(tmp_path / "nowhere")


@pytest.mark.parametrize("there", [False, True])
def test_resume_needs_a_run(there: bool, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                            capsys: pytest.CaptureFixture[str]) -> None:
    if there:
        (tmp_path / "out").mkdir()
    assert command(monkeypatch, "run", str(file), "--out", str(tmp_path / "out"), "--resume") == 2
    assert f"there is no run in {tmp_path / 'out'} to go on with; leave --resume out" in capsys.readouterr().err
    assert (tmp_path / "out").exists() == there


def test_the_command_that_is_kept_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a run.toml").write_text(toml(GOOD))
    words = ["run", str(tmp_path / "a run.toml"), "--out", str(tmp_path / "Läufe & co"), "--set", 'model.name="linear"', "--label", "it's"]
    assert command(monkeypatch, *words) == 0
    kept = json.loads((tmp_path / "Läufe & co" / "about.json").read_text())["command"]
    assert shlex.split(kept) == ["rookery", *words]


# disks and damage

@pytest.mark.parametrize("name", ["history.jsonl", "state.ckpt", "predictions.npz", "about.json", "description.json"])
def test_a_full_disk_leaves_the_last_checkpoint_and_a_sentence(name: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert command(monkeypatch, "run", str(file), "--out", str(out)) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    _fill(monkeypatch, name)
    capsys.readouterr()
    assert command(monkeypatch, "run", str(file), "--out", str(out), "--resume", "--set", "run.rounds=8") == 2
    told = capsys.readouterr().err
    assert f"{out / name} could not be written (No space left on device)" in told
    assert ("holds the run after round" in told) == (name != "description.json")
    assert not list(out.glob(".*.part"))
    assert (out / name).read_bytes() == before[name]
    monkeypatch.undo()
    assert command(monkeypatch, "run", str(file), "--out", str(out), "--resume", "--set", "run.rounds=8") == 0


def _fill(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A disk that is full when this file is written, after half of it."""
    genuine = Path.write_bytes

    def half(self: Path, content: bytes) -> int:
        if f".{name}." in self.name:
            genuine(self, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return genuine(self, content)

    def save_file(tensors: Any, path: Path, metadata: Any = None) -> None:
        from safetensors import SafetensorError
        genuine(path, b"half")
        raise SafetensorError("No space left on device")

    def full(path: Path, line: str) -> None:
        raise files.refusal(path, OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(Path, "write_bytes", half)
    if name == "state.ckpt":
        monkeypatch.setattr("rookery.training.checkpoint.save_file", save_file)
    if name == "history.jsonl":
        monkeypatch.setattr("rookery.training.keeper.append", full)
        monkeypatch.setattr("rookery.training.keeper.write_whole", lambda *_: None)
