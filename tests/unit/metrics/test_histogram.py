"""Ranking metrics of histograms: the exact ones lie within their bounds, whatever the ties; sums merge; fitted edges narrow the bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import auc as area
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

from rookery.errors import DataError, ProblemError
from rookery.metrics import (
    Ranked,
    auc,
    average_precision,
    default_edges,
    histograms_by_client,
    partial_auc,
    refined_edges,
    score_histogram,
)

CLOSE = 1e-12
FPRS = (0.05, 0.1, 0.3, 0.5, 1.0)


def exact_partial(positive: Any, scores: Any, m: float) -> float:
    """McClish's standardisation, undone."""
    standard = roc_auc_score(positive, scores, max_fpr=m)
    return float(standard) if m == 1 else float((2 * standard - 1) * (1 - m / 2) + m / 2)


def exact(positive: Any, scores: Any, m: float) -> tuple[float, float, float]:
    """AUC, average precision and partial AUC, the areas under scikit-learn's ROC curve: one call of it instead of two, which take long."""
    fpr, tpr, _ = roc_curve(positive, scores)
    inside = fpr <= m
    x, y = np.append(fpr[inside], m), np.append(tpr[inside], np.interp(m, fpr, tpr) if not inside.all() else 1.0)
    return float(area(fpr, tpr)), float(average_precision_score(positive, scores)), float(area(x, y)) / m


def within(known: float, found: Ranked | None) -> bool:
    return found is not None and found.low - CLOSE <= known <= found.high + CLOSE and found.low <= found.value <= found.high


