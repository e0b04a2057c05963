"""Weight decay as a part of the objective: the closed form, torch, and what the problem keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from baselines import LR, ROUNDS, run, same
from torch import Tensor

from rookery import Batch, FedAvg, Federation, Minimization, box
from rookery.errors import ProblemError
from rookery.objectives import with_weight_decay
from rookery.problems import testproblems as known


def test_weight_decay_moves_the_solution_to_the_closed_form() -> None:
    k = known.minimization()
    H = torch.stack([k.gradient(e) - k.gradient(torch.zeros_like(e)) for e in torch.eye(3, dtype=torch.float64)], 1)
    solution = torch.linalg.solve(H + 0.8 * torch.eye(3), -k.gradient(torch.zeros(3, dtype=torch.float64)))
    fed = Federation(with_weight_decay(k.problem, 0.8), k.data)  # type: ignore[arg-type]
    torch.testing.assert_close(run(FedAvg(0.2), fed, k.x0, 200)[-1], solution)
    assert (solution - k.x_star).norm() > 0.05


def test_weight_decay_is_torchs() -> None:
    k = known.minimization()
    x = k.x0.clone().requires_grad_()
    optimiser, theirs = torch.optim.SGD([x], lr=LR, weight_decay=0.8), []
    for _ in range(ROUNDS):
        x.grad = k.gradient(x.detach())
        optimiser.step()
        theirs.append(x.detach().numpy().copy())
    same(run(FedAvg(LR), Federation(with_weight_decay(k.problem, 0.8), k.data), k.x0), theirs)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["loop", "vectorised", "wire"])
def test_weight_decay_keeps_what_the_problem_has(engine: str) -> None:
    """Hand-written oracles are compared with automatic differentiation on their first use, so that a forgotten term would raise."""
    k, made, limits = known.minimization(), [], box(-1.0, 0.1)

    def problem(slope: float, **sums: Any) -> Minimization:
        def f(x: Tensor, b: Batch) -> Tensor:
            return 0.5 * (b.a @ x - b.b).square().mean() + slope * x.sum()

        def gradient(x: Tensor, b: Batch) -> Tensor:
            return b.a.T @ (b.a @ x - b.b) / len(b.b) + slope

        return Minimization(f, oracles={"value": f, "gradient": gradient}, project_x=limits, **sums)

    def finish(total: Tensor) -> Minimization:
        made.append(float(total))
        return problem(0.3)

    decayed = with_weight_decay(problem(0.0, statistics=lambda x, b: b.b.sum().reshape(1), finish=finish), 0.5)
    fed = Federation(decayed, k.data, engine=engine)
    x = k.x0
    assert decayed.project_x is limits
    batch = Batch(k.data.views(0))
    torch.testing.assert_close(decayed.oracle("value")(x, batch), decayed.value(x, batch))
    torch.testing.assert_close(decayed.oracle("gradient")(x, batch), decayed.gradient(x, batch))
    before = decayed.gradient(x, batch)
    finished = fed.prepare(x)
    assert set(made) == {made[0]}  # on the wire each site finishes it for itself
    assert made[0] == pytest.approx(float(k.data.fields["b"].sum()))
    torch.testing.assert_close(finished.oracle("gradient")(x, batch), before + 0.3)  # the finished problem has the term too
    assert float(run(FedAvg(LR, 2), fed, k.x0, 3)[-1].max()) <= 0.1


def test_weight_decay_refuses_what_it_cannot_do() -> None:
    k = known.minimization()
    with pytest.raises(ProblemError, match="weight must not be negative; got -1"):
        with_weight_decay(k.problem, -1)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="takes a Minimization; got Conditional"):
        with_weight_decay(known.conditional().problem, 0.1)  # type: ignore[arg-type]
