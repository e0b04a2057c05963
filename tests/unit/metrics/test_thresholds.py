"""Thresholds from histograms of groups: against brute force over rows, on every engine, and what they are worth on other rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rookery import Data, Federation, Model
from rookery.metrics.histogram import default_edges
from rookery.metrics.thresholds import Rates, best_thresholds, crossed, group_histograms, rates_at
from rookery.objectives import cross_entropy

ENGINES = ["loop", "vectorised", "wire"]
BINS = 24
X = torch.eye(2).flatten()  # the model is the identity: inputs are outputs


def worst(rates: Rates) -> Any:
    return np.fmin.reduce(np.concatenate([rates.tpr, 1 - rates.fpr], -1), -1)


def even(rates: Rates) -> Any:
    """Balanced accuracy of groups of equal weight, less half of the largest difference between the groups' shares of true positives."""
    return (rates.tpr + 1 - rates.fpr).mean(-1) / 2 - 0.5 * (rates.tpr.max(-1) - rates.tpr.min(-1))


def rows(seed: int, number: int = 60, groups: int = 2) -> tuple[Any, Any, Any]:
    """Margins, labels and groups; every group has scores on a scale of its own."""
    r = np.random.default_rng(seed)
    group, labels = np.arange(number) % groups, (r.random(number) < 0.4).astype(int)
    return r.normal(2.0 * labels * (1 + group) - group, 1.0), labels, group


def histogram(margin: Any, labels: Any, group: Any, bins: int = BINS) -> Any:
    edges, groups = default_edges(bins).numpy(), group.max() + 1
    found = np.zeros((groups, 2, bins))
    np.add.at(found, (group, labels, np.searchsorted(edges, margin)), 1)
    return found


def decided(margin: Any, labels: Any, group: Any, thresholds: Any) -> Rates:
    """Rates of rows, without any histogram."""
    positive, groups = margin > np.asarray(thresholds)[group], range(group.max() + 1)
    negatives, positives = ([int(((group == g) & (labels == k)).sum()) for g in groups] for k in (0, 1))
    fpr, tpr = ([positive[(group == g) & (labels == k)].mean() for g in groups] for k in (0, 1))
    return Rates(*(np.asarray(column, dtype=float) for column in (negatives, positives, fpr, tpr)))


@pytest.mark.parametrize("seed", range(4))
def test_rates_are_those_of_the_rows_above_the_edge(seed: int) -> None:
    margin, labels, group = rows(seed)
    edges = default_edges(BINS).numpy()
    margin[:8] = edges[8:16]  # a row at an edge is not above it
    for places in ([0, 22], [11, 11], [13, 9]):
        found, expected = rates_at(histogram(margin, labels, group), np.asarray(places)), decided(margin, labels, group, edges[places])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other)


@pytest.mark.parametrize("score", [worst, even])
@pytest.mark.parametrize("seed", range(4))
def test_a_common_threshold_is_the_best_of_all_edges(score: Any, seed: int) -> None:
    margin, labels, group = rows(seed)
    at, value = best_thresholds(histogram(margin, labels, group), score)
    every = [float(score(decided(margin, labels, group, [edge, edge]))) for edge in default_edges(BINS).tolist()]
    assert value == pytest.approx(max(every))
    assert at[0] == at[1]
    assert float(score(decided(margin, labels, group, at))) == pytest.approx(value)


@pytest.mark.parametrize("seed", range(4))
def test_thresholds_by_group_are_the_best_of_all_pairs_for_the_worst_rate(seed: int) -> None:
    margin, labels, group = rows(seed)
    at, value = best_thresholds(histogram(margin, labels, group), worst, by_group=True)
    every = [float(worst(decided(margin, labels, group, pair))) for pair in product(default_edges(BINS).tolist(), repeat=2)]
    assert value == pytest.approx(max(every))
    assert float(worst(decided(margin, labels, group, at))) == pytest.approx(value)


@pytest.mark.parametrize("seed", range(6))
def test_thresholds_by_group_lie_between_common_ones_and_the_best_of_all_pairs(seed: int) -> None:
    found = histogram(*(drawn := rows(seed, 200)))
    (_, common), (at, value) = best_thresholds(found, even), best_thresholds(found, even, by_group=True)
    best = max(float(even(decided(*drawn, pair))) for pair in product(default_edges(BINS).tolist(), repeat=2))
    assert common <= value + 1e-12
    assert best - 0.03 < value <= best + 1e-12
    assert float(even(decided(*drawn, at))) == pytest.approx(value)


