"""Every algorithm of `rookery list` runs from a description, and every objective; what they leave is complete."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rookery import Bilevel, Compositional, CompositionalMinimax, Conditional, Minimax, Minimization, Pairwise, Problem
from rookery.objectives import objectives
from rookery.objectives.fastdro import WorstCase
from rookery.studies import algorithms, describe, parse
from rookery.studies.build import build

AP: dict[str, Any] = {"data": {"name": "breast-cancer"}, "objective": {"name": "ap_surrogate"}}
AUC: dict[str, Any] = {"data": {"name": "breast-cancer"}, "objective": {"name": "auc"}, "algorithm": {"batch": 8}}
KINDS: dict[type[Problem], dict[str, dict[str, Any]]] = {
    Minimization: {}, WorstCase: {"objective": {"name": "fast_dro", "form": "cvar", "size": 0.2}},
    Conditional: AP | {"algorithm": {"outer": 4, "inner": 8}}, Compositional: {"objective": {"name": "kl_dro"}},
    Minimax: {"objective": {"name": "group_weights"}}, Bilevel: {"objective": {"name": "loss_tuning", "ridge": 0.01}},
    CompositionalMinimax: AUC, Pairwise: AUC}
OWN: dict[str, dict[str, dict[str, Any]]] = {"ComFedL": AP | {"objective": {"name": "ap_surrogate", "reduce": "compositional"},
                                                              "algorithm": {"batch": 4, "inner": 8}},
                                            "CoDA": AUC, "BSpiderBoost": {"algorithm": {"large": 16}},
                                            "Unconstrained": {"objective": {"name": "mean_variance"}}}
ONE_MACHINE = {"ALSET", "BSA", "BSGD", "BSpiderBoost", "NASA", "SCGD", "SMD", "TTSA", "stocBiO"}
SMALL: dict[str, dict[str, Any]] = {"data": {"name": "iris"}, "sites": {"how": "iid", "number": 3}, "model": {"name": "mlp", "hidden": [3]},
                                    "run": {"rounds": 2, "every": 1}, "federation": {"engine": "loop"}}


def tree(algorithm: dict[str, Any], *changes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    whole = {section: dict(table) for section, table in SMALL.items()} | {"algorithm": {"lr": 0.01, **algorithm}}
    for change in changes:
        for section, table in change.items():
            whole[section] = whole.get(section, {}) | table
    return whole


def run(tree: dict[str, dict[str, Any]], folder: Path) -> list[dict[str, float]]:
    config = parse(tree)
    assert parse(json.loads(json.dumps(describe(config)))) == config
    job = build(config, folder)
    result = job.run(folder, "x")
    assert (result.reason, result.rounds) == ("rounds", 2), result.failure
    coming, account = job.forecast(), job.fed.ledger["train"]
    assert coming is not None
    told, found = (coming.exchanges, coming.up, coming.down), (account.exchanges, account.bytes_up, account.bytes_down)
    assert told == found if not coming.how else all(a >= b for a, b in zip(told, found, strict=True))
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2]
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert rows[-1]["validation loss"] != rows[0]["validation loss"]
    assert {"validation accuracy", "test accuracy"} <= rows[-1].keys()
    return rows


@pytest.mark.parametrize("title", sorted(algorithms()))
def test_every_listed_algorithm_runs_from_a_description(title: str, tmp_path: Path) -> None:
    pooled = {"sites": {"how": "pooled"}} if title in ONE_MACHINE else {}
    run(tree({"name": title}, KINDS[algorithms()[title].solves], OWN.get(title, {}), pooled), tmp_path)


OBJECTIVES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "auc": ("LocalSCGDAM", AUC), "partial_auc": ("FCSG", KINDS[Conditional] | {"objective": {}}), "ratio_loss": ("FedAvg", {}),
    "ap_surrogate": ("FCSG", KINDS[Conditional]), "balanced_cross_entropy": ("FedAvg", {}), "last_layer": ("FedAvg", {}),
    "chi2_dro": ("FedDRO", {}),
    "constrained_dro": ("FedDRO", {}), "cross_entropy": ("FedAvg", {"objective": {"weight_decay": 0.1, "weight": [1.0, 2.0, 3.0]}}),
    "cvar": ("FedAvg", {}), "data_reweighting": ("SimFBO", {"objective": {"field": "labels"}}),
    "fair": ("FedDRO", {"data": {"name": "breast-cancer"}, "objective": {"field": "site", "kind": "demographic parity"}}),
    "fast_dro": ("FastDRO", KINDS[WorstCase]), "group_dro": ("FedDRO", {}), "group_weights": ("FedGDA-GT", {}),
    "hyper_parameters": ("FedNest", {}), "hyper_representation": ("FedNest", {}), "kl_dro": ("GCIVR", {}),
    "loss_tuning": ("FedBiOAcc", {"algorithm": {"batch": 12}}), "mean_variance": ("FedDRO", {}),
    "maml": ("FCSG", {"algorithm": {"outer": 1, "inner": 5}, "objective": {"query": 5}}),
    "robust_regression": ("LocalSGDA", {"data": {"name": "breast-cancer"}})}


@pytest.mark.parametrize("name", sorted(objectives()))
def test_every_listed_objective_runs_from_a_description(name: str, tmp_path: Path) -> None:
    algorithm, change = OBJECTIVES[name]
    whole = tree({"name": algorithm}, {"objective": {"name": name}}, change)
    if name == "robust_regression":
        del whole["model"]
    rows = run(whole, tmp_path)
    metric = objectives()[name].metric
    assert f"validation {metric}" in rows[-1]


@pytest.mark.parametrize(("objective", "algorithm"), [
    ({"name": "cross_entropy"}, {"name": "FedNest"}), ({"name": "kl_dro"}, {"name": "FedNest", "inner_lr": 1.0}),
    ({"name": "group_dro"}, {"name": "LFedNest"}), ({"name": "group_weights", "lam": 1.0}, {"name": "FedNest-SGD"}),
    ({"name": "chi2_dro", "form": "dual"}, {"name": "FedNest"})], ids=lambda v: v["name"])
def test_other_kinds_run_in_the_bilevel_form(objective: dict[str, Any], algorithm: dict[str, Any], tmp_path: Path) -> None:
    run(tree(algorithm, {"objective": {**objective, "reduce": "bilevel"}}), tmp_path)


@pytest.mark.parametrize("title", ["Local-SCGD", "Local-SCGDM"])
def test_methods_on_local_inner_maps_run_on_a_conditional_objective(title: str, tmp_path: Path) -> None:
    run(tree({"name": title}, OWN["ComFedL"]), tmp_path)


@pytest.mark.parametrize("title", ["LocalSCGDAM", "CoDA", "CODA+", "CODASCA", "LocalSGDAM", "LocalSGDA", "FESS-GDA", "FeDXL1", "FedAvg"])
def test_one_line_changes_the_method_of_auc_maximisation(title: str, tmp_path: Path) -> None:
    rows = run(tree({"name": title}, AUC, {"federation": {"engine": "auto"}}), tmp_path)
    assert {"validation AUC", "validation AUC bound", "validation AUC exact", "test AUC"} <= rows[-1].keys()
    assert abs(rows[-1]["validation AUC"] - rows[-1]["validation AUC exact"]) <= rows[-1]["validation AUC bound"] + 1e-12


def test_partial_auc_has_a_form_for_scores_that_are_exchanged(tmp_path: Path) -> None:
    run(tree({"name": "FeDXL2"}, AUC, {"objective": {"name": "partial_auc"}}), tmp_path)
