"""What came out on test rows: the bootstrap against known cases, and the sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.fitting import verdict
from rookery.fitting.goals import GOALS
from rookery.fitting.measures import Measure, Scored
from rookery.fitting.verdict import bootstrapped, sentence

ACCURACY = Measure(GOALS["accuracy"], 2)


def scored(right: Any) -> Scored:
    """Rows of two classes of which some are decided rightly."""
    labels, zero = np.arange(len(right)) % 2, np.zeros(len(right), dtype=np.int64)
    decided = np.where(right, labels, 1 - labels)
    return Scored(decided - 0.5, decided, labels, zero, zero)


def test_an_interval_of_accuracy_is_that_of_the_binomial() -> None:
    found = bootstrapped(ACCURACY, {"a": scored(np.arange(400) % 5 > 0)}, draws=2000).values["a"]
    spread = np.sqrt(0.8 * 0.2 / 400)
    assert found[0] == 0.8
    np.testing.assert_allclose(found[1:], [0.8 - 1.96 * spread, 0.8 + 1.96 * spread], atol=0.005)


@pytest.mark.parametrize("goal", ["auc", "ap", "partial_auc", "worst_site", "worst_group", "fair", "accuracy"])
def test_two_identical_models_do_not_differ_at_all(goal: str) -> None:
    r = np.random.default_rng(0)
    labels = r.integers(0, 2, 80)
    margin = r.normal(labels, 1)
    rows = Scored(margin, (margin > 0).astype(int), labels, r.integers(0, 3, 80), r.integers(0, 2, 80))
    tested = bootstrapped(Measure(GOALS[goal], 2, "sex", 2), {"a": rows, "b": rows}, draws=50)
    assert tested.difference("b", "a") == (0.0, 0.0, 0.0)
    value, low, high = tested.values["a"]
    assert low < value < high


def test_models_are_drawn_the_same_rows() -> None:
    """Two models that are right on other rows: what one has more is paired, and not a difference of two intervals."""
    right = np.arange(300) % 3 > 0
    better = right.copy()
    better[:30] = True  # ten rows more
    tested = bootstrapped(ACCURACY, {"a": scored(right), "b": scored(better)}, draws=1000)
    value, low, high = tested.difference("b", "a")
    assert value == pytest.approx(10 / 300)
    spread = np.sqrt(10 / 300 * 290 / 300 / 300)
    np.testing.assert_allclose([low, high], [value - 1.96 * spread, value + 1.96 * spread], atol=0.005)
    assert tested.difference("a", "b")[0] == -value


def test_units_are_drawn_whole() -> None:
    """Ten rows of each of 20 patients, all right or all wrong: as wide as an interval of 20 rows, and each value a share of patients."""
    right, units = np.repeat(np.arange(20) % 4 > 0, 10), np.repeat(np.arange(20) * 7 + 3, 10)
    whole, rows = (bootstrapped(ACCURACY, {"a": scored(right)}, own, draws=500) for own in (units, None))
    assert np.allclose(whole.draws["a"] * 20, np.round(whole.draws["a"] * 20))
    assert not np.allclose(rows.draws["a"] * 20, np.round(rows.draws["a"] * 20))
    width, narrow = (high - low for _, low, high in (whole.values["a"], rows.values["a"]))
    assert width == pytest.approx(2 * 1.96 * np.sqrt(0.75 * 0.25 / 20), rel=0.25)
    assert narrow < width / 2


def test_draws_that_do_not_define_the_value_are_left_out() -> None:
    labels = np.asarray([1] + [0] * 7)
    rows = Scored(np.arange(8.0), labels, labels, labels * 0, labels * 0)
    tested = bootstrapped(Measure(GOALS["auc"], 2), {"a": rows}, draws=200)
    assert 0.2 < np.isnan(tested.draws["a"]).mean() < 0.5  # (7/8)⁸ of them have no positive
    assert tested.values["a"] == (0.0, 0.0, 0.0)
    none = bootstrapped(Measure(GOALS["auc"], 2), {"a": Scored(np.arange(3.0), *[np.zeros(3, dtype=np.int64)] * 4)}, draws=5)
    assert np.isnan(none.values["a"]).all()


def gained(gains: Any) -> verdict.Tested:
    draws = np.asarray(gains, dtype=float)
    return verdict.Tested({"N": (float(0.5 + draws.mean()), 0.4, 0.9), "F": (0.5, 0.4, 0.6)}, {"N": 0.5 + draws, "F": 0.5 + 0 * draws})


@pytest.mark.parametrize(("gains", "begins", "by"), [
    ([0.1, 0.2, 0.3], "Nesting paid here: ", "0.200 more than F"), ([-0.1, -0.2, -0.3], "Nesting did not pay here: ", "0.200 less than F"),
    ([-0.1, 0.0, 0.4], "Whether nesting pays here these rows do not tell: ", "0.100 more than F")])
def test_the_three_sentences(gains: list[float], begins: str, by: str) -> None:
    said = sentence("AUC", "N", "F", "F", gained(gains), 77)
    assert said.startswith(f"{begins}N has a test AUC of ")
    assert by in said
    assert "77 rows" in said
    assert said.endswith("Kept, as the best on validation rows: F.")
    low, high = np.quantile(gains, [0.025, 0.975])
    assert f"95 % interval of the difference {low:+.3f} to {high:+.3f}" in said


def test_a_goal_without_a_nested_method_says_so() -> None:
    assert sentence("AUC", None, "F", "F", gained([0.0]), 7).startswith("There is no nested method for this goal on these rows.")
