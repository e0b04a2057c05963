"""Losses, scores and weights of another shape than an objective takes are refused, not broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from labelled import X, each, rows

from rookery import Batch, Compositional, FedAvg, FedDRO, Federation, Minimization, PDSGDWeights
from rookery.errors import ProblemError
from rookery.objectives import cvar, fair, fast_dro, group_dro, group_weights, kl_dro, mean_variance


@pytest.mark.parametrize("make", [kl_dro, lambda losses: kl_dro(losses, shift=0.0), lambda losses: mean_variance(losses, 1.0),
                                  lambda losses: cvar(losses, 0.5), lambda losses: group_dro(losses, 2),
                                  lambda losses: fast_dro(losses, "chi2", 1.0)])
@pytest.mark.parametrize(("losses", "what"), [(lambda x, b: each(x[:3], b).mean(), "leave out the mean over rows"),
                                              (lambda x, b: each(x[:3], b)[:, None], r"write losses\[:, 0\]")])
def test_a_robust_objective_wants_one_loss_a_row(make: Any, losses: Any, what: str) -> None:
    fed, x = Federation(make(losses), rows()), torch.zeros(4)
    algorithm: Any = FedAvg(0.1) if isinstance(fed.problem, Minimization) else FedDRO(0.1)

    def begin() -> None:
        fed.prepare(x)
        algorithm.round(fed, algorithm.init(fed, x))

    with pytest.raises(ProblemError, match=what):
        begin()


def test_scores_in_a_column_do_not_switch_a_fairness_penalty_off() -> None:
    fed = Federation(fair(each, lambda x, b: torch.sigmoid(b.inputs @ x)[:, None], 2), rows())
    fed.prepare(X)
    with pytest.raises(ProblemError, match=r"scores must return one number .* write scores\[:, 0\]"):
        FedDRO(0.1).init(fed, X)


def test_weights_that_underflow_leave_the_entropy_finite() -> None:
    problem = group_weights(Compositional(lambda z: z.sum(), lambda x, b: x[:2] * b.inputs.mean()), lam=0.1)
    b = Batch({"inputs": torch.ones(2, 3)})
    for p in ([1.0, 0.0], [1.0, 1e-45]):
        assert torch.isfinite(problem.f_y(X, torch.tensor(p), b)).all()
    assert float(problem.f(X, torch.tensor([1.0, 0.0]), b)) == pytest.approx(0.3 - 0.1 * np.log(2))
    with pytest.raises(ProblemError, match="one weight for each of the 2 groups is needed; got 3"):
        problem.f(X, torch.full((3,), 1 / 3), b)


def test_a_wrong_number_of_weights_is_told() -> None:
    fed = Federation(group_weights(group_dro(each, 2)), rows())
    fed.prepare(X)
    with pytest.raises(ProblemError, match="one weight for each of the 2 groups"):
        PDSGDWeights(0.1, 3).round(fed, PDSGDWeights(0.1, 3).init(fed, X))
