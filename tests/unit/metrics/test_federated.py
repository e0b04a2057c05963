"""Scores merged from what clients send are those of the pooled rows, on every engine; the server never has a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, balanced_accuracy_score, brier_score_loss, log_loss, roc_auc_score
from torch import nn

from rookery import Data, Federation, Model
from rookery.errors import NonFinite, PlacementError, ProblemError
from rookery.metrics import by_client, delong, evaluate
from rookery.models import mlp
from rookery.objectives import cross_entropy

ENGINES = ["loop", "vectorised", "wire", "auto"]


def data(classes: int = 2, clients: int = 6, seed: int = 0) -> Data:
    """Unequal clients, of which one has one class and one has no validation rows."""
    r = torch.Generator().manual_seed(seed)
    train, held = {}, {}
    for k in range(clients):
        n = 5 + 7 * k
        labels = torch.randint(classes, (n,), generator=r)
        labels = torch.zeros_like(labels) if k == 1 else labels
        inputs = torch.randn(n, 4, generator=r) + labels[:, None]
        train[f"c{k}"] = {"inputs": inputs, "labels": labels}
        if k:
            held[f"c{k}"] = {"inputs": inputs + 0.1, "labels": labels}
    return Data.from_parts(train).with_splits(validation=Data.from_parts(held))


def pooled(fed: Federation, model: Model, x: torch.Tensor) -> tuple[Any, Any]:
    rows = fed.data.split("validation")
    assert rows is not None
    return model.predict(x, rows.fields["inputs"]).double().numpy(), rows.fields["labels"].numpy()


@pytest.mark.parametrize("engine", ENGINES)
def test_merged_scores_are_those_of_the_pooled_rows(engine: str) -> None:
    model = Model(mlp(4, 5, 2))
    fed, x = Federation(cross_entropy(model), data(), engine=engine), model.vector()
    scores = evaluate(fed, x)
    outputs, labels = pooled(fed, model, x)
    p = np.exp(outputs - outputs.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    margin, guess = outputs[:, 1] - outputs[:, 0], outputs.argmax(1)
    expected = {"loss": log_loss(labels, p), "accuracy": (guess == labels).mean(),
                "balanced accuracy": balanced_accuracy_score(labels, guess), "Brier": brier_score_loss(labels, p[:, 1]),
                "worst class": min((guess[labels == c] == c).mean() for c in (0, 1))}
    for name, value in expected.items():
        assert scores.values[name] == pytest.approx(value, rel=1e-6), name
    for name, value in {"AUC": roc_auc_score(labels, margin), "AP": average_precision_score(labels, margin)}.items():
        assert abs(scores.values[name] - value) <= scores.bounds[name] + 1e-9
        assert scores.bounds[name] < 0.02
    account = fed.ledger["evaluation"]
    assert fed.ledger["train"].exchanges == 0
    assert account.exchanges in (1, 2)
    assert account.samples == account.exchanges * len(labels)
    assert account.floats_up == account.exchanges * 6 * (48 + 4 + 2 * 1024)


def test_engines_book_the_same() -> None:
    model = Model(mlp(4, 5, 2))
    feds = [Federation(cross_entropy(model), data(), engine=engine) for engine in ENGINES]
    for fed in feds:
        evaluate(fed, model.vector())
    assert all(fed.ledger == feds[0].ledger for fed in feds)


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_several_classes_have_no_ranking(engine: str) -> None:
    model = Model(mlp(4, 5, 3))
    fed = Federation(cross_entropy(model), data(3), engine=engine)
    scores = evaluate(fed, model.vector(), classes=3)
    assert scores.values.keys() == {"loss", "accuracy", "balanced accuracy", "worst class", "Brier", "ECE"}
    assert scores.bounds == {}
    outputs, labels = pooled(fed, model, model.vector())
    assert scores.values["accuracy"] == pytest.approx((outputs.argmax(1) == labels).mean())


def test_undefined_stays_undefined() -> None:
    model = Model(mlp(4, 5, 2))
    one_class = Data.from_parts({"a": {"inputs": torch.randn(4, 4), "labels": torch.zeros(4, dtype=torch.long)}})
    fed = Federation(cross_entropy(model), one_class.with_splits(validation=one_class))
    assert evaluate(fed, model.vector()).values.keys() == {"loss", "accuracy", "Brier", "ECE"}
    assert "AUC" not in by_client(fed, model.vector())[0]
    nobody = Federation(cross_entropy(model), one_class.with_splits(validation=one_class), min_batch=5)
    assert evaluate(nobody, model.vector()).values == {}


def test_a_client_s_scores_are_of_its_own_rows() -> None:
    model = Model(mlp(4, 5, 2))
    fed, x = Federation(cross_entropy(model), data()), model.vector()
    table = by_client(fed, x)
    assert [row["client"] for row in table] == [f"c{k}" for k in range(6)]
    assert table[0].keys() == {"client", "rows", "positives", "scored rows"}  # it has no validation rows
    assert "AUC" not in table[1]  # of one class
    rows = fed.data.split_rows("validation", 5)
    outputs = model.predict(x, rows["inputs"]).double()
    margin, labels = (outputs[:, 1] - outputs[:, 0]).numpy(), rows["labels"].numpy()
    found = delong(margin, labels)
    assert found is not None
    assert table[5]["AUC"] == pytest.approx(found[0])
    assert table[5]["AUC low"] < table[5]["AUC"] < table[5]["AUC high"]
    assert table[5]["accuracy low"] < table[5]["accuracy"] < table[5]["accuracy high"]
    assert table[5]["scored rows"] == len(labels)
    with pytest.raises(PlacementError, match="only sums"):
        by_client(Federation(cross_entropy(model), data(), only_sums=True), x)


def test_a_coarse_histogram_is_followed_by_a_finer_one() -> None:
    """Logits that all lie within a hundredth: the fixed grid cannot tell them apart, one fitted to them can."""
    model = Model(nn.Linear(4, 2))
    fed = Federation(cross_entropy(model), data(clients=9))
    x = 1e-3 * model.vector()
    coarse, fine = evaluate(fed, x, tolerance=1.0), evaluate(fed, x)
    assert fed.ledger["evaluation"].exchanges == 3
    assert fine.bounds["AUC"] < 0.2 * coarse.bounds["AUC"]
    outputs, labels = pooled(fed, model, x)
    exact = roc_auc_score(labels, outputs[:, 1] - outputs[:, 0])
    assert abs(fine.values["AUC"] - exact) <= fine.bounds["AUC"] + 1e-9


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_outputs_that_are_not_finite_are_refused_by_the_client_s_name(engine: str) -> None:
    model = Model(mlp(4, 5, 2))
    fed = Federation(cross_entropy(model), data(), engine=engine)
    with pytest.raises(NonFinite, match="c1"):
        evaluate(fed, torch.full_like(model.vector(), 1e38))


def test_a_net_of_one_output_is_scored_as_two_classes() -> None:
    model = Model(nn.Linear(4, 1))
    problem = replace(cross_entropy(Model(nn.Linear(4, 2))), predictor=model)
    fed = Federation(problem, data())
    outputs, labels = pooled(fed, model, model.vector())
    scores = evaluate(fed, model.vector())
    assert abs(scores.values["AUC"] - roc_auc_score(labels, outputs[:, 0])) <= scores.bounds["AUC"] + 1e-9
    with pytest.raises(ProblemError, match="a score for each of the 3 classes"):
        evaluate(fed, model.vector(), classes=3)


def test_many_clients_in_blocks_are_one_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    from rookery.engines import rowsums

    model = Model(mlp(4, 5, 2))
    fed = Federation(cross_entropy(model), data(clients=12))
    whole = evaluate(fed, model.vector()).values
    monkeypatch.setattr(rowsums, "ROWS", 20)
    assert evaluate(fed, model.vector()).values == pytest.approx(whole, rel=1e-9)


def test_two_exchanges_are_one_pass_of_the_net() -> None:
    """The scores of stored rows are kept between a histogram and its finer one."""
    calls: list[int] = []
    net = nn.Linear(4, 2)
    net.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    model = Model(net)
    fed = Federation(cross_entropy(model), data(clients=9), engine="loop")
    evaluate(fed, 1e-3 * model.vector())
    assert fed.ledger["evaluation"].exchanges == 2
    rows = fed.data.split("validation")
    assert rows is not None
    assert sum(calls) == int(rows.sizes.sum())


def test_a_model_has_one_vector_of_parameters() -> None:
    model = Model(nn.Linear(4, 2))
    fed = Federation(cross_entropy(model), data())
    with pytest.raises(ProblemError, match=r"a model's parameters are one vector; got the shape \(2, 10\)"):
        evaluate(fed, torch.zeros(2, model.size))
