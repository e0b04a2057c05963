"""What is one's own, named as module:name: algorithm, objective, net, metric and sampler; and a sentence for each mistake."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from own import MINE
from running import changed, command, toml

from rookery import FedAvg, RookeryError
from rookery.errors import ConfigError
from rookery.studies import algorithms, describe, parse, read
from rookery.studies.build import build
from rookery.studies.compare import compare


@pytest.fixture
def mine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A module beside the description, under a name that no other test has."""
    name = f"mine{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MINE.replace("{neighbour}", f"{name}_near"))
    (tmp_path / f"{name}_near.py").write_text("def fail():\n    return 1 / 0\n")
    path = list(sys.path)
    yield name
    sys.path[:] = path


def whole(mine: str, **sections: Any) -> dict[str, dict[str, Any]]:
    own: dict[str, dict[str, Any]] = {
        "algorithm": {"name": f"{mine}:Halved", "part": 0.25}, "objective": {"name": f"{mine}:smooth", "power": 1.5,
                                                                            "sampling": {"name": f"{mine}:Twice", "times": 2}},
        "model": {"name": f"{mine}:Net", "width": 5}, "run": {"metrics": [f"{mine}:top2", f"{mine}:columns", f"{mine}:undecided"]}}
    return changed(**{section: {**own.get(section, {}), **sections.get(section, {})} for section in {**own, **sections}})


