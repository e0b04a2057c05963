"""Graphs with fewer passes over memory: the same results, and nothing overwritten that somebody still reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from cases import CASES
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from rookery import SCAFFOLD, Data, FedAvg, Federation, FedProx, FedSVRG, LocalSGDM, Model
from rookery.engines import fusing
from rookery.engines.fusing import fuse
from rookery.engines.tracing import tidy
from rookery.models import mlp
from rookery.objectives import cross_entropy
from rookery.testing import Case


def fused(fn: Any, *inputs: Tensor, owned: tuple[int, ...] = ()) -> tuple[Any, list[str]]:
    graph = make_fx(fn)(*inputs)
    tidy(graph)
    fuse(graph, owned)
    graph.graph.lint()
    return graph, [str(node.target).removeprefix("aten.") for node in graph.graph.nodes if node.op == "call_function"]


def products(x: Tensor, a: Tensor, b: Tensor, s: Tensor) -> Tensor:
    """A step along the flat gradient of two layers' products and a bias."""
    g = torch.cat([torch.bmm(a, b).view(2, -1), a.sum(1), torch.bmm(b.transpose(1, 2), b).view(2, -1)], 1)
    return x - s * g


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "LARGE", 1)


def tensors(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    r = torch.Generator().manual_seed(0)
    return [torch.randn(2, 43, generator=r, dtype=dtype), torch.randn(2, 4, 3, generator=r, dtype=dtype),
            torch.randn(2, 3, 5, generator=r, dtype=dtype), torch.tensor(0.3, dtype=torch.float64)]


def with_places() -> list[Tensor]:
    x, a, b, s = tensors()
    return [torch.cat([x, x], 1)[:, : 20 + 3 + 25].contiguous(), a, b, s]


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("scale", [torch.tensor(0.3, dtype=torch.float64), torch.tensor([[0.3], [0.7]])])
def test_products_are_added_to_the_vector_that_is_handed_on(dtype: torch.dtype, scale: Tensor) -> None:
    x, a, b, _ = (t.to(dtype) for t in with_places())
    s = scale if scale.dim() == 0 else scale.to(dtype)
    expected = products(x, a, b, s)
    graph, operations = fused(products, x, a, b, s, owned=(0,))
    assert operations.count("baddbmm_.default") == 2
    assert not {"cat.default", "bmm.default", "sub.Tensor", "addcmul.default"} & {*operations}
    mine = x.clone()
    torch.testing.assert_close(graph(mine, a, b, s), expected)
    torch.testing.assert_close(mine, expected)  # x itself


@pytest.mark.usefixtures("everything_is_large")
def test_products_write_into_a_new_vector_where_x_is_not_ours() -> None:
    inputs = with_places()
    before = [t.clone() for t in inputs]
    graph, operations = fused(products, *inputs)
    assert operations.count("baddbmm_.default") == 2
    assert "cat.default" not in operations
    torch.testing.assert_close(graph(*inputs), products(*before))
    for t, kept in zip(inputs, before, strict=True):
        assert torch.equal(t, kept)


def twice(x: Tensor, a: Tensor, b: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    new = products(x, a, b, s)
    return new, new * 2


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("fn", [
    lambda x, a, b, s: (products(x, a, b, s), x),  # the old point is a result too
    lambda x, a, b, s: (products(x, a, b, s), x[:, :3].sum(0), x.view(2, 48).transpose(0, 1)),  # and so is a view of it
    twice,  # the new point is read again
])
def test_what_is_read_again_is_not_overwritten(fn: Any) -> None:
    inputs = with_places()
    expected = fn(*[t.clone() for t in inputs])
    graph, _ = fused(fn, *inputs, owned=(0,))
    for found, right in zip(graph(*[t.clone() for t in inputs]), expected, strict=True):
        torch.testing.assert_close(found, right)


def deep(x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Each layer's gradient is a product with the other layer, which is a part of x too."""
    first, second = x[:, :12].view(2, 3, 4), x[:, 12:].view(2, 4, 3)
    slope = torch.bmm(first, second)
    g = torch.cat([torch.bmm(slope, second.transpose(1, 2)).view(2, 12), torch.bmm(first.transpose(1, 2), slope).view(2, 12)], 1)
    return x - s * g, y


def crossed(x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Two vectors, each moved along the other."""
    return x - 0.5 * y, y + 0.25 * x


def shifted(x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """A vector moved along another view of itself."""
    return x + 0.5 * x.view(2, 4, 6).transpose(0, 1).reshape(2, 24), y - s * x.view(2, 6, 4).transpose(1, 2).reshape(2, 24)


def itself(x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return x - s * torch.cat([x[:, 12:], torch.bmm(y[:, :12].view(2, 3, 4), x[:, :12].view(2, 4, 3)).view(2, 9), x[:, :3]], 1), y + s * y


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("fn", [deep, crossed, shifted, itself])
def test_what_is_overwritten_at_the_end_is_not_read_there(fn: Any) -> None:
    r = torch.Generator().manual_seed(1)
    x, y = (torch.randn(2, 24, generator=r, dtype=torch.float64) for _ in range(2))
    s = torch.tensor(0.3, dtype=torch.float64)
    graph, _ = fused(fn, x, y, s, owned=(0, 1))
    for found, right in zip(graph(x.clone(), y.clone(), s), fn(x, y, s), strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize(("fn", "wanted"), [
    (lambda x, y, s: x + 0.5 * y, ["add.Tensor"]),
    (lambda x, y, s: 0.5 * y - x, ["mul.Tensor", "sub_.Tensor"]),
    (lambda x, y, s: x - y * 0.5, ["sub.Tensor"]),
    (lambda x, y, s: x - s * y, ["addcmul.default"]),
    (lambda x, y, s: 0.9 * x + 0.1 * y, ["mul.Tensor", "add_.Tensor"]),
    (lambda x, y, s: x - y.exp(), ["exp.default", "sub.out"]),
    (lambda x, y, s: x - s * y.exp(), ["exp.default", "addcmul.out"]),
    (lambda x, y, s: (x * y.exp()) * x, ["exp.default", "mul.out", "mul_.Tensor"]),
    (lambda x, y, s: (x.exp() + 1) * 2, ["exp.default", "add_.Tensor", "mul_.Tensor"]),
    (lambda x, y, s: x.expand(3, 2, 4) + 1.0, ["expand.default", "add.Tensor"]),
    (lambda x, y, s: x.exp() + 1 + x.exp().view(8).sum(), None),  # exp(x), which is computed once, is read twice
    (lambda x, y, s: torch.where(x > 0, x, y) - 2 * torch.ones_like(x).cumsum(0), None),
])
def test_sums_of_multiples_are_one_pass_and_temporary_results_are_overwritten(fn: Any, wanted: list[str] | None) -> None:
    inputs = [torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)]
    before = [t.clone() for t in inputs]
    graph, operations = fused(fn, *inputs)
    torch.testing.assert_close(graph(*inputs), fn(*before))
    assert wanted is None or operations == wanted
    for t, kept in zip(inputs, before, strict=True):
        assert torch.equal(t, kept)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_every_algorithm_is_the_same_when_all_its_vectors_count_as_large(case: Case) -> None:
    k = case.problem(sizes=(4, 4, 4, 4))  # a new problem: graphs of others were traced otherwise
    ends = []
    for engine in ("loop", "vectorised"):
        fed = case.federation(replace(k, problem=replace(k.problem)), engine=engine, seed=1)
        algorithm = case.make(case.lr, 3, 2)
        state = case.init(algorithm, fed, k)
        for _ in range(3):
            state = algorithm.round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("algorithm", [FedAvg(0.1, 3, 8), FedProx(0.1, 3, 8), LocalSGDM(0.1, 3, 8), SCAFFOLD(0.1, 3, 8), FedSVRG(0.1, 3, 8),
                                       FedAvg(0.1, (2, 3, 4), 8)], ids=lambda a: f"{a.title}, {a.local_steps}")
def test_a_net_large_enough_trains_the_same_on_both_engines(algorithm: Any) -> None:
    torch.manual_seed(0)
    model = Model(mlp(150, 120, 3).double())
    data = Data.from_parts({name: {"inputs": torch.randn(20, 150, dtype=torch.float64), "labels": torch.randint(3, (20,))}
                            for name in ("a", "b", "c")})
    ends = []
    for engine in ("loop", "vectorised"):
        fed = Federation(cross_entropy(model), data, engine=engine)
        state = algorithm.init(fed, model.vector())
        for _ in range(2):
            state = algorithm.round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-10, atol=1e-12)
