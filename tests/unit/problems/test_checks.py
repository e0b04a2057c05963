"""Losses, inner values and oracles by hand that are not what they must be are refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from labelled import X, each, rows
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import GCIVR, Compositional, Data, FedAvg, FedDRO, Federation, Minimization, Model
from rookery.errors import ProblemError
from rookery.problems import testproblems as known


def test_randomness_that_nobody_announced_is_refused() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.linear(x), 0.5)

    model = Model(Noisy())
    data = Data.from_parts({"a": {"inputs": torch.randn(4, 3)}})
    algorithm = FedAvg(0.1)
    for stochastic in (None, True):
        problem = Minimization(lambda x, b: model(x, b.inputs).square().mean(), model=model, stochastic=stochastic)
        fed = Federation(problem, data)
        state = algorithm.init(fed, model.vector())
        if stochastic is None:
            with pytest.raises(ProblemError, match="stochastic=True"):
                algorithm.round(fed, state)
        else:
            algorithm.round(fed, state)


@pytest.mark.parametrize(("loss", "words"), [(lambda x, b: b.a @ x, r"one number as a tensor; it returned shape \(5,\)"),
                                             (lambda x, b: 3.0, "returned float")])
def test_a_loss_that_is_no_number(loss: Any, words: str) -> None:
    k = known.minimization()
    fed = Federation(Minimization(loss), Data.from_parts({"a": k.data.views(0)}))
    with pytest.raises(ProblemError, match=words):
        FedAvg(0.1).round(fed, FedAvg(0.1).init(fed, k.x0))


@pytest.mark.parametrize("algorithm", [FedDRO(0.1), GCIVR(0.1)])
def test_an_inner_value_that_is_no_vector_is_refused(algorithm: Any) -> None:
    fed = Federation(Compositional(lambda z: z.sum(), lambda x, b: each(x, b).mean()), rows())
    with pytest.raises(ProblemError, match="g returns one flat vector"):
        algorithm.round(fed, algorithm.init(fed, X))


def test_a_wrong_hand_written_oracle_is_refused() -> None:
    k = known.minimization()
    problem = Minimization(k.problem.f, oracles={"gradient": lambda x, b: 2 * x})  # type: ignore[attr-defined]
    algorithm = FedAvg(0.1)
    for engine in ("loop", "vectorised"):
        fed = Federation(problem, k.data, engine=engine)
        with pytest.raises(ProblemError, match="gradient"):
            algorithm.round(fed, algorithm.init(fed, k.x0))
    with pytest.raises(ProblemError, match="slope"):
        Minimization(k.problem.f, oracles={"slope": lambda x, b: x})  # type: ignore[attr-defined]
