"""FedOpt: FedAvg with an optimiser at the server (FedAvgM, FedAdagrad, FedAdam, FedYogi).

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan, "Adaptive federated optimization", ICLR 2021, Algorithm 2;
Hsu, Qi, Brown, "Measuring the effects of non-identical data distribution for federated visual classification", 2019 (FedAvgM).
    x_t, Δ_t, m_t, v_t, η_l, η, β_1, β_2, τ  →  x, delta, m, v, lr, server_lr, beta1, beta2, tau
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from ...errors import AlgorithmError
from ...federation.federation import Federation
from ...federation.oracles import MinimizationClient
from ...problems.kinds import Minimization
from ..base import LocalSteps, Number, check_positive, value_at

SERVERS = ("momentum", "adagrad", "adam", "yogi")


@dataclass(frozen=True)
class FedOpt(LocalSteps[Minimization]):
    """FedAvg's local steps, then a step of an optimiser at the server along Δ = mean_i(x_i − x).

    x ← x + server_lr·m/(√v + tau), with m ← beta1·m + (1 − beta1)·Δ and, by the name of the `server`:

        adagrad   v ← v + Δ²
        adam      v ← beta2·v + (1 − beta2)·Δ²
        yogi      v ← v − (1 − beta2)·Δ²·sign(v − Δ²)
        momentum  (FedAvgM)  m ← beta1·m + Δ, x ← x + server_lr·m. With beta1=0 and server_lr=1 it is FedAvg.

    >>> FedOpt(lr=0.1, server="yogi").tau
    0.001
    """

    title: ClassVar[str] = "FedOpt"

    server: Literal["momentum", "adagrad", "adam", "yogi"] = "adam"
    server_lr: Number = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    class State(NamedTuple):
        x: Tensor
        m: Tensor
        v: Tensor  # unused under "momentum"
        t: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(server_lr=self.server_lr, tau=self.tau)
        if self.server not in SERVERS:
            raise AlgorithmError(f"server is one of {', '.join(SERVERS)}; got {self.server!r}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise AlgorithmError(f"{name} must lie in [0, 1); got {getattr(self, name)}")

    def init(self, fed: Federation[Minimization], x: Tensor) -> State:
        x = self.validate(fed, x)
        return self.State(x, torch.zeros_like(x), torch.full_like(x, self.tau**2), 0)  # the paper asks for v_{−1} ≥ τ²

    def round(self, fed: Federation[Minimization], s: State) -> State:
        S = fed.cohort()
        X = S.iterate(self.step, S.broadcast(s.x), value_at(self.lr, s.t), steps=S.steps(self.local_steps, self.batch))
        delta = S.mean(X) - s.x
        if self.server == "momentum":
            m, v = self.beta1 * s.m + delta, s.v
            move = m
        else:  # without the bias correction of Adam, as in the paper
            m, v = self.beta1 * s.m + (1 - self.beta1) * delta, self.second(s.v, delta.square())
            move = m / (v.sqrt() + self.tau)
        return self.State(fed.project_x(s.x + value_at(self.server_lr, s.t) * move), m, v, s.t + 1)

    def step(self, c: MinimizationClient, x: Tensor, lr: float) -> Tensor:
        x = c.project_x(x)
        return x - lr * c.gradient(x, c.draw(self.batch))

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        if self.server == "adagrad":
            return v + square
        if self.server == "adam":
            return self.beta2 * v + (1 - self.beta2) * square
        return v - (1 - self.beta2) * square * torch.sign(v - square)