def test_groups_on_other_scales_are_brought_to_the_same_rate_by_thresholds_of_their_own() -> None:
    r = np.random.default_rng(0)
    group, labels = np.arange(4000) % 2, (r.random(4000) < 0.5).astype(int)
    margin = r.normal(labels * 1.5, 1.0) - 3 * group  # the same order in both groups, one far below the other

    def gap(thresholds: Any) -> float:
        first, second = decided(margin, labels, group, thresholds).tpr
        return float(abs(first - second))

    found = histogram(margin, labels, group, 1024)
    (_, less), (own, value) = (best_thresholds(found, even, by_group) for by_group in (False, True))
    assert value - less > 0.1
    assert gap(own) < 0.01
    assert own[0] - own[1] == pytest.approx(3, abs=0.3)


def test_of_thresholds_with_the_same_rows_on_either_side_the_middle_one_is_taken() -> None:
    found = histogram(np.asarray([-9.0, 9.0, -40.0, 1.0]), np.asarray([0, 1, 0, 1]), np.asarray([0, 0, 1, 1]), 1024)
    for by_group in (False, True):
        at, value = best_thresholds(found, worst, by_group)
        assert value == 1
        half_way = np.sinh((np.arcsinh(-9) + np.arcsinh(9 if by_group else 1)) / 2)  # as the edges are spaced
        assert at[0] == pytest.approx(half_way, abs=0.05)
        assert -9 <= at[1] < 1


def test_a_group_of_one_class_or_of_none_takes_no_part_in_rates_that_it_does_not_have() -> None:
    margin, labels, group = np.asarray([-2.0, -1.0, 1.0, 2.0, -3.0, 0.5]), np.asarray([0, 0, 1, 1, 0, 0]), np.asarray([0, 0, 0, 0, 1, 1])
    found = np.concatenate([histogram(margin, labels, group, 1024), np.zeros((1, 2, 1024))])
    rates = rates_at(found, np.asarray([512, 512, 512]))
    assert np.isnan(rates.tpr).tolist() == [False, True, True]
    assert np.isnan(rates.fpr).tolist() == [False, False, True]
    at, value = best_thresholds(found, worst, by_group=True)
    assert value == 1
    assert -1 <= at[0] < 1
    assert at[1] >= 0.5


def test_what_thresholds_are_worth_is_found_on_the_other_half() -> None:
    margin, labels, group = rows(3, 400)
    first = np.arange(400) // 4 % 2 == 0
    parts = [(margin[own], labels[own], group[own]) for own in (first, ~first)]
    halves = np.stack([histogram(*part) for part in parts])
    expected = [float(even(decided(*scored, best_thresholds(chosen, even, by_group=True)[0])))
                for chosen, scored in zip(halves, parts[::-1], strict=True)]
    assert crossed(halves, even, by_group=True) == pytest.approx(np.mean(expected))
    assert crossed(halves, even) < best_thresholds(halves.sum(0), even)[1] + 0.05


def test_a_half_without_rows_leaves_the_score_of_both() -> None:
    whole = histogram(*rows(0))
    assert crossed(np.stack([whole, np.zeros_like(whole)]), worst) == best_thresholds(whole, worst)[1]


# clients

PARTS = {name: rows(seed, number) for seed, (name, number) in enumerate({"a": 41, "b": 7, "c": 12}.items())}


def fields(margin: Any, labels: Any, group: Any) -> dict[str, Tensor]:
    return {"inputs": torch.from_numpy(np.stack([np.zeros_like(margin), margin], 1)).float(), "labels": torch.from_numpy(labels).long(),
            "sex": torch.from_numpy(group)}


def federation(parts: dict[str, Any], engine: str) -> Federation[Any]:
    """One more client has no validation rows."""
    held = Data.from_parts({name: fields(*own) for name, own in parts.items()})
    train = Data.from_parts({name: fields(*own) for name, own in {"none": rows(9, 5), **parts}.items()})
    return Federation(cross_entropy(Model(nn.Linear(2, 2, bias=False))), train.with_splits(validation=held), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("field", ["sex", None])
def test_histograms_that_clients_add_up_are_those_of_the_pooled_rows(engine: str, field: str | None) -> None:
    fed = federation(PARTS, engine)
    halves = group_histograms(fed, X, "validation", field, 2 if field else 1)
    pooled = [np.concatenate(column) for column in zip(*PARTS.values(), strict=True)]
    margin, labels, group = pooled[0].astype(np.float32).astype(float), pooled[1], pooled[2] if field else pooled[2] * 0
    np.testing.assert_array_equal(halves.sum(0), histogram(margin, labels, group, 1024))
    assert np.abs(halves.sum(-1)[0] - halves.sum(-1)[1]).max() <= len(PARTS)  # of every group and class
    assert (fed.ledger["evaluation"].exchanges, fed.ledger["train"].exchanges) == (1, 0)


def test_clients_of_one_row_a_class_are_in_both_halves() -> None:
    one = (np.asarray([-1.0, 1.0, -2.0, 2.0]), np.asarray([0, 1, 0, 1]), np.asarray([0, 0, 1, 1]))
    halves = group_histograms(federation(dict.fromkeys("abcdef", one), "loop"), X, "validation", "sex", 2)
    assert (halves.sum(-1) == 3).all()
