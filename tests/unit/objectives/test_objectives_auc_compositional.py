"""The compositional AUC objective: against a double backward pass over a module, on every engine, and from descriptions."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from rare import F64, rows
from running import changed
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import Batch, CompositionalMinimax, Data, Federation, Minimax, Minimization, Model, Program
from rookery.errors import ConfigError
from rookery.federation import CompositionalMinimaxClient
from rookery.objectives import Given, auc, declared, objectives
from rookery.problems import Bilevel, Conditional, Pairwise, Problem
from rookery.problems.autodiff import functional
from rookery.studies import parse
from rookery.studies.choices import ObjectiveSection

WAYS = {"eager": nullcontext, "functional": functional}


def net(outputs: int) -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs)).double()


def brute(module: nn.Module, inner: dict[str, Tensor], outer: dict[str, Tensor], x: Tensor, y: Tensor, p: float, margin: float,
          rho: float, hessian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Value and gradients by plain torch.autograd: a step of cross-entropy on one batch, and the AUC loss after it on another."""
    sizes = [q.numel() for q in module.parameters()]
    names = [name for name, _ in module.named_parameters()]
    vector, scalar = x.clone().requires_grad_(), y.clone().requires_grad_()
    parts = [part.view_as(q) for part, q in zip(torch.split(vector[:-2], sizes), module.parameters(), strict=True)]
    out = torch.func.functional_call(module, dict(zip(names, parts, strict=True)), (inner["inputs"],))
    if out.shape[1] == 1:
        losses = F.binary_cross_entropy_with_logits(out[:, 0], inner["labels"].double(), reduction="none")
    else:
        losses = F.cross_entropy(out, inner["labels"], reduction="none")
    steps = torch.autograd.grad((losses * inner.get("importance", torch.ones(len(losses)))).mean(), parts, create_graph=hessian)
    moved = [q - rho * step for q, step in zip(parts, steps, strict=True)]
    out = torch.func.functional_call(module, dict(zip(names, moved, strict=True)), (outer["inputs"],))
    s = torch.sigmoid(out[:, 0] if out.shape[1] == 1 else out[:, 1] - out[:, 0])
    up, w3 = outer["labels"] > 0, scalar[0]
    each = torch.where(up, (1 - p) * ((s - vector[-2]) ** 2 - 2 * (margin + w3) * s), p * ((s - vector[-1]) ** 2 + 2 * (margin + w3) * s))
    value = ((each - p * (1 - p) * w3**2) * outer.get("importance", torch.ones(len(s)))).mean()
    in_x, in_y = torch.autograd.grad(value, (vector, scalar))
    return value.detach(), in_x, in_y


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hessian", [True, False])
@pytest.mark.parametrize(("outputs", "weighted"), [(1, False), (2, True)])
def test_the_gradient_is_that_of_a_double_backward_pass(outputs: int, weighted: bool, hessian: bool, way: str) -> None:
    module, r = net(outputs), torch.Generator().manual_seed(4)
    model = Model(module)
    inner, outer = rows(9, 4, 1), rows(7, 2, 2)
    if weighted:
        inner, outer = (part | {"importance": torch.rand(len(part["labels"]), generator=r, **F64)} for part in (inner, outer))
    x, y = torch.cat([model.vector(), torch.tensor([0.3, -0.4], **F64)]), torch.tensor([0.2], **F64)
    open_: Any = auc(model, CompositionalMinimax, margin=0.9, rho=0.5, hessian=hessian)
    problem = open_.finish(torch.tensor([0.3, 1.0], **F64))
    with WAYS[way]():
        z, pull = problem.g_pullback(x, Batch(inner))
        in_z, in_y = problem.f_gradients(z, y, Batch(outer))
        found = problem.f(z, y, Batch(outer)), pull(in_z), in_y
        torch.testing.assert_close(problem.g_vjp(x, Batch(inner), in_z), found[1])
    for mine, theirs in zip(found, brute(module, inner, outer, x, y, 0.3, 0.9, 0.5, hessian), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)
    other = brute(module, inner, outer, x, y, 0.3, 0.9, 0.5, not hessian)
    assert float((found[1] - other[1]).norm()) > 1e-3


@pytest.mark.parametrize("way", WAYS)
def test_without_the_hessian_the_inner_map_s_derivative_is_the_identity(way: str) -> None:
    model = Model(net(1))
    exact, dropped = (auc(model, CompositionalMinimax, rho=0.7, hessian=hessian) for hessian in (True, False))
    assert isinstance(exact, CompositionalMinimax)
    assert isinstance(dropped, CompositionalMinimax)
    r = torch.Generator().manual_seed(1)
    x, v, b = torch.randn(model.size + 2, generator=r, **F64), torch.randn(model.size + 2, generator=r, **F64), Batch(rows(8, 3, 0))
    with WAYS[way]():
        torch.testing.assert_close(dropped.g(x, b), exact.g(x, b), rtol=1e-14, atol=1e-14)
        assert torch.equal(dropped.g_vjp(x, b, v), v)
        assert torch.equal(dropped.g_pullback(x, b)[1](v), v)
        assert not torch.allclose(exact.g_vjp(x, b, v), v)
    assert torch.equal(dropped.g(x, b)[-2:], x[-2:])


