"""Cross-entropy of the last layer alone: its gradient, and what FedAvg moves."""

from __future__ import annotations

import pytest
import torch
from labelled import rows
from torch import nn

from rookery import Batch, FedAvg, Federation, Model
from rookery.data.sampling import Balanced
from rookery.objectives import cross_entropy
from rookery.objectives.lastlayer import last_layer

NETS = {"mlp": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), "linear": lambda: nn.Linear(3, 2),
        "without bias": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))}
LAST = {"mlp": 10, "linear": 8, "without bias": 8}  # numbers in the last layer


@pytest.mark.parametrize("net", NETS)
def test_the_gradient_is_that_of_cross_entropy_in_the_last_layer_and_0_elsewhere(net: str) -> None:
    model = Model(NETS[net]().double())
    r = torch.Generator().manual_seed(0)
    x = torch.randn(model.size, generator=r, dtype=torch.float64).requires_grad_()
    batch = Batch({"inputs": torch.randn(5, 3, generator=r, dtype=torch.float64), "labels": torch.tensor([0, 1, 1, 0, 1])})
    problems = last_layer(model), cross_entropy(model)
    own, whole = (torch.autograd.grad(problem.f(x, batch), x)[0] for problem in problems)
    assert torch.equal(*(problem.f(x, batch) for problem in problems))
    torch.testing.assert_close(own[-LAST[net]:], whole[-LAST[net]:])
    assert not own[: -LAST[net]].any()


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_fedavg_moves_the_last_layer_alone(engine: str) -> None:
    model = Model(NETS["mlp"]())
    fed = Federation(last_layer(model, sampling=Balanced("labels")), rows(), engine=engine, seed=0)
    algorithm, start = FedAvg(lr=0.5, local_steps=3, batch=4), model.vector()
    state = algorithm.init(fed, start)
    for _ in range(3):
        state = algorithm.round(fed, state)
    torch.testing.assert_close(state.x[:-10], start[:-10])  # a mean of equal numbers rounds
    assert ((state.x[-10:] - start[-10:]).abs() > 1e-3).all()
