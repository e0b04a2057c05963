"""Uploads: what is summed, and what is refused with the name of its client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from rounds import rounds
from torch import Tensor
from verbs import ENGINES, engines, federation, ones, outcome, work

from rookery import Data, FedAvg, Federation, Minimization, Placed, Program
from rookery.errors import UploadError
from rookery.federation.reducer import FEW, Reducer
from rookery.problems import testproblems as known


@engines
@pytest.mark.parametrize("bad", [0.0, float("nan")])
def test_a_non_finite_upload_is_refused_by_name(engine: str, bad: float) -> None:
    fed = federation(engine, weights=[1, 2, 3, 4])
    x = fed.broadcast(torch.tensor([1.0, -1.0]))
    if bad != bad:  # 0 / 0
        x = fed.broadcast(torch.tensor([1.0, 0.0]))
    with pytest.raises(UploadError, match=r"^client 'c': its upload holds a non-finite value") as caught:
        fed.mean(fed.map(work.divide, x, np.asarray([1.0, 1.0, 0.0, 0.0])))
    assert caught.value.client == "c"
    assert fed.ledger["train"].exchanges == 0


@engines
def test_a_non_finite_second_value_is_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    bad, good = fed.map(work.halves, fed.broadcast(ones()), np.asarray([1.0, 0.0, 1.0, 1.0]))
    with pytest.raises(UploadError, match=r"^client 'b'") as caught:
        fed.sum(good, bad)
    assert caught.value.client == "b"


@engines
def test_a_non_finite_value_that_nobody_brings_over_is_not_refused(engine: str) -> None:
    fed = federation(engine)
    bad, good = fed.map(work.halves, fed.broadcast(ones()), np.asarray([1.0, 0.0, 1.0, 1.0]))
    assert fed.mean(good).tolist() == [2.0, 2.0]
    assert isinstance(bad, Placed)


@engines
def test_a_large_finite_upload_passes(engine: str) -> None:
    """Its entries add up to infinity; each of them is finite."""
    fed = federation(engine)
    assert fed.mean(fed.broadcast(torch.tensor([3e38, 3e38, -1.0]))).tolist() == torch.tensor([3e38, 3e38, -1.0]).tolist()


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_an_upload_of_another_shape_is_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    with pytest.raises(UploadError, match=r"client 'c': its upload has shape \(3,\), the clients before it sent \(2,\)") as caught:
        fed.mean(fed.map(work.ragged, fed.broadcast(ones())))
    assert caught.value.client == "c"


@pytest.mark.parametrize("engine", ["loop", "wire"])
def test_an_upload_of_another_dtype_is_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    with pytest.raises(UploadError, match=r"client 'c': its upload is torch\.float32, the clients before it sent torch\.float64") as caught:
        fed.mean(fed.map(work.mixed, fed.broadcast(ones())))
    assert caught.value.client == "c"


@engines
def test_whole_numbers_have_a_sum_and_no_mean(engine: str) -> None:
    fed = federation(engine)
    total = fed.sum(fed.map(work.whole, fed.broadcast(ones())))
    assert total.dtype == torch.int64
    assert total.tolist() == [1111, 1111]
    with pytest.raises(UploadError, match=r"client 'a': a mean needs floating-point values, it sent torch\.int64; return value\.double"):
        fed.mean(fed.map(work.whole, fed.broadcast(ones())))


def test_truth_values_add_up_or_are_refused_alike_on_every_engine() -> None:
    seen = []
    for engine in ENGINES:
        fed = federation(engine)
        seen.append(outcome(lambda fed=fed: fed.sum(fed.map(work.positive, fed.broadcast(ones())))))
    assert seen[0] in ("UploadError", [("torch.int64", [4, 4])])
    assert seen == [seen[0]] * 3


@engines
def test_after_a_refused_upload_the_federation_still_works(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    with pytest.raises(UploadError):
        fed.mean(fed.map(work.divide, x, np.asarray([1.0, 1.0, 0.0, 1.0])))
    assert fed.mean(fed.map(work.increment, x)).tolist() == [2.0, 2.0]
    assert fed.mean(fed.map(work.increment, fed.broadcast(ones(2.0)))).tolist() == [3.0, 3.0]


@engines
def test_after_a_refused_upload_another_value_of_that_exchange_is_there_or_refused_by_name(engine: str) -> None:
    fed = federation(engine)
    x = fed.broadcast(ones())
    good, bad = fed.map(work.increment, x), fed.map(work.divide, x, np.asarray([1.0, 1.0, 0.0, 1.0]))
    with pytest.raises(UploadError):
        fed.mean(bad)
    assert outcome(lambda: fed.mean(good)) in ("PlacementError", [("torch.float64", [2.0, 2.0])])


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_the_mean_of_equal_float32_values_is_that_value(engine: str) -> None:
    data = Data({"a": torch.zeros(2000)}, tuple(f"c{i}" for i in range(2000)), torch.ones(2000, dtype=torch.int64).numpy())
    fed = Federation(Minimization(lambda x, b: 0 * x.sum() * b.a.sum()), data, engine=engine)
    x = rounds(FedAvg(0.1), fed, FedAvg(0.1).init(fed, torch.full((2,), 1.1)), 2).x
    assert (x - 1.1).abs().max() < 3e-7


@dataclass(frozen=True)
class Whole(Program):
    def long(self, c: Any, x: Tensor) -> Tensor:
        return x.long()


def test_counts_are_summed_without_overflow() -> None:
    k = known.minimization()
    fed = Federation(k.problem, k.data)
    assert fed.sum(fed.map(Whole().long, fed.broadcast(torch.full((2,), 2.0**62)))).dtype == torch.int64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_few_numbers_are_summed_as_many_are(dtype: torch.dtype) -> None:
    """With weights that are powers of two no product is rounded, and the sums are those of a long vector, bit for bit."""
    weights, long = np.asarray([0.5, 0.25, 0.125]), torch.randn(3, FEW + 1, generator=torch.Generator().manual_seed(0)).to(dtype)
    few, many = (Reducer(list("abc"), weights, floating=True) for _ in range(2))
    for k, row in enumerate(long):
        few.add(k, [row[:FEW].clone(), row[:0].clone()])
        many.add(k, [row])
    assert few.results[0].dtype == dtype
    assert torch.equal(few.results[0], many.results[0][:FEW])
    assert torch.equal(few.totals[0], many.totals[0][:FEW])
    assert few.results[1].shape == (0,)


def test_few_whole_numbers_are_summed_exactly() -> None:
    large, reducer = 2**53 + 1, Reducer(["a", "b"], np.ones(2), floating=False)
    for k in range(2):
        reducer.add(k, [torch.tensor([large, -1]), torch.tensor([3], dtype=torch.int32)])
    assert [total.tolist() for total in reducer.results] == [[2 * large, -2], [6]]
    assert {total.dtype for total in reducer.results} == {torch.int64}
