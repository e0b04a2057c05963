"""Decisions from histograms are those of the rows, by scikit-learn and by counting; what the rows do not define is None or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score
from torch import Tensor

from rookery.errors import DataError, ProblemError
from rookery.metrics import auc_interval, default_edges, refined_edges, score_histogram, wilson
from rookery.metrics.calibration import Calibrator
from rookery.metrics.decisions import (
    Confusion,
    Predicted,
    auc_interval_from_histogram,
    choose_threshold,
    decide,
    decision_curve,
    expected_calibration_error,
    probabilities_off,
    reliability,
)

EDGES = default_edges()
Rows = tuple[NDArray[np.float64], NDArray[np.bool_]]


def drawn(rows: int = 400, seed: int = 0, share: float = 0.3) -> Rows:
    rng = np.random.default_rng(seed)
    positive = np.concatenate([[True, False], rng.random(rows - 2) < share])
    return rng.normal(1.5 * positive - 1, 1.2), positive


def histogram_of(rows: Rows, edges: Tensor = EDGES) -> Tensor:
    return score_histogram(torch.from_numpy(rows[0]), torch.from_numpy(rows[1]), edges)


def counted(rows: Rows, threshold: float) -> Confusion:
    guess, positive = rows[0] > threshold, rows[1]
    return Confusion(*(int((guess[positive == right] == says).sum()) for right, says in ((1, 1), (0, 1), (1, 0), (0, 0))))


def test_shares_are_scikit_learns_with_wilsons_intervals() -> None:
    scores, positive = drawn()
    guess, c = scores > 0.3, counted((scores, positive), 0.3)
    assert [[c.tn, c.fp], [c.fn, c.tp]] == confusion_matrix(positive, guess).tolist()
    exact = {"sensitivity": recall_score(positive, guess), "specificity": recall_score(~positive, ~guess),
             "ppv": precision_score(positive, guess), "npv": precision_score(~positive, ~guess), "accuracy": (positive == guess).mean()}
    for name, value in exact.items():
        assert getattr(c, name).value == pytest.approx(value)
    assert c.f1 == pytest.approx(f1_score(positive, guess))
    assert c.sensitivity == wilson(c.tp, int(positive.sum()))
    assert c.ppv == wilson(c.tp, int(guess.sum()))


def test_a_share_of_no_rows_is_undefined() -> None:
    c = Confusion(tp=0, fp=0, fn=0, tn=5)
    assert (c.sensitivity, c.ppv, c.f1) == (None, None, None)
    assert c.specificity == wilson(5, 5)
    nothing = Confusion(0, 0, 0, 0)
    assert nothing.accuracy is nothing.npv is nothing.specificity is None


@pytest.mark.parametrize("seed", range(5))
def test_a_decision_at_an_edge_is_that_of_the_rows_and_elsewhere_within_its_doubt(seed: int) -> None:
    rows = drawn(seed=seed)
    for threshold in [-math.inf, *EDGES[400:620:20].tolist(), math.inf]:
        assert decide(histogram_of(rows), EDGES, threshold) == (threshold, counted(rows, threshold), 0)
    few = torch.linspace(-4, 4, 9, dtype=torch.float64)
    for threshold in (-9.0, -1.2, 0.7, 4.5):
        found, exact = decide(histogram_of(rows, few), few, threshold), counted(rows, threshold)
        assert sum(abs(a - b) for a, b in zip(found.confusion, exact, strict=True)) <= 2 * found.doubt
        assert found.threshold == threshold


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rule", ["f1", ("sensitivity", 0.9), ("cost", 1.0, 4.0)])
def test_a_chosen_threshold_is_the_best_of_all_edges(rule: Any, seed: int) -> None:
    rows = drawn(seed=seed)
    found = choose_threshold(histogram_of(rows), EDGES, rule)
    assert found.confusion == counted(rows, found.threshold)
    every = {edge: counted(rows, edge) for edge in EDGES.tolist()}
    if rule == "f1":
        assert found.confusion.f1 == pytest.approx(f1_score(rows[1], rows[0] > found.threshold))
        assert found.confusion.f1 == max(2 * c.tp / (2 * c.tp + c.fp + c.fn) for c in every.values())
    elif rule[0] == "sensitivity":
        assert found.threshold == max(edge for edge, c in every.items() if c.tp >= 0.9 * rows[1].sum())
    else:
        assert found.confusion.fp + 4 * found.confusion.fn == min(c.fp + 4 * c.fn for c in every.values())


def test_costs_move_the_threshold_as_far_as_all_or_none() -> None:
    rows = np.asarray([-99.0, -99.0, 99.0, 99.0]), np.asarray([True, False, True, False])
    assert choose_threshold(histogram_of(rows), EDGES, ("cost", 1.0, 100.0)) == (-math.inf, (2, 2, 0, 0), 0)
    assert choose_threshold(histogram_of(rows), EDGES, ("cost", 100.0, 1.0)) == (math.inf, (0, 0, 2, 2), 0)


def test_between_separated_classes_the_middle_edge_is_taken() -> None:
    edges = torch.arange(-5.0, 6.0)
    rows = np.asarray([-4.5, -2.5, 2.5, 4.5]), np.asarray([False, False, True, True])
    for rule in ("f1", ("cost", 1.0, 1.0)):
        assert choose_threshold(histogram_of(rows, edges), edges, rule) == (0.0, (2, 0, 0, 2), 0)  # type: ignore[arg-type]
    assert choose_threshold(histogram_of(rows, edges), edges, ("sensitivity", 1.0)).threshold == 2.0
    assert choose_threshold(histogram_of(rows, edges), edges, ("sensitivity", 0.5)).threshold == 4.0


def test_a_threshold_of_a_probability_is_the_calibrators() -> None:
    rows = drawn()
    h = histogram_of(rows)
    assert choose_threshold(h, EDGES, ("probability", 0.5)) == (0.0, counted(rows, 0.0), 0)
    found = choose_threshold(h, EDGES, ("probability", 0.2), Calibrator("platt", 2.0, -1.0))
    assert found.threshold == pytest.approx((math.log(0.25) + 1) / 2)
    p = Calibrator("platt", 2.0, -1.0).positive(torch.from_numpy(rows[0])).numpy()
    assert abs(found.confusion.tp - int((rows[1] & (p > 0.2)).sum())) <= found.doubt
    assert choose_threshold(torch.zeros(2, 1024), EDGES, ("probability", 0.5)).confusion == (0, 0, 0, 0)


@pytest.mark.parametrize("calibrator", [None, Calibrator("platt", 0.8, 0.3)])
def test_reliability_is_that_of_the_rows(calibrator: Calibrator | None) -> None:
    rows = drawn(5000)
    table = reliability(histogram_of(rows), EDGES, calibrator)
    p = (calibrator or Calibrator()).positive(torch.from_numpy(rows[0])).numpy()
    bins = np.minimum(np.ceil(p * 10) - 1, 9)
    exact = [(p[bins == i].mean(), rows[1][bins == i].mean(), (bins == i).sum()) for i in range(10) if (bins == i).any()]
    assert sum(entry.rows for entry in table) == 5000
    np.testing.assert_allclose([entry.predicted for entry in table], [predicted for predicted, _, _ in exact], atol=0.003)
    np.testing.assert_allclose([entry.observed.value for entry in table], [observed for _, observed, _ in exact], atol=0.03)
    error = sum(n * abs(predicted - observed) for predicted, observed, n in exact) / 5000
    assert expected_calibration_error(table) == pytest.approx(error, abs=0.005)
    assert table[0].observed == wilson(round(table[0].observed.value * table[0].rows), table[0].rows)


def test_bins_without_rows_are_absent() -> None:
    h = histogram_of((np.asarray([-9.0, 9.0]), np.asarray([False, True])))
    assert [entry.rows for entry in reliability(h, EDGES)] == [1, 1]
    assert reliability(torch.zeros(2, 1024), EDGES) == []
    assert expected_calibration_error([]) is None
    assert expected_calibration_error([Predicted(0.5, wilson(5, 10), 10)]) == 0


def test_net_benefit_is_counted_and_that_of_all_is_a_line_in_the_odds() -> None:
    rows, calibrator = drawn(), Calibrator("temperature", 1.5)
    edges = torch.sort(torch.from_numpy(rows[0])).values  # every row at the end of its own bin: no decision is in doubt
    p = calibrator.positive(torch.from_numpy(rows[0])).numpy()
    share = rows[1].mean()
    for found in decision_curve(histogram_of(rows, edges), edges, calibrator, [0.1, 0.5, 0.8]):
        odds, act = found.probability / (1 - found.probability), p > found.probability
        # the row nearest to the threshold may stand on its other side
        assert found.model == pytest.approx((rows[1] & act).mean() - (~rows[1] & act).mean() * odds, abs=(1 + odds) / 400 + 1e-12)
        assert found.treat_all == pytest.approx(share - (1 - share) * odds)
        assert found.treat_none == 0
    assert decision_curve(torch.zeros(2, 1024), EDGES, None, [0.5]) == []


@pytest.mark.parametrize("seed", range(4))
def test_the_interval_of_an_auc_is_delongs_of_the_rows(seed: int) -> None:
    rows = drawn(300, seed)
    edges = refined_edges(histogram_of(rows), EDGES)
    np.testing.assert_allclose(auc_interval_from_histogram(histogram_of(rows, edges)), auc_interval(*rows), atol=2e-4)
    tied = rows[0].round(), rows[1]
    halves = torch.arange(-12.0, 13.0) + 0.5
    np.testing.assert_allclose(auc_interval_from_histogram(histogram_of(tied, halves), 0.8), auc_interval(*tied, level=0.8), atol=1e-12)


def test_an_interval_of_binned_scores_covers_the_auc_about_as_often_as_it_says() -> None:
    rng, positive, truth, covered = np.random.default_rng(0), np.arange(90) < 30, stats.norm.cdf(1 / np.sqrt(2)), 0
    for _ in range(200):
        found = auc_interval_from_histogram(histogram_of((rng.normal(positive, 1), positive)))
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.9 <= covered / 200 <= 0.995


def test_without_a_class_there_is_no_interval() -> None:
    assert auc_interval_from_histogram(torch.tensor([[1.0, 2.0], [0.0, 0.0]])) is None
    assert auc_interval_from_histogram(torch.zeros(2, 3)) is None


@pytest.mark.parametrize(("predicted", "observed", "rows", "told"), [
    (0.21, 0.03, 500, True), (0.03, 0.21, 500, True), (0.21, 0.03, 4, False),  # too few rows to tell
    (0.51, 0.50, 10**6, False), (0.53, 0.50, 10**6, True),  # off by less and by more than 0.02
    (0.0011, 0.001, 10**8, False), (0.0013, 0.001, 10**8, True),  # by a factor of less and of more than 1.25
    (0.01, 0.0, 10**5, True), (0.5, 0.0, 0, False), (0.9, 0.9, 10, False)])
def test_probabilities_are_off_beyond_chance_and_beyond_trifles(predicted: float, observed: float, rows: int, told: bool) -> None:
    sentence = probabilities_off(predicted, observed, rows)
    assert (sentence is not None) == told
    assert sentence is None or f"{predicted:.2g}" in sentence


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda h: choose_threshold(h, EDGES, "f2"), ProblemError, "a rule is \"f1\".*'f2'"),  # type: ignore[arg-type]
    (lambda h: choose_threshold(h, EDGES, ("cost", 1.0)), ProblemError, "a rule is"),  # type: ignore[arg-type]
    (lambda h: choose_threshold(h, EDGES, ("cost", -1.0, 2.0)), ProblemError, "not negative"),
    (lambda h: choose_threshold(h, EDGES, ("sensitivity", 90)), ProblemError, "at most 1; got 90"),
    (lambda h: choose_threshold(h, EDGES, ("probability", 1.0)), ProblemError, "between 0 and 1"),
    (lambda h: choose_threshold(h * torch.tensor([[1.0], [0.0]]), EDGES, "f1"), DataError, "0 positives"),
    (lambda h: choose_threshold(torch.zeros(2, 1024), EDGES, ("cost", 1.0, 1.0)), DataError, "rows of both classes"),
    (lambda h: choose_threshold(h, EDGES[1:], "f1"), ProblemError, "1024 bins has 1023 inner edges"),
    (lambda h: decide(h, EDGES, math.nan), ProblemError, "got NaN"), (lambda h: reliability(h, EDGES, bins=0), ProblemError, "at least 1"),
    (lambda h: decide(h[0], EDGES, 0.0), ProblemError, r"a histogram is \(2, bins\)")])
def test_mistakes_are_told(call: Callable[[Tensor], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(histogram_of(drawn()))
