"""Goals: which methods are tried, that every one of them is a description that trains, and what they begin with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from fits import BASE, job_of, prepared

from rookery.errors import ConfigError
from rookery.fitting.goals import FIRST, GOALS, Setting, check_choices, find_goal, methods
from rookery.fitting.training import tree_of
from rookery.studies.build import assemble
from rookery.studies.cells import CELLS
from rookery.studies.description import describe, parse

SETTING = Setting(rounds=4, local_steps=2, batch=8)
GROUPED = replace(SETTING, sensitive="sex", cells=CELLS)
LABELS = {
    "accuracy": ["FedDRO (KL-DRO)"], "auc": ["LocalSCGDAM (AUC)", "LocalSGDAM (AUC)"], "ap": ["FCSG-M (AP)"],
    "partial_auc": ["FCSG-M (partial AUC)"], "worst_site": ["FedDRO (group DRO of sites)"], "worst_group": ["FedDRO (group DRO)"],
    "fair": ["FedDRO (fairness ρ = 1)", "FedDRO (fairness ρ = 10)"], "personal": ["FCSG-M (MAML)"]}


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("setting", [SETTING, GROUPED], ids=["plain", "groups"])
def test_every_method_trains_for_a_round(goal: str, setting: Setting) -> None:
    rows, moved = prepared(rows=160, sites=2), []
    for method in methods(GOALS[goal], setting):
        if not method.trains:
            continue
        tree = tree_of(BASE, method, setting, 0.1, 0)
        job = assemble(parse(tree), rows)
        assert describe(job.description) == describe(parse(describe(job.description)))
        json.dumps(tree)
        state = job.description.algorithm.round(job.fed, job.initial_state())
        vector = job.parameters(state)
        assert torch.isfinite(vector).all(), method.label
        moved.append((method.label, bool((vector != job.given.vector).any())))
        assert job.description.run.rounds == 4
    assert all(own for _, own in moved), moved


@pytest.mark.parametrize("goal", ["ap", "partial_auc"])
def test_pairs_of_rows_are_as_many_as_sites_ask_for(goal: str) -> None:
    setting = replace(SETTING, min_batch=5)  # a quarter of a batch would be 2 positives
    method = methods(GOALS[goal], setting)[-1]
    base = {**BASE, "federation": {**BASE.get("federation", {}), "min_batch": 5}}
    job = assemble(parse(tree_of(base, method, setting, 0.1, 0)), prepared(rows=160, sites=2))
    assert job.fed.setting.min_batch == 5
    assert torch.isfinite(job.parameters(job.description.algorithm.round(job.fed, job.initial_state()))).all()


@pytest.mark.parametrize("goal", GOALS)
def test_fedavg_is_the_first_and_the_goal_s_own_methods_are_the_last(goal: str) -> None:
    tried = methods(GOALS[goal], GROUPED)
    labels, kinds = [method.label for method in tried], [method.kind for method in tried]
    assert labels[0] == FIRST
    assert len(set(labels)) == len(labels)
    assert [method.label for method in tried if method.kind == "nested"] == LABELS[goal]
    assert kinds == sorted(kinds, reverse=True)  # opponents, then nested ones
    for method in tried:
        assert method.after is None or method.after in labels[: labels.index(method.label)]
        assert method.trains or (method.by_group and not method.sections)


def test_what_the_rows_are_decides_which_opponents_there_are() -> None:
    def labels(goal: str, setting: Setting) -> set[str]:
        return {method.label for method in methods(GOALS[goal], setting)}

    assert {FIRST, "class weights", "balanced batches", "last layer again"} <= labels("auc", SETTING)
    assert "last layer again" not in labels("auc", replace(SETTING, layers=1))
    assert "batches balanced by group" in labels("auc", GROUPED) - labels("auc", SETTING)
    assert "sites of equal weight" in labels("worst_site", SETTING) - labels("worst_site", replace(SETTING, sites=1))
    assert {f"{label}, thresholds by group" for label in (FIRST, "class weights")} <= labels("fair", GROUPED)
    assert not any("thresholds by group" in label for label in labels("worst_group", replace(GROUPED, classes=3)))
    assert not any(method.kind == "nested" for method in methods(GOALS["worst_site"], replace(SETTING, sites=1)))
    assert not any(method.kind == "nested" for method in methods(GOALS["fair"], SETTING))


def test_methods_see_rows_alike() -> None:
    """Every step of every method scores as many rows, but for those of average precision, which draw inner rows beside outer ones."""
    for goal in set(GOALS) - {"personal"}:
        for method in methods(GOALS[goal], GROUPED):
            if method.trains:
                own = method.sections["algorithm"]
                rows = own.get("batch", own.get("outer", 0) + own.get("inner", 0))
                assert (own["local_steps"], rows) == (2, 10 if goal == "ap" and method.kind == "nested" else 8), method.label


@pytest.mark.parametrize("goal", [name for name, goal in GOALS.items() if goal.two_classes])
def test_goals_of_two_classes_refuse_more(goal: str) -> None:
    with pytest.raises(ConfigError, match=f"the goal {goal} is for two classes, and there are 3: name the positive ones, or take accuracy"):
        methods(GOALS[goal], replace(SETTING, classes=3))


@pytest.mark.parametrize("goal", [name for name, goal in GOALS.items() if not goal.two_classes])
def test_goals_of_several_classes_train_on_three(goal: str) -> None:
    rows = prepared(rows=240, classes=3)
    for method in methods(GOALS[goal], replace(GROUPED, classes=3)):
        job = assemble(parse(tree_of(BASE, method, GROUPED, 0.1, 0)), rows)
        assert torch.isfinite(job.parameters(job.description.algorithm.round(job.fed, job.initial_state()))).all()


def test_a_goal_that_there_is_not_is_answered_by_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no goal 'worst group'; did you mean 'worst_group'"):
        find_goal("worst group")


@pytest.mark.parametrize(("choices", "words"), [
    (("equalized odds", 0.1, 0.1), "did you mean 'equalised odds'"), (("demographic parity", 1.0, 0.1), "gap is a difference of rates"),
    (("demographic parity", float("nan"), 0.1), "gap is"), (("demographic parity", 0.1, 0.0), "max_fpr a rate above 0; got 0.1 and 0.0")])
def test_choices_that_no_goal_can_mean_are_refused(choices: tuple[str, float, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_choices(*choices)


def test_batches_balanced_by_group_have_rows_of_every_class_and_group() -> None:
    rows = prepared(rows=400)
    method = next(own for own in methods(GOALS["fair"], GROUPED) if own.label == "batches balanced by group")
    job = assemble(parse(tree_of(BASE, method, GROUPED, 0.1, 0)), rows)
    cells = rows.data.fields[CELLS]
    pairs = {(int(g), int(y)) for g, y in zip(rows.data.fields["sex"], rows.data.fields["labels"], strict=True)}
    assert sorted(set(cells.tolist())) == list(range(len(pairs)))
    assert job.fed.problem.sampling.field == CELLS  # type: ignore[union-attr]
    assert len({(int(c), int(g), int(y)) for c, g, y in zip(cells, rows.data.fields["sex"], rows.data.fields["labels"], strict=True)}) == 4
    assert job_of(prepared(sensitive=None)).fed.data.fields.keys() == {"inputs", "labels", "sex"}
