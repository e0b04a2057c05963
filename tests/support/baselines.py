"""The baselines' runs beside their twins': the clients' gradients in NumPy, and how two runs are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery import Data, Federation
from rookery.problems.testproblems import TestProblem

LR, Q, ROUNDS = 0.1, 3, 10
LOW, HIGH = 0.05, 0.3  # a box in which the constraint is active


def gradients(data: Data) -> list[Any]:
    """The clients' full gradients in NumPy."""
    parts = [{name: field.numpy() for name, field in data.views(i).items()} for i in range(len(data.names))]
    return [lambda x, p=p: p["a"].T @ (p["a"] @ x - p["b"]) / len(p["b"]) + 0.5 * x for p in parts]


def alike(k: TestProblem) -> TestProblem:
    """Every client's rows all alike: batches do not matter, and epochs give unequal numbers of steps."""
    data = Data.from_parts({n: {f: v.mean(0, keepdim=True).repeat(len(v), *[1] * (v.dim() - 1)) for f, v in k.data.views(i).items()}
                            for i, n in enumerate(k.data.names)})
    return replace(k, data=data)


def run(algorithm: Any, fed: Federation, x: Tensor, rounds: int = ROUNDS) -> list[Tensor]:
    state, out = algorithm.init(fed, x), []
    for _ in range(rounds):
        state = algorithm.round(fed, state)
        out.append(state.x)
    return out


def same(ours: list[Tensor], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs) > 1
    np.testing.assert_allclose(torch.stack(ours).numpy(), np.asarray(theirs), rtol=1e-9, atol=1e-11)


def different(ours: list[Tensor], theirs: list[Any]) -> None:
    assert np.abs(torch.stack(ours).numpy() - np.asarray(theirs)).max() > 1e-3
