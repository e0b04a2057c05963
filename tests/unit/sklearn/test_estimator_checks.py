"""scikit-learn's own checks of an estimator, for every goal."""

from __future__ import annotations

import warnings

import pytest
from sklearn.utils.estimator_checks import check_estimator

from rookery.fitting import GOALS
from rookery.sklearn import FederatedClassifier

QUICK = ("accuracy",)
DECIDES = {"check_classifiers_train": "decisions go by a threshold that is chosen for the goal, and not by the larger probability"}


@pytest.mark.parametrize("goal", [pytest.param(goal, marks=[] if goal in QUICK else pytest.mark.slow) for goal in GOALS])
def test_the_conventions_hold(goal: str) -> None:
    model = FederatedClassifier(goal, rounds=6, step_sizes=(0.5,), opponents=False, splits=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(model, on_skip=None, on_fail=None,
                                expected_failed_checks=DECIDES if goal in ("worst_group", "fair") else None)
    failed = {own["check_name"]: own["exception"] for own in found if own["status"] == "failed"}
    assert not failed
    assert sum(own["status"] == "passed" for own in found) > 40
