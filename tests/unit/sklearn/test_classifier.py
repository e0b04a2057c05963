"""The classifier with scikit-learn's conventions: sites, groups and sensitive features, and what may stand around it."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rookery.fitting import GOALS
from rookery.sklearn import FederatedClassifier

QUICK: dict[str, Any] = {"hidden": (), "rounds": 3, "local_steps": 2, "batch": 8, "step_sizes": (0.3, 1.0), "splits": 1, "random_state": 0}


def rows(number: int = 160, classes: int = 2, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Inputs, labels, sites and sexes; the first input goes with the label, the second turns round from site to site."""
    r = np.random.default_rng(seed)
    y, site, sex = r.integers(0, classes, number), r.integers(0, 2, number), r.choice(["f", "m"], number)
    X = np.stack([y * 1.5, (2 * site - 1) * y * 3.0], 1) + r.normal(0, 1, (number, 2))
    X[:, 0] += 2.0 * (sex == "f")
    return X, y, np.where(site == 0, "north", "süd"), sex


def model(goal: str = "accuracy", **options: Any) -> FederatedClassifier:
    return FederatedClassifier(goal, **{**QUICK, **options})


@pytest.mark.parametrize("goal", GOALS)
def test_every_goal_is_fitted_and_the_best_on_held_out_rows_is_kept(goal: str) -> None:
    X, y, site, sex = rows()
    own = model(goal, opponents=goal != "auc").fit(X, y, sites=site, sensitive_features=sex)
    proba = own.predict_proba(X, sites=site)
    assert proba.shape == (160, 2)
    np.testing.assert_allclose(proba.sum(1), 1)
    decided = own.predict(X, sites=site, sensitive_features=sex)
    assert set(decided) <= {0, 1}
    assert (decided == y).mean() > 0.6
    best = max(own.results_, key=lambda row: row["validation"])
    assert [row["method"] for row in own.results_ if row["kept"]] == [best["method"]] == [own.method_]
    assert best["step_size"] == own.step_size_
    assert {row["kind"] for row in own.results_} == ({"opponent", "nested"} if goal != "auc" else {"nested"})


def test_classes_and_names_of_columns_are_those_of_the_rows() -> None:
    X, y, site, _ = rows(classes=3)
    frame, named = pd.DataFrame(X, columns=["age", "größe"]), np.asarray(["a", "b", "ç"])[y]
    own = model(opponents=False).fit(frame, named, sites=pd.Series(site))
    assert own.classes_.tolist() == ["a", "b", "ç"]
    assert own.feature_names_in_.tolist() == ["age", "größe"]
    assert set(own.predict(frame)) <= {"a", "b", "ç"}
    with pytest.raises(ValueError, match="feature names"):
        own.predict(frame[["größe", "age"]])
    truth = model(opponents=False).fit(frame, y == 0)
    assert truth.classes_.tolist() == [False, True]
    assert truth.predict(frame).dtype == bool


def test_the_same_seed_gives_the_same_model_and_copies_predict_alike() -> None:
    X, y, site, _ = rows()
    own = model(random_state=3, opponents=False).fit(X, y, sites=site)
    again = clone(own).fit(X, y, sites=site)
    other = model(random_state=4, opponents=False).fit(X, y, sites=site)
    carried = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(own.predict_proba(X), again.predict_proba(X))
    np.testing.assert_array_equal(own.predict_proba(X), carried.predict_proba(X))
    assert not np.array_equal(own.predict_proba(X), other.predict_proba(X))


# sites


def test_a_site_is_the_same_as_a_text_or_a_number_and_needs_a_value() -> None:
    X, y, site, _ = rows(60)
    number = (site == "north") + 1
    forms = [number, number.astype(float), number.astype(str), pd.Series(number, dtype="Int64"), pd.DataFrame({"site": number})]
    found = [model(opponents=False).fit(X, y, sites=form).predict_proba(X) for form in forms]
    assert all(np.array_equal(found[0], other) for other in found[1:])
    for missing in (np.where(number == 1, np.nan, number), pd.Series([None, *site[1:]]), pd.array([pd.NA, *number[1:]], dtype="Int64")):
        with pytest.raises(ValueError, match="sites has a value for every row"):
            model().fit(X, y, sites=missing)
    with pytest.raises(ValueError, match="sites has one value for each of the 60 rows; it has 59"):
        model().fit(X, y, sites=site[1:])