@st.composite
def rows(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Rows of both classes, often one of a class, with few distinct scores."""
    values = st.integers(-4, 4) if draw(st.booleans()) else st.integers(-60, 60)
    negatives, positives = (draw(st.lists(values, min_size=1, max_size=draw(st.sampled_from([1, 3, 15])))) for _ in range(2))
    return np.asarray(negatives + positives) / 4, np.repeat([False, True], [len(negatives), len(positives)])


# a few edges, some of them scores
inner = st.lists(st.integers(-16, 16), max_size=6).map(lambda edges: torch.tensor(sorted(edges), dtype=torch.float64) / 4)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(rows(), inner, st.sampled_from(FPRS))
def test_the_exact_metrics_lie_within_the_bounds(data: tuple[Any, Any], edges: Tensor, m: float) -> None:
    scores, positive = data
    histogram = score_histogram(torch.tensor(scores), torch.tensor(positive), edges)
    found = [auc(histogram), average_precision(histogram), partial_auc(histogram, m)]
    assert all(within(e, f) for e, f in zip(exact(positive, scores, m), found, strict=True))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows(), inner, st.sampled_from(FPRS))
def test_the_value_is_scikit_learns_of_the_binned_scores(data: tuple[Any, Any], edges: Tensor, m: float) -> None:
    scores, positive = data
    histogram, binned = score_histogram(torch.tensor(scores), torch.tensor(positive), edges), np.searchsorted(edges.numpy(), scores)
    found = [auc(histogram), average_precision(histogram), partial_auc(histogram, m)]
    known = [roc_auc_score(positive, binned), average_precision_score(positive, binned), exact_partial(positive, binned, m)]
    np.testing.assert_allclose([f.value for f in found if f], known, atol=CLOSE)
    np.testing.assert_allclose(exact(positive, binned, m), known, atol=CLOSE)


def test_the_bounds_are_the_smallest_and_the_largest_over_all_orders_and_ties() -> None:
    positive, m = np.asarray([True, True, False, False, True, False]), 0.5
    edges = torch.tensor([5.0], dtype=torch.float64)
    orders = list(product(range(3), range(3), range(3), range(3), range(8, 10), range(8, 10)))
    every = np.asarray([exact(positive, order, m) for order in orders])
    histogram = score_histogram(torch.tensor(orders[0]), torch.tensor(positive), edges)
    for column, found in zip(every.T, (auc(histogram), average_precision(histogram), partial_auc(histogram, m)), strict=True):
        assert found is not None
        np.testing.assert_allclose([found.low, found.high], [column.min(), column.max()], atol=CLOSE)


def test_a_bound_of_average_precision_that_forgets_ties_is_wrong() -> None:
    scores, positive = np.asarray([3.0, 1.0, 1.0]), np.asarray([False, True, True])
    one_by_one = (1 / 2 + 2 / 3) / 2  # the positives first in their bin, but not tied
    known = average_precision_score(positive, scores)
    found = average_precision(score_histogram(torch.tensor(scores), torch.tensor(positive), torch.tensor([2.0])))
    assert found is not None
    assert within(known, found)
    assert not within(known, found._replace(value=one_by_one, high=one_by_one))
    np.testing.assert_allclose([found.low, found.high], [one_by_one, 2 / 3])


@pytest.mark.parametrize(("negatives", "positives"), [([10, 40, 3], [5, 20, 9]), ([2e6, 5, 7e5], [1, 2e5, 3]), ([0, 60, 1e6], [2e5, 3, 1])])
def test_the_lowest_average_precision_is_that_of_all_positives_one_by_one(negatives: list[float], positives: list[float]) -> None:
    lowest, tp, fp = 0.0, 0.0, 0.0
    for n, p in zip(reversed(negatives), reversed(positives), strict=True):
        j = np.arange(1, p + 1)
        lowest += float(((tp + j) / (tp + j + fp + n)).sum())
        tp, fp = tp + p, fp + n
    found = average_precision(torch.tensor([negatives, positives]))
    assert found is not None
    np.testing.assert_allclose(found.low, lowest / sum(positives), rtol=1e-11)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rows(), inner, st.integers(1, 5), st.integers(0, 2**16))
def test_histograms_of_parts_add_up_to_that_of_the_whole(data: tuple[Any, Any], edges: Tensor, clients: int, seed: int) -> None:
    scores, positive = map(torch.tensor, data)
    owner = torch.from_numpy(np.random.default_rng(seed).integers(0, clients, len(scores)))
    by_client = histograms_by_client(scores, positive, owner, clients, edges)
    assert by_client.dtype == torch.float64
    for client in range(clients):
        assert torch.equal(by_client[client], score_histogram(scores[owner == client], positive[owner == client], edges))
    assert torch.equal(by_client.sum(0), score_histogram(scores, positive, edges))
    assert auc(by_client.mean(0) * clients) == auc(by_client.sum(0))


@pytest.mark.parametrize("metric", [auc, average_precision, lambda h: partial_auc(h, 0.1)])
def test_without_rows_of_a_class_a_metric_is_undefined(metric: Callable[[Tensor], Ranked | None]) -> None:
    for histogram in ([[0.0, 0.0], [1.0, 2.0]], [[1.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]):
        assert metric(torch.tensor(histogram)) is None
    assert metric(torch.tensor([[1.0, 0.0], [0.0, 1.0]])) == Ranked(1.0, 1.0, 1.0)


def test_default_edges_are_finest_around_zero_and_the_same_everywhere() -> None:
    edges = default_edges()
    widths = edges.diff()
    assert (len(edges), edges.dtype, float(edges[0]), float(edges[511]), float(edges[-1])) == (1023, torch.float64, -64.0, 0.0, 64.0)
    assert torch.equal(edges, -edges.flip(0))
    assert torch.equal(edges * 2**20, (edges * 2**20).round())
    torch.testing.assert_close(widths[511:] / (1 + ((edges[512:] + edges[511:-1]) / 2).square()).sqrt(),
                               torch.full((511,), 2 * np.arcsinh(64) / 1022, dtype=torch.float64), rtol=1e-3, atol=0)
    assert [len(default_edges(bins)) for bins in (1, 2, 3)] == [0, 1, 2]
    far = score_histogram(torch.tensor([-np.inf, -1e30, 1e30, np.inf]), torch.tensor([0, 0, 1, 1]), edges)
    assert (float(far[0, 0]), float(far[1, -1])) == (2.0, 2.0)


# fitted edges

def realistic() -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.bool_]]]:
    rng = np.random.default_rng(0)
    for name, low, high, width, negatives, positives in (("shifted", -4, -3, 1, 5000, 5000), ("rare", -4, -3, 1, 9900, 100),
                                                         ("narrow", 0, 0.01, 0.01, 3000, 2000), ("wide", 0, 10, 20, 3000, 2000),
                                                         ("far", 500, 600, 100, 1000, 1000), ("tiny", 0, 1, 1, 3, 2)):
        yield (name, np.concatenate([rng.normal(low, width, negatives), rng.normal(high, width, positives)]),
               np.repeat([False, True], [negatives, positives]))
    yield "tied", rng.normal(0, 3, 2000).round(), rng.random(2000) < 0.3
    scores = rng.standard_t(2, 4000) * 3
    yield "heavy tails", scores, rng.random(4000) < 1 / (1 + np.exp(-scores))


def widths(scores: NDArray[np.float64], positive: NDArray[np.bool_], edges: Tensor) -> list[float]:
    """Of the bounds, which hold the exact metrics."""
    histogram = score_histogram(torch.tensor(scores), torch.tensor(positive), edges)
    found = [auc(histogram), average_precision(histogram), partial_auc(histogram, 0.1)]
    assert all(within(e, f) for e, f in zip(exact(positive, scores, 0.1), found, strict=True))
    return [f.high - f.low for f in found if f]


@pytest.mark.parametrize(("name", "scores", "positive"), [pytest.param(*case, id=case[0]) for case in realistic()])
def test_bounds_on_fitted_edges_are_never_wider(name: str, scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> None:
    for bins in (16, 256, 1024):
        edges = default_edges(bins)
        histogram = score_histogram(torch.tensor(scores), torch.tensor(positive), edges)
        fitted = refined_edges(histogram, edges, 1024)
        assert len(fitted) < 1024
        assert bool(torch.isfinite(fitted).all())
        assert bool((fitted[1:] > fitted[:-1]).all())
        before, after = widths(scores, positive, edges), widths(scores, positive, fitted)
        assert all(a <= b + CLOSE for a, b in zip(after, before, strict=True))
        if name in ("shifted", "rare", "narrow"):
            assert all(a <= b / 5 for a, b in zip(after, before, strict=True) if b > 0.002)
        fewer = refined_edges(histogram, edges, bins // 2)
        assert len(fewer) < bins // 2
        assert len(widths(scores, positive, fewer)) == 3


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows(), inner, st.integers(0, 30))
def test_fitted_edges_are_never_worse_also_for_few_rows_and_bins(data: tuple[Any, Any], edges: Tensor, more: int) -> None:
    scores, positive = data
    histogram = score_histogram(torch.tensor(scores), torch.tensor(positive), edges)
    fitted = refined_edges(histogram, edges, len(edges) + 1 + more)
    assert len(fitted) <= len(edges) + more
    assert all(a <= b + CLOSE for a, b in zip(widths(scores, positive, fitted), widths(scores, positive, edges), strict=True))


def test_fitted_edges_of_a_class_alone_or_of_nothing_are_edges_too() -> None:
    edges = default_edges(8)
    assert torch.equal(refined_edges(torch.zeros(2, 8), edges, 16), default_edges(16))
    assert torch.equal(refined_edges(torch.ones(2, 1), default_edges(1), 16), default_edges(16))
    for alone in ([[0.0] * 8, [1.0] * 8], [[1.0] * 8, [0.0] * 8]):
        assert 1 <= len(refined_edges(torch.tensor(alone), edges, 16)) < 16
    assert len(refined_edges(torch.ones(2, 8), edges, 1)) == 0


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: score_histogram(torch.tensor([1.0, np.nan]), torch.tensor([0, 1]), torch.tensor([0.0])), DataError, "1 of 2 are NaN"),
    (lambda: score_histogram(torch.zeros(2, 1), torch.zeros(2), torch.zeros(1)), DataError, r"one entry for each row.*\(2, 1\)"),
    (lambda: score_histogram(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 0.0])), ProblemError, "edges must be .*sorted"),
    (lambda: histograms_by_client(torch.zeros(1), torch.zeros(1), torch.tensor([2]), 2, torch.zeros(1)), DataError, "from 0 to 1"),
    (lambda: auc(torch.zeros(3, 4)), ProblemError, r"is \(2, bins\)"),
    (lambda: auc(torch.full((2, 4), 0.5)), ProblemError, "whole numbers"),
    (lambda: auc(torch.full((2, 4), -1.0)), ProblemError, "none negative"),
    (lambda: auc(torch.full((2, 4), np.nan)), ProblemError, "counts"),
    (lambda: partial_auc(torch.ones(2, 4), 0.0), ProblemError, "above 0 and at most 1"),
    (lambda: refined_edges(torch.ones(2, 4), torch.zeros(4)), ProblemError, "4 bins has 3 inner edges"),
    (lambda: default_edges(0), ProblemError, "at least 1")])
def test_what_is_not_a_histogram_is_refused(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
