"""Where trials are made: each once, in memory or in a folder, and what a folder that was cut off goes on with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import BASE, csv, described, prepared

from rookery.errors import ConfigError
from rookery.fitting import Options, bench, fit
from rookery.fitting.bench import Folder, Memory, Trial, least_rows
from rookery.fitting.fit import ready
from rookery.fitting.goals import GOALS, Setting, methods
from rookery.fitting.measures import Measure
from rookery.fitting.training import tree_of

QUICK = Options(rounds=2, local_steps=2, batch=8, pool=False, jobs=1)
ACCURACY = Measure(GOALS["accuracy"], 2)


def trial(base: dict[str, Any], lr: float = 0.3, split: int = 0, start: Trial | None = None) -> Trial:
    setting = Setting(rounds=2, local_steps=2, batch=8)
    return Trial(tree_of(base, methods(GOALS["accuracy"], setting)[0], setting, lr, split), split, start)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The step sizes of trials that are trained from here on."""
    made, train = list[float](), bench.train

    def count(tree: Any, *rest: Any, **options: Any) -> Any:
        made.append(tree["algorithm"]["lr"])
        return train(tree, *rest, **options)

    monkeypatch.setattr(bench, "train", count)
    return made


def test_memory_makes_a_trial_once_and_hands_its_model_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made, own = counted(monkeypatch), Memory(prepared, ACCURACY)
    first, told = trial(BASE, 0.3), list[float]()
    later = trial(BASE, 1e-30, start=first)
    outcomes = own.run([first, later, first], told.append)
    assert made == [0.3, 1e-30]
    assert outcomes[0] is outcomes[2]
    assert torch.equal(outcomes[1].vector, outcomes[0].vector)  # from where the first ended, by next to nothing
    assert len(told) == 2
    assert own.run([first])[0] is outcomes[0]


def test_a_folder_has_the_outcomes_of_memory_and_makes_a_trial_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = described(csv(tmp_path / "t.csv"))
    own = Folder(tmp_path / "out", ACCURACY, base, "digest", jobs=1)
    todo = [trial(base, lr, split) for lr in (0.1, 0.3) for split in (0, 1)]
    todo.append(trial(base, 1.0, start=todo[0]))
    found, expected = own.run(todo[:4]) + own.run(todo[4:]), Memory(own.rows, ACCURACY).run(todo)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.vector, other.vector)
        assert (one.value, one.round, one.margins, one.reason) == (other.value, other.round, other.margins, other.reason)
        assert [row["validation goal"] for row in one.history] == [row["validation goal"] for row in other.history]
    made = counted(monkeypatch)
    again = Folder(tmp_path / "out", ACCURACY, base, "digest", jobs=1).run(todo)
    assert made == []
    assert all(torch.equal(one.vector, other.vector) for one, other in zip(again, found, strict=True))
    (tmp_path / "out" / "models" / f"{todo[1].key}.safetensors").unlink()  # a model that is gone is trained again
    own.run(todo)
    assert made == [0.1]


def test_a_trial_is_named_by_all_that_it_is() -> None:
    first = trial(BASE)
    others = [trial(BASE, 0.1), trial(BASE, split=1), trial(BASE, start=first), Trial(first.tree, looks=2)]
    assert len({own.key for own in [first, *others]}) == 5
    assert trial(BASE).key == first.key


def test_the_fewest_rows_are_those_of_all_splits_where_groups_are_held_out() -> None:
    sizes = [prepared(split, grouped=True, rows=60, sites=3).data.sizes.min() for split in range(4)]
    assert min(sizes) < sizes[0]
    assert least_rows(Memory(lambda split: prepared(split, grouped=True, rows=60, sites=3), ACCURACY), 4) == min(sizes)
    assert least_rows(Memory(lambda split: prepared(split, rows=60, sites=3), ACCURACY), 4) == prepared(rows=60, sites=3).data.sizes.min()


# a fit that was cut off


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return {name: first[name] for name in first if name != "minutes"} == {name: second[name] for name in second if name != "minutes"}


def test_a_fit_that_was_cut_off_goes_on_and_comes_to_the_same(brief: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = described(csv(tmp_path / "t.csv", sites=1))
    whole = fit(base, "accuracy", tmp_path / "whole", QUICK)
    number = len((tmp_path / "whole" / "trials.jsonl").read_text().splitlines())
    train, made = bench.train, list[float]()

    def cut(tree: Any, *rest: Any, **options: Any) -> Any:
        if len(made) == 7:
            raise KeyboardInterrupt
        made.append(tree["algorithm"]["lr"])
        return train(tree, *rest, **options)

    monkeypatch.setattr(bench, "train", cut)
    with pytest.raises(KeyboardInterrupt):
        fit(base, "accuracy", tmp_path / "cut", QUICK)
    assert not (tmp_path / "cut" / "fit.json").exists()
    monkeypatch.setattr(bench, "train", train)
    later = counted(monkeypatch)
    assert same(fit(base, "accuracy", tmp_path / "cut", QUICK).told, whole.told)
    assert len(made) + len(later) == number
    weights = [(tmp_path / folder / "bundle" / "model.safetensors").read_bytes() for folder in ("whole", "cut")]
    assert weights[0] == weights[1]
    later.clear()
    assert same(fit(base, "accuracy", tmp_path / "cut", QUICK).told, whole.told)  # one that is done says the same again
    assert later == []


def test_a_folder_of_another_fit_is_refused(brief: None, tmp_path: Path) -> None:
    path = csv(tmp_path / "t.csv", sites=1)
    base = described(path)
    fit(base, "accuracy", tmp_path / "out", QUICK)
    before = (tmp_path / "out" / "fit.json").read_bytes()

    def refused(base: dict[str, Any] = base, goal: str = "accuracy", options: Options = QUICK) -> None:
        with pytest.raises(ConfigError, match="holds a fit of other rows, another goal or other options; take another folder with --out"):
            fit(base, goal, tmp_path / "out", options)

    refused(goal="worst_group")
    refused(options=replace(QUICK, rounds=3))
    refused({**base, "model": {"hidden": [3]}})
    csv(path, seed=1, sites=1)
    refused()
    assert (tmp_path / "out" / "fit.json").read_bytes() == before
    csv(path, sites=1)
    fit(base, "accuracy", tmp_path / "out", replace(QUICK, jobs=None))  # how many processes it has is nobody's business


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    base = described(csv(tmp_path / "t.csv", sites=1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "about.json").write_text("a run")
    with pytest.raises(ConfigError, match="holds something else than a fit; take another folder"):
        fit(base, "accuracy", tmp_path / "out", QUICK)
    (tmp_path / "out" / "plan.json").write_text("{")
    with pytest.raises(ConfigError, match="is not whole: delete"):
        fit(base, "accuracy", tmp_path / "out", QUICK)
    assert (tmp_path / "out" / "about.json").read_text() == "a run"


def test_rows_that_changed_are_read_again_in_the_same_process(tmp_path: Path) -> None:
    found = [len(ready(described(csv(tmp_path / "t.csv", rows=number)), "accuracy", tmp_path, QUICK).rows.test) for number in (200, 260)]
    assert found == [50, 65]