def test_a_run_of_nothing_but_ones_own(mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "run.toml", tmp_path / "out"
    file.write_text(toml(whole(mine)).replace('{"name": ', '{ name = ').replace('"times": ', 'times = '))
    assert command(monkeypatch, "run", str(file), "--out", str(out)) == 0, capsys.readouterr().err
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert rows[-1]["test accuracy"] > rows[0]["test accuracy"]
    assert rows[-1]["test accuracy"] <= rows[-1]["test top2"] <= 1
    assert rows[-1]["validation columns"] == 2
    assert not any("undecided" in name for name in rows[-1])
    about = json.loads((out / "about.json").read_text())
    assert about["config"]["algorithm"]["name"] == f"{mine}:Halved"
    assert about["title"] == f"{mine}:smooth by Halved"
    assert command(monkeypatch, "run", str(file), "--out", str(out), "--resume", "--set", "run.rounds=5") == 0
    config = read(file)
    assert parse(json.loads(json.dumps(describe(config)))) == config
    assert config.own_files == [tmp_path / f"{mine}.py"]
    job = build(config)
    assert job.model.size == 64 * 5 + 5 + 5 * 10 + 10
    assert repr(job.fed.problem.sampling) == "Twice(times=2)"


def test_a_comparison_chooses_by_a_metric_of_ones_own_and_knows_a_changed_module(mine: str, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(toml(changed(run={"metrics": [f"{mine}:top2", f"{mine}:columns"]})))
    read(tmp_path / "run.toml")
    tree = changed(run={"metrics": [f"{mine}:top2", f"{mine}:columns"], "rounds": 2, "every": 2})
    grid = {"algorithm.lr": [1e-6, 0.5]}
    entries = compare({"m": tree}, 1, tmp_path / "out", grid, "validation top2", jobs=2)
    assert entries[0].chosen == {"algorithm.lr": 0.5}
    assert entries[0].larger_is_better["test top2"] is True
    assert entries[0].larger_is_better["test columns"] is None
    with pytest.raises(ConfigError, match="whether a larger 'columns' is better has to be said"):
        compare({"m": tree}, 1, tmp_path / "out", grid, "validation columns", jobs=1)
    before = (tmp_path / "out" / "m" / "seed-0" / "about.json").stat().st_mtime_ns
    compare({"m": tree}, 1, tmp_path / "out", grid, "validation top2", jobs=1)
    assert (tmp_path / "out" / "m" / "seed-0" / "about.json").stat().st_mtime_ns == before
    with (tmp_path / f"{mine}.py").open("a") as file:
        file.write("# changed\n")
    compare({"m": tree}, 1, tmp_path / "out", grid, "validation top2", jobs=1)
    assert (tmp_path / "out" / "m" / "seed-0" / "about.json").stat().st_mtime_ns > before


def test_an_objective_that_does_not_hand_its_model_on_has_it_all_the_same(mine: str, tmp_path: Path) -> None:
    job = build(parse(changed(objective={"name": f"{mine}:bare"}, model={"name": f"{mine}:dropping_net"}), tmp_path))
    assert job.fed.problem.random  # it has dropout, which draws under the batch's seed
    assert job.run(None, "x").reason == "rounds"


def test_show_prints_ones_own(mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name, words in (("Halved", "FedAvg with a part of the step"), ("smooth", "power"), ("Net", "Net")):
        assert command(monkeypatch, "show", f"{mine}:{name}") == 0
        assert words in capsys.readouterr().out
    assert command(monkeypatch, "show", f"{mine}:Halve") == 2
    assert "did you mean 'Halved'" in capsys.readouterr().err


MISTAKES: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "no module": ({"algorithm": {"name": "nowhere:Mine"}}, r"algorithm.name needs the module 'nowhere', which is not there; looked in /.*"
                  r"put nowhere.py beside the description"),
    "no such name": ({"algorithm": {"name": "MINE:Halve"}}, r"MINE.py has no 'Halve'; did you mean 'Halved'"),
    "odd name": ({"algorithm": {"name": "MINE.py:Halved"}}, r"'py'|needs the module 'MINE.py'"),
    "a path": ({"algorithm": {"name": "./MINE:Halved"}}, r"reads module:name, as in"),
    "no name": ({"model": {"name": "MINE:"}}, r"reads module:name, as in"),
    "a function as an algorithm": ({"algorithm": {"name": "MINE:smooth"}}, r"which is a function; an algorithm is a class derived from"),
    "an algorithm without a round": ({"algorithm": {"name": "MINE:Bare"}}, r"must be a frozen dataclass"),
    "a hyper-parameter that it has not": ({"algorithm": {"name": "MINE:Halved", "prt": 1.0}}, r"no entry 'prt'; did you mean 'part'"),
    "a hyper-parameter of another type": ({"algorithm": {"name": "MINE:Halved", "part": "x"}}, r"algorithm.part must be a number"),
    "a class as an objective": ({"objective": {"name": "MINE:Net"}}, r"a class derived from Module; an objective is a function"),
    "an entry that it has not": ({"objective": {"name": "MINE:smooth", "pwer": 1.0}}, r"no entry 'pwer'; did you mean 'power'"),
    "a parameter that nobody can say": ({"objective": {"name": "MINE:strange"}}, r"the parameter 'thing' is neither what a run gives"),
    "an objective that returns no problem": ({"objective": {"name": "MINE:nothing"}}, r"an objective returns a problem, .* returned int"),
    "a sampler for one that has no options": ({"objective": {"name": "MINE:nothing", "sampling": "Shuffled"}}, r"no parameter `sampling`"),
    "an algorithm as a net": ({"model": {"name": "MINE:Halved"}}, r"a net is a class derived from torch.nn.Module"),
    "a net that fails": ({"model": {"name": "MINE:broken_net"}}, r"MINE.py, line \d+: ZeroDivisionError: no net today"),
    "a net's entry": ({"model": {"name": "MINE:Net", "hidden": [3]}}, r"\[model\] has no entry 'hidden'; It has width"),
    "a net of another shape": ({"model": {"name": "MINE:wrong_net"}}, r"(?i)shape|multiplied"),
    "a net of one output": ({"model": {"name": "MINE:narrow_net"}}, r"a score for each of the 10 classes in every row.*shape \(\d+, 1\)"),
    "annotations that cannot be read": ({"algorithm": {"name": "MINE:Unread"}}, r"annotations of MINE:Unread .* name 'Nonsense'"),
    "a metric without a module": ({"run": {"metrics": ["f1"]}}, r"run.metrics names functions of one's own"),
    "a metric that is there already": ({"run": {"metrics": ["MINE:accuracy"]}}, r"every run has a metric 'accuracy' already"),
    "a metric twice": ({"run": {"metrics": ["MINE:top2", "MINE:top2"]}}, r"two functions called 'top2'"),
    "a class as a metric": ({"run": {"metrics": ["MINE:Halved"]}}, r"a metric is a function of outputs and labels"),
    "a metric of three": ({"run": {"metrics": ["MINE:Net"]}}, r"a metric is a function"),
    "a metric that fails": ({"run": {"metrics": ["MINE:fails"]}}, r"MINE_near.py, line 2: ZeroDivisionError: division by zero"),
    "a metric of texts": ({"run": {"metrics": ["MINE:texts"]}}, r"must return a number; it returned str"),
    "a net as a sampler": ({"objective": {"sampling": "MINE:Net"}}, r"a sampler is a class with select, fetch and whole"),
    "a sampler's entry": ({"objective": {"sampling": {"name": "MINE:Twice", "tmes": 2}}}, r"no entry 'tmes'; did you mean 'times'"),
    "a module of Python's": ({"objective": {"name": "json:smooth"}}, r"json/__init__.py has no 'smooth'"),
}


@pytest.mark.parametrize("label", MISTAKES)
def test_a_mistake_with_ones_own_is_answered_by_a_sentence(label: str, mine: str, tmp_path: Path) -> None:
    change, words = MISTAKES[label]
    change = json.loads(json.dumps(change).replace("MINE", mine))
    with pytest.raises(RookeryError, match=words.replace("MINE", mine)) as caught:
        build(parse(changed(**change), tmp_path)).run(None, "x")
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(("content", "words"), [
    ("import missing_package\n", r"cannot be imported\. .*, line 1: ModuleNotFoundError: No module named 'missing_package'"),
    ("x = 1\ny = 1 / 0\n", r"\.py, line 2: ZeroDivisionError: division by zero"), ("def f(:\n", r"\.py, line 1: SyntaxError"),
    ("import sys\nsys.exit('no')\n", r"\.py, line 2: SystemExit: no"),
    ("from rookery import Nonsense\n", r"line 1: ImportError: .*Nonsense")])
def test_an_error_inside_ones_own_module_is_shown_with_its_file(content: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    name = f"faulty{abs(hash(content))}"
    (tmp_path / f"{name}.py").write_text(content)
    (tmp_path / "run.toml").write_text(toml(changed(algorithm={"name": f"{name}:Mine"})))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert command(monkeypatch, "run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "out")) == 2
    told = capsys.readouterr().err.replace("\n", " ")
    assert re.search(words, told), told


def test_two_modules_of_one_name_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "two_of_a_name.py").write_text("def top3(outputs, labels):\n    return 0.5\n")
    tree = changed(run={"metrics": ["two_of_a_name:top3"]})
    parse(tree, tmp_path / "a")
    with pytest.raises(ConfigError, match=r"b/two_of_a_name is not what Python knows as 'two_of_a_name', which is .*/a/.*: rename yours"):
        parse(tree, tmp_path / "b")


def test_a_bilevel_objective_of_ones_own_says_where_y_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_bilevel.py").write_text('''
from rookery import Bilevel
from rookery.objectives.declare import objective
from rookery.objectives.given import MODEL, constant


@objective(x=constant(lambda given: 0.0, lambda given: 1, "0"), y=MODEL, trained="y", metric="accuracy")
def shrunk(losses, width: int = 3) -> Bilevel:
    return Bilevel(lambda x, y, b: losses(y, b).mean(), lambda x, y, b: losses(y, b).mean() + 0.5 * x.exp().sum() * y.square().sum())


def unsaid(losses) -> Bilevel:
    return Bilevel(lambda x, y, b: losses(y, b).mean(), lambda x, y, b: losses(y, b).mean() + x.sum() * y.sum())
''')
    tree = changed(objective={"name": "own_bilevel:shrunk"}, algorithm={"name": "SimFBO", "lr": 0.01})
    result = build(parse(tree, tmp_path)).run(None, "x")
    assert result.history[-1]["validation loss"] < result.history[0]["validation loss"]
    with pytest.raises(RookeryError, match="inner variable: give its starting point"):
        build(parse(changed(objective={"name": "own_bilevel:unsaid"}, algorithm={"name": "SimFBO"}), tmp_path)).run(None, "x")


def test_an_algorithm_of_ones_own_takes_no_title_from_rookery() -> None:
    @dataclass(frozen=True)
    class Impostor(FedAvg):
        title: ClassVar[str] = "FedAvg"

    assert algorithms()["FedAvg"] is FedAvg
    assert Impostor not in algorithms().values()
