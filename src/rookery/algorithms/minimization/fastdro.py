"""FastDRO: minibatch SGD on the worst case over the weights of a batch's rows.

Levy, Carmon, Duchi, Sidford, "Large-scale methods for distributionally robust optimization", NeurIPS 2020, the minibatch estimator, in
parallel: the rows that all clients draw form one batch, with one worst case. `rookery.objectives.fast_dro` states the problem.
    x, η, n  →  x, lr, batch (of each client)

The worst-case weights of a batch follow from one threshold of the losses (`objectives.fastdro`). The clients find it together: each
sends sums over its losses at 30 levels between two bounds, and the bounds close in by a factor of 31 with every exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ...federation.federation import Cohort, Federation
from ...federation.placed import Placed
from ...objectives.fastdro import WorstCase, WorstCaseClient, reached, row_weights, statistics
from ..base import OneGradient, value_at

LEVELS = 30  # between the bounds of the threshold
SECTIONS = 11  # 31^11 > 2^54: to the last bit of a double


@dataclass(frozen=True)
class FastDRO(OneGradient[WorstCase]):
    """x ← x − lr·Σ_i p_i ∇ℓ_i(x), p the worst-case weights of the rows that all clients drew: 13 exchanges, of d numbers and a few more.

    FedAvg on the same problem takes the mean of the clients' own worst cases instead, which is another objective.
    """

    title: ClassVar[str] = "FastDRO"
    exact_with_local_steps: ClassVar[bool] = True  # it averages after each

    def round(self, fed: Federation[WorstCase], s: OneGradient.State) -> OneGradient.State:
        S = fed.cohort()
        X = S.broadcast(s.x)
        widest = int(fed.data.sizes.max()) if self.batch is None else self.batch
        moments, V, Q = S.map(self.losses, X, widest)
        weights = S.mean_weights
        bounds = self.threshold(S, V, Q, S.mean(moments), fewest=float(weights[weights > 0].min()) / widest)
        direction, total = S.mean(*S.map(self.direction, X, V, Q, S.broadcast(bounds), same_draws_as=V))
        return self.State(fed.project_x(s.x - value_at(self.lr, s.t) * direction / total), s.t + 1)

    def threshold(self, S: Cohort[WorstCase], V: Placed, Q: Placed, moments: Tensor, fewest: float) -> Tensor:
        """Two bounds of the threshold with nothing but ties between them, and the shares of the rows above each of them."""
        mean, square = moments
        # no loss is further from the mean than this, as a row of probability `fewest` would alone make the variance that large
        reach = ((square - mean.square()).clamp(min=0) / fewest).sqrt() + 1e-6 * (1 + square.sqrt())
        problem = S.fed.problem
        low, high = mean - reach - (problem.size if problem.form == "chi2" else 0.0), mean + reach
        shares = torch.stack([torch.ones_like(low), torch.zeros_like(low)])
        for _ in range(SECTIONS):
            ends = torch.stack([low, high])
            found = S.mean(S.map(self.sums, V, Q, S.broadcast(ends)))
            beyond = reached(found, problem.form, problem.size)
            k = int(torch.cat([beyond, beyond.new_ones(1)]).to(torch.int8).argmax())  # the first level that is too high
            levels = torch.cat([ends[:1], self.levels(ends), ends[1:]])
            above = torch.cat([shares[:1], found[0], shares[1:]])
            low, high, shares = levels[k], levels[k + 1], above[k : k + 2]
        return torch.cat([torch.stack([low, high]), shares])

    @staticmethod
    def levels(ends: Tensor) -> Tensor:
        return ends[0] + (ends[1] - ends[0]) * torch.arange(1, LEVELS + 1, dtype=ends.dtype, device=ends.device) / (LEVELS + 1)

    def losses(self, c: WorstCaseClient, x: Tensor, widest: int) -> tuple[Tensor, Tensor, Tensor]:
        """The mean and mean square of the client's losses, and the losses with their probabilities, filled up to one length with 0."""
        v = c.losses(x, c.draw(self.batch)).double()
        room = (0, widest - len(v))
        return torch.stack([v.mean(), v.square().mean()]), F.pad(v, room), F.pad(torch.full_like(v, 1 / len(v)), room)

    def sums(self, c: WorstCaseClient, v: Tensor, q: Tensor, ends: Tensor) -> Tensor:
        return statistics(v, q, self.levels(ends), c.problem.form)

    def direction(self, c: WorstCaseClient, x: Tensor, v: Tensor, q: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_i w_i ∇ℓ_i(x) of weights that are yet to be divided by their sum, and that sum."""
        b = c.draw(self.batch)
        w = row_weights(v, q, bounds, c.problem.form, c.problem.size)
        rows = len(next(iter(b.fields.values())))
        return c.losses_vjp(x, b, w[:rows].to(x.dtype)), w.sum().to(x.dtype)
