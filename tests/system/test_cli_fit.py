"""`rookery fit` on a small file: what it says and leaves, how it goes on, and mistakes that are answered by a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fits import csv, shorten
from running import command

import rookery
from rookery.fitting import bench

WORDS = ["--rounds", "2", "--jobs", "1", "--no-pool", "--net", "linear", "--set", "federation.engine=loop"]
COLUMNS = ["--label", "y", "--site", "site", "--positive", "b"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    shorten(monkeypatch)
    return csv(Path("tröpfchen.csv"), 160, sites=1).name


def test_json_is_all_that_is_printed_and_has_what_the_folder_has(table: str, monkeypatch: pytest.MonkeyPatch,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "fit", table, "--goal", "worst_group", *COLUMNS, "--sensitive", "sex", *WORDS, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    folder = Path("runs/fit-tröpfchen-worst_group")
    assert (told["command"], told["goal"], Path(told["folder"]), told["sites"]) == ("fit", "worst_group", folder, 1)
    assert told["fit"] == json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    assert sum(told["rows"].values()) == 160
    assert told["classes"] == ["a", "b"]
    assert [row["label"] for row in told["fit"]["rows"]] == told["methods"]
    assert told["fit"]["sentence"] in told["said"]
    assert Path(told["page"]).read_text().count(told["fit"]["kept"]) > 0
    assert rookery.load(told["bundle"]).classes == ("a", "b")
    assert any(said.startswith("the model: rookery predict ") for said in told["said"])


def test_people_get_a_table_and_a_sentence(table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "fit", table, "--goal", "accuracy", *COLUMNS, *WORDS, "--out", "out") == 0
    said = capsys.readouterr().out
    told = json.loads(Path("out/fit.json").read_text())
    assert told["sentence"] in said
    for row in told["rows"]:
        assert row["label"] in said
    assert f"{told['kept']}, kept" in said
    assert "goal accuracy: accuracy, the share of rows that are decided rightly" in said


def test_a_dry_run_and_a_quiet_one(table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", table, "--goal", "ap", *COLUMNS, *WORDS, "--out", "out"]
    assert command(monkeypatch, *words, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dry_run"], told["rounds"], told["methods"][0]) == (True, 2, "FedAvg")
    assert told["minutes"] > 0
    assert told["bytes"] > 0
    assert [path.name for path in Path().iterdir()] == [table]
    assert command(monkeypatch, *words, "--quiet") == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert all(line.startswith("! ") for line in said.err.splitlines())
    assert Path("out/bundle").is_dir()
    assert Path("out/report.html").is_file()


def test_ctrl_c_stops_and_the_same_command_goes_on(table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words, train, made = ["fit", table, "--goal", "accuracy", *COLUMNS, *WORDS, "--out", "out", "--json"], bench.train, list[Any]()

    def some(*arguments: Any, **options: Any) -> Any:
        made.append(arguments)
        if len(made) == 4:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr(bench, "train", some)
    assert command(monkeypatch, *words) == 130
    said = capsys.readouterr()
    assert json.loads(said.out)["reason"] == "interrupted"
    assert "interrupted; the same command goes on with what is in out" in said.err
    assert not Path("out/fit.json").exists()
    assert command(monkeypatch, *words) == 0
    number = len(Path("out/trials.jsonl").read_text().splitlines())
    assert len(made) == number + 1  # one was begun twice
    assert command(monkeypatch, *words) == 0
    assert len(made) == number + 1
    capsys.readouterr()
    assert command(monkeypatch, *words[:3], "auc", *words[4:]) == 2
    assert "out holds a fit of other rows, another goal or other options" in capsys.readouterr().err


def test_several_files_are_sites_and_a_description_gives_its_rows(table: str, monkeypatch: pytest.MonkeyPatch,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = Path(table).read_text().splitlines()
    plain = [",".join(cell for place, cell in enumerate(line.split(",")) if place != 4) for line in [head, *lines]]
    for name, part in (("nord", plain[1:60]), ("süd", plain[60:])):
        Path(f"{name}.csv").write_text("\n".join([plain[0], *part]))
    dry = ["--dry-run", "--json", *WORDS]
    assert command(monkeypatch, "fit", "nord.csv", "süd.csv", "--goal", "auc", "--label", "y", "--positive", "b", *dry) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sites"], sum(told["rows"].values())) == (2, 160)
    Path("d.toml").write_text(f'[data]\ntable = "{table}"\nlabel = "y"\npositive = ["b"]\nsite = "site"\n[algorithm]\nname = "no such"\n')
    assert command(monkeypatch, "fit", "d.toml", "--goal", "fair", "--sensitive", "sex", *dry) == 0
    assert sum(json.loads(capsys.readouterr().out)["rows"].values()) == 160


def test_an_npz_file(table: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    r = np.random.default_rng(0)
    np.savez("rows.npz", inputs=r.normal(size=(90, 3)).astype("f4"), labels=np.arange(90) % 2, who=np.arange(90) % 3)
    assert command(monkeypatch, "fit", "rows.npz", "--goal", "auc", "--site", "who", "--dry-run", "--json", *WORDS) == 0
    assert json.loads(capsys.readouterr().out)["sites"] == 3


@pytest.mark.parametrize(("words", "said"), [
    (["TABLE", "--goal", "auk", *COLUMNS], "there is no goal 'auk'; did you mean 'auc'"),
    (["TABLE", "--goal", "auc"], "say which column of TABLE is to be predicted, with --label"),
    (["TABLE", "--goal", "auc", "--label", "z"], "'z'"), (["TABLE", "--goal", "auc", *COLUMNS[:3], "ward"], "'ward'"),
    (["TABLE", "--goal", "fair", *COLUMNS], "the goal fair is about groups: name their column as sensitive"),
    (["TABLE", "--goal", "fair", *COLUMNS, "--sensitive", "race"], "'race'"),
    (["TABLE", "--goal", "fair", *COLUMNS, "--sensitive", "u"], "'u' has .* values, and groups are 50 at most"),
    (["TABLE", "--goal", "auc", "--label", "one"], "there must be two classes at least"),
    (["TABLE", "--goal", "auc", "--label", "three"], "the goal auc is for two classes, and there are 3: name the positive ones"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--minutes", "-1"], "minutes must be positive; got -1"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--rounds", "0"], "rounds must be at least 1"),
    (["TABLE", "--goal", "fair", *COLUMNS, "--sensitive", "sex", "--kind", "equalized odds"], "did you mean 'equalised odds'"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--max-fpr", "0"], "max_fpr a rate above 0"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--positive", "c"], "'c'"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--net", "mpl"], "did you mean 'mlp'"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--set", "algorithm.lr=3"], r"entries of data, .*\[algorithm\], and how to train a fit finds"),
    (["TABLE", "--goal", "auc", *COLUMNS, "--set", "fedration.seed=3"], "did you mean 'federation'"),
    (["empty.csv", "--goal", "auc", "--label", "y"], "empty.csv"), (["header.csv", "--goal", "auc", "--label", "y"], "header.csv"),
    (["nowhere.csv", "--goal", "auc", "--label", "y"], "nowhere.csv"), (["nowhere.toml", "--goal", "auc"], "nowhere.toml"),
    (["breast-cancer", "other.csv", "--goal", "auc"], "several files are those of one table"),
    (["breast-cancer", "--goal", "auc", "--out", "TABLE"], "is not a folder")])
def test_mistakes_are_answered_by_a_sentence(words: list[str], said: str, table: str, monkeypatch: pytest.MonkeyPatch,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path(table).read_text().splitlines()
    Path(table).write_text("\n".join([f"{lines[0]},one,three", *(f"{line},x,{'pqr'[k % 3]}" for k, line in enumerate(lines[1:]))]))
    Path("empty.csv").write_text("")
    Path("header.csv").write_text(lines[0] + "\n")
    monkeypatch.setattr(bench, "train", None)
    assert command(monkeypatch, "fit", *(word.replace("TABLE", table) for word in words)) == 2
    told = capsys.readouterr()
    assert re.search(said.replace("TABLE", table), " ".join(told.err.split())), told.err
    assert "Traceback" not in told.err
    assert not Path("runs").exists() or not list(Path("runs").rglob("*.json"))
