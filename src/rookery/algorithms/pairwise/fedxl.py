"""FeDXL1 and FeDXL2: pairwise risks, with the other rows' scores passive, taken from a pool of the round before.

Guo, Jin, Luo, Yang, "FeDXL: Provable federated learning for deep X-risk optimization", ICML 2023, Algorithms 1 and 2.
    w, η, K, B, H_1 and H_2, u, γ, v, β  →  x, lr, local_steps, batch, pool, u, gamma, d, beta

A pair's two gradients are taken apart: a client's positives meet the pool's negatives, and its negatives the pool's positives. A batch
here holds both classes, weighted by the global share of positives, so that clients of unequal shares, or of one class only, have their
true part. A step takes the mean over the whole pool, or over `passive` draws from it as in the paper. The pool holds the scores of all
rows that were drawn, with their classes: the server and all clients see them. See `docs/what-crosses-the-network.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...data.batch import Batch
from ...errors import AlgorithmError
from ...federation.federation import Cohort, Federation
from ...federation.oracles import PairwiseClient
from ...federation.placed import Placed
from ...problems.pairwise import Pairwise
from ..base import Algorithm, Number, check_fraction, check_positive, value_at


class Pool(NamedTuple):
    """The scores that all clients made in a round, and what each weighs among the positives' and among the negatives' scores."""

    scores: Tensor
    positive: Tensor
    negative: Tensor


@dataclass(frozen=True)
class _Merging(Algorithm[Pairwise]):
    """What the two have in common: rows as members of the two classes, and the pool."""

    pools: ClassVar[bool] = True

    lr: Number
    local_steps: int = 1
    batch: int | None = None  # None: all rows
    passive: int | None = None  # scores of each class drawn from the pool in a step; None: all of them

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, batch=self.batch, passive=self.passive)

    def validate(self, fed: Federation[Pairwise], x: Tensor) -> Tensor:
        x = super().validate(fed, x)
        if fed.setting.min_batch > 1:
            raise AlgorithmError(f"{self.title} shows the score of every row it draws to all, and this federation computes nothing from "
                                 f"fewer than min_batch={fed.setting.min_batch} rows: take LocalSGDAM or another method of `auc`")
        share = fed.problem.share
        if share is None or not 0 < share < 1:
            raise AlgorithmError(f"{self.title} needs the share of positives among all rows, between 0 and 1; the problem says "
                                 f"share={share}: write fed.prepare(x) first, or Pairwise(…, share=…)")
        return x

    def first_pool(self, S: Cohort[Pairwise], x: Tensor) -> Pool:
        return self.merge(S, *(part for part in S.collect(*S.map(self.first_scores, S.broadcast(x)))))

    def merge(self, S: Cohort[Pairwise], scores: Tensor, positive: Tensor, negative: Tensor) -> Pool:
        """The pool of what the clients of a cohort collected, a row each: each client weighs as in the mean over them."""
        weights = torch.as_tensor(S.mean_weights, dtype=scores.dtype, device=scores.device)[:, None]
        sides = [(weights * side).reshape(-1) for side in (positive, negative)]
        for side, name in zip(sides, ("positives", "negatives"), strict=True):
            if not float(side.sum()) > 0:
                raise AlgorithmError(f"{self.title} compares positives with negatives, and no client has drawn any of the {name}: raise "
                                     "batch, or draw stratified batches")
        return Pool(scores.reshape(-1), *(side / side.sum() for side in sides))

    def first_scores(self, c: PairwiseClient, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b = c.draw(self.batch)
        s = c.s(x, b)
        return s, *self.classes(c, b, s)

    def classes(self, c: PairwiseClient, b: Batch, s: Tensor) -> tuple[Tensor, Tensor]:
        """What each row weighs among all positives, and among all negatives; the sums over a batch are 1 in the mean over clients."""
        positive = (b.fields[c.problem.label] > 0).to(s.dtype)
        weight = b.fields["importance"].to(s.dtype) / len(s) if "importance" in b.fields else torch.full_like(s, 1 / len(s))
        share = c.problem.share or 0.5
        return weight * positive / share, weight * (1 - positive) / (1 - share)

    def drawn(self, c: PairwiseClient, weights: Tensor) -> Tensor:
        """The pool's weights, or those of `passive` draws by them."""
        if self.passive is None:
            return weights
        places = torch.searchsorted(weights.cumsum(0), c.noise(weights.new_zeros(self.passive), "uniform")).clamp(max=len(weights) - 1)
        return torch.zeros_like(weights).scatter_add(0, places, weights.new_full((self.passive,), 1 / self.passive))


