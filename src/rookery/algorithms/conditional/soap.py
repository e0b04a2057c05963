"""SOAP: a running inner value for every outer sample, as for average precision; here with local steps, between means over clients.

Qi, Luo, Xu, Ji, Yang, "Stochastic optimization of areas under precision-recall curves with provable convergence", NeurIPS 2021,
Algorithms 1 (SOAP), 2 (UG, the running values) and 3 (UW, the step, SGD-style).
    w, u, γ, α, B₊ and B, G  →  x, u, gamma, lr, outer and inner, pull(slopes)

    at every client, from the mean of x (and of d):
        repeat local_steps times
            draw `outer` rows i, and `inner` samples of each                         Algorithm 1
            u_i ← (1−γ)u_i + γ·mean_j g(x; ξ_i, η_j), or that mean at its first draw   Algorithm 2
            G = mean_i J_{g_i}(x)ᵀ∇f_i(u_i) + ∇h(x)                                  Algorithm 1
            d ← (1−β)d + βG,   x ← x − lr·d                                          Algorithm 3, where β = 1

The paper is for one machine, average precision and β = 1: with one client and one local step this is its method. The average d is that
of Wang, Yang, Zhang, Yang, "Momentum accelerates the convergence of stochastic AUPRC maximization", AISTATS 2022. What keeps a
denominator away from 0 is a matter of f.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ...data.batch import Batch
from ...errors import AlgorithmError
from ...federation.federation import Cohort, Federation
from ...federation.oracles import ConditionalClient
from ...federation.placed import Placed
from ...problems.kinds import Conditional
from ..base import Algorithm, Number, check_fraction, check_positive, value_at


@dataclass(frozen=True)
class SOAP(Algorithm[Conditional]):
    """x ← x − lr·d, along slopes of f at a running inner value u_i of every row i, which stays at its client:

        u_i ← (1−gamma)·u_i + gamma·mean_j g(x; ξ_i, η_j),   G = mean_i J_{g_i}(x)ᵀ∇f_i(u_i) + ∇h(x),   d ← (1−beta)·d + beta·G

    x is averaged every `local_steps`, and d with it where beta < 1; with beta=1, d is G. A row's u is its inner value when it is first
    drawn. Fewer inner samples do where u has a memory, gamma < 1; with gamma=1 and beta=1 it is FCSG. Outer samples must be rows, as those
    of `Positives` and `Stored` are.

    >>> SOAP(lr=0.1, local_steps=8, outer=8, inner=32).gamma
    0.9
    """

    title: ClassVar[str] = "SOAP"

    lr: Number
    local_steps: int = 1
    outer: int | None = None  # None: all rows
    inner: int | None = None  # None: all stored conditional samples
    gamma: float = 0.9
    beta: float = 1.0

    class State(NamedTuple):
        x: Tensor
        d: Tensor  # empty where beta is 1
        u: Placed | None  # at each client (rows, p + 1): the inner values, and 1 behind those that were drawn yet; None: nowhere
        p: int  # how many numbers an inner value has; 0 before the first round
        t: int

    def __post_init__(self) -> None:
        check_positive(lr=self.lr, local_steps=self.local_steps, outer=self.outer, inner=self.inner)
        check_fraction(gamma=self.gamma, beta=self.beta)

    def init(self, fed: Federation[Conditional], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, x.new_zeros(0 if self.beta == 1 else len(x)), None, 0, 0)

    def round(self, fed: Federation[Conditional], s: State) -> State:
        S = fed.cohort()
        *sent, U = self.local_round(S, s)
        form = [S.map(self.form, U)] if s.u is None else []
        u = fed.put(s.u, S, U)
        means = S.mean(*sent, *form)
        x, *rest = means if isinstance(means, tuple) else (means,)
        p = s.p or rest.pop().shape[1]
        return self.State(fed.project_x(x), rest[0] if rest else s.d, u, p, s.t + 1)

    def local_round(self, S: Cohort[Conditional], s: State) -> tuple[Placed, ...]:
        """The clients' points after the local steps, their averaged directions where beta < 1, and their running values."""
        X, lr, more = S.broadcast(s.x), value_at(self.lr, s.t), self.local_steps - 1
        U = S.map(self.blank, X, s.p)
        U = U if s.u is None else S.take(s.u, U)
        if self.beta == 1:
            X, U = S.map(self.descend, X, U, lr)
            return S.iterate(self.descend, (X, U), lr, steps=more)
        D = S.broadcast(s.d)
        X, D, U = S.map(self.descend_along, X, D, U, lr, 1.0 if s.t == 0 else self.beta)  # there is no direction before the first
        return S.iterate(self.descend_along, (X, D, U), lr, self.beta, steps=more)

    def blank(self, c: ConditionalClient, x: Tensor, p: int) -> Tensor:
        """Nothing of every row. Before the first draw of all nobody knows how wide an inner value is, and nothing has no columns."""
        return x.new_zeros(c.size, p + 1 if p else 0)

    def form(self, c: ConditionalClient, u: Tensor) -> Tensor:
        """No numbers at all, but their form: from its mean the server knows p, and can say to a client that joins later what is blank."""
        return u[:0, 1:]

    def descend(self, c: ConditionalClient, x: Tensor, u: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        x = c.project_x(x)
        G, u = self.estimate(c, x, u)
        return x - lr * G, u

    def descend_along(self, c: ConditionalClient, x: Tensor, d: Tensor, u: Tensor, lr: float,
                      beta: float) -> tuple[Tensor, Tensor, Tensor]:
        x = c.project_x(x)
        G, u = self.estimate(c, x, u)
        d = (1 - beta) * d + beta * G
        return x - lr * d, d, u

    def estimate(self, c: ConditionalClient, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Algorithm 1: the gradient estimate G of a new batch, at the running values that it renews."""
        b = c.draw(self.outer, self.inner)
        now, pull = c.g_pullback(x, b)
        ui, u = self.follow(now, u, self.rows(b).to(now.device))
        G = pull(c.f_slopes(ui, b))
        return G if c.problem.h is None else G + c.h_gradient(x, b), u

    def follow(self, now: Tensor, u: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Algorithm 2: the running values of the rows that were drawn, and those of all rows.

        A row that was drawn twice has two inner means, each beside its own samples, and keeps the mean of what they lead to.
        """
        u = u if u.shape[1] else now.new_zeros(len(u), now.shape[1] + 1)
        places = rows[:, None].expand(-1, u.shape[1])
        before = torch.gather(u, 0, places)
        known = before[:, -1:] > 0  # its own column: an inner value may well be 0
        ui = torch.where(known, (1 - self.gamma) * before[:, :-1] + self.gamma * now, now)
        total = torch.zeros_like(u).scatter_add(0, places, torch.cat([ui, torch.ones_like(ui[:, :1])], 1))
        return ui, torch.where(total[:, -1:] > 0, total / total[:, -1:].clamp_min(1), u)

    def rows(self, b: Batch) -> Tensor:
        """The row of each outer sample."""
        if b.index is None or b.index.dim() != 1:
            came = "samples that are no rows" if b.index is None else f"{b.index.shape[1]} rows for each of them"
            raise AlgorithmError(f"{self.title} keeps a running inner value for each row, so every outer sample must be one row of the "
                                 f"client (batch.index has one number for each); this problem's sampling draws {came}: write "
                                 "sampling=Stored(...) or sampling=Positives(...), or take FCSG, which keeps nothing")
        return b.index
