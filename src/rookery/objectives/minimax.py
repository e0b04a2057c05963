"""Minimax objectives."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..data.store import Batch
from ..errors import ProblemError
from ..problems.kinds import Minimax
from ..problems.projections import ball


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