def test_personal_models_are_those_of_the_sites() -> None:
    X, y, site, _ = rows(400)
    own = model("personal", rounds=10).fit(X, y, sites=site)
    assert own.method_ != "FedAvg"  # sites want opposite signs
    assert set(own.personal_) == {"north", "süd"}
    personal, common = own.predict(X, sites=site), own.predict(X)
    assert (personal == y).mean() > (common == y).mean() + 0.05
    some = np.where(np.arange(400) % 2 == 0, site, "elsewhere")
    mixed = own.predict_proba(X, sites=some)
    np.testing.assert_array_equal(mixed[1::2], own.predict_proba(X)[1::2])
    np.testing.assert_array_equal(mixed[::2], own.predict_proba(X, sites=site)[::2])


def test_sites_of_few_rows_and_of_one_class_take_part() -> None:
    X, y, _, sex = rows(60)
    sites = np.where(y == 1, "sick", "well").astype(object)
    sites[:6] = [f"alone{k}" for k in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for goal in GOALS:
            own = model(goal, opponents=False, rounds=1, step_sizes=(0.3,)).fit(X, y, sites=sites, sensitive_features=sex)
            assert np.isfinite(own.predict_proba(X)).all()


def test_rows_of_a_group_stay_on_one_side(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, site, _ = rows()
    patient, seen = np.arange(160) // 4, []
    prepared = FederatedClassifier._prepared

    def look(self: Any, *arguments: Any) -> Any:
        seen.append(prepared(self, *arguments))
        return seen[-1]

    monkeypatch.setattr(FederatedClassifier, "_prepared", look)
    model(splits=2, opponents=False).fit(X, y, sites=site, groups=patient)
    assert len(seen) == 2
    for made in seen:
        held = made.data.split("validation")
        assert held is not None
        train, kept = ({*part.fields["group"].tolist()} for part in (made.data, held))
        assert kept
        assert not train & kept


# groups of fairness


@pytest.mark.parametrize("goal", ["fair", "worst_group"])
def test_sensitive_features_are_the_groups_of_thresholds(goal: str) -> None:
    X, y, site, sex = rows(300)
    own = model(goal).fit(X, y, sites=site, sensitive_features=sex)
    assert own.sensitive_values_ == ("f", "m")
    assert own.method_.endswith("thresholds by group") == (len(set(own.thresholds_)) > 1)
    own.thresholds_ = [0.6, 0.4]
    with pytest.raises(ValueError, match="a threshold for each sensitive feature: predict"):
        own.predict(X)
    proba = own.predict_proba(X)[:, 1]
    np.testing.assert_array_equal(own.predict(X, sensitive_features=sex), proba > np.where(sex == "f", 0.6, 0.4))
    np.testing.assert_array_equal(own.predict(X, sensitive_features=np.full(300, "x")), proba > 0.5)
    own.thresholds_ = [0.3, 0.3]
    np.testing.assert_array_equal(own.predict(X), proba > 0.3)


def test_a_missing_sensitive_feature_is_a_group_of_its_own() -> None:
    X, y, site, sex = rows(200)
    feature = pd.Series(np.where(np.arange(200) % 5 == 0, None, sex))
    own = model("worst_group").fit(X, y, sites=site, sensitive_features=feature)
    assert own.sensitive_values_ == ("", "f", "m")
    np.testing.assert_array_equal(own.predict(X, sensitive_features=feature), own.predict(X, sensitive_features=feature.fillna(np.nan)))


def test_groups_that_are_too_many_are_refused_and_one_that_cannot_be_compared_is_named() -> None:
    X, y, _, sex = rows()
    with pytest.raises(ValueError, match="sensitive_features have 160 values, and groups are 50 at most"):
        model("fair").fit(X, y, sensitive_features=np.arange(160))
    with pytest.warns(UserWarning, match="the group 'm' has no training rows by which to compare it"):
        own = model("fair").fit(X, y, sensitive_features=np.where(y == 1, "f", sex))
    assert all(row["kind"] == "opponent" for row in own.results_)


def test_fair_without_groups_is_said_to_be_balanced_accuracy() -> None:
    X, y, _, _ = rows()
    with pytest.warns(UserWarning, match="no sensitive_features to be fair between, so that it is balanced accuracy"):
        model("fair").fit(X, y)


# around it


def test_in_a_pipeline_and_across_folds_of_groups_with_sites_through_routing() -> None:
    X, y, site, _ = rows()
    patient = np.arange(160) // 4
    with sklearn.config_context(enable_metadata_routing=True):
        own = model(opponents=False).set_fit_request(sites=True, groups=True).set_score_request(sites=False)
        scores = cross_val_score(make_pipeline(StandardScaler(), own), X, y, cv=GroupKFold(2), params={"sites": site, "groups": patient})
        assert scores.min() > 0.6
        personal = model("personal").set_fit_request(sites=True).set_score_request(sites=True)
        search = GridSearchCV(personal, {"step_sizes": [(0.1,), (0.5,)]}, cv=2).fit(X, y, sites=site)
        assert search.best_score_ > 0.6
        assert (search.best_estimator_.step_size_,) == search.best_params_["step_sizes"]
        assert search.best_estimator_.score(X, y, sites=site) == (search.best_estimator_.predict(X, sites=site) == y).mean()


def test_goals_can_be_searched() -> None:
    X, y, _, _ = rows()
    search = GridSearchCV(model(opponents=False), {"goal": ["accuracy", "auc"]}, cv=2, scoring="roc_auc").fit(X, y)
    assert search.best_params_["goal"] in ("accuracy", "auc")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# mistakes


@pytest.mark.parametrize(("options", "words"), [
    ({"goal": "auk"}, "there is no goal 'auk'; did you mean 'auc'"), ({"validation": 1.5}, "validation is a share between 0 and 1"),
    ({"splits": 0}, "splits are one at least"), ({"step_sizes": ()}, "step_sizes some positive numbers"),
    ({"step_sizes": (0.1, -1.0)}, "step_sizes some positive numbers"), ({"rounds": 0}, "rounds must be at least 1"),
    ({"batch": 2}, "a step four rows"), ({"goal": "fair", "kind": "odds"}, "kind is one of"), ({"gap": -0.1}, "gap is a difference"),
    ({"hidden": 16}, "hidden and step_sizes are sequences"), ({"step_sizes": 0.1}, "hidden and step_sizes are sequences"),
    ({"hidden": (-3,)}, "hidden layers have at least one unit")])
def test_parameters_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    X, y, _, sex = rows(60)
    with pytest.raises(ValueError, match=words):
        model(**options).fit(X, y, sensitive_features=sex)


@pytest.mark.parametrize("goal", [name for name, goal in GOALS.items() if goal.two_classes])
def test_three_classes_are_too_many_for_some_goals(goal: str) -> None:
    X, y, _, _ = rows(60, classes=3)
    with pytest.raises(ValueError, match=f"the goal {goal} is for two classes, and there are 3"):
        model(goal).fit(X, y)


def test_step_sizes_at_which_all_diverges_are_said() -> None:
    X, y, _, _ = rows(60)
    with pytest.raises(ValueError, match="diverged at every step size"):
        model(step_sizes=(1e30,)).fit(X, y)


def test_rows_too_few_to_hold_any_out_are_used_twice_with_a_warning() -> None:
    X, y, _, _ = rows(8)
    y[:] = [0] * 7 + [1]
    with pytest.warns(UserWarning, match="too few for every class to be among those that the sites hold out"):
        model().fit(X, y)
