"""Splitting, spreading and thinning rows: every row once, the same in every run, and by the formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery import Data
from rookery.data import by_column, by_quantity, dirichlet, drop_positives, hold_out, iid, label_shards, long_tail, split, step
from rookery.data.partition import apportion
from rookery.errors import DataError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5), [300, 200, 150, 40, 10]))
PARTITIONS: dict[str, Callable[[int], Any]] = {
    "iid": lambda seed: iid(700, 9, seed),
    "dirichlet": lambda seed: dirichlet(LABELS, 9, 0.5, seed),
    "label_shards": lambda seed: label_shards(LABELS, 9, 2, seed),
    "by_quantity": lambda seed: by_quantity(700, 9, alpha=0.5, seed=seed),
}
MASKS: dict[str, Callable[[int], Any]] = {
    "drop_positives": lambda seed: drop_positives(LABELS > 1, 0.2, seed=seed),
    "long_tail": lambda seed: long_tail(LABELS, 0.1, seed),
    "step": lambda seed: step(LABELS, [0, 2], 0.3, seed),
}


def sizes(sites: Any) -> list[int]:
    return [int(n) for n in np.unique(sites, return_counts=True)[1]]


# partitions

@pytest.mark.parametrize("name", PARTITIONS)
def test_every_row_has_one_site_and_every_site_a_row(name: str) -> None:
    sites = PARTITIONS[name](0)
    assert sites.shape == LABELS.shape
    assert sorted(set(sites.tolist())) == [f"site-{i}" for i in range(9)]
    data = Data.by_site({"row": torch.arange(700)}, sites)
    assert sorted(data.fields["row"].tolist()) == list(range(700))


@pytest.mark.parametrize("name", PARTITIONS | MASKS)
def test_a_draw_depends_on_the_seed_and_on_nothing_else(name: str) -> None:
    make = (PARTITIONS | MASKS)[name]
    np.random.seed(1)
    first = make(7)
    np.random.seed(2)
    assert (make(7) == first).all()
    assert (make(8) != first).any()


def test_names_sort_as_the_sites_do() -> None:
    assert sorted(set(iid(30, 11).tolist())) == [f"site-{i:02d}" for i in range(11)]


@given(rows=st.integers(1, 200), sites=st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_iid_sizes_differ_by_at_most_one(rows: int, sites: int) -> None:
    if sites > rows:
        with pytest.raises(DataError, match=f"{sites} sites of 1 rows or more do not fit into {rows} rows"):
            iid(rows, sites)
    else:
        own = sizes(iid(rows, sites))
        assert (sum(own), len(own)) == (rows, sites)
        assert max(own) - min(own) <= 1


@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=6), sites=st.integers(1, 12), per_site=st.integers(1, 4),
       seed=st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_site_has_at_most_so_many_labels_as_shards(counts: list[int], sites: int, per_site: int, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    if not len(counts) <= sites * per_site <= len(labels):
        with pytest.raises(DataError, match="must give every class a shard and every shard a row"):
            label_shards(labels, sites, per_site, seed)
        return
    owner = label_shards(labels, sites, per_site, seed)
    assert len(set(owner.tolist())) == sites
    assert max(len(set(labels[owner == site].tolist())) for site in set(owner)) <= per_site


def test_shards_of_equal_classes_are_equal_as_in_the_paper() -> None:
    assert sizes(label_shards(np.repeat(np.arange(10), 60), sites=100, per_site=2)) == [6] * 100


def test_quantities_follow_the_shares_and_do_not_depend_on_labels() -> None:
    assert sizes(by_quantity(100, shares=[5, 3, 2])) == [50, 30, 20]
    sites = by_quantity(10, shares={"north": 0.7, "south": 0.3})
    assert {name: int((sites == name).sum()) for name in ("north", "south")} == {"north": 7, "south": 3}
    assert min(sizes(by_quantity(200, 10, alpha=0.5, least=5))) >= 5
    even, uneven = (np.std(sizes(by_quantity(10_000, 10, alpha=alpha))) for alpha in (1000.0, 0.5))
    assert even < 100 < uneven


@given(total=st.integers(0, 1000), weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=20))
def test_apportioned_numbers_add_up_and_are_within_one_of_their_share(total: int, weights: list[float]) -> None:
    shares = np.asarray(weights) / sum(weights)
    numbers = apportion(total, shares)
    assert numbers.sum() == total
    assert (abs(numbers - total * shares) < 1 + 1e-9).all()


def test_sites_by_column_are_named_by_their_values() -> None:
    assert by_column(["b", "a", "b"]).tolist() == ["b", "a", "b"]
    assert by_column(np.asarray([2.0, 1.0])).tolist() == ["2", "1"]
    assert by_column(torch.tensor([3, 5])).tolist() == ["3", "5"]


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: by_column(["north", " north"]), "site names must be distinct, but 'north' and ' north' are both called 'north'"),
    (lambda: by_column(["north", ""]), "every row needs a site, but some site names are empty"),
    (lambda: by_column([1.0, float("nan")]), "every row needs a value in the site column, but row 1 has none"),
    (lambda: by_column(["a", None]), "every row needs a value in the site column, but row 1 has none"),
    (lambda: by_column([]), r"the site column must be one value per row, at least one; got an array of shape \(0,\)"),
    (lambda: dirichlet([], 2, 1.0), "labels must be one value per row, at least one"),
    (lambda: dirichlet([0, 1, 0, 1], 2, -1.0), "alpha must be positive"),
    (lambda: label_shards(np.zeros((3, 2)), 2), r"labels must be one value per row, at least one; got an array of shape \(3, 2\)"),
    (lambda: by_quantity(10, 2), "sizes come from alpha or from shares: give one of them"),
    (lambda: by_quantity(10, 2, alpha=1.0, shares=[1, 1]), "sizes come from alpha or from shares: give one of them"),
    (lambda: by_quantity(10, 3, shares=[1, 1]), "shares must be positive, one for each of the 3 sites"),
    (lambda: by_quantity(10, shares=[1, -1]), "shares must be positive"),
    (lambda: by_quantity(10, shares=[1000, 1]), r"every site needs at least 1 rows of 10, but shares .* give \[10, 0\]"),
    (lambda: by_quantity(10, 2, alpha=0.0), "needs the number of sites and a positive alpha"),
    (lambda: by_quantity(10, 5, alpha=1e-3, least=2), "no draw gave each of 5 sites 2 rows; take a larger alpha"),
    (lambda: Data.from_parts({}), "at least one client"),
    (lambda: Data({"u": torch.zeros(2)}, ("a", "a"), np.asarray([1, 1])), "client names must be distinct, but 'a' stands twice"),
])
def test_a_bad_partition_is_refused_by_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        make()


# imbalance

def test_long_tail_counts_follow_the_formula() -> None:
    labels = np.repeat(np.arange(10), 6000)
    for factor in (0.01, 0.1, 1.0):
        counts = np.bincount(labels[long_tail(labels, factor)])
        assert counts.tolist() == [round(6000 * factor ** (i / 9)) for i in range(10)]
    assert np.bincount(LABELS[long_tail(LABELS, 1e-9)]).tolist() == [300, 1, 1, 1, 1]


def test_steps_and_dropped_positives_keep_their_share_and_all_the_others() -> None:
    assert np.bincount(LABELS[step(LABELS, [1, 3], 0.1)]).tolist() == [300, 20, 150, 4, 10]
    labels = (LABELS > 0).astype(int)
    assert np.bincount(labels[drop_positives(labels, 0.2)]).tolist() == [300, 80]
    assert np.bincount(labels[drop_positives(torch.from_numpy(labels), share=0.25)]).tolist() == [300, 100]
    names = np.asarray(["cat", "dog"])[labels]
    assert np.unique(names[step(names, ["dog"], 0.5)], return_counts=True)[1].tolist() == [300, 200]


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: drop_positives([0, 1, 2], 0.5), r"labels must be 0 and 1, both of them, but are \[0, 1, 2\]; make them so with Table.binary"),
    (lambda: drop_positives([-1, 1], 0.5), r"labels must be 0 and 1, both of them, but are \[-1, 1\]"),
    (lambda: drop_positives([0, 0], 0.5), r"labels must be 0 and 1, both of them, but are \[0\]"),
    (lambda: drop_positives([0, 1], 0.0), "share of rows to keep must be above 0 and at most 1, not 0.0"),
    (lambda: drop_positives([0, 1]), "say either which share of the positives to keep or their share of the rows"),
    (lambda: drop_positives([0, 0, 0, 1], share=0.5), "positives can only be dropped: their share must lie between 0 and 0.25, not 0.5"),
    (lambda: long_tail([1, 1], 0.5), "at least two classes"),
    (lambda: long_tail([0, 1], -0.5), "a factor above 0 and at most 1; there are 2 classes, and the factor is -0.5"),
    (lambda: step([0, 1], [2], 0.5), r"no row has the label 2; the labels are \[0, 1\]"),
])
def test_a_bad_thinning_is_refused_by_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        make()


# splits

@given(counts=st.lists(st.integers(1, 80), min_size=1, max_size=8), test=st.floats(0.05, 0.4), validation=st.floats(0.05, 0.4),
       seed=st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_parts_are_disjoint_whole_and_stratified_to_within_a_row(counts: list[int], test: float, validation: float, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    if min(test, validation) * len(labels) < 2:
        return
    parts = split(labels, test, validation, seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for rows, share in zip(parts, (1 - test - validation, validation, test), strict=True):
        assert (np.diff(rows) > 0).all()
        own = np.bincount(labels[rows], minlength=len(counts))
        assert (abs(own - share * np.asarray(counts)) < 2 + 1e-9).all()
    assert abs(len(parts.test) - test * len(labels)) <= 0.5 + 1e-9
    assert all((a == b).all() for a, b in zip(parts, split(labels, test, validation, seed), strict=True))


@given(sizes=st.lists(st.integers(1, 12), min_size=3, max_size=60), seed=st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_no_group_is_in_two_parts(sizes: list[int], seed: int) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    labels = np.random.default_rng(seed).integers(0, 2, len(groups))
    parts = split(labels, 0.2, 0.2, seed, groups=groups)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all(len(rows) for rows in parts)
    assert sum(len(set(groups[rows].tolist())) for rows in parts) == len(sizes)


def test_groups_are_stratified_as_nearly_as_they_allow() -> None:
    groups = np.repeat(np.arange(200), 5)
    labels = np.repeat(np.arange(200) < 20, 5).astype(int)  # a tenth of the patients are ill, and all their rows
    parts = split(labels, 0.2, 0.1, groups=groups)
    assert [len(rows) for rows in parts] == [700, 100, 200]
    assert [int(labels[rows].sum()) for rows in parts] == [70, 10, 20]


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: split([], 0.2), "labels must be one value per row, at least one"),
    (lambda: split([0, 1], 0.7, 0.3), "must leave rows to train on; test is 0.7, validation 0.3"),
    (lambda: split([0, 1, 0], 0.1), "the test part came out empty: 3 rows are too few for a share of 0.1"),
    (lambda: split([0, 1], 0.5, groups=[1]), "one group per row is needed: 1 groups, 2 labels"),
    (lambda: split([0, 1], 0.5, groups=["p", "p"]), "2 parts need at least as many groups, but there are 1; split by row"),
    (lambda: hold_out(Data.from_parts({"a": {"u": [1.0]}}), 0.5), "every client has a single row"),
    (lambda: hold_out(Data.from_parts({"a": {"u": [1.0, 2.0]}}), 1.0), "share to hold out must lie between 0 and 1, not 1.0"),
    (lambda: hold_out(Data.streams(["a"]), 0.5), "streams without rows: there is nothing to hold out"),
])
def test_a_bad_split_is_refused_by_a_sentence(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        make()


@given(own=st.lists(st.integers(1, 30), min_size=1, max_size=8), share=st.floats(0.01, 0.99), seed=st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_each_client_holds_out_a_share_and_keeps_the_rest(own: list[int], share: float, seed: int) -> None:
    if max(own) == 1:
        return
    data = Data.from_parts({f"c{k}": {"u": 1000 * k + torch.arange(n)} for k, n in enumerate(own)})
    train, held = hold_out(data, share, seed)
    assert train.names == data.names
    assert held.names == tuple(f"c{k}" for k, n in enumerate(own) if n > 1)
    for k, n in enumerate(own):
        mine = train.views(k)["u"].tolist()
        other = held.views(held.names.index(f"c{k}"))["u"].tolist() if n > 1 else []
        assert sorted(mine + other) == data.views(k)["u"].tolist()
        assert mine == sorted(mine)
        assert len(other) == (0 if n == 1 else min(max(1, int(np.floor(share * n + 0.5))), n - 1))


def test_what_a_client_holds_out_does_not_depend_on_the_others() -> None:
    rows = {name: {"u": torch.arange(50)} for name in ("a", "b", "c")}
    _, alone = hold_out(Data.from_parts({"b": rows["b"]}), 0.3, seed=4)
    _, among = hold_out(Data.from_parts(rows), 0.3, seed=4)
    assert torch.equal(alone.views(0)["u"], among.views(1)["u"])
    assert not torch.equal(among.views(0)["u"], among.views(1)["u"])
    assert not torch.equal(hold_out(Data.from_parts(rows), 0.3, seed=5)[1].fields["u"], among.fields["u"])
