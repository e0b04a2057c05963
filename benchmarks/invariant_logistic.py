"""FCSG-M on invariant logistic regression (d=10, m=10, q=50) against a hand-batched analytic PyTorch loop, same pre-drawn samples."""

from __future__ import annotations

from dataclasses import replace

import torch
from harness import Row, compare
from torch import Tensor

from rookery import FCSGM, Data, Federation
from rookery.data import Batch
from rookery.data.sampling import Draw, Request
from rookery.objectives import invariant_logistic

D, M, Q, LR, BETA, LAM, GAMMA = 10, 10, 50, 0.01, 0.1, 0.001, 10.0


class Given:
    """Samples drawn beforehand: step t of a call takes the t-th of them."""

    def __init__(self, b: Tensor, eta: Tensor) -> None:
        self.b, self.eta = b, eta

    def select(self, draw: Draw, request: Request) -> dict[str, Tensor]:
        return {"t": torch.from_numpy(draw.steps).expand(len(draw.clients), -1)}

    def fetch(self, data: Data, selection: dict[str, Tensor]) -> Batch:
        t = int(selection["t"].reshape(-1)[0])
        one = selection["t"].dim() == 0  # a single client, to see what the function draws
        return Batch({"b": self.b[t, 0] if one else self.b[t]}, None, Batch({"eta": self.eta[t, 0] if one else self.eta[t]}))

    def whole(self, fields: dict[str, Tensor]) -> Batch:
        raise NotImplementedError


def hand(x: Tensor, u: Tensor, b: Tensor, eta: Tensor) -> tuple[Tensor, Tensor]:
    """One round, all clients in one batch, the gradient by hand. (The first two steps take the same sample, as `Given` does.)"""
    for t in (0, *range(Q - 1)):
        z = eta[t].mean(2)
        slope = -b[t] * torch.sigmoid(-b[t] * (z * x[:, None]).sum(-1))
        gradient = (slope[..., None] * z).mean(1) + 2 * LAM * GAMMA * x / (1 + GAMMA * x * x).square()
        u = (1 - BETA) * u + BETA * gradient
        x = x - LR * u
    x, u = x.mean(0), u.mean(0)
    return x.expand(len(b[0]), D), u.expand(len(b[0]), D)


def main() -> list[Row]:
    rows = []
    for clients, goal in ((16, 0.3), (1000, 0.6)):
        torch.manual_seed(0)
        a = torch.randn(Q, clients, 1, D)
        b, eta = torch.sign(a @ torch.randn(D)), a[:, :, :, None] + torch.randn(Q, clients, 1, M, D)
        data = Data.streams([f"c{i}" for i in range(clients)])
        state = {"plain": (torch.zeros(clients, D), torch.zeros(clients, D))}

        def plain(state: dict[str, tuple[Tensor, Tensor]] = state, b: Tensor = b, eta: Tensor = eta) -> None:
            state["plain"] = hand(*state["plain"], b, eta)

        problem = invariant_logistic(torch.ones(D), lam=LAM, gamma=GAMMA)
        for label, oracles in (("analytic", problem.oracles), ("autodiff", {})):
            fed = Federation(replace(problem, sampling=Given(b, eta), oracles=oracles), data, engine="vectorised")
            algorithm = FCSGM(LR, Q, 1, M, beta=BETA)
            box = [algorithm.init(fed, torch.zeros(D))]

            def ours(box: list = box, fed: Federation = fed, algorithm: FCSGM = algorithm) -> None:
                box[0] = algorithm.round(fed, box[0])

            rows += compare(f"FCSG-M, invariant logistic, {clients} clients, {label}", ours, plain,
                            goal if label == "analytic" else None, seconds=2)
            x, u = torch.randn(D), torch.randn(D)
            by_hand = hand(x.expand(clients, D), u.expand(clients, D), b, eta)
            torch.testing.assert_close(algorithm.round(fed, algorithm.State(x, u, 1)).x, by_hand[0][0])  # both sides do the same work
        fed = Federation(problem, data, engine="vectorised")
        box = [algorithm.init(fed, torch.zeros(D))]

        def ours_drawing(box: list = box, fed: Federation = fed, algorithm: FCSGM = algorithm) -> None:
            box[0] = algorithm.round(fed, box[0])

        def plain_drawing(state: dict[str, tuple[Tensor, Tensor]] = state, clients: int = clients) -> None:
            a = torch.randn(Q, clients, 1, D)
            state["plain"] = hand(*state["plain"], torch.sign(a.sum(-1)), a[:, :, :, None] + torch.randn(Q, clients, 1, M, D))

        rows += compare(f"FCSG-M, invariant logistic, {clients} clients, drawing included", ours_drawing, plain_drawing, seconds=2)
    return rows


if __name__ == "__main__":
    main()
