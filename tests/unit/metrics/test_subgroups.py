"""Scores by group are those of the pooled rows of the group, on every engine, but for what clients with few rows withhold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_score, recall_score, roc_auc_score
from torch import Tensor, nn

from rookery import Data, Federation, Model
from rookery.errors import DataError, NonFinite, ProblemError
from rookery.metrics import wilson
from rookery.metrics.calibration import Calibrator
from rookery.metrics.subgroups import Group, by_group
from rookery.objectives import cross_entropy

ENGINES = ["loop", "vectorised", "wire", "auto"]
X = torch.eye(2).flatten()  # the model is the identity: inputs are outputs


def rows_of(sizes: list[int], seed: int, positives: bool = True) -> dict[str, Tensor]:
    """Rows of a client, so many of each group; of the second group the model knows less."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    labels = (rng.random(len(group)) < 0.4) * positives
    margin = rng.normal((2 - group) * (labels - 0.5), 1)
    return {"inputs": torch.from_numpy(np.stack([np.zeros_like(margin), margin], 1)).float(), "labels": torch.from_numpy(labels).long(),
            "sex": torch.from_numpy(group)}


PARTS = {"a": rows_of([60, 40], 0), "b": rows_of([30, 9], 1), "c": rows_of([3, 50], 2), "d": rows_of([20, 0], 3)}


def federation(parts: dict[str, dict[str, Tensor]] = PARTS, **options: Any) -> Federation[Any]:
    """One more client has no validation rows."""
    train = Data.from_parts(parts | {"none": PARTS["d"]})
    return Federation(cross_entropy(Model(nn.Linear(2, 2, bias=False))), train.with_splits(validation=Data.from_parts(parts)), **options)


def pooled(group: int, clients: str) -> tuple[Any, Any]:
    rows = {name: torch.cat([PARTS[client][name] for client in clients]) for name in PARTS["a"]}
    own = rows["sex"] == group
    return rows["inputs"][own, 1].double().numpy(), rows["labels"][own].numpy()


@pytest.mark.parametrize("engine", ENGINES)
def test_groups_have_the_scores_of_their_pooled_rows(engine: str) -> None:
    fed, calibrator = federation(engine=engine), Calibrator("platt", 0.7, 0.2)
    found = by_group(fed, X, "validation", "sex", 2, threshold=0.25, calibrator=calibrator)
    for group, clients in zip(found, ("abd", "ac"), strict=True):  # c has 3 rows of the first group, b 9 of the second
        margin, labels = pooled(group.value, clients)
        assert (group.rows, group.positives, group.withheld) == (len(labels), labels.sum(), 1)
        assert group.auc is not None
        assert group.doubt is not None
        assert abs(group.auc.value - roc_auc_score(labels, margin)) <= group.doubt + 1e-9
        assert group.auc.low < group.auc.value < group.auc.high
        guess, c = margin > 0.25, group.confusion
        assert c.sensitivity == wilson(c.tp, group.positives)
        np.testing.assert_allclose([c.sensitivity.value, c.specificity.value, c.ppv.value],  # type: ignore[union-attr]
                                   [recall_score(labels, guess), recall_score(1 - labels, ~guess), precision_score(labels, guess)])
        assert group.predicted == pytest.approx((1 / (1 + np.exp(-0.7 * margin - 0.2))).mean())
        assert group.observed == wilson(group.positives, group.rows)
    account = fed.ledger["evaluation"]
    assert (account.exchanges, account.floats_up, account.samples) == (1, 5 * 2 * (2 * 1024 + 4), 212)
    assert fed.ledger["train"].exchanges == 0


def test_engines_book_the_same() -> None:
    feds = [federation(engine=engine) for engine in ENGINES]
    found = [by_group(fed, X, "validation", "sex", 2) for fed in feds]
    assert all(fed.ledger == feds[0].ledger for fed in feds)
    assert all(groups[0].confusion == found[0][0].confusion for groups in found)


def test_what_a_client_withholds_changes_no_sum() -> None:
    """A group of fewer rows than the least leaves no trace but that it is there, whatever its rows are."""
    others = PARTS | {"b": PARTS["b"] | {"inputs": torch.where((PARTS["b"]["sex"] == 1)[:, None], 50.0, PARTS["b"]["inputs"])}}
    assert by_group(federation(others), X, "validation", "sex", 2) == by_group(federation(), X, "validation", "sex", 2)
    shown = by_group(federation(), X, "validation", "sex", 2, least=1)
    assert [(group.rows, group.withheld) for group in shown] == [(113, 0), (99, 0)]
    strict = by_group(federation(), X, "validation", "sex", 2, least=1000)
    assert [(group.rows, group.withheld) for group in strict] == [(0, 4), (0, 3)]


def test_undefined_stays_undefined() -> None:
    negatives = {"a": rows_of([30, 40], 0, positives=False)}
    first, _, empty = by_group(federation(negatives), X, "validation", "sex", 3)
    assert (first.auc, first.doubt, first.confusion.sensitivity) == (None, None, None)
    assert first.confusion.specificity is not None
    assert first.observed == wilson(0, 30)
    assert empty == Group(2, 0, 0, 0, None, None, (0, 0, 0, 0), None, None)  # type: ignore[arg-type]
    assert empty.off is None


def test_a_client_below_the_least_rows_shows_nothing() -> None:
    found = by_group(federation(min_batch=50), X, "validation", "sex", 2, least=1)
    assert [(group.rows, group.withheld) for group in found] == [(63, 0), (90, 0)]  # of a and c


def test_probabilities_that_do_not_come_true_are_told() -> None:
    wrong, _ = by_group(federation(), X, "validation", "sex", 2, calibrator=Calibrator("platt", 1.0, 4.0))
    assert wrong.off is not None
    assert "calibrate" in wrong.off
    right, _ = by_group(federation(), X, "validation", "sex", 2)
    assert right.off is None


@pytest.mark.parametrize("engine", ["loop", "wire"])
@pytest.mark.parametrize(("threshold", "expected"), [(-math.inf, 1.0), (math.inf, 0.0)])
def test_an_infinite_threshold_takes_all_rows_or_none(engine: str, threshold: float, expected: float) -> None:
    first, _ = by_group(federation(engine=engine), X, "validation", "sex", 2, threshold=threshold)
    assert first.confusion.sensitivity is not None
    assert first.confusion.sensitivity.value == expected


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_outputs_that_are_no_numbers_are_refused_by_the_client_s_name(engine: str) -> None:
    bad = PARTS | {"c": PARTS["c"] | {"inputs": torch.full((53, 2), 1e30)}}  # both outputs become infinite, and their difference NaN
    with pytest.raises(NonFinite, match="'c'"):
        by_group(federation(bad, engine=engine), 1e10 * X, "validation", "sex", 2)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: by_group(federation(), X, "validation", "age", 2), DataError, "'sex'.*got 'age'"),
    (lambda: by_group(federation(), X, "validation", "sex", 1), DataError, "from 0 to 0 .*with others"),
    (lambda: by_group(federation(), X, "validation", "inputs", 2), DataError, "int64.*float32"),
    (lambda: by_group(federation(), X, "validation", "sex", 0), ProblemError, "groups=0"),
    (lambda: by_group(federation(), X, "validation", "sex", 2, threshold=math.nan), ProblemError, "threshold=nan")])
def test_mistakes_are_told(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