@dataclass(frozen=True)
class Descend(Program):
    """Steps of descent on the composition and ascent in y, with batches of their own inside and outside."""

    batch: int | None

    def step(self, c: CompositionalMinimaxClient, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z, pull = c.g_pullback(x, c.draw(self.batch))
        in_z, in_y = c.f_gradients(z, y, c.draw(self.batch))
        return x - 0.2 * pull(in_z), y + 0.2 * in_y


@pytest.mark.parametrize("hessian", [True, False])
@pytest.mark.parametrize("batch", [4, None])
def test_engines_agree_also_where_a_client_has_one_class(batch: int | None, hessian: bool) -> None:
    data = Data.from_parts({"a": rows(9, 4, 0), "b": rows(9, 2, 1), "none": rows(9, 0, 2), "all": rows(5, 5, 3)})
    model, ends = Model(net(1)), []
    x, y = torch.cat([model.vector(), torch.zeros(2, **F64)]), torch.zeros(1, **F64)
    for engine in ("loop", "vectorised", "wire"):
        fed: Any = Federation(auc(model, CompositionalMinimax, hessian=hessian, rho=0.5), data, engine=engine, seed=3)
        fed.prepare(x)
        ends.append(torch.cat(fed.mean(*fed.iterate(Descend(batch).step, fed.broadcast(x, y), steps=3))))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-9, atol=1e-10)
    assert torch.equal(ends[0], ends[2])
    assert float((ends[0] - torch.cat([x, y])).abs().max()) > 1e-2


# descriptions

TABLE: list[tuple[str, dict[str, Any], type[Problem], int]] = [
    ("LocalSGDA", {}, Minimax, 1), ("FedAvg", {}, Minimization, 0), ("FedNest", {"reduce": "bilevel"}, Bilevel, 1)]


def from_description(algorithm: str, kind: type[Problem] | None = None, **entries: Any) -> tuple[ObjectiveSection, Given]:
    tree = changed(data={"name": "breast-cancer"}, objective={"name": "auc", **entries},
                   algorithm={"name": algorithm, "local_steps": 1 if algorithm == "FedNest" else 3, "batch": ...})
    config = parse(tree)
    data = Data.from_parts({"a": {n: v.float() if v.is_floating_point() else v for n, v in rows(8, 3, 0).items()}})
    return config.objective, config.objective.given(Model(nn.Linear(3, 2)), data, 2, kind or config.algorithm.solves)


@pytest.mark.parametrize(("algorithm", "entries", "kind", "duals"), TABLE, ids=[row[0] for row in TABLE])
def test_the_algorithm_s_name_chooses_the_form(algorithm: str, entries: dict[str, Any], kind: type[Problem], duals: int) -> None:
    section, given = from_description(algorithm, margin=0.5, **entries)
    problem = section.problem(given, 4)
    assert type(problem) is kind
    assert repr(problem.sampling) == "Stratified(label='labels', positives=0, share=0.5, importance=True)"
    x, y = section.start(given)
    assert len(x) == 8 + 2 * duals
    assert torch.equal(x[8:], torch.full((2 * duals,), 0.5))
    assert (y is None) == (duals == 0)
    assert y is None or torch.equal(y, torch.zeros(1))
    Federation(problem, given.data).prepare(x)


@pytest.mark.parametrize(("kind", "duals"), [(CompositionalMinimax, 1), (Pairwise, 0)])
def test_algorithms_for_other_kinds_have_theirs(kind: type[Problem], duals: int) -> None:
    section, given = from_description("FedAvg", kind)
    assert type(section.problem(given, 4)) is kind
    x, y = section.start(given)
    assert (len(x), y is not None) == (8 + 2 * duals, duals == 1)
    other = from_description("FedAvg", kind, positives=0.25)
    assert repr(other[0].problem(other[1], 4).sampling) == "Stratified(label='labels', positives=0, share=0.25, importance=True)"
    named = from_description("FedAvg", kind, sampling="Shuffled")
    assert repr(named[0].problem(named[1], 4).sampling) == "Shuffled()"


def test_a_kind_that_has_no_form_is_a_fault_of_the_description() -> None:
    section, given = from_description("FedAvg", Conditional)
    with pytest.raises(ConfigError, match=r"\[objective\]: auc has the forms Minimax"):
        section.problem(given, 4)


def test_a_parameter_called_kind_that_is_no_class_stays_an_entry() -> None:
    assert "kind" in objectives()["fair"].entries
    assert "kind" not in objectives()["auc"].entries
    assert set(objectives()["auc"].entries) == {"margin", "rho", "hessian", "squash", "positives", "label"}

    def mine(model: Model, kind: str = "soft", **options: Any) -> Minimization:
        return Minimization(lambda x, b: x.sum(), model=model, **options)

    assert declared(mine).entries["kind"].default == "soft"
