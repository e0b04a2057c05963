"""MAML as a conditional problem: its gradient against a plain double backward, a Hessian and finite differences; its minimiser."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from rookery import FCSG, Batch, Conditional, Data, Federation, Model
from rookery.data import Episodes, PerTask
from rookery.errors import DataError, ProblemError
from rookery.models import conv4, federated_norm, mlp
from rookery.objectives import adapt, cross_entropy_losses, maml, tasks
from rookery.problems.autodiff import functional

LR = 0.3


def batch_of_tasks(number: int, shape: tuple[int, ...], dtype: torch.dtype, support: int = 6, query: int = 9) -> Batch:
    torch.manual_seed(1)

    def rows(each: int) -> dict[str, Tensor]:
        return {"inputs": torch.randn(number, each, *shape, dtype=dtype), "labels": torch.randint(3, (number, each))}

    return Batch(rows(query), None, Batch(rows(support)))


def plain_gradient(net: nn.Module, b: Batch, steps: int = 1, second_order: bool = True) -> Tensor:
    """As a user writes it: parameters by name, one graph of the inner steps, and one backward pass through all of it for each task."""
    assert b.inner is not None
    names, weights = zip(*net.named_parameters(), strict=True)
    total = [torch.zeros_like(w) for w in weights]
    number = len(b.labels)
    for i in range(number):
        own = list(weights)
        for _ in range(steps):
            loss = F.cross_entropy(functional_call(net, dict(zip(names, own, strict=True)), (b.inner.inputs[i],)), b.inner.labels[i])
            moved = torch.autograd.grad(loss, own, create_graph=second_order)
            own = [w - LR * m for w, m in zip(own, moved, strict=True)]
        outer = F.cross_entropy(functional_call(net, dict(zip(names, own, strict=True)), (b.inputs[i],)), b.labels[i])
        for t, g in zip(total, torch.autograd.grad(outer, weights), strict=True):
            t.add_(g / number)
    return torch.cat([t.reshape(-1) for t in total])


def net_of(kind: str, dtype: torch.dtype) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(dtype), (4,)
    return federated_norm(conv4(3, side=16, filters=4)).to(dtype), (1, 16, 16)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("kind", ["mlp", "conv4"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("second_order", [True, False])
def test_gradient_is_that_of_a_plain_double_backward(kind: str, dtype: torch.dtype, tolerance: float, steps: int,
                                                     second_order: bool) -> None:
    net, shape = net_of(kind, dtype)
    b = batch_of_tasks(3, shape, dtype)
    problem = maml(Model(copy.deepcopy(net)), LR, steps, second_order)
    expected = plain_gradient(net, b, steps, second_order)
    x = Model(copy.deepcopy(net)).vector()
    found = problem.gradient(x, b)
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())
    if kind == "mlp":  # as engines that vectorise over clients take it
        with functional():
            assert float((problem.gradient(x, b) - expected).abs().max()) <= tolerance * float(expected.abs().max())


def test_orders_differ_by_the_step_times_hessian_and_gradient() -> None:
    net, shape = net_of("mlp", torch.float64)
    model, b = Model(net), batch_of_tasks(1, shape, torch.float64)
    x, ((support, query),) = model.vector(), tasks(b)
    losses = cross_entropy_losses(model)
    hessian = torch.autograd.functional.hessian(lambda z: losses(z, support).mean(), x)
    adapted = adapt(lambda z, rows: losses(z, rows).mean(), x, support, LR).requires_grad_()
    (slope,) = torch.autograd.grad(losses(adapted, query).mean(), adapted)
    first, second = (maml(model, LR, second_order=order).gradient(x, b) for order in (False, True))
    torch.testing.assert_close(first, slope, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(second, slope - LR * hessian @ slope, rtol=1e-10, atol=1e-12)
    assert float((first - second).abs().max()) > 1e-3


def test_gradient_is_that_of_finite_differences() -> None:
    net, shape = net_of("mlp", torch.float64)
    model, b = Model(net), batch_of_tasks(2, shape, torch.float64)
    problem, x, h = maml(model, LR, steps=2), model.vector(), 1e-5
    numeric = torch.stack([(problem.value(x + h * e, b) - problem.value(x - h * e, b)) / (2 * h) for e in torch.eye(len(x), dtype=x.dtype)])
    torch.testing.assert_close(problem.gradient(x, b), numeric, rtol=1e-6, atol=1e-8)


class Point(nn.Module):
    """One number, whatever the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.at.expand(len(inputs))


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_minimiser_of_quadratic_tasks_is_the_mean_of_what_adaptation_leaves(engine: str) -> None:
    # L(x) = ½(x − a)² for a task of equal rows a: after a step it is ½(1 − λ)²(x − a)², least at the mean of the tasks
    targets = {"north": (1.0, 3.0), "south": (-2.0, 6.0)}
    data = Data.from_parts({name: {"inputs": torch.zeros(8, 1), "task": torch.arange(2).repeat_interleave(4),
                                   "target": torch.tensor(own, dtype=torch.float64).repeat_interleave(4)} for name, own in targets.items()})
    model = Model(Point())
    problem = maml(model, LR, losses=lambda x, b: 0.5 * (model(x, b.inputs) - b.target).square(), sampling=PerTask("task", query=2))
    fed = Federation(problem, data, engine=engine, seed=3)
    algorithm = FCSG(lr=1.0, outer=400, inner=2)
    state = algorithm.round(fed, algorithm.init(fed, torch.zeros(1, dtype=torch.float64)))
    # one step from 0 along −(1 − λ)²·mean of the tasks drawn, which for all tasks alike would be that of the four
    drawn = float(state.x) / (1 - LR) ** 2
    assert abs(drawn - 2.0) < 4 * 2.92 / 800**0.5