@dataclass(frozen=True)
class FeDXL1(_Merging):
    """x_k ← x_k − lr·(G₁ + G₂), x averaged every `local_steps`; G₁ + G₂ is the gradient of E_{z⁺} E_{z⁻} ℓ with the other side passive:

        G₁ = E_{z⁺} mean_j ∂₁ℓ(s(z⁺), t_j)·∇s(z⁺),   G₂ = E_{z⁻} mean_i ∂₂ℓ(t_i, s(z⁻))·∇s(z⁻)

    over the client's own rows z and the pool's scores t. Two exchanges a round: the mean of x, and the new pool.

    >>> FeDXL1(lr=0.1, local_steps=8, batch=32).passive is None
    True
    """

    title: ClassVar[str] = "FeDXL1"

    class State(NamedTuple):
        x: Tensor
        scores: Tensor
        positive: Tensor
        negative: Tensor
        t: int

    def init(self, fed: Federation[Pairwise], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, *self.first_pool(fed.cohort(), x), 0)

    def round(self, fed: Federation[Pairwise], s: State) -> State:
        S, lr, made = fed.cohort(), value_at(self.lr, s.t), list[Placed]()
        X, *pool = S.broadcast(s.x, s.scores, s.positive, s.negative)
        for _ in range(self.local_steps):
            X, *scores = S.map(self.step, X, *pool, lr)
            made += scores
        x, collected = S.mean(X), S.collect(*made)
        return self.State(fed.project_x(x), *self.merge(S, *(torch.cat(collected[side::3], 1) for side in range(3))), s.t + 1)

    def step(self, c: PairwiseClient, x: Tensor, t: Tensor, positive: Tensor, negative: Tensor,
             lr: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, b = c.project_x(x), c.draw(self.batch)
        s, pull = c.s_pullback(x, b)
        p, n = self.classes(c, b, s)
        g1 = p * (c.pair_slopes(s, t)[0] @ self.drawn(c, negative))
        g2 = n * (self.drawn(c, positive) @ c.pair_slopes(t, s)[1])
        return x - lr * pull(g1 + g2), s, p, n


@dataclass(frozen=True)
class FeDXL2(_Merging):
    """FeDXL1 for a nonlinear f: every positive has a running mean u of its inner value, and the gradient one of its own, d.

        u_i ← (1−gamma)·u_i + gamma·mean_j ℓ(s(z_i), t_j),   G₁ = E_{z_i} f'(u_i)·mean_j ∂₁ℓ(s(z_i), t_j)·∇s(z_i)
        G₂ = E_{z⁻} mean_i f'(u_i)·∂₂ℓ(t_i, s(z⁻))·∇s(z⁻),   d ← (1−beta)·d + beta·(G₁ + G₂),   x ← x − lr·d

    u stays at the client, and goes to the pool beside its score; a positive's u is its inner value when it is first drawn. x and d are
    averaged. Two exchanges a round.

    >>> FeDXL2(lr=0.1, local_steps=8, batch=32).gamma
    0.9
    """

    title: ClassVar[str] = "FeDXL2"

    gamma: float = 0.9
    beta: float = 0.1

    class State(NamedTuple):
        x: Tensor
        d: Tensor
        u: Placed | None  # one number for each of a client's rows, then 1 for each that has been drawn as a positive; None: nowhere
        scores: Tensor
        positive: Tensor
        negative: Tensor
        inner: Tensor  # the pool's u
        t: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction(gamma=self.gamma, beta=self.beta)

    def init(self, fed: Federation[Pairwise], x: Tensor) -> State:
        x = self.validate(fed, x)
        pool = self.first_pool(fed.cohort(), x)
        return self.State(x, torch.zeros_like(x), None, *pool, fed.problem.pair_losses(pool.scores, pool.scores) @ pool.negative, 0)

    def round(self, fed: Federation[Pairwise], s: State) -> State:
        S, lr, made = fed.cohort(), value_at(self.lr, s.t), list[Placed]()
        X, D, *pool = S.broadcast(s.x, s.d, s.scores, s.positive, s.negative, s.inner)
        U = S.map(self.blank, X) if s.u is None else S.take(s.u, S.map(self.blank, X))
        for step in range(self.local_steps):
            beta = 1.0 if s.t == step == 0 else self.beta  # there is no gradient before the first
            X, D, U, *scores = S.map(self.step, X, D, U, *pool, lr, beta)
            made += scores
        u = fed.put(s.u, S, U)
        (x, d), collected = S.mean(X, D), S.collect(*made)
        *sides, inner = (torch.cat(collected[side::4], 1) for side in range(4))
        return self.State(fed.project_x(x), d, u, *self.merge(S, *sides), inner.reshape(-1), s.t + 1)

    def blank(self, c: PairwiseClient, x: Tensor) -> Tensor:
        return x.new_zeros(2 * c.size)

    def step(self, c: PairwiseClient, x: Tensor, d: Tensor, u: Tensor, t: Tensor, positive: Tensor, negative: Tensor, inner: Tensor,
             lr: float, beta: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        x, b = c.project_x(x), c.draw(self.batch)
        assert b.index is not None
        s, pull = c.s_pullback(x, b)
        p, n = self.classes(c, b, s)
        against = self.drawn(c, negative)
        now = c.pair_losses(s, t) @ against
        before, seen = torch.gather(u, 0, b.index), torch.gather(u, 0, b.index + c.size)
        ui = torch.where(seen == 0, now, (1 - self.gamma) * before + self.gamma * now)
        g1 = p * c.f_slope(ui) * (c.pair_slopes(s, t)[0] @ against)
        g2 = n * ((self.drawn(c, positive) * c.f_slope(inner)) @ c.pair_slopes(t, s)[1])
        d = (1 - beta) * d + beta * pull(g1 + g2)
        u = u.scatter(0, b.index, torch.where(p > 0, ui, before)).scatter(0, b.index + c.size, torch.where(p > 0, 1, seen))
        return x - lr * d, d, u, s, p, n, ui
