"""Minimax objectives."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from ..data.store import Batch, Data
from ..errors import ConfigError, ProblemError
from ..problems.kinds import Minimax
from ..problems.projections import ball
from .declare import objective
from .given import MODEL, Column, constant


class Signed(nn.Module):
    """A linear function s of a row without an intercept, as scores (−s, s) of two classes: its sign is the class."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        s = inputs @ self.weight
        return torch.stack([-s, s], -1)


def _signs(data: Data, entries: Mapping[str, Any], seed: int) -> Tensor:
    shape = tuple(data.fields["inputs"].shape[1:])
    if len(shape) != 1:
        raise ConfigError(f"robust_regression takes rows of numbers; these have the shape {shape}: take a table, or another objective")
    return 2 * data.fields["labels"].to(data.fields["inputs"].dtype) - 1


TARGETS = Column("targets", "a number a row; where the rows have no such column, −1 and 1 for the two classes", _signs)


@objective(metric="accuracy", x=MODEL, y=constant(lambda given: 0.0, lambda given: len(given.vector), "0"), columns=[TARGETS],
           two_classes=True, net=lambda shape: Signed(prod(shape)))
def robust_regression(penalty: float = 10.0, ridge: float = 0.0, radius: float | None = None, **options: Any) -> Minimax:
    """Linear regression against one shift y of all inputs, chosen by an adversary who pays for it:

        f(x, y) = mean ½((a + y)·x − b)² + (ridge/2)‖x‖² − (penalty/2)‖y‖²

    for rows `inputs` a and `targets` b. Strongly concave in y where penalty > ‖x‖², and y*(x) = r̄x/(penalty − ‖x‖²) with the mean
    residual r̄ = mean(a·x − b). `radius` keeps y in a ball. Deng, Mahdavi, "Local stochastic gradient descent ascent", AISTATS 2021, and
    Sun, Wei, "FedGDA-GT", NeurIPS 2022, have the ball without the penalty.
    """
    if not (penalty >= 0 and ridge >= 0):
        raise ProblemError(f"penalty and ridge must not be negative; got {penalty} and {ridge}")
    if penalty == 0 and radius is None:
        raise ProblemError("without a penalty the adversary's gain has no end: give penalty=… or radius=…")

    def f(x: Tensor, y: Tensor, b: Batch) -> Tensor:
        if b.targets.dim() != 1 or x.shape != y.shape:
            raise ProblemError(f"targets hold one number a row, and x and y one for each input; got targets of shape "
                               f"{tuple(b.targets.shape)}, {len(x)} numbers in x and {len(y)} in y")
        return 0.5 * ((b.inputs + y) @ x - b.targets).square().mean() + 0.5 * ridge * x.square().sum() - 0.5 * penalty * y.square().sum()

    if radius is not None:
        options = {"project_y": ball(radius), **options}
    return Minimax(f, **options)
