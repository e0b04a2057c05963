"""Local SGD, and what can be wrong with it: one fault each, for the laws to find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from rookery import Algorithm, Cohort, Federation, Minimization, Placed
from rookery.federation import MinimizationClient


@dataclass(frozen=True)
class Right(Algorithm[Minimization]):
    """Local SGD, in pieces that the wrong ones replace."""

    lr: float
    local_steps: int
    batch: int | None

    class State(NamedTuple):
        x: Tensor

    def init(self, fed: Federation[Minimization], x: Tensor) -> Any:
        return self.State(self.validate(fed, x))

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        S = fed.cohort()
        return s._replace(x=fed.project_x(self.average(S, S.iterate(self.step, S.broadcast(s.x), steps=self.local_steps))))

    def average(self, S: Cohort[Minimization], X: Placed) -> Tensor:
        return S.mean(X)

    def step(self, c: MinimizationClient, x: Tensor) -> Tensor:
        x = c.project_x(x)
        return x - self.lr * self.direction(c, x)

    def direction(self, c: MinimizationClient, x: Tensor) -> Tensor:
        return c.gradient(x, c.draw(self.batch))


@dataclass(frozen=True)
class WrongStep(Right):
    """A decay of the weights that the objective knows nothing of."""

    def direction(self, c: MinimizationClient, x: Tensor) -> Tensor:
        return super().direction(c, x) + 0.1 * x


@dataclass(frozen=True)
class SaysExact(Right):
    """It drifts with local steps like every local SGD, and says that it does not."""

    exact_with_local_steps: ClassVar[bool] = True


@dataclass(frozen=True)
class ForgetsWeights(Right):
    """A sum over the number of clients for the weighted mean."""

    def average(self, S: Cohort[Minimization], X: Placed) -> Tensor:
        return S.sum(X) / S.size


@dataclass(frozen=True)
class ProjectsUploads(Right):
    """A projection of what is averaged: a client that the set holds back is outvoted."""

    def step(self, c: MinimizationClient, x: Tensor) -> Tensor:
        return c.project_x(super().step(c, x))


@dataclass(frozen=True)
class LastCohort(Right):
    """The clients' last points, used as if this round's clients were the last one's."""

    class State(NamedTuple):  # type: ignore[assignment]
        x: Tensor
        last: Placed | None = None

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        S = fed.cohort()
        X = S.broadcast(s.x)
        X, last = S.map(self.both, X, X if s.last is None else s.last)
        return self.State(fed.project_x(S.mean(S.iterate(self.step, X, steps=self.local_steps))), last)

    def both(self, c: MinimizationClient, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        return x, last


@dataclass(frozen=True)
class AsksEveryone(Right):
    """The mean of all clients, where only the round's cohort was to be asked."""

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        fed.cohort()
        return s._replace(x=fed.project_x(fed.mean(fed.iterate(self.step, fed.broadcast(s.x), steps=self.local_steps))))


@dataclass(frozen=True)
class FirstClient(Right):
    """Noise at whichever client is the first in the list."""

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        S = fed.cohort()
        scales = np.where(np.arange(S.size) == 0, 0.0 if self.batch is None else 0.01, 0.0)
        X = S.iterate(self.step, S.broadcast(s.x), steps=self.local_steps)
        return s._replace(x=fed.project_x(S.mean(S.map(self.noisy, X, scales))))

    def noisy(self, c: MinimizationClient, x: Tensor, scale: float) -> Tensor:
        return x + scale * c.noise(x)


@dataclass(frozen=True)
class CountsClients(Right):
    """A step that grows with the number of clients, as if the mean were a sum; it is right at the solution."""

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        x = super().round(fed, s).x
        return s._replace(x=fed.project_x(s.x + (x - s.x) * fed.population / 4))


VELOCITY: WeakKeyDictionary[Federation[Minimization], Tensor] = WeakKeyDictionary()


@dataclass(frozen=True)
class KeepsMomentumAside(Right):
    """Momentum that is not in the state: a run that is resumed begins without it."""

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        moved = super().round(fed, s).x - s.x
        VELOCITY[fed] = moved + 0.1 * VELOCITY.get(fed, torch.zeros_like(moved))
        return s._replace(x=fed.project_x(s.x + VELOCITY[fed]))


@dataclass(frozen=True)
class SendsTwice(Right):
    """The point and, for no use, the point again."""

    def average(self, S: Cohort[Minimization], X: Placed) -> Tensor:
        return S.mean(*S.map(self.twice, X))[0]

    def twice(self, c: MinimizationClient, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


@dataclass(frozen=True)
class Clips(Right):
    """Gradients of small batches cut to a length: their mean is another."""

    def direction(self, c: MinimizationClient, x: Tensor) -> Tensor:
        g = super().direction(c, x)
        return g if self.batch is None else g / (1 + g.square().sum())


DICE = np.random.default_rng(0)


@dataclass(frozen=True)
class ThrowsDice(Right):
    """Random numbers that follow no client's name: every run, and every engine, has others."""

    def direction(self, c: MinimizationClient, x: Tensor) -> Tensor:
        g = super().direction(c, x)
        return g if self.batch is None else g * (0.9 + 0.2 * float(DICE.random()))


@dataclass(frozen=True)
class SaysInexact(Right):
    """A correction that makes local steps exact, as in FedLin, and no word of it."""

    def round(self, fed: Federation[Minimization], s: Any) -> Any:
        S = fed.cohort()
        X = S.broadcast(s.x)
        G, own = S.map(self.gradients, X)
        return s._replace(x=fed.project_x(S.mean(S.iterate(self.corrected, X, own, S.broadcast(S.mean(G)), steps=self.local_steps))))

    def gradients(self, c: MinimizationClient, x: Tensor) -> tuple[Tensor, Tensor]:
        g = c.gradient(x, c.draw())
        return g, g

    def corrected(self, c: MinimizationClient, x: Tensor, own: Tensor, g: Tensor) -> Tensor:
        return self.step(c, x) - self.lr * (g - own)
