"""Draws of tasks: few-shot episodes, and clients that are a task of their own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from draws import draw_of, one

from rookery import Data
from rookery.data import Episodes, PerTask, Request
from rookery.errors import DataError


def characters(**classes: int) -> Data:
    """Clients with so many classes of eight rows each, in mixed order; field `row` says which row it is."""
    order = np.random.default_rng(0)
    return Data.from_parts({name: {"labels": torch.from_numpy(10 * k + order.permutation(np.repeat(np.arange(n), 8))),
                                   "row": torch.arange(8 * n)} for k, (name, n) in enumerate(classes.items())})


def test_episodes_have_different_classes_with_disjoint_rows_numbered_anew() -> None:
    data, sampler = characters(a=5, b=3), Episodes(ways=3, query=4)
    original = [data.fields["labels"][:40], data.fields["labels"][40:]]
    selection = sampler.select(draw_of(data, steps=100), Request(2, 2))
    for client, classes in ((0, {0, 1, 2, 3, 4}), (1, {10, 11, 12})):
        seen, first = set[int](), set[int]()
        for step in range(100):
            batch = one(sampler, data, selection, client, step)
            assert batch.inner is not None
            assert batch.labels.tolist() == [[0] * 4 + [1] * 4 + [2] * 4] * 2
            assert batch.inner.labels.tolist() == [[0, 0, 1, 1, 2, 2]] * 2
            for task in range(2):
                query, support = batch.row[task].reshape(3, 4), batch.inner.row[task].reshape(3, 2)
                own = original[client][torch.cat([query, support], 1)]
                assert bool((own == own[:, :1]).all())  # a way is one class
                assert len(set(own[:, 0].tolist())) == 3
                assert len(set(torch.cat([query, support], 1).reshape(-1).tolist())) == 18
                seen |= set(own[:, 0].tolist())
                first.add(int(own[0, 0]))
        assert seen == first == classes  # every class comes, at every place


def test_classes_and_rows_of_episodes_are_uniform() -> None:
    data, sampler = characters(a=5), Episodes(ways=2, query=1)
    rows = sampler.select(draw_of(data, steps=4000), Request(1, 1))
    for part in ("index", "innerindex"):
        counts = np.bincount(rows[part].numpy().reshape(-1), minlength=40)
        assert counts.sum() == 8000
        assert float(((counts - 200) ** 2 / 200).sum()) < 39 + 5 * (2 * 39) ** 0.5


@pytest.mark.parametrize("sampler", [Episodes(2, 3), PerTask(query=3), PerTask("labels", 3)])
def test_tasks_of_clients_and_steps_may_be_selected_together_or_alone(sampler: Episodes | PerTask) -> None:
    data = characters(a=5, b=3, c=2)
    together = sampler.select(draw_of(data, steps=4), Request(3, 2))
    for client in range(3):
        for step in range(4):
            alone = sampler.select(draw_of(data, [client], [step]), Request(3, 2))
            assert {k: v[0, 0].tolist() for k, v in alone.items()} == {k: v[client, step].tolist() for k, v in together.items()}


def test_a_client_may_be_one_task() -> None:
    data, sampler = characters(a=5, b=1), PerTask(query=5)
    assert sampler.task is None
    selection = sampler.select(draw_of(data, steps=200), Request(1, 3))
    for client, size in ((0, 40), (1, 8)):
        rows = torch.cat([selection["index"], selection["innerindex"]], -1)[client, :, 0]
        assert all(len(set(own)) == 8 for own in rows.tolist())
        assert set(rows.reshape(-1).tolist()) == set(range(size))
        assert bool((selection["rows"][client] == selection["index"][client] + data.offsets[client]).all())


def test_few_of_many_rows_are_those_with_the_lowest_hashes() -> None:
    # a part of 8 rows is sorted whole, one of 200 only where it is wanted: both are the first of the same order
    many = Data.from_parts({"a": {"u": torch.zeros(200)}})
    whole = PerTask(query=100).select(draw_of(many), Request(1, 100))
    some = PerTask(query=1).select(draw_of(many), Request(1, 2))
    assert some["innerindex"].tolist()[0][0][0] == whole["innerindex"].tolist()[0][0][0][:2]
    assert some["index"].tolist()[0][0][0] == [whole["innerindex"].tolist()[0][0][0][2]]


@pytest.mark.parametrize(("sampler", "sizes", "said"), [
    (Episodes(4, 2), Request(1, 1), "client 'b' has 3 classes; an episode of 4 needs as many"),
    (Episodes(3, 6), Request(1, 3), "class 0 of client 'a' has 8 rows; 3 inner and 6 query rows of it need 9"),
    (PerTask(query=20), Request(1, 5), "client 'b' has 24 rows; 5 inner and 20 query rows need 25"),
    (Episodes(2, 2), Request(1), "Episodes needs both sizes")])
def test_what_cannot_be_drawn_is_said(sampler: Episodes | PerTask, sizes: Request, said: str) -> None:
    with pytest.raises(DataError, match=said):
        sampler.select(draw_of(characters(a=5, b=3)), sizes)


@pytest.mark.parametrize("wrong", [(1, 3), (2, 0)])
def test_an_episode_of_nothing_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="at least two classes, ways, and a query row"):
        Episodes(*wrong)
