"""Sums over rows: the metrics are scikit-learn's, a client's rows merge with another's, and what the rows do not define is absent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, balanced_accuracy_score, brier_score_loss, log_loss, recall_score
from torch import Tensor

from rookery.errors import DataError, ProblemError
from rookery.metrics import class_sums, from_sums
from rookery.metrics.rows import class_sums_by_owner


def drawn(classes: int, rows: int = 300) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(classes)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, rows - classes)])
    outputs = rng.normal(0, 2, (rows, classes)) + 1.5 * np.eye(classes)[labels]
    return torch.from_numpy(outputs), torch.from_numpy(labels)


def naive_ece(p: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    top, right, total = p.max(1), p.argmax(1) == labels, 0.0
    for i in range(15):
        rows = (top > i / 15) & (top <= (i + 1) / 15)
        if rows.any():
            total += rows.mean() * abs(right[rows].mean() - top[rows].mean())
    return total


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_metrics_are_scikit_learns(classes: int) -> None:
    outputs, labels = drawn(classes)
    found, p, y = from_sums(class_sums(outputs, labels, classes).sum(0), classes), outputs.softmax(1).numpy(), labels.numpy()
    guess = p.argmax(1)
    brier = brier_score_loss(y, p[:, 1]) if classes == 2 else np.square(p - np.eye(classes)[y]).sum(1).mean()
    exact = {"loss": log_loss(y, p), "accuracy": accuracy_score(y, guess), "balanced accuracy": balanced_accuracy_score(y, guess),
             "worst class": recall_score(y, guess, average=None).min(), "Brier": brier, "ECE": naive_ece(p, y)}
    assert found.keys() == exact.keys()
    np.testing.assert_allclose([found[name] for name in exact], list(exact.values()), rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 5])
def test_sums_by_client_are_those_of_its_rows_and_add_up_to_those_of_all(classes: int) -> None:
    outputs, labels = drawn(classes)
    owner = torch.from_numpy(np.random.default_rng(0).integers(0, 4, len(labels)))
    each = class_sums(outputs.float(), labels, classes)
    assert each.dtype == torch.float64
    by_client = torch.zeros(4, each.shape[1], dtype=torch.float64).index_add(0, owner, each)
    for client in range(4):
        own = class_sums(outputs[owner == client].float(), labels[owner == client], classes)
        torch.testing.assert_close(own, each[owner == client], rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(by_client[client], own.sum(0))
    together, all_at_once = from_sums(by_client.sum(0), classes), from_sums(each.sum(0), classes)
    assert together == pytest.approx(all_at_once, rel=1e-12)


def test_what_the_rows_do_not_define_is_absent() -> None:
    outputs, labels = drawn(3)
    everything = class_sums(outputs, labels, 3)
    some = from_sums(everything[labels != 1].sum(0), 3)
    assert set(some) == {"loss", "accuracy", "Brier", "ECE"}
    right = everything[(labels == 0) & (outputs.argmax(1) == 0)].sum(0)
    assert from_sums(right, 3)["accuracy"] == 1
    assert "worst class" not in from_sums(right, 3)
    assert from_sums(class_sums(outputs[:0], labels[:0], 3).sum(0), 3) == {}


def test_large_outputs_have_a_finite_loss_and_a_nan_is_no_hit() -> None:
    found = from_sums(class_sums(torch.tensor([[0.0, 3e4], [3e4, 0.0]]), torch.tensor([0, 0]), 2).sum(0), 2)
    assert found == pytest.approx({"loss": 1.5e4, "accuracy": 0.5, "Brier": 0.5, "ECE": 0.5})
    broken = from_sums(class_sums(torch.tensor([[np.nan, 0.0], [1.0, 0.0]]), torch.tensor([0, 0]), 2).sum(0), 2)
    assert broken["accuracy"] == 0.5
    assert np.isnan(broken["loss"])
    assert np.isnan(broken["ECE"])


def test_a_probability_at_the_end_of_a_bin_is_in_it() -> None:
    each = class_sums(torch.tensor([[0.0, 0.0], [0.0, 100.0]]), torch.tensor([0, 1]), 2)
    assert each[:, 7:22].argmax(1).tolist() == [7, 14]  # ½ is in (7/15, 8/15]; 1 in the last
    thirds = class_sums(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0]), 3)
    np.testing.assert_allclose(thirds[0, 9 + 15:9 + 30].sum(), 1 / 3)


@pytest.mark.parametrize(("outputs", "labels", "classes", "words"), [
    (torch.zeros(2, 3), torch.tensor([0, 1]), 2, r"outputs must be \(rows, 2\)"),
    (torch.zeros(2), torch.tensor([0, 1]), 2, "a column for each"),
    (torch.zeros(2, 2), torch.tensor([0, 2]), 2, "from 0 to 1"), (torch.zeros(2, 2), torch.tensor([-1, 1]), 2, "number the classes from 0"),
    (torch.zeros(2, 2), torch.zeros(2), 2, "whole numbers"), (torch.zeros(2, 2), torch.zeros(3).long(), 2, r"\(3,\)")])
def test_rows_that_do_not_fit_are_refused(outputs: Tensor, labels: Tensor, classes: int, words: str) -> None:
    with pytest.raises(DataError, match=words):
        class_sums(outputs, labels, classes)


def test_constants_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProblemError, match="at least 2; got 1"):
        class_sums(torch.zeros(2, 1), torch.zeros(2).long(), 1)
    with pytest.raises(ProblemError, match="3 classes are 54 numbers"):
        from_sums(torch.zeros(52), 3)


@pytest.mark.parametrize("classes", [2, 3])
def test_sums_by_owner_are_the_rows_numbers_added_up(classes: int) -> None:
    outputs, labels = drawn(classes)
    owner = torch.from_numpy(np.random.default_rng(0).integers(0, 5, len(labels)))  # of seven owners, two have no rows
    expected = torch.zeros(7, 48 + 2 * classes, dtype=torch.float64).index_add_(0, owner, class_sums(outputs, labels, classes))
    torch.testing.assert_close(class_sums_by_owner(outputs, labels, classes, owner, 7), expected, rtol=1e-12, atol=1e-12)
