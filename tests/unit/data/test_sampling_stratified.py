"""Stratified draws by share, and with the importance that makes their means unbiased."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from draws import ENGINES, draw_of, labelled, one
from torch import Tensor

from rookery import Data, Federation, Minimization, Program
from rookery.data import Request, Stratified
from rookery.errors import ConfigError, DataError, ProblemError
from rookery.federation import Client
from rookery.objectives import hyper_parameters
from rookery.studies import parse

LABELS = {"a": [0, 1, 1, 0, 0, 0, 1, 0], "b": [0] * 9 + [1], "none": [0, 0, -1], "all": [1, 2]}


@pytest.mark.parametrize(("share", "size", "positives"), [(0.5, 8, 4), (0.5, 5, 2), (0.01, 8, 1), (0.99, 8, 7), (0.3, 10, 3), (0.5, 2, 1)])
def test_a_share_is_a_number_of_rows_for_any_batch(share: float, size: int, positives: int) -> None:
    data = labelled(**{name: LABELS[name] for name in ("a", "b")})
    by_share, by_number = Stratified("label", share=share), Stratified("label", positives)
    first, second = (sampler.select(draw_of(data, steps=20), Request(size)) for sampler in (by_share, by_number))
    assert all(torch.equal(first[name], second[name]) for name in second)
    assert first.keys() == second.keys()
    for client in range(2):
        assert (one(by_share, data, first, client, 3).label > 0).tolist() == [True] * positives + [False] * (size - positives)


def test_importance_by_hand() -> None:
    data, sampler = labelled(**LABELS), Stratified("label", share=0.5, importance=True)
    selection = sampler.select(draw_of(data, steps=30), Request(4))
    expected = {"a": [3 / 8 * 2] * 2 + [5 / 8 * 2] * 2, "b": [0.1 * 2] * 2 + [0.9 * 2] * 2, "none": [1.0] * 4, "all": [1.0] * 4}
    for client, (name, own) in enumerate(LABELS.items()):
        seen = set()
        for step in range(30):
            batch = one(sampler, data, selection, client, step)
            assert batch.importance.dtype == torch.float32
            assert batch.importance.tolist() == pytest.approx(expected[name])
            assert batch.label.tolist() == [own[row] for row in batch.row.tolist()]
            seen |= set(batch.row.tolist())
        assert seen == set(range(len(own)))


@pytest.mark.parametrize("sampler", [Stratified("label", 3, importance=True), Stratified("label", share=0.6, importance=True)])
def test_weighted_means_of_batches_are_the_client_s_own(sampler: Stratified) -> None:
    """Within four standard errors; means without the weights are far off."""
    r = torch.Generator().manual_seed(0)
    data = Data.from_parts({name: {"label": torch.tensor(own), "value": torch.randn(len(own), generator=r, dtype=torch.float64) + 2.0
                                   * torch.tensor(own)} for name, own in LABELS.items()})
    selection = sampler.select(draw_of(data, steps=4000), Request(5))
    for client in range(4):
        batch = sampler.fetch(data, {name: value[client] for name, value in selection.items()})  # all steps as one axis
        assert batch.importance.dtype == torch.float64
        means = (batch.importance * batch.value).mean(1)
        own = data.views(client)["value"]
        assert abs(float(means.mean() - own.mean())) < 4 * float(means.std()) / 4000**0.5
        if client < 2:
            assert abs(float(batch.value.mean() - own.mean())) > 0.2


def test_a_batch_of_one_row_is_any_row() -> None:
    data, sampler = labelled(a=LABELS["a"]), Stratified("label", share=0.5, importance=True)
    batch = sampler.fetch(data, {name: value[0] for name, value in sampler.select(draw_of(data, steps=4000), Request(1)).items()})
    assert torch.equal(batch.importance, torch.ones(4000, 1))
    counts = torch.bincount(batch.row[:, 0], minlength=8)
    assert float((counts - 500).abs().max()) < 5 * 500**0.5


def test_full_batches_have_no_importance() -> None:
    data, sampler = labelled(a=[0, 1, 1]), Stratified("label", share=0.5, importance=True)
    selection = sampler.select(draw_of(data), Request())
    assert sorted(one(sampler, data, selection, 0, 0).fields) == ["label", "row"]
    assert sorted(sampler.whole(data.views(0)).fields) == ["label", "row"]


def test_draws_without_importance_are_the_same_rows_and_clients_do_not_depend_on_each_other() -> None:
    data = labelled(**LABELS)
    weighted, plain = Stratified("label", 2, importance=True), Stratified("label", 2)
    together = weighted.select(draw_of(data, steps=5), Request(4))
    assert torch.equal(together["rows"][:2], plain.select(draw_of(data, [0, 1], 5), Request(4))["rows"])
    for client in range(4):
        for step in range(5):
            alone = weighted.select(draw_of(data, [client], [step]), Request(4))
            assert {k: v[0, 0].tolist() for k, v in alone.items()} == {k: v[client, step].tolist() for k, v in together.items()}


@dataclass(frozen=True)
class Look(Program):
    """Adds up what the clients see, with other weights in each repetition."""

    batch: int

    def step(self, c: Client, total: Tensor) -> Tensor:
        b = c.draw(self.batch)
        return 2 * total + 8 * b.importance.double() + b.row


@pytest.mark.parametrize("batch", [4, 1])
def test_every_engine_draws_the_same(batch: int) -> None:
    results = []
    for engine in ENGINES:
        problem = Minimization(lambda x, b: x.sum(), sampling=Stratified("label", share=0.25, importance=True))
        fed = Federation(problem, labelled(**LABELS), engine=engine, seed=4)
        zero = torch.zeros(batch, dtype=torch.float64)
        results.append(fed.sum(fed.iterate(Look(batch).step, fed.broadcast(zero), steps=np.asarray([1, 4, 4, 3]))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12)
    assert torch.equal(results[0], results[2])


def test_a_repr_says_what_is_not_default() -> None:
    assert repr(Stratified("label", 2)) == "Stratified(label='label', positives=2)"
    assert repr(Stratified("label", share=0.5)) == "Stratified(label='label', positives=0, share=0.5)"
    assert repr(Stratified("label", 2, importance=True)) == "Stratified(label='label', positives=2, importance=True)"


@pytest.mark.parametrize(("positives", "share"), [(2, 0.5), (0, 0.0), (0, 1.0), (0, -1.0), (0, float("nan"))])
def test_a_wrong_share_is_refused(positives: int, share: float) -> None:
    with pytest.raises(DataError, match="share is the share of positives in a batch"):
        Stratified("label", positives, share)


def test_other_mistakes_are_told() -> None:
    with pytest.raises(DataError, match="batch of 4 needs between 1 and 3 positives, not 0"):
        Stratified("label").select(draw_of(labelled(a=[0, 1])), Request(4))
    with pytest.raises(DataError, match=r"client 'a' has 0 positive and 2 negative rows.*importance=True"):
        Stratified("label", share=0.5).select(draw_of(labelled(a=[0, 0])), Request(4))
    named = Data.from_parts({"a": {"label": torch.tensor([0, 1]), "importance": torch.ones(2)}})
    sampler = Stratified("label", share=0.5, importance=True)
    with pytest.raises(DataError, match="rename the clients' field"):
        one(sampler, named, sampler.select(draw_of(named), Request(2)), 0, 0)
    with pytest.raises(ProblemError, match=r'write sampling=Stratified\("validation", n\)'):
        hyper_parameters(lambda x, b: x, sampling=Stratified("validation", share=0.5))


def test_a_description_writes_it_as_a_table() -> None:
    table = {"name": "Stratified", "label": "labels", "share": 0.5, "importance": True}
    tree = {"data": {"name": "breast-cancer"}, "algorithm": {"name": "FedAvg", "lr": 0.1}, "objective": {"sampling": table}}
    section = parse(tree).objective.sampling
    assert section is not None
    assert section.sampler == Stratified("labels", share=0.5, importance=True)
    table["share"] = 2.0
    with pytest.raises(ConfigError, match="between 0 and 1"):
        parse(tree)
