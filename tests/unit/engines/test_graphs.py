"""What makes graphs of nested problems cheap changes no result: forward derivatives, draws sorted by kind, unequal local steps."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from rookery import Batch, Data, Federation, FedNest, LFedNest, Minimization, Model, Program, hvp
from rookery.data import Stratified
from rookery.engines import Vectorised
from rookery.engines.tracing import tidy
from rookery.models import mlp
from rookery.objectives import hyper_representation, loss_tuning
from rookery.problems import jvp
from rookery.problems import testproblems as known
from rookery.problems.autodiff import functional

CLASSES, INPUTS = 3, 4


def smooth(z: Tensor) -> Tensor:
    return torch.stack([z[0] * z[1], torch.sin(z[2]), z.square().sum()])


def normed(z: Tensor) -> Tensor:
    """Through an operation of torch that has no forward derivative: weight normalisation, z_2·(z_0, z_1)/‖(z_0, z_1)‖."""
    return torch._weight_norm(z[:2].view(1, 2), z[2:].view(1, 1)).reshape(-1)


@pytest.mark.parametrize("fn", [smooth, normed])
@pytest.mark.parametrize("graph", [False, True])
def test_a_derivative_along_v_is_the_jacobian_times_v(fn: Any, graph: bool) -> None:
    x, v = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64), torch.tensor([1.0, 0.5, -2.0], dtype=torch.float64)
    with functional() if graph else nullcontext():
        value, along = jvp(fn, x, v)
    e = 1e-6
    torch.testing.assert_close(value, fn(x))
    torch.testing.assert_close(along, (fn(x + e * v) - fn(x - e * v)) / (2 * e), rtol=1e-7, atol=1e-8)


def test_a_value_that_does_not_depend_on_x_has_no_derivative_along_v() -> None:
    x = torch.ones(3)
    assert jvp(lambda z: torch.ones(2), x, x)[1].tolist() == [0, 0]


@pytest.mark.parametrize("graph", [False, True])
def test_a_hessian_product_is_that_of_the_hessian(graph: bool) -> None:
    """f(z) = Σz³/6 + (a·z)²/2: the Hessian is diag(z) + aaᵀ."""
    a, x, v = (torch.tensor(t, dtype=torch.float64) for t in ([1.0, 2.0, -1.0], [0.3, -1.2, 0.7], [1.0, 0.5, -2.0]))
    with functional() if graph else nullcontext():
        found = hvp(lambda z: (z**3).sum() / 6 + 0.5 * torch.dot(a, z) ** 2, x, v)
    torch.testing.assert_close(found, x * v + a * torch.dot(a, v))


# graphs without what computes nothing


def tidied(fn: Any, *inputs: Tensor) -> tuple[Any, list[str]]:
    graph = make_fx(fn)(*inputs)
    tidy(graph)
    return graph, [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def test_a_tidied_graph_computes_each_thing_once_and_the_same_result() -> None:
    x = torch.randn(3, 4)

    def fn(x: Tensor) -> Tensor:
        return ((x * 1).exp() + x.view(3, 4).exp() / 1.0 - 0.0).transpose(0, 1).transpose(0, 1)

    graph, operations = tidied(fn, x)
    assert torch.equal(graph(x), fn(x))
    assert operations == ["aten.exp.default", "aten.add.Tensor"]


def test_one_and_one_point_nought_are_not_the_same_operation() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.full((2,), 1), torch.full((2,), 1.0)

    graph, _ = tidied(fn, torch.ones(1))
    assert [value.dtype for value in graph(torch.ones(1))] == [torch.int64, torch.float32]


def test_values_that_are_changed_in_place_stay_apart() -> None:
    def fn(x: Tensor) -> Tensor:
        a, b, c = torch.zeros(3), torch.zeros(3), x * 1
        a[0] = 5.0
        c[1] = 7.0
        return a + b + c + x

    x = torch.ones(3)
    graph, _ = tidied(fn, x)
    assert graph(x).tolist() == [7, 8, 2]
    assert x.tolist() == [1, 1, 1]


# draws sorted by kind


def rows(clients: int = 3) -> Data:
    r = np.random.default_rng(0)
    parts = {}
    for k in range(clients):
        n = 9 + k
        kind = r.permutation(np.arange(n) % 2)
        parts[f"site-{k}"] = {"inputs": r.standard_normal((n, INPUTS)), "labels": r.permutation(np.arange(n) % CLASSES),
                              "validation": kind.astype(np.float64)}
    return Data.from_parts(parts)


def nested(name: str, **options: Any) -> tuple[Any, Tensor, Tensor]:
    torch.manual_seed(0)
    if name == "loss tuning":
        net = Model(mlp(INPUTS, 5, CLASSES).double())
        weights = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
        return loss_tuning(net, CLASSES, weights, 0.1, **options), 0.1 * torch.arange(6, dtype=torch.float64), net.vector()
    net = Model(mlp(INPUTS, 5).double())
    return hyper_representation(net, 5, CLASSES, 0.1, **options), net.vector(), 0.1 * torch.arange(18, dtype=torch.float64)


@pytest.mark.parametrize(("method", "name", "engine"), [
    (FedNest, "loss tuning", "loop"), (FedNest, "loss tuning", "vectorised"), (FedNest, "hyper representation", "wire"),
    (LFedNest, "hyper representation", "loop")])
def test_rows_kept_apart_give_what_masks_give(method: Any, name: str, engine: str) -> None:
    """The same draws, once sorted by kind and once weighed by kind."""
    ends = []
    for apart in (True, False):
        problem, x, y = nested(name, sampling=Stratified("validation", 2))
        masked = replace(problem, sampling=Stratified("validation", 2))
        fed = Federation(problem if apart else masked, rows(), seed=4, engine=engine)
        algorithm = method(0.3, 0.2, 2, 2, 2, 5.0, "neumann", 5)
        state = algorithm.round(fed, algorithm.init(fed, x, y))
        ends.append((state.x, state.y, fed.ledger["train"].samples))
    torch.testing.assert_close(ends[0], ends[1])
    assert (ends[0][0] - x).abs().max() > 1e-3


def test_each_loss_runs_the_model_on_the_rows_of_its_kind_only() -> None:
    problem, x, y = nested("loss tuning", sampling=Stratified("validation", 2))
    fed = Federation(problem, rows(), engine="loop")
    seen: list[int] = []
    fed.problem.model.net.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))  # type: ignore[union-attr]
    algorithm = FedNest(0.3, 0.2, 1, 1, 1, 5.0, "neumann", 5)
    algorithm.round(fed, algorithm.init(fed, x, y))
    # the first use of a hand-written oracle is compared with automatic differentiation, of the whole f and g all the same
    assert set(seen) == {2, 3}
    full = FedNest(0.3, 0.2, 1, 1, 1, 5.0, "neumann", None)
    seen.clear()
    full.round(fed, full.init(fed, x, y))
    assert set(seen) == set(fed.data.sizes.tolist())


# unequal local steps


@dataclass(frozen=True)
class Walk(Program):
    def step(self, c: Any, x: Tensor, lr: float) -> Tensor:
        return x - lr / c.steps * c.gradient(x, c.draw(2))


@pytest.mark.parametrize("times", [(3, 2, 4, 3), (0, 1, 1, 1), (1, 1, 30, 1), (2, 2, 2, 2)])
def test_clients_of_unequal_local_steps_end_where_the_loop_ends(times: tuple[int, ...]) -> None:
    k, ends, costs = known.minimization(), [], []
    for engine in ("loop", "vectorised"):
        fed = Federation(k.problem, k.data, engine=engine)
        X = fed.iterate(Walk().step, fed.broadcast(k.x0), 0.3, steps=np.asarray(times))
        ends.append(fed.mean(X))
        costs.append((fed.ledger["train"].calls, fed.ledger["train"].samples))
    torch.testing.assert_close(ends[0], ends[1])
    assert costs[0] == costs[1]


def test_other_numbers_of_local_steps_are_not_another_graph() -> None:
    k = known.minimization()
    problem = Minimization(k.problem.f)  # type: ignore[attr-defined]
    fed = Federation(problem, k.data, engine="vectorised")
    for times in ((3, 2, 4, 3), (4, 4, 4, 4), (5, 6, 7, 6)):
        fed.mean(fed.iterate(Walk().step, fed.broadcast(k.x0), 0.3, steps=np.asarray(times)))
    assert isinstance(fed.engine, Vectorised)
    assert [len(plan.graphs) for plan in fed.engine.plans.values()] == [1]


def test_the_tuned_loss_has_the_mixed_derivative_of_a_finite_difference() -> None:
    """∇²xy g·v by hand against [∇x g(x, y + ev) − ∇x g(x, y − ev)]/2e."""
    problem, x, y = nested("loss tuning")
    batch = Batch(rows().views(0))
    v, e = torch.linspace(-1, 1, len(y), dtype=torch.float64), 1e-5

    def slope(w: Tensor) -> Tensor:
        z = x.clone().requires_grad_()
        return torch.autograd.grad(problem.g(z, w, batch), z)[0]

    expected = (slope(y + e * v) - slope(y - e * v)) / (2 * e)
    torch.testing.assert_close(problem.oracle("g_xy")(x, y, batch, v), expected, rtol=1e-6, atol=1e-8)
    assert expected.abs().max() > 0.01
