"""`rookery list` and `rookery show` for everything that a description can name."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from running import command

from rookery.cli import console as consoles
from rookery.cli.named import named
from rookery.cli.show import _completions
from rookery.data import DATASETS
from rookery.data.readers.facts import FACTS
from rookery.objectives import objectives
from rookery.studies import algorithms
from rookery.studies.choices import SAMPLERS
from rookery.studies.keys import sections


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consoles.console, "width", 2000)


def test_the_list_has_every_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    assert not [name for name in (*algorithms(), *objectives(), *DATASETS, *SAMPLERS, "densenet121", "cosine") if name not in printed]


def test_names_are_told_apart() -> None:
    names = [name.lower() for name in chain(algorithms(), objectives(), *named().values())]
    assert len(names) == len({*names})


@pytest.mark.parametrize(("name", "words"), [
    ("run.every", ["the rounds between two evaluations", "what it is: a whole number", "default: left out"]),
    ("model.hidden", ["default: [32]", "hidden layers"]), ("DATA", ["[data]", "category_rows", '"server" or "sites"']),
    ("mlp", ["Linear layers", "hidden", "1002 for 20 numbers"]), ("linear", ["One linear layer", "210 for"]),
    ("resnet20", ["269722 for pictures of 3 × 32 × 32"]), ("digits", ["1 797", "CC BY 4.0", "comes with scikit-learn"]),
    ("sites/stroke", ["19 433", "466", "ODC-By", "stroke.csv (not there)", "by hand"]), ("mnist", ["downloaded", "10 000"]),
    ("Stratified", ["a sampler", "importance", "needed"]), ("drop", ["a schedule", "factor", "0.1"]),
    ("algorithm.mu", ["FedProx"]), ("objective.lam", ["kl_dro", "1.0"]), ("FedProx", ["a number or a schedule", "needed"])])
def test_show_says_what_is_known(name: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ROOKERY_DATA", str(tmp_path))
    assert command(monkeypatch, "show", name) == 0
    printed = capsys.readouterr().out
    assert not [word for word in words if word not in printed], printed


def test_all_that_is_named_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for kind, own in named().items():
        for name, tell in own.items():
            if kind not in ("nets", "keys"):
                tell()
                assert name in capsys.readouterr().out
    assert set(named()["keys"]) == {f"{section.name}.{key}" for section in sections().values() for key in section.keys}


@pytest.mark.parametrize(("wrong", "right"), [("run.evry", "run.every"), ("digit", "digits"), ("resnet2", "resnet20"),
                                              ("stratifed", "Stratified"), ("federaton", "federation"), ("sites/strok", "sites/stroke")])
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, right: str, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, "show", wrong) == 2
    assert f"there is nothing called {wrong!r} to show; did you mean {right!r}?" in capsys.readouterr().err


def test_every_data_set_has_its_facts() -> None:
    assert FACTS.keys() == DATASETS.keys()
    assert all((facts.how == "scikit-learn") == (not facts.files) for facts in FACTS.values())


def test_completions_are_the_names_of_algorithms_and_objectives() -> None:
    assert set(_completions("")) == {*algorithms(), *objectives()}
    assert _completions("FedAvg") == ["FedAvg", "FedAvg-S"]
