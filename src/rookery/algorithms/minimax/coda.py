"""CoDA, CODA+ and CODASCA: stagewise proximal descent ascent for deep AUC maximisation.

Guo, Liu, Yuan, Shen, Liu, Yang, "Communication-efficient distributed stochastic AUC maximization with deep neural networks", ICML 2020
(CoDA); Yuan, Guo, Xu, Ying, Yang, "Federated deep AUC maximization for heterogeneous data with a constant communication complexity",
ICML 2021 (CODA+, CODASCA).
    v, α, v_0, γ, I, η_g, c_v, c_α  →  x, y, centre, prox, local_steps, server_lr, cx, cy
    η_s, T_s/I                      →  lr/growth^s, stage·growth^s rounds, for s = 0, 1, …

A stage minimises f(v, α) + ‖v − v_0‖²/(2γ); its end is the mean of the points of all its steps and clients, from which the next one
starts, with a smaller step and more rounds. The experiments of the papers have a factor of 3, `growth`. The centre v_0 goes to the
clients in every round, beside x and y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Cohort, Federation
from ...federation.oracles import MinimaxClient
from ...federation.placed import Placed
from ...problems.kinds import Minimax
from ..base import Algorithm, Number, check_positive, check_start, value_at


@dataclass(frozen=True)
class _Stages(Algorithm[Minimax]):
    """What the three have in common: stages, each of so many rounds, and their ends."""

    lr: Number
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    stage: int = 50  # rounds of the first stage
    growth: int = 3  # of the rounds from stage to stage; step sizes are divided by it
    prox: float = 500.0

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch, stage=self.stage, growth=self.growth, prox=self.prox)

    def rate(self, stage: int, t: int) -> float:
        """The step size η_s in round t."""
        return value_at(self.lr, t) / float(self.growth**stage)

    def ends(self, stage: int, made: int) -> bool:
        """Whether a stage is at its end after so many rounds."""
        return made == self.stage * int(self.growth**stage)

    def totals(self, S: Cohort[Minimax], X: Placed, before: Placed | None) -> Placed:
        """The sums of the clients' points in this stage so far, and how many they are."""
        zero = S.map(self.zero, X)
        return zero if before is None else S.take(before, zero)

    def zero(self, c: MinimaxClient, x: Tensor) -> Tensor:
        return x.new_zeros(len(x) + 1)

    def mean_point(self, fed: Federation[Minimax], S: Cohort[Minimax], total: Placed) -> Tensor:
        """The mean of the points of a stage, over the steps and the clients of the last cohort: one exchange."""
        sums = S.mean(S.map(self.sent, total))
        return fed.project_x(sums[:-1] / sums[-1])

    def sent(self, c: MinimaxClient, total: Tensor) -> Tensor:
        return total


def _and_one(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(1)])


@dataclass(frozen=True)
class _Descent(_Stages):
    """CoDA's and CODA+'s steps."""

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        centre: Tensor
        total: Placed | None  # sums of each client's points in this stage; None: no round yet
        stage: int
        made: int  # rounds in this stage
        t: int

    def init(self, fed: Federation[Minimax], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        return self.State(x, fed.project_y(check_start(x, y)), x, None, 0, 0, 0)

    def round(self, fed: Federation[Minimax], s: State) -> State:
        S = fed.cohort()
        X, Y, C = S.broadcast(s.x, s.y, s.centre)
        X, Y, T = S.iterate(self.step, (X, Y, self.totals(S, X, s.total)), C, self.rate(s.stage, s.t), steps=self.local_steps)
        total = fed.put(s.total, S, T)
        x, y = S.mean(X, Y)
        x, y, made = fed.project_x(x), fed.project_y(y), s.made + 1
        if not self.ends(s.stage, made):
            return self.State(x, y, s.centre, total, s.stage, made, s.t + 1)
        x = self.mean_point(fed, S, S.take(total, S.map(self.zero, S.broadcast(x))))
        return self.State(x, self.next_dual(fed, S, x, y, s.stage), x, None, s.stage + 1, 0, s.t + 1)

    def next_dual(self, fed: Federation[Minimax], S: Cohort[Minimax], x: Tensor, y: Tensor, stage: int) -> Tensor:
        raise NotImplementedError

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, total: Tensor, centre: Tensor, lr: float) -> tuple[Tensor, Tensor, Tensor]:
        x, y = c.project_x(x), c.project_y(y)
        gx, gy = c.f_gradients(x, y, c.draw(self.batch))
        x = x - lr * (gx + (x - centre) / self.prox)
        return x, y + lr * gy, total + _and_one(x)