def test_support_and_query_are_different_rows_of_a_client() -> None:
    data = Data.from_parts({"a": {"inputs": torch.arange(7.0)[:, None], "labels": torch.zeros(7, dtype=torch.long)}})
    seen: list[Tensor] = []

    def losses(x: Tensor, b: Batch) -> Tensor:
        seen.append(b.inputs.detach().reshape(-1))
        return (b.inputs[:, 0] * x[0]).square()

    net = Model(mlp(1, 2))
    problem = maml(net, 0.1, query=3, losses=losses)
    fed = Federation(problem, data, engine="loop")
    algorithm = FCSG(lr=0.1, outer=1, inner=4)
    algorithm.round(fed, algorithm.init(fed, net.vector()))
    support, query = seen[-2], seen[-1]
    assert (len(support), len(query)) == (4, 3)
    assert sorted(torch.cat([support, query]).tolist()) == list(range(7))
    assert fed.ledger["train"].samples == 7


def test_samples_of_tasks_are_rows() -> None:
    data = Data.from_parts({"a": {"inputs": torch.randn(40, 2), "labels": torch.arange(4).repeat_interleave(10)}})
    model = Model(mlp(2, 2))
    fed = Federation(maml(model, sampling=Episodes(2, 5)), data, engine="loop")
    algorithm = FCSG(lr=0.1, outer=3, inner=1)
    algorithm.round(fed, algorithm.init(fed, model.vector()))
    assert fed.ledger["train"].samples == 3 * 2 * (5 + 1)


def test_min_batch_counts_the_rows_of_tasks() -> None:
    data = Data.from_parts({"a": {"inputs": torch.randn(20, 2), "labels": torch.randint(2, (20,))}})
    model = Model(mlp(2, 2))
    for query, refused in ((5, False), (4, True)):
        fed = Federation(maml(model, query=query), data, engine="loop", min_batch=5)
        algorithm = FCSG(lr=0.1, outer=1, inner=5)
        state = algorithm.init(fed, model.vector())
        if refused:
            with pytest.raises(DataError, match="fewer than min_batch=5 samples"):
                algorithm.round(fed, state)
        else:
            algorithm.round(fed, state)


@pytest.mark.parametrize(("wrong", "said"), [({"inner_lr": 0.0}, "positive size"), ({"steps": 0}, "1 to 1000 steps"),
                                             ({"query": 0}, "at least 1")])
def test_numbers_are_checked(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ProblemError, match=said):
        maml(Model(mlp(2, 2)), **wrong)


def test_start_of_another_length_is_refused() -> None:
    model = Model(mlp(2, 2))
    problem = maml(model)
    assert isinstance(problem, Conditional)
    with pytest.raises(ProblemError, match=r"x has 6 numbers.*got 7"):
        problem.value(torch.zeros(7), batch_of_tasks(1, (2,), torch.float32))
    with pytest.raises(ProblemError, match="support rows"):
        tasks(Batch({"inputs": torch.zeros(1, 2)}))
