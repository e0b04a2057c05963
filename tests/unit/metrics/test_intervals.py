"""Intervals: DeLong against the paper's components, Wilson against SciPy, the bootstrap against laws in closed form, and coverage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score

from rookery.errors import DataError, ProblemError
from rookery.metrics import Interval, auc_interval, bootstrap_interval, delong, delong_test, wilson


def components(scores: NDArray[Any], positive: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The structural components of the paper, pair by pair: V₁₀ of the positives, V₀₁ of the negatives."""
    x, y = scores[positive], scores[~positive]
    psi = (x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])
    return psi.mean(1), psi.mean(0)


def drawn(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Two scores of the same rows, related, with ties where the seed is even."""
    rng = np.random.default_rng(seed)
    positive = np.concatenate([[True, True, False, False], rng.random(int(rng.integers(15, 60))) < 0.4])
    a = rng.normal(positive * 1.0, 1)
    b = 0.5 * a + rng.normal(positive * 0.3, 1)
    return (a, b, positive) if seed % 2 else (a.round(), b.round(), positive)


@pytest.mark.parametrize("seed", range(30))
def test_delong_by_midranks_is_delong_pair_by_pair(seed: int) -> None:
    a, b, positive = drawn(seed)
    (a10, a01), (b10, b01) = components(a, positive), components(b, positive)
    found = delong(a, positive)
    assert found is not None
    m, n = len(a10), len(a01)
    np.testing.assert_allclose(found, (roc_auc_score(positive, a), np.sqrt(np.var(a10, ddof=1) / m + np.var(a01, ddof=1) / n)), atol=1e-12)
    s = np.cov(a10, b10) / m + np.cov(a01, b01) / n
    test = delong_test(a, b, positive)
    assert test is not None
    error = np.sqrt(s[0, 0] + s[1, 1] - 2 * s[0, 1])
    np.testing.assert_allclose(test, (a10.mean() - b10.mean(), error, 2 * stats.norm.sf(abs(a10.mean() - b10.mean()) / error)), atol=1e-9)


def test_without_a_class_the_auc_is_undefined_and_of_one_row_its_error() -> None:
    for positive in ([0, 0, 0], [1, 1, 1]):
        assert delong([1, 2, 3], positive) is None
        assert auc_interval([1, 2, 3], positive) is None
        assert delong_test([1, 2, 3], [3, 2, 1], positive) is None
    assert delong([1, 2, 3], [0, 1, 0]) == (0.5, None)
    assert delong_test([1, 2, 3], [1, 3, 2], [0, 1, 0]) == (-0.5, None, None)
    alone = auc_interval(np.arange(1001), np.arange(1001) == 500)
    assert alone is not None
    assert alone.low < 0.1 < 0.9 < alone.high  # a thousand negatives do not make up for a single positive


def test_two_scores_of_the_same_order_have_no_p_value() -> None:
    a, _, positive = drawn(1)
    assert delong_test(a, np.exp(a), positive) == (0.0, 0.0, None)


def test_an_interval_of_the_auc_is_delongs_on_the_logit_scale() -> None:
    a, _, positive = drawn(7)
    found, known = auc_interval(a, positive, 0.9), delong(a, positive)
    assert found is not None
    assert known is not None
    value, error = known
    assert error is not None
    low, high = (np.log(x / (1 - x)) for x in (found.low, found.high))
    np.testing.assert_allclose([(low + high) / 2, (high - low) / 2],
                               [np.log(value / (1 - value)), stats.norm.ppf(0.95) * error / (value * (1 - value))])


@pytest.mark.parametrize(("positives", "negatives"), [(1, 1), (3, 50), (50, 3), (100, 100)])
def test_a_perfect_order_has_the_interval_of_as_many_pairs_as_share_no_row(positives: int, negatives: int) -> None:
    scores, positive = np.arange(positives + negatives), np.arange(positives + negatives) >= negatives
    k = min(positives, negatives)
    exact = stats.binomtest(k, k).proportion_ci(0.95, "exact")
    np.testing.assert_allclose(auc_interval(scores, positive), (1.0, exact.low, exact.high))
    np.testing.assert_allclose(auc_interval(-scores, positive), (0.0, 1 - exact.high, 1 - exact.low))
    np.testing.assert_allclose(exact.low, 0.025 ** (1 / k))


def test_scores_that_are_all_the_same_do_not_make_the_auc_certain() -> None:
    found = auc_interval(np.zeros(20), np.arange(20) < 10)
    exact = stats.binomtest(5, 10).proportion_ci(0.95, "exact")
    np.testing.assert_allclose(found, (0.5, exact.low, exact.high))


@pytest.mark.parametrize(("shift", "positives", "negatives"), [(0.5, 30, 40), (1.5, 20, 60), (3.0, 8, 30)])
def test_intervals_of_the_auc_cover_it_about_as_often_as_they_say(shift: float, positives: int, negatives: int) -> None:
    rng, truth, covered = np.random.default_rng(0), stats.norm.cdf(shift / np.sqrt(2)), 0
    positive = np.arange(positives + negatives) < positives
    for _ in range(400):
        found = auc_interval(rng.normal(shift * positive, 1), positive)
        assert found is not None
        covered += found.low <= truth <= found.high
    assert 0.91 <= covered / 400 <= 0.995


def test_equal_scores_are_told_apart_about_as_often_as_the_level_says() -> None:
    rng, positive, rejected = np.random.default_rng(1), np.arange(80) < 30, 0
    for _ in range(400):
        found = delong_test(rng.normal(positive, 1), rng.normal(positive, 1), positive)
        assert found is not None
        assert found.p is not None
        rejected += found.p < 0.05
    assert 0.02 <= rejected / 400 <= 0.09


# the bootstrap

def test_quantiles_of_the_bootstrap_are_those_of_its_law() -> None:
    def mean(scores: NDArray[Any], labels: NDArray[Any]) -> float:
        return float(scores[labels == 1].mean())

    scores, labels = [0.0, 1.0, 7.0], [1, 1, 0]  # the mean of two draws from {0, 1}: 0, ½, 1 with ¼, ½, ¼
    assert bootstrap_interval(mean, scores, labels) == Interval(0.5, 0.0, 1.0)
    assert bootstrap_interval(mean, scores, labels, level=0.3) == Interval(0.5, 0.5, 0.5)
    values = np.random.default_rng(0).normal(size=400)
    found = bootstrap_interval(mean, values, np.ones(400), draws=2000)
    assert found is not None
    np.testing.assert_allclose([found.low, found.high], values.mean() + np.asarray([-1.96, 1.96]) * values.std() / 20, atol=0.01)
    assert found == bootstrap_interval(mean, values, np.ones(400), draws=2000, seed=0)
    assert found != bootstrap_interval(mean, values, np.ones(400), draws=2000, seed=1)


def test_every_draw_has_as_many_rows_of_each_class() -> None:
    labels = np.asarray([2, 0, 0, 1, 2, 2])
    assert bootstrap_interval(lambda s, y: float((y == 2).mean()), np.zeros((6, 3)), labels, draws=50) == Interval(0.5, 0.5, 0.5)


def test_draws_without_a_value_are_left_out_and_rows_without_one_have_no_interval() -> None:
    def share(scores: NDArray[Any], labels: NDArray[Any]) -> float | None:
        return float(scores.max()) if (scores == 0).any() else None  # undefined on the draws that miss the row with 0

    found = bootstrap_interval(share, [0.0, 5.0, 6.0], [0, 0, 0], level=0.99, draws=500)
    assert found == Interval(6.0, 0.0, 6.0)
    assert bootstrap_interval(share, [1.0, 5.0], [0, 0]) is None
    assert bootstrap_interval(lambda s, y: float("nan"), [1.0], [0]) is None
    assert bootstrap_interval(lambda s, y: 1.0 if s.tolist() == [1, 2, 3, 4] else None, [1.0, 2.0, 3.0, 4.0], [0] * 4, draws=1) is None


# Wilson

@pytest.mark.parametrize(("successes", "rows"), [(0, 1), (1, 1), (0, 20), (3, 7), (19, 20), (1000, 3000)])
def test_wilson_is_scipys(successes: int, rows: int) -> None:
    for level in (0.5, 0.95):
        exact = stats.binomtest(successes, rows).proportion_ci(level, "wilson")
        np.testing.assert_allclose(wilson(successes, rows, level), (successes / rows, exact.low, exact.high), atol=1e-12)


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: wilson(0, 0), ProblemError, "at least one; got 0 of 0"), (lambda: wilson(3, 2), ProblemError, "3 of 2"),
    (lambda: wilson(1, 2, 95), ProblemError, "such as 0.95; got 95"), (lambda: auc_interval([1], [1], 0), ProblemError, "level"),
    (lambda: delong([1, np.nan], [0, 1]), DataError, "1 of 2 are NaN"),
    (lambda: delong([1, 2], [0, 1, 1]), DataError, r"\(2,\) and \(3,\)"),
    (lambda: bootstrap_interval(lambda s, y: 0.0, [1], [1], draws=0), ProblemError, "draws"),
    (lambda: bootstrap_interval(lambda s, y: 0.0, [1], [1, 2]), DataError, r"\(1,\) and \(2,\)")])
def test_mistakes_are_told(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