@dataclass(frozen=True)
class CoDA(_Descent):
    """x_k ← x_k − η(∂x f + (x_k − centre)/prox), y_k ← y_k + η·∂y f, averaged every `local_steps`; after a stage y is estimated anew.

    y* at the stage's end comes from sums over growth^(stage+1) fresh batches a client, which the problem's `best_y` says: for the AUC
    loss four sums, mean score of the negatives less that of the positives. A problem without it is refused: take CODA+.

    >>> CoDA(lr=0.1, stage=20).ends(1, 60)
    True
    """

    title: ClassVar[str] = "CoDA"

    def validate(self, fed: Federation[Minimax], x: Tensor) -> Tensor:
        if isinstance(fed.problem, Minimax) and fed.problem.best_y is None:
            raise AlgorithmError("CoDA estimates y anew after a stage, from sums that this problem does not have: give it "
                                 "Minimax(…, best_y=(sums, y_of)), or take CODA+, which keeps y")
        return super().validate(fed, x)

    def next_dual(self, fed: Federation[Minimax], S: Cohort[Minimax], x: Tensor, y: Tensor, stage: int) -> Tensor:
        assert fed.problem.best_y is not None
        batches, X = self.growth ** (stage + 1) if self.batch is not None else 1, S.broadcast(x)
        sums = S.mean(S.iterate(self.add_sums, S.map(self.no_sums, X), X, steps=batches))
        return fed.project_y(fed.problem.best_y[1](sums).to(y.dtype))

    def no_sums(self, c: MinimaxClient, x: Tensor) -> Tensor:
        return torch.zeros_like(self.y_sums(c, x))

    def add_sums(self, c: MinimaxClient, sums: Tensor, x: Tensor) -> Tensor:
        return sums + self.y_sums(c, x)

    def y_sums(self, c: MinimaxClient, x: Tensor) -> Tensor:
        assert c.problem.best_y is not None
        return c.evaluate(c.problem.best_y[0], x, c.draw(self.batch))


@dataclass(frozen=True)
class CODAPlus(_Descent):
    """CoDA's steps and stages; y goes on from one stage to the next.

    >>> CODAPlus(lr=0.1, stage=20).rate(2, 0)
    0.011111111111111112
    """

    title: ClassVar[str] = "CODA+"

    def next_dual(self, fed: Federation[Minimax], S: Cohort[Minimax], x: Tensor, y: Tensor, stage: int) -> Tensor:
        return y


@dataclass(frozen=True)
class CODASCA(_Stages):
    """CODA+ with control variates: x_k ← x_k − η(G_k − cx_k + cx + (x_k − centre)/prox), the dual likewise, and server steps.

    After a round cx_k is the mean of the client's own gradients in it, without the prox, and cx the mean of those; then
    x ← x + server_lr·(mean x_k − x), and y likewise. Variates start at 0 and go on from stage to stage.

    >>> CODASCA(lr=0.1, server_lr=1.1).exact_with_local_steps
    True
    """

    title: ClassVar[str] = "CODASCA"
    exact_with_local_steps: ClassVar[bool] = True

    server_lr: float = 1.0

    class State(NamedTuple):
        x: Tensor
        y: Tensor
        cx: Tensor
        cy: Tensor
        own: Placed | None  # each client's cx and cy, in one vector; None: all 0
        centre: Tensor
        total: Placed | None
        stage: int
        made: int
        t: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(server_lr=self.server_lr)

    def init(self, fed: Federation[Minimax], x: Tensor, y: Tensor | None = None) -> State:
        x = self.validate(fed, x)
        y = fed.project_y(check_start(x, y))
        return self.State(x, y, torch.zeros_like(x), torch.zeros_like(y), None, x, None, 0, 0, 0)

    def round(self, fed: Federation[Minimax], s: State) -> State:
        S = fed.cohort()
        X, Y, C, *variates = S.broadcast(s.x, s.y, s.centre, s.cx, s.cy)
        none = S.map(self.no_variates, X, Y)
        own = none if s.own is None else S.take(s.own, none)
        Xk, Yk, G, T = S.iterate(self.step, (X, Y, none, self.totals(S, X, s.total)), own, C, *variates, self.rate(s.stage, s.t),
                                 steps=self.local_steps)
        dX, dY, dC, own = S.map(self.finish, X, Y, Xk, Yk, G, own, S.importance)
        own, total = fed.put(s.own, S, own), fed.put(s.total, S, T)
        dx, dy, dc = S.mean(dX, dY, dC)
        x, y = fed.project_x(s.x + self.server_lr * dx), fed.project_y(s.y + self.server_lr * dy)
        cx, cy, made = s.cx + dc[: len(x)], s.cy + dc[len(x) :], s.made + 1
        if not self.ends(s.stage, made):
            return self.State(x, y, cx, cy, own, s.centre, total, s.stage, made, s.t + 1)
        x = self.mean_point(fed, S, S.take(total, S.map(self.zero, S.broadcast(x))))
        return self.State(x, y, cx, cy, own, x, None, s.stage + 1, 0, s.t + 1)

    def no_variates(self, c: MinimaxClient, x: Tensor, y: Tensor) -> Tensor:
        return torch.zeros_like(torch.cat([x, y]))

    def step(self, c: MinimaxClient, x: Tensor, y: Tensor, sums: Tensor, total: Tensor, own: Tensor, centre: Tensor, cx: Tensor, cy: Tensor,
             lr: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, y, d = c.project_x(x), c.project_y(y), len(x)
        gx, gy = c.f_gradients(x, y, c.draw(self.batch))
        x = x - lr * (gx - own[:d] + cx + (x - centre) / self.prox)
        return x, y + lr * (gy - own[d:] + cy), sums + torch.cat([gx, gy]), total + _and_one(x)

    def finish(self, c: MinimaxClient, x: Tensor, y: Tensor, xk: Tensor, yk: Tensor, sums: Tensor, own: Tensor,
               importance: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The moves, the change of the variates times the client's importance, and the new variates."""
        new = sums / self.local_steps
        return xk - x, yk - y, importance * (new - own), new
