"""How clients draw: every sampler of rows keeps its promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from draws import draw_of, labelled, one

from rookery import Data
from rookery.data import PerTask, Replacement, Request, Shuffled, Stored, Stratified
from rookery.errors import DataError


def chi_square(counts: Any) -> float:
    counts = np.asarray(counts, dtype=float)
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def rows_of(**sizes: int) -> Data:
    """Field `u` says whose row it is and which: 1000·client + row."""
    return Data.from_parts({name: {"u": 1000.0 * k + torch.arange(n, dtype=torch.float64)} for k, (name, n) in enumerate(sizes.items())})


# plain rows

@pytest.mark.parametrize("sampler", [Replacement(), Shuffled()])
def test_rows_are_the_client_s_own_and_index_says_which(sampler: Any) -> None:
    data = rows_of(a=3, b=11, c=7)
    selection = sampler.select(draw_of(data, steps=20), Request(5))
    for client in range(3):
        for step in range(20):
            batch = one(sampler, data, selection, client, step)
            assert batch.u.tolist() == (1000.0 * client + batch.index).tolist()
            assert batch.index.shape == (5,)
            assert batch.inner is None
            assert 0 <= int(batch.index.min()) <= int(batch.index.max()) < data.sizes[client]


@pytest.mark.parametrize("sampler", [Replacement(), Shuffled(), Stratified("label", 1)])
def test_no_size_means_all_rows_in_order(sampler: Any) -> None:
    data = labelled(a=[0, 1, 0], b=[1, 0, 1])
    selection = sampler.select(draw_of(data, steps=2), Request())
    for client in range(2):
        assert one(sampler, data, selection, client, 1).row.tolist() == [0, 1, 2]


@pytest.mark.parametrize("sampler", [Replacement(), Shuffled(), Stratified("label", 1)])
def test_plain_samplers_refuse_inner_samples(sampler: Any) -> None:
    with pytest.raises(DataError, match=f"{type(sampler).__name__} draws rows without conditional samples.*Stored"):
        sampler.select(draw_of(labelled(a=[0, 1])), Request(2, 2))


def test_replacement_is_uniform() -> None:
    data = rows_of(a=7, b=13)
    index = Replacement().select(draw_of(data, steps=600), Request(10))["index"].numpy()
    for client, n in enumerate(data.sizes):
        counts = np.bincount(index[client].reshape(-1), minlength=n)
        assert counts.sum() == 6000
        assert chi_square(counts) < n + 5 * math.sqrt(2 * n)
    # with replacement: some batch holds a row twice
    assert any(len(set(batch)) < 10 for batch in index[1].tolist())


@pytest.mark.parametrize("batch", [1, 3, 4, 7, 10, 12, 25])
def test_shuffled_gives_each_row_once_an_epoch(batch: int) -> None:
    data = rows_of(a=10, b=7, c=1)
    steps = 70
    index = Shuffled().select(draw_of(data, steps=steps), Request(batch))["index"].numpy()
    for client, n in enumerate(data.sizes):
        line = index[client].reshape(-1)
        epochs = line[: len(line) // n * n].reshape(-1, n)
        assert len(epochs) == steps * batch // n
        assert (np.sort(epochs, axis=1) == np.arange(n)).all()
        rest = line[len(line) // n * n :]
        assert len(set(rest.tolist())) == len(rest)
        if n > 1:
            assert len({tuple(e) for e in epochs.tolist()}) > 1  # shuffled anew


def test_shuffled_epochs_are_uniform_and_follow_the_call() -> None:
    data = rows_of(a=5)
    index = Shuffled().select(draw_of(data, steps=4000), Request(5))["index"].numpy()[0]
    for place in range(5):
        assert chi_square(np.bincount(index[:, place], minlength=5)) < 4 + 5 * math.sqrt(8) + 5
    other = Shuffled().select(draw_of(data, steps=50, call=2), Request(5))["index"].numpy()[0]
    assert other.tolist() != index[:50].tolist()


@pytest.mark.parametrize("sampler", [Replacement(), Shuffled(), Stratified("label", 2), PerTask("label", 1), Stored("eta")])
def test_steps_and_clients_may_be_selected_together_or_alone(sampler: Any) -> None:
    sizes = {"a": 9, "b": 14, "c": 11}
    data = Data.from_parts({name: {"label": torch.arange(n) % 2, "eta": torch.zeros(n, 6, 2)} for name, n in sizes.items()})
    request = Request(5, 2) if isinstance(sampler, PerTask | Stored) else Request(5)
    together = sampler.select(draw_of(data, steps=6), request)
    for client in range(3):
        for step in range(6):
            alone = sampler.select(draw_of(data, [client], [step]), request)
            assert {k: v[0, 0].tolist() for k, v in alone.items()} == {k: v[client, step].tolist() for k, v in together.items()}


# stratified

def test_stratified_draws_exactly_so_many_positives() -> None:
    labels = {"a": [0, 1, 1, 0, 0, 0, 1], "b": [1, -1, -1, -1, -1, -1, -1, -1, 2]}
    data = labelled(**labels)
    sampler = Stratified("label", 3)
    selection = sampler.select(draw_of(data, steps=400), Request(8))
    for client, own in enumerate(labels.values()):
        seen = []
        for step in range(400):
            batch = one(sampler, data, selection, client, step)
            assert (batch.label[:3] > 0).all()
            assert (batch.label[3:] <= 0).all()
            assert batch.row.tolist() == batch.index.tolist()
            seen += batch.row.tolist()
        counts = np.bincount(seen, minlength=len(own))
        positive = np.asarray(own) > 0
        for kind, drawn in ((positive, 3), (~positive, 5)):
            assert counts[kind].sum() == 400 * drawn
            assert chi_square(counts[kind]) < kind.sum() + 5 * math.sqrt(2 * kind.sum())


@pytest.mark.parametrize(("own", "words"), [([0, 0, 0], "0 positive and 3 negative"), ([1, 1], "2 positive and 0 negative")])
def test_stratified_refuses_a_client_of_one_class_by_name(own: list[int], words: str) -> None:
    with pytest.raises(DataError, match=f"client 'poor' has {words}"):
        Stratified("label", 1).select(draw_of(labelled(rich=[0, 1, 1], poor=own)), Request(2))


@pytest.mark.parametrize("positives", [0, -1, 4, 9])
def test_stratified_needs_room_for_both_classes(positives: int) -> None:
    with pytest.raises(DataError, match=f"batch of 4 needs between 1 and 3 positives, not {positives}"):
        Stratified("label", positives).select(draw_of(labelled(a=[0, 1])), Request(4))


def test_an_unknown_label_lists_the_fields() -> None:
    with pytest.raises(DataError, match=r"no field 'class' to group by.*label"):
        Stratified("class", 1).select(draw_of(labelled(a=[0, 1])), Request(2))


# tasks

def tasks() -> Data:
    """Client a: tasks 0, 1, 2 of 5, 6 and 9 rows; client b: tasks 1, 7 of 5 rows; mixed up."""
    own = {"a": [0] * 5 + [1] * 6 + [2] * 9, "b": [7] * 5 + [1] * 5}
    order = np.random.default_rng(0)
    return Data.from_parts({name: {"task": torch.from_numpy(order.permutation(t)), "row": torch.arange(len(t))} for name, t in own.items()})


def test_support_and_query_are_disjoint_rows_of_one_task() -> None:
    data, sampler = tasks(), PerTask("task", query=2)
    selection = sampler.select(draw_of(data, steps=300), Request(4, 3))
    for client, own in enumerate(({0, 1, 2}, {1, 7})):
        seen: list[int] = []
        for step in range(300):
            batch = one(sampler, data, selection, client, step)
            assert batch.inner is not None
            assert batch.row.shape == (4, 2)
            assert batch.inner.row.shape == (4, 3)
            assert batch.row.tolist() == batch.index.tolist()
            assert batch.inner.row.tolist() == batch.inner.index.tolist()
            for outer in range(4):
                both = batch.inner.task[outer].tolist() + batch.task[outer].tolist()
                assert len(set(both)) == 1
                assert len(set(batch.inner.row[outer].tolist() + batch.row[outer].tolist())) == 5
                seen.append(both[0])
        assert set(seen) == own
        counts = [seen.count(t) for t in sorted(own)]
        assert chi_square(counts) < 30


def test_rows_of_a_task_are_uniform() -> None:
    data, sampler = tasks(), PerTask("task", query=1)
    selection = sampler.select(draw_of(data, [0], steps=3000), Request(1, 2))
    for part in ("index", "innerindex"):
        rows = selection[part].numpy()[0].reshape(-1)
        counts = np.bincount(rows, minlength=20)
        task = data.fields["task"][:20].numpy()
        for t in range(3):
            assert chi_square(counts[task == t]) < 8 + 5 * math.sqrt(16) + 5


def test_a_task_that_is_too_small_is_refused_by_name() -> None:
    data = Data.from_parts({"big": {"task": torch.tensor([4] * 6)}, "small": {"task": torch.tensor([4] * 6 + [9] * 4)}})
    PerTask("task", 2).select(draw_of(data, [0]), Request(1, 3))
    with pytest.raises(DataError, match="task 9 of client 'small' has 4 rows; 3 inner and 2 query rows need 5"):
        PerTask("task", 2).select(draw_of(data), Request(1, 3))


@pytest.mark.parametrize("request_", [Request(), Request(2), Request(None, 2)])
def test_tasks_need_both_sizes(request_: Request) -> None:
    with pytest.raises(DataError, match="PerTask needs both sizes"):
        PerTask("task", 2).select(draw_of(tasks()), request_)


# stored

def stored(dims: tuple[int, ...] = ()) -> Data:
    """eta of row r, sample m at client k: 10000·k + 100·r + m, the same in every further dimension."""
    parts = {}
    for k, (name, n) in enumerate({"a": 4, "b": 9}.items()):
        eta = 10000.0 * k + 100.0 * torch.arange(n, dtype=torch.float64)[:, None] + torch.arange(6)
        parts[name] = {"row": torch.arange(n), "eta": eta.reshape(n, 6, *[1] * len(dims)).expand(n, 6, *dims).contiguous()}
    return Data.from_parts(parts)


@pytest.mark.parametrize("dims", [(), (2,), (2, 3)])
@pytest.mark.parametrize("inner", [1, 3, 6, 8, None])
@pytest.mark.parametrize("outer", [1, 5, None])
def test_stored_inner_samples_belong_to_their_row(dims: tuple[int, ...], inner: int | None, outer: int | None) -> None:
    data, sampler = stored(dims), Stored("eta")
    for client in range(2):
        selection = sampler.select(draw_of(data, [client], steps=3), Request(outer, inner))
        for step in range(3):
            batch = one(sampler, data, selection, 0, step)
            rows, count = outer or int(data.sizes[client]), inner or 6
            assert batch.inner is not None
            eta = batch.inner.eta
            assert eta.shape == (rows, count, *dims)
            assert list(batch.fields) == ["row"]
            assert batch.row.tolist() == batch.index.tolist()
            if outer is None:
                assert batch.row.tolist() == list(range(rows))
            first = eta.reshape(rows, count, -1)
            assert (first == first[:, :, :1]).all()
            owner, sample = first[:, :, 0] // 100, first[:, :, 0] % 100
            assert owner.tolist() == (100.0 * client + batch.row)[:, None].expand(rows, count).tolist()
            if inner is None:
                assert sample.tolist() == [list(range(6))] * rows
            else:
                assert ((sample >= 0) & (sample < 6)).all()
        # as a stack with a row per client, as the vectorised engine fetches
        stack = sampler.fetch(data, {name: value[:, 1] for name, value in selection.items()})
        alone = one(sampler, data, selection, 0, 1)
        assert stack.inner is not None
        assert alone.inner is not None
        assert stack.inner.eta[0].tolist() == alone.inner.eta.tolist()


def test_stored_draws_are_uniform_in_rows_and_samples() -> None:
    data = stored()
    selection = Stored("eta").select(draw_of(data, [1], steps=500), Request(6, 4))
    assert chi_square(np.bincount(selection["index"].numpy().reshape(-1), minlength=9)) < 40
    assert chi_square(np.bincount(selection["columns"].numpy().reshape(-1), minlength=6)) < 35
    pair = 6 * (selection["index"].numpy()[..., None] % 2) + selection["columns"].numpy()
    odd = np.bincount(pair.reshape(-1), minlength=12).reshape(2, 6)
    assert chi_square(odd[0]) < 35
    assert chi_square(odd[1]) < 35


def test_as_many_stored_samples_as_there_are_are_still_drawn() -> None:
    """With replacement, as any other number of them: only None takes all."""
    columns = Stored("eta").select(draw_of(stored(), [1], steps=500), Request(6, 6))["columns"].numpy()
    assert columns.shape == (1, 500, 6, 6)
    assert chi_square(np.bincount(columns.reshape(-1), minlength=6)) < 35
    distinct = np.mean([len(set(row)) for row in columns.reshape(-1, 6).tolist()])
    assert distinct == pytest.approx(6 * (1 - (5 / 6) ** 6), abs=0.1)


def test_stored_names_a_missing_field() -> None:
    with pytest.raises(DataError, match="other"):
        Stored("other").select(draw_of(stored()), Request(2, 2))
