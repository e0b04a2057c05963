"""A problem that nothing depends on x in is refused before it trains nothing; one that is right passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import (
    FCSG,
    Bilevel,
    Compositional,
    Conditional,
    Data,
    FedAvg,
    FedDRO,
    Federation,
    FedNest,
    LocalSGDA,
    Minimax,
    Minimization,
    Model,
    Problem,
    as_bilevel,
    grad,
)
from rookery.data import Stored
from rookery.errors import ProblemError

ENGINES = ("loop", "vectorised", "wire", "auto")


def data() -> Data:
    r = torch.Generator().manual_seed(0)
    return Data.from_parts({name: {"inputs": torch.randn(5, 3, generator=r), "labels": torch.randint(2, (5,), generator=r),
                                   "views": torch.randn(5, 4, 3, generator=r)} for name in "abc"})


def advance(problem: Problem, algorithm: Any, engine: str, *start: Tensor) -> Tensor:
    fed = Federation(problem, data(), engine=engine)
    return algorithm.round(fed, algorithm.init(fed, *start)).x  # type: ignore[no-any-return]


MODEL = Model(nn.Linear(3, 2))
MISTAKES = {
    "the module itself": lambda x, b: F.cross_entropy(MODEL.net(b.inputs), b.labels),
    "detached": lambda x, b: F.cross_entropy(MODEL(x.detach(), b.inputs), b.labels),
    ".data": lambda x, b: F.cross_entropy(MODEL(x.data, b.inputs), b.labels),
    "forgotten": lambda x, b: b.inputs.square().mean(),
    "classes, not scores": lambda x, b: (MODEL(x, b.inputs).argmax(1) != b.labels).float().mean(),
    "a tensor made anew": lambda x, b: F.cross_entropy(MODEL(torch.tensor(x.tolist()), b.inputs), b.labels)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_loss_that_does_not_depend_on_x_is_refused(mistake: str, engine: str) -> None:
    with pytest.raises(ProblemError, match=r"f does not depend on x.*write model\(x, batch.inputs\)"):
        advance(Minimization(MISTAKES[mistake]), FedAvg(0.1, 2, 2), engine, MODEL.vector())


@pytest.mark.parametrize("engine", ENGINES)
def test_the_modules_own_parameters_are_refused_even_beside_x(engine: str) -> None:
    def f(x: Tensor, b: Any) -> Tensor:
        return F.cross_entropy(MODEL.net(b.inputs), b.labels) + 0.1 * x.square().sum()

    with pytest.raises(ProblemError, match=r"own parameters.*model\.net"):
        advance(Minimization(f, model=MODEL), FedAvg(0.1, 2, 2), engine, MODEL.vector())


def test_another_module_and_the_start_are_constants_that_may_be_used() -> None:
    teacher, start = nn.Linear(3, 2), MODEL.vector()

    def f(x: Tensor, b: Any) -> Tensor:
        return (MODEL(x, b.inputs) - teacher(b.inputs)).square().mean() + (x - start).square().sum()

    assert not torch.equal(advance(Minimization(f, model=MODEL), FedAvg(0.1, 2, 2), "loop", start), start)


def test_a_loss_that_takes_a_derivative_itself_depends_on_x() -> None:
    """One step of gradient descent inside the loss: at w = x − ∇(½‖x‖²)/2 = x/2, ½‖w − 1‖² has the gradient (w − 1)/2."""
    def f(x: Tensor, b: Any) -> Tensor:
        w = x - 0.5 * grad(lambda z: 0.5 * z.square().sum(), x)
        return 0.5 * (w - 1).square().sum()

    x = torch.tensor([4.0, 0.0])
    torch.testing.assert_close(advance(Minimization(f), FedAvg(1.0, 1, 2), "loop", x), x - (x / 2 - 1) / 2)


def test_the_other_kinds_are_refused_where_nothing_depends_on_a_variable() -> None:
    x, y = torch.ones(3), torch.ones(3)
    conditional = Conditional(lambda u, b: u[:, 0], lambda x, xi, eta: eta.views, sampling=Stored("views"))
    with pytest.raises(ProblemError, match="the objective does not depend on x"):
        advance(conditional, FCSG(0.1, outer=2, inner=2), "loop", x)
    composed = Compositional(lambda z: z.sum(), lambda x, b: b.inputs.mean(0), lambda x, b: b.inputs.sum())
    with pytest.raises(ProblemError, match="h and g do not depend on x"):
        advance(composed, FedDRO(0.1, 0.5, batch=2), "loop", x)
    for f, letter in ((lambda x, y, b: y.sum() + b.inputs.sum(), "x"), (lambda x, y, b: x.sum() + y.detach().sum(), "y")):
        with pytest.raises(ProblemError, match=f"f does not depend on {letter}"):
            advance(Minimax(f), LocalSGDA(0.1, inner_lr=0.1, batch=2), "loop", x, y)
    bilevel = Bilevel(lambda x, y, b: (y - b.inputs).square().mean(), lambda x, y, b: (y - x.detach()).square().mean())
    with pytest.raises(ProblemError, match="do not depend on x"):
        advance(bilevel, nest(), "loop", x, y)


def nest() -> FedNest:
    return FedNest(lr=0.1, inner_lr=0.1, inner_rounds=1, terms=2, smoothness=4.0)


@pytest.mark.parametrize("problem", [
    Bilevel(lambda x, y, b: (y - b.inputs).square().mean(), lambda x, y, b: (y - x).square().mean()),  # f is free of x
    as_bilevel(Minimization(lambda x, b: (x - b.inputs).square().mean())),  # there is no y
    as_bilevel(Compositional(lambda z: z.square().sum(), lambda x, b: (x - b.inputs).mean(0))),  # h is missing
    as_bilevel(Minimax(lambda x, y, b: (x * y).sum() - y.square().sum()))], ids=["bilevel", "plain", "composed", "minimax"])
@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_one_function_that_depends_is_enough(problem: Bilevel, engine: str) -> None:
    y = torch.ones(3 if problem.inner else 0)
    assert not torch.equal(advance(problem, nest(), engine, torch.ones(3), y), torch.ones(3))


def test_a_composition_may_have_its_x_in_h_alone() -> None:
    problem = Compositional(lambda z: z.sum(), lambda x, b: b.inputs.mean(0), lambda x, b: x.square().sum())
    assert not torch.equal(advance(problem, FedDRO(0.1, 0.5, batch=2), "loop", torch.ones(3)), torch.ones(3))
