"""The ratio loss: its weights by hand, and from the counts of all clients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rookery import Batch, Data, FedAvg, Federation, Model
from rookery.errors import ProblemError
from rookery.objectives import cross_entropy, ratio_loss


def sites() -> Data:
    """Seven rows of class 0, two of class 1, one of class 2; the second client has the first class only."""
    r = torch.Generator().manual_seed(0)
    labels = {"a": [0, 0, 1, 2, 0, 1, 0], "b": [0, 0, 0]}
    return Data.from_parts({name: {"inputs": torch.randn(len(own), 2, generator=r, dtype=torch.float64), "labels": torch.tensor(own)}
                            for name, own in labels.items()})


@pytest.mark.parametrize("engine", ["loop", "vectorised"])
def test_the_weights_are_those_of_all_clients_counts(engine: str) -> None:
    model = Model(nn.Linear(2, 3).double())
    fed: Any = Federation(ratio_loss(model, alpha=0.5, beta=0.2), sites(), engine=engine)
    x = model.vector()
    problem = fed.prepare(x)
    ratios = [(2 + 1) / 2 / 7, (7 + 1) / 2 / 2, (7 + 2) / 2 / 1]  # the mean of the other two over one's own
    weight = torch.tensor([0.5 + 0.2 * r for r in ratios], dtype=torch.float64)
    for client in (0, 1):
        b = Batch(sites().views(client))
        expected = (F.cross_entropy(model(x, b.inputs), b.labels, reduction="none") * weight[b.labels]).mean()
        torch.testing.assert_close(problem.f(x, b), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(problem.gradient(x, b), cross_entropy(model, weight).gradient(x, b), rtol=1e-12, atol=1e-12)


def test_two_classes_have_the_ratio_of_their_counts_and_beta_zero_is_cross_entropy() -> None:
    model = Model(nn.Linear(2, 2).double())
    b = Batch({"inputs": torch.ones(4, 2, dtype=torch.float64), "labels": torch.tensor([0, 0, 0, 1])})
    x, counts = model.vector(), torch.tensor([3.0, 1.0], dtype=torch.float64)
    made: Any = ratio_loss(model)
    ell = F.cross_entropy(model(x, b.inputs), b.labels, reduction="none")
    torch.testing.assert_close(made.finish(counts).f(x, b), (ell * torch.tensor([1 + 0.1 / 3] * 3 + [1.3])).mean())
    plain: Any = ratio_loss(model, beta=0.0)
    torch.testing.assert_close(plain.finish(counts).f(x, b), cross_entropy(model).f(x, b))


def test_what_cannot_be_weighed_is_refused() -> None:
    model, data = Model(nn.Linear(2, 4).double()), sites()
    for options, words in (({"alpha": -1.0}, "alpha must be"), ({"beta": float("inf")}, "beta must be"),
                           ({"alpha": 0.0, "beta": 0.0}, "both 0"), ({"classes": 1}, "at least 2")):
        with pytest.raises(ProblemError, match=words):
            ratio_loss(model, **options)  # type: ignore[arg-type]
    fed = Federation(ratio_loss(model), data)
    with pytest.raises(ProblemError, match="number 3 has none"):
        fed.prepare(model.vector())
    with pytest.raises(ProblemError, match=r"write fed.prepare\(x\) first"):
        ratio_loss(model).f(model.vector(), Batch(data.views(0)))
    three = Model(nn.Linear(2, 3).double())
    fed = Federation(ratio_loss(three), data)
    fed.prepare(three.vector())
    before = three.vector()
    state = FedAvg(lr=0.1, local_steps=2, batch=2).init(fed, before)
    assert not torch.equal(FedAvg(lr=0.1, local_steps=2, batch=2).round(fed, state).x, before)
