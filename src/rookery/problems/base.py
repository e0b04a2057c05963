"""What every kind of problem has: sampling, projections, hand-written oracles, constants to agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..data.sampling import Replacement, Sampler
from ..data.store import Batch
from ..errors import ProblemError
from .model import Model

Projection = Callable[[Tensor], Tensor]
Variables = dict[str, tuple[int, dict[str, Callable[..., Tensor]]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """Base of all kinds of problem: what all of them can be given beside their functions.

    sampling:    how a client draws (`rookery.data`)
    project_x, project_y: projections onto the feasible sets; gradients are taken at projected points, and each mean is projected
    model:       the module behind the losses, if there is one: engines read from it what they may do
    predictor:   the model that rows are scored by, where it is not `model`
    stochastic:  the losses use torch's generator (dropout, augmentation); by default what the model says
    oracles:     hand-written oracles by name; each is compared with automatic differentiation on its first use
    statistics, finish: set-up sums, see `Federation.prepare`; `weighted` makes them means with the federation's weights
    """

    ORACLES: ClassVar[tuple[str, ...]] = ()
    PAIRS: ClassVar[Mapping[str, tuple[str, str]]] = {}  # oracles that give two others from one pass, unless one of these is hand-written

    sampling: Sampler = field(default_factory=Replacement)
    project_x: Projection | None = None
    project_y: Projection | None = None
    model: Model | None = None
    predictor: Model | None = None
    stochastic: bool | None = None
    oracles: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    statistics: Callable[[Tensor, Batch], Tensor] | None = None
    finish: Callable[[Tensor], Problem] | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        for letter in ("f", "g", "h"):
            function = getattr(self, letter, callable)
            if not callable(function) and not (letter == "h" and function is None):
                raise ProblemError(f"{letter} of a {type(self).__name__} is a function; got {type(function).__name__}")
        if self.model is not None and not isinstance(self.model, Model):
            raise ProblemError(f"a problem's model is a Model; got {type(self.model).__name__}: write Model(module)")
        if isinstance(self.sampling, type) or not hasattr(self.sampling, "select"):
            raise ProblemError(f"sampling is a sampler of rookery.data, such as Shuffled(); got {self.sampling!r}")
        unknown = set(self.oracles) - set(self.ORACLES)
        if unknown:
            raise ProblemError(f"{type(self).__name__} has the oracles {list(self.ORACLES)}; {sorted(unknown)[0]!r} is not one of them")
        for both in self.PAIRS.keys() & self.oracles.keys():
            raise ProblemError(f"the oracle {both!r} gives {' and '.join(map(repr, self.PAIRS[both]))} from one pass: write these by hand, "
                               f"and {both!r} follows")

    @property
    def random(self) -> bool:
        """Whether oracles must run under the generator seeded by their batch."""
        return self.stochastic if self.stochastic is not None else bool(self.model and self.model.stochastic)

    def oracle(self, name: str) -> Callable[..., Tensor]:
        """The oracle of that name, hand-written where there is one."""
        if name not in self.ORACLES:
            raise ProblemError(f"{type(self).__name__} has no oracle {name!r}; it has {', '.join(self.ORACLES)}")
        return self.oracles.get(name) or getattr(self, name)

    def variables(self, oracle: str) -> Variables:
        """The variables that an oracle's derivatives are taken in, by letter; empty for an oracle that takes none.

        Each comes with its place among the arguments, and with the functions of which one at least must depend on it. These take the
        oracle's arguments up to the batch.
        """
        return {}

    def check_oracle(self, name: str, expected: Any, result: Any) -> None:
        """Compare a hand-written oracle's result with that of automatic differentiation."""
        if isinstance(expected, tuple):
            for part, other in zip(expected, result, strict=True):
                self.check_oracle(name, part, other)
            return
        scale = expected.abs().max().clamp_min(1e-3)
        tolerance = 1e-3 if expected.dtype in (torch.float32, torch.bfloat16) else 1e-7
        if result.shape != expected.shape or not bool(((result - expected).abs() <= tolerance * scale).all()):
            raise ProblemError(f"the hand-written oracle {name!r} disagrees with automatic differentiation: shape {tuple(result.shape)} "
                               f"against {tuple(expected.shape)}, values {result.flatten()[:3].tolist()} against "
                               f"{expected.flatten()[:3].tolist()}; correct it, or leave it out of oracles=")
