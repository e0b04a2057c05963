"""The engine that chooses: client by client where a function cannot be traced, and it says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rookery import Data, FedAvg, Federation, Minimization, Program
from rookery.problems import testproblems as known


def test_a_function_that_does_not_vectorise_leaves_the_others_as_they_are() -> None:
    k = known.minimization(sizes=(4, 4, 4, 4))

    @dataclass(frozen=True)
    class Odd(Program):
        def branch(self, c: Any, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    fed = Federation(k.problem, k.data)
    algorithm = FedAvg(0.1)
    state = algorithm.round(fed, algorithm.init(fed, k.x0))
    assert fed.engine.name == "auto:vectorised"
    fed.mean(fed.map(Odd().branch, fed.broadcast(state.x)))
    assert fed.engine.name == "auto:loop"
    algorithm.round(fed, state)
    assert fed.engine.name == "auto:vectorised"


def test_a_loss_that_vmap_refuses_makes_auto_loop_and_say_why() -> None:
    data = Data.from_parts({f"c{i}": {"a": torch.randn(4, 2), "y": torch.tensor([0, 1, 1, 0])} for i in range(3)})
    problem = Minimization(lambda x, b: F.softplus(-(b.a @ x)[b.y == 1]).mean())
    fed = Federation(problem, data)
    algorithm = FedAvg(0.1, 2)
    state = algorithm.round(fed, algorithm.init(fed, torch.zeros(2)))
    assert fed.engine.name == "auto:loop"
    assert "mask" in fed.engine.reason  # type: ignore[attr-defined]
    loop = Federation(problem, data, engine="loop")
    assert torch.equal(state.x, algorithm.round(loop, algorithm.init(loop, torch.zeros(2))).x)
    assert fed.ledger == loop.ledger
