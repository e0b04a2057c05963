"""The parts of a conditional gradient: inner means with their pull-back, slopes of f and ∇h, plain, by hand, and at a client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from rookery import SOAP, Algorithm, Batch, Conditional, Data, Federation
from rookery.data import Positives, Replacement
from rookery.errors import ProblemError
from rookery.federation import ConditionalClient
from rookery.objectives import ap_surrogate, partial_auc
from rookery.problems import testproblems as known

X = torch.tensor([0.4, -0.2, 0.5], dtype=torch.float64)


def tanh(x: Tensor, b: Batch) -> Tensor:
    return torch.tanh(b.inputs @ x)


def rows(labels: list[int]) -> dict[str, Tensor]:
    inputs = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return {"inputs": inputs, "labels": torch.tensor(labels)}


def solved() -> tuple[Conditional, Batch]:
    k = known.conditional()
    assert isinstance(k.problem, Conditional)
    return k.problem, k.problem.sampling.whole(k.data.views(0))


def problems() -> dict[str, tuple[Conditional, Batch]]:
    partial = partial_auc(tanh, kind=Conditional)
    assert isinstance(partial, Conditional)
    found = {"known": solved()}
    for name, problem in (("ap", ap_surrogate(tanh, 0.8)), ("partial auc", partial)):
        found |= {f"{name} {labels}": (problem, problem.sampling.whole(rows(labels))) for labels in ([1, 0, 0, 1, 0], [0, 0, 0], [1, 1, 1])}
    return found


@pytest.mark.parametrize("name", problems())
def test_the_pull_back_of_the_slopes_is_the_gradient(name: str) -> None:
    problem, b = problems()[name]
    u, pull = problem.g_pullback(X, b)
    v = problem.f_slopes(u, b)
    assert u.shape == v.shape == problem.g_mean(X, b).shape
    assert not u.requires_grad
    torch.testing.assert_close(pull(v) + problem.h_gradient(X, b), problem.gradient(X, b), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(problem.g_vjp(X, b, v) + problem.h_gradient(X, b), problem.gradient(X, b), rtol=1e-12, atol=1e-12)
    assert torch.equal(u, problem.g_mean(X, b))


def test_the_parts_are_those_of_the_closed_form() -> None:
    """u = E[η]·x, ∇ mean ½(u − b)² = (u − b)/n, Jᵀv = Σ v_i E[η_i], ∇h = x/2."""
    problem, b = solved()
    assert b.inner is not None
    eta = b.inner.eta.mean(1)
    v = torch.arange(1.0, len(eta) + 1, dtype=torch.float64)[:, None]
    u, pull = problem.g_pullback(X, b)
    torch.testing.assert_close(u[:, 0], eta @ X, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pull(v), eta.T @ v[:, 0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(problem.f_slopes(v, b), (v - b.b[:, None]) / len(v), rtol=1e-12, atol=1e-12)
    assert torch.equal(problem.h_gradient(X, b), X / 2)
    assert torch.equal(replace(problem, h=None).h_gradient(X, b), torch.zeros(3, dtype=torch.float64))


@dataclass(frozen=True)
class Parts(Algorithm[Conditional]):
    """The gradient at every client from its parts, and their mean."""

    title: ClassVar[str] = ""

    def ask(self, fed: Federation[Conditional], x: Tensor) -> Tensor:
        return fed.mean(fed.map(self.add, fed.broadcast(x)))

    def add(self, c: ConditionalClient, x: Tensor) -> Tensor:
        b = c.draw()
        u, pull = c.g_pullback(x, b)
        return pull(c.f_slopes(u, b)) + c.h_gradient(x, b)


def eta_of(b: Batch) -> Tensor:
    assert b.inner is not None
    return b.inner.eta.mean(1)


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
@pytest.mark.parametrize("own", [[], ["g_mean"], ["g_vjp"], ["g_mean", "g_vjp", "f_slopes", "h_gradient"]], ids=str)
def test_clients_have_them_and_hand_written_ones_take_their_place(own: list[str], engine: str) -> None:
    k = known.conditional()
    written: dict[str, Any] = {
        "g_mean": lambda x, b: (eta_of(b) @ x)[:, None], "g_vjp": lambda x, b, v: v[:, 0] @ eta_of(b),
        "f_slopes": lambda u, b: (u - b.b[:, None]) / len(u), "h_gradient": lambda x, b: 0.5 * x}
    problem = replace(k.problem, oracles={name: written[name] for name in own})
    assert isinstance(problem, Conditional)
    fed = Federation(problem, k.data, engine=engine)
    torch.testing.assert_close(Parts().ask(fed, X), k.gradient(X), rtol=1e-12, atol=1e-12)
    pair = {"g_mean", "g_vjp"} & set(own)
    expected = {"g_mean", "g_vjp"} if pair else {"g_pullback"}
    assert set(fed.ledger["train"].calls) == expected | {"f_slopes", "h_gradient"}


@pytest.mark.parametrize("name", ["g_mean", "g_vjp", "f_slopes", "h_gradient"])
def test_a_hand_written_part_that_is_wrong_is_refused(name: str) -> None:
    k = known.conditional()
    right = getattr(k.problem, name)
    problem = replace(k.problem, oracles={name: lambda *arguments: 1.01 * right(*arguments)})
    assert isinstance(problem, Conditional)
    with pytest.raises(ProblemError, match=f"hand-written oracle '{name}' disagrees"):
        Parts().ask(Federation(problem, k.data, engine="loop"), X)


def test_the_pull_back_follows_from_its_two_parts() -> None:
    k = known.conditional()
    with pytest.raises(ProblemError, match="'g_pullback' gives 'g_mean' and 'g_vjp' from one pass"):
        replace(k.problem, oracles={"g_pullback": lambda x, b: None})


def test_a_problem_that_nothing_would_move_is_refused_from_its_parts_too() -> None:
    k = known.conditional()
    assert isinstance(k.problem, Conditional)
    f, g = k.problem.f, k.problem.g
    still = replace(k.problem, g=lambda x, xi, eta: g(x.detach(), xi, eta), h=None)
    with pytest.raises(ProblemError, match="the objective does not depend on x"):
        Parts().ask(Federation(still, k.data, engine="loop"), X)
    cut = replace(k.problem, f=lambda u, xi: f(u.detach(), xi), h=None)
    with pytest.raises(ProblemError, match="the objective does not depend on x"):
        Parts().ask(Federation(cut, k.data, engine="loop"), X)
    by_h = replace(still, h=lambda x: x.square().sum())  # as for the whole gradient, one of them has to
    torch.testing.assert_close(Parts().ask(Federation(by_h, k.data, engine="loop"), X), 2 * X)


def test_what_is_wrong_with_g_is_said_as_for_the_whole_gradient() -> None:
    data = Data.from_parts({"a": rows([1, 0, 1])})
    flat = Conditional(lambda u, xi: u, lambda x, xi, eta: xi.inputs @ x, sampling=Positives())
    algorithm = SOAP(0.1)
    plain = replace(flat, sampling=Replacement())
    for problem, words in ((flat, r"g must return \(outer, inner, p\)"), (plain, "needs conditional samples")):
        fed = Federation(problem, data, engine="loop")
        with pytest.raises(ProblemError, match=words):
            algorithm.round(fed, algorithm.init(fed, X))
