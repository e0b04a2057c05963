"""What a run's history says of rows: sites send sums, the server scores its own rows, and a simulation tells the exact values beside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from rookery.data.partition import spread_alike
from rookery.errors import ConfigError, PlacementError
from rookery.objectives import fairness_gap
from rookery.studies import parse
from rookery.studies.build import build
from rookery.studies.scores import row_scores

SMALL: dict[str, dict[str, Any]] = {
    "data": {"name": "breast-cancer"}, "sites": {"how": "dirichlet", "number": 4, "alpha": 1.0}, "model": {"name": "mlp", "hidden": [4]},
    "algorithm": {"name": "FedAvg", "lr": 0.1, "batch": 8}, "run": {"rounds": 1, "every": 1}}


def tree(**changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {section: SMALL.get(section, {}) | changes.get(section, {}) for section in SMALL | changes}


def scores(**changes: dict[str, Any]) -> tuple[Any, dict[str, float]]:
    job = build(parse(tree(**changes)))
    return job, job.scores(job.initial_state())


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_scores_of_the_sites_rows_are_those_of_the_pooled_rows(engine: str) -> None:
    job, found = scores(federation={"engine": engine})
    exact = row_scores(job.predict(job.given.vector, job.held.fields["inputs"]), job.held.fields["labels"])
    for name, value in exact.items():
        bound = found.get(f"validation {name} bound", 0.0)
        assert found[f"validation {name}"] == pytest.approx(value, abs=bound + 1e-6), name
    assert found["validation AUC exact"] == pytest.approx(exact["AUC"], abs=1e-9)
    assert job.fed.ledger["evaluation"].exchanges >= 1
    assert job.fed.ledger["train"].exchanges == 0


def test_the_partial_auc_comes_where_it_is_asked_for() -> None:
    job, found = scores(run={"rounds": 1, "every": 1, "max_fpr": 0.2})
    outputs, labels = job.predict(job.given.vector, job.test.fields["inputs"]).double(), job.test.fields["labels"]
    standardised = roc_auc_score(labels, outputs[:, 1] - outputs[:, 0], max_fpr=0.2)
    least, most = 0.5 * 0.2**2, 0.2  # McClish's standardisation, undone
    assert found["test partial AUC"] == pytest.approx((least + (2 * standardised - 1) * (most - least)) / 0.2, abs=1e-9)
    assert abs(found["validation partial AUC"] - found["validation partial AUC exact"]) <= found["validation partial AUC bound"] + 1e-9
    assert "partial AUC" in job.metrics
    with pytest.raises(ConfigError, match="max_fpr is a false positive rate"):
        parse(tree(run={"max_fpr": 0.0}))


def test_test_rows_may_be_at_the_sites(tmp_path: Path) -> None:
    at_server, there = scores()
    at_sites, found = scores(data={"test_at": "sites"})
    assert sum(at_sites.fed.data.split("test").sizes) == len(at_server.test)
    for name in ("loss", "accuracy", "Brier", "worst class"):
        assert found[f"test {name}"] == pytest.approx(there[f"test {name}"], rel=1e-5)
    assert found["test AUC exact"] == pytest.approx(there["test AUC"], rel=1e-5)
    assert abs(found["test AUC"] - there["test AUC"]) <= found["test AUC bound"] + 1e-6
    at_sites.run(tmp_path, "x")
    assert not (tmp_path / "predictions.npz").exists()  # the server has none of the rows
    about = json.loads((tmp_path / "about.json").read_text())
    assert {row["site"] for row in about["sites"]} == set(at_sites.fed.data.names)
    assert sum(row["test rows"] for row in about["sites"]) == len(at_server.test)


def test_test_rows_go_where_the_training_rows_of_their_class_are() -> None:
    labels, site = np.array([0] * 6 + [1] * 4), np.array(["a"] * 3 + ["b"] * 3 + ["b"] * 4)
    found = spread_alike(labels, site, [0] * 10 + [1] * 5, seed=1)
    assert sorted(found[:10].tolist()) == ["a"] * 5 + ["b"] * 5
    assert set(found[10:].tolist()) == {"b"}


def test_where_only_sums_leave_the_sites_nothing_is_collected(tmp_path: Path) -> None:
    job = build(parse(tree(federation={"only_sums": True})), tmp_path)
    job.run(tmp_path, "x")
    about = json.loads((tmp_path / "about.json").read_text())
    assert all(row.keys() == {"site", "rows"} for row in about["sites"])
    pool = tree(federation={"only_sums": True}, objective={"name": "auc"}, algorithm={"name": "FeDXL1"})
    with pytest.raises(PlacementError, match=r"only sums leave the clients.*first_scores"):
        build(parse(pool)).run(None, "x")


def test_a_metric_of_one_s_own_is_the_mean_of_the_sites_values_by_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_rows.py").write_text("def largest(outputs, labels):\n    return float(outputs.max())\n")
    monkeypatch.syspath_prepend(tmp_path)
    job, found = scores(run={"rounds": 1, "every": 1, "metrics": ["mine_of_rows:largest"]})
    parts = [job.held.views(k) for k in range(len(job.held.names))]
    values = [float(job.predict(job.given.vector, part["inputs"]).max()) for part in parts]
    assert found["validation largest"] == pytest.approx(np.average(values, weights=[len(part["labels"]) for part in parts]), rel=1e-5)
    assert found["test largest"] == pytest.approx(float(job.predict(job.given.vector, job.test.fields["inputs"]).max()))
    assert job.sites(job.given.vector)[0]["largest"] == pytest.approx(values[job.held.names.index(job.fed.data.names[0])], rel=1e-5)


@pytest.mark.parametrize("kind", ["equality of opportunity", "equalised odds", "demographic parity"])
def test_an_objective_s_own_score_is_merged_from_counts(kind: str) -> None:
    job, found = scores(objective={"name": "fair", "field": "site", "kind": kind}, algorithm={"name": "FedDRO"}, sites={"how": "iid"})
    rows = job.fed.data.split("validation").fields
    guess = job.predict(job.given.vector, rows["inputs"]).argmax(1).numpy()
    assert found["validation gap"] == pytest.approx(fairness_gap(guess, rows["labels"].numpy(), rows["site"].numpy(), kind))  # type: ignore[arg-type]


def test_undefined_stays_undefined() -> None:
    """No positive among the rows is not a worst class of 1."""
    outputs = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    assert row_scores(outputs, torch.tensor([0, 0])).keys() == {"loss", "accuracy", "Brier", "ECE"}
    assert row_scores(outputs, torch.tensor([0, 1]))["worst class"] == 0.0


def test_nets_with_batch_norm_are_scored_with_the_sites_statistics() -> None:
    changes = {"data": {"name": "digits"}, "model": {"name": "resnet20"}, "algorithm": {"name": "FedAvg", "lr": 0.1, "batch": 16}}
    job = build(parse(tree(**changes)))
    state = job.initial_state()
    found = job.scores(state)
    # the same net in one place: the statistics of all training rows, in batches of one client, which iid rows make nearly those of all
    net = job.model.module(state.x)
    norm = next(layer for layer in net.modules() if type(layer).__name__ == "FederatedNorm")
    first = torch.nn.functional.conv2d(job.fed.data.fields["inputs"], net[0].weight, None, 1, 1)
    torch.testing.assert_close(norm.running_mean, first.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var, first.var((0, 2, 3), unbiased=False), rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        outputs = net(job.test.fields["inputs"])
    assert found["test loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(outputs, job.test.fields["labels"])), rel=1e-5)
    assert job.fed.ledger["evaluation"].exchanges >= 2
    with pytest.raises(ConfigError, match="batch norms would keep the statistics of the common one"):
        build(parse(tree(**changes, personal={"steps": 2})))
