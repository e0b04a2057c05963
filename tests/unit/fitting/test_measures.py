"""How far a goal is reached: by hand, against scikit-learn, and the same from the sites' sums as from rows in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fits import job_of, prepared
from sklearn.metrics import average_precision_score, roc_auc_score

from rookery.errors import ConfigError, DataError
from rookery.fitting.goals import GOALS
from rookery.fitting.measures import Measure, Scored, able_sites, lowest, make_measure, ranked


def scored(margin: Any, labels: Any, site: Any = None, group: Any = None, margins: tuple[float, ...] = ()) -> Scored:
    zero = np.zeros(len(labels), dtype=np.int64)
    outputs = torch.stack([torch.zeros(len(labels)), torch.tensor(margin)], 1)
    return Scored.of(outputs, torch.tensor(labels), *(zero if own is None else np.asarray(own) for own in (site, group)), margins)


# rankings


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_rankings_with_weights_are_those_of_scikit_learn(ties: bool, seed: int) -> None:
    r = np.random.default_rng(seed)
    labels, w = r.integers(0, 2, 60), r.integers(0, 4, 60).astype(float)
    margin = r.normal(labels, 1.0)
    margin = np.round(margin * 2) / 2 if ties else margin
    assert ranked(margin, labels, w) == pytest.approx(roc_auc_score(labels, margin, sample_weight=w))
    assert ranked(margin, labels, w, "ap") == pytest.approx(average_precision_score(labels, margin, sample_weight=w))
    for bound in (0.05, 0.1, 0.5, 1.0):
        standardised = roc_auc_score(labels, margin, sample_weight=w, max_fpr=None if bound == 1 else bound)
        value = standardised if bound == 1 else (2 * standardised - 1) * (1 - bound / 2) + bound / 2  # McClish's turned back
        assert ranked(margin, labels, w, "partial_auc", bound) == pytest.approx(value)


def test_a_row_of_weight_two_is_two_rows() -> None:
    r = np.random.default_rng(0)
    labels, w = r.integers(0, 2, 30), r.integers(0, 3, 30)
    margin, again = np.round(r.normal(labels, 1.0), 1), np.repeat(np.arange(30), w)
    for which in ("auc", "ap", "partial_auc"):
        each = ranked(margin[again], labels[again], np.ones(len(again)), which, 0.3)
        assert ranked(margin, labels, w.astype(float), which, 0.3) == pytest.approx(each)


def test_a_partial_auc_up_to_a_false_positive_rate_at_which_the_curve_rises() -> None:
    # two negatives: at a rate of ½ the share of positives found goes from 1 of 4 to 3 of 4, and the second is beyond the bound
    margin, labels = np.asarray([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]), np.asarray([1, 0, 1, 1, 0, 1])
    assert ranked(margin, labels, np.ones(6), "partial_auc", 0.5) == 0.25


@pytest.mark.parametrize("which", ["auc", "ap", "partial_auc"])
def test_rows_of_one_class_have_no_ranking(which: str) -> None:
    assert np.isnan(ranked(np.asarray([1.0, 2.0]), np.asarray([1, 1]), np.ones(2), which, 0.1))
    assert np.isnan(ranked(np.asarray([1.0, 2.0]), np.asarray([0, 1]), np.asarray([0.0, 2.0]), which, 0.1))


# goals by hand


def test_accuracy_by_hand() -> None:
    rows = scored([1.0, -1.0, 2.0, -3.0], [1, 1, 0, 0])
    assert Measure(GOALS["accuracy"], 2).of_rows(rows) == 0.5
    assert Measure(GOALS["personal"], 2).of_rows(rows, np.asarray([3.0, 1.0, 0.0, 0.0])) == 0.75


def test_the_lowest_tenth_is_one_site_at_least() -> None:
    assert lowest(np.asarray([0.4, 0.2, 0.9])) == 0.2
    assert lowest(np.linspace(0.01, 0.20, 20)) == pytest.approx(0.015)
    assert np.isnan(lowest(np.asarray([])))


def test_the_worst_site_by_hand() -> None:
    # site 0: all five positives above all negatives; site 1: one of five below all; site 2 has too few rows, and is the worst
    margin = [1.0] * 5 + [-1.0] * 5 + [1.0] * 4 + [-2.0] + [-1.0] * 5 + [-9.0, 9.0]
    labels, site = [1] * 5 + [0] * 5 + [1] * 5 + [0] * 5 + [1, 0], [0] * 10 + [1] * 10 + [2] * 2
    measure = Measure(GOALS["worst_site"], 2)
    assert measure.of_rows(scored(margin, labels, site)) == pytest.approx(0.8)
    without = np.asarray([1.0] * 10 + [0.0] * 10 + [1.0] * 2)
    assert measure.of_rows(scored(margin, labels, site), without) == 1.0  # a site that is not drawn has no AUC
    assert able_sites(np.asarray([[5.0, 5.0], [5.0, 5.0], [1.0, 1.0]])).tolist() == [0, 1]
    few = scored(margin[-2:] * 2, [1, 0, 1, 0], [0, 0, 1, 1])
    assert measure.of_rows(few) == 0.0  # where all have few rows, these count
    assert measure.of_rows(scored([1.0, 1.0, -1.0], [1, 1, 1], [0, 0, 1])) == 0.0  # of one class accuracy does


def test_the_worst_site_of_three_classes_is_that_of_the_lowest_accuracy() -> None:
    outputs = torch.eye(3)[[0, 1, 2, 2, 0, 0]]
    rows = Scored.of(outputs, torch.tensor([0, 1, 2, 2, 1, 0]), np.asarray([0, 0, 0, 1, 1, 1]), np.zeros(6, dtype=np.int64))
    assert Measure(GOALS["worst_site"], 3).of_rows(rows) == pytest.approx(2 / 3)


def test_the_worst_group_by_hand() -> None:
    # rightly decided: group 0 positives 2 of 2, negatives 1 of 2; group 1 positives 3 of 4, negatives 1 of 1
    labels, group = [1, 1, 0, 0, 1, 1, 1, 1, 0], [0] * 4 + [1] * 5
    margin = [1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0, -1.0, -1.0]
    measure = Measure(GOALS["worst_group"], 2, "sex", 2)
    assert measure.of_rows(scored(margin, labels, group=group)) == 0.5
    assert measure.of_rows(scored(margin, labels, group=group, margins=(1.0, -2.0))) == 0.0  # positives of group 0, negatives of group 1
    weight = np.asarray([1.0, 1, 0, 1, 1, 1, 1, 1, 0])
    assert measure.of_rows(scored(margin, labels, group=group), weight) == 0.75


@pytest.mark.parametrize("kind", ["equality of opportunity", "equalised odds", "demographic parity"])
def test_the_fair_score_by_hand(kind: str) -> None:
    # true positives 1 of 4 and 2 of 2, false positives 1 of 1 and 1 of 3; a gap is to the rate of all rows
    labels, group = [1, 1, 1, 1, 0, 1, 1, 0, 0, 0], [0] * 5 + [1] * 5
    margin = [1.0, -1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -1.0]
    tpr, fpr = 3 / 6, 2 / 4
    gaps = {"equality of opportunity": [abs(1 / 4 - tpr), abs(1 - tpr)],
            "equalised odds": [abs(1 / 4 - tpr), abs(1 - tpr), abs(1 - fpr), abs(1 / 3 - fpr)],
            "demographic parity": [abs(2 / 5 - 5 / 10), abs(3 / 5 - 5 / 10)]}[kind]
    measure = Measure(GOALS["fair"], 2, "sex", 2, kind, gap=0.04)
    value = (tpr + 1 - fpr) / 2 - (max(gaps) - 0.04)
    assert measure.of_rows(scored(margin, labels, group=group)) == pytest.approx(value)
    allowed = Measure(GOALS["fair"], 2, "sex", 2, kind, gap=0.6)
    assert allowed.of_rows(scored(margin, labels, group=group)) == pytest.approx((tpr + 1 - fpr) / 2)


@pytest.mark.parametrize("goal", ["fair", "worst_group"])
def test_rows_that_lack_a_class_have_no_score_and_no_warning(goal: str) -> None:
    measure = Measure(GOALS[goal], 2, "sex", 2)
    assert np.isnan(measure.of_rows(scored([1.0, -1.0], [0, 0], group=[0, 1])))
    assert np.isfinite(measure.of_rows(scored([1.0, -1.0, 0.5], [0, 0, 1], group=[0, 0, 1])))  # groups may


# the same numbers from the sites


@pytest.mark.parametrize("goal", ["accuracy", "auc", "ap", "partial_auc", "worst_site"])
def test_what_the_sites_send_gives_the_value_of_their_rows_in_one_place(goal: str) -> None:
    job = job_of(prepared(sites=3), {"run": {"max_fpr": 0.1}})
    measure, vector = Measure(GOALS[goal], 2), job.given.vector
    held = job.held
    site = np.repeat(np.arange(len(held.names)), held.sizes)
    rows = Scored.of(job.predict(vector, held.fields["inputs"]), held.fields["labels"], site, site * 0)
    assert measure.at_sites(job, vector).value == pytest.approx(measure.of_rows(rows), abs=1e-3)  # a histogram leaves so much to doubt


@pytest.mark.parametrize("goal", ["worst_group", "fair"])
@pytest.mark.parametrize("by_group", [False, True])
def test_margins_that_the_sites_choose_have_a_value_near_that_of_their_rows(goal: str, by_group: bool) -> None:
    job = job_of(prepared(sites=3, rows=600))
    measure, vector, held = Measure(GOALS[goal], 2, "sex", 2), job.given.vector, job.held
    found = measure.at_sites(job, vector, by_group)
    assert len(found.margins) == 2
    assert by_group or found.margins[0] == found.margins[1]
    rows = Scored.of(job.predict(vector, held.fields["inputs"]), held.fields["labels"], held.fields["labels"].numpy() * 0,
                     held.fields["sex"].numpy(), found.margins)
    assert found.value <= measure.of_rows(rows) + 1e-9  # on these rows they were chosen
    assert found.value > measure.of_rows(rows) - 0.2


def test_the_worst_group_of_three_classes_counts_rows_of_every_class_and_group() -> None:
    job = job_of(prepared(sites=2, classes=3))
    measure, held = Measure(GOALS["worst_group"], 3, "sex", 2), job.held
    assert not measure.decides
    labels, group = held.fields["labels"].numpy(), held.fields["sex"].numpy()
    right = job.predict(job.given.vector, held.fields["inputs"]).argmax(1).numpy() == labels
    each = [right[(labels == k) & (group == g)].mean() for k in range(3) for g in range(2)]
    assert measure.at_sites(job, job.given.vector).value == pytest.approx(min(each))


@pytest.mark.parametrize(("goal", "classes"), [("auc", 2), ("ap", 2), ("partial_auc", 2), ("worst_site", 2), ("fair", 2),
                                               ("worst_group", 2), ("worst_group", 3)])
def test_validation_rows_that_lack_a_class_are_refused(goal: str, classes: int) -> None:
    job = job_of(prepared(rows=40, classes=classes), {"run": {"max_fpr": 0.1}})
    job.held.fields["labels"].zero_()
    with pytest.raises(DataError, match="they lack a class"):
        Measure(GOALS[goal], classes).at_sites(job, job.given.vector)


def test_a_sensitive_column_must_be_one_of_categories() -> None:
    data, names = prepared(sites=2).data, {"sex": ("f", "m"), "elsewhere": ("x",)}
    assert make_measure(GOALS["fair"], data.fields, 2, names, "sex", gap=0.1) == Measure(GOALS["fair"], 2, "sex", 2, gap=0.1)
    for name in ("elsewhere", "inputs", "age"):
        with pytest.raises(ConfigError, match=f"the sensitive column '{name}' must be one of categories that the rows have; they have sex"):
            make_measure(GOALS["fair"], data.fields, 2, names, name)
    with pytest.raises(ConfigError, match="'sex' has 51 values, and groups are 50 at most: bring it into ranges"):
        make_measure(GOALS["fair"], data.fields, 2, {"sex": tuple(map(str, range(51)))}, "sex")
