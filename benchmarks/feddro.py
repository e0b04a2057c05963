"""A FedDRO round against a FedAvg round of the same net, data and steps: what the inner value costs.

In passes over the net (backward = 2): FedAvg 3 a step; FedDRO 4 with one inner value (g(x_{t−1}), then g(x_t) with its gradient), 5 with
several (g(x_{t−1}), g(x_t), and after the exchange J_gᵀ∇f(ȳ)). So no less than ×1.33 and ×1.67 are to be had.
"""

from __future__ import annotations

import torch
from harness import Row, compare
from torch import Tensor, nn

from rookery import Batch, Compositional, Data, FedAvg, FedDRO, Federation, Model
from rookery.models import federated_norm, mlp, resnet20
from rookery.objectives import cross_entropy, cross_entropy_losses, kl_dro

LR, BATCH, STEPS, ROWS, GROUPS = 0.01, 32, 10, 200, 8


def grouped(model: Model) -> Compositional:
    """The smoothed worst of eight groups of labels, of equal shares: d_g = 8."""
    losses = cross_entropy_losses(model)

    def g(x: Tensor, b: Batch) -> Tensor:
        member = (b.labels[:, None] % GROUPS == torch.arange(GROUPS)).to(x.dtype)
        return GROUPS * (losses(x, b)[:, None] * member).mean(0)

    return Compositional(lambda z: torch.logsumexp(z, 0), g, model=model)


def against_fedavg(name: str, net: nn.Module, shape: tuple[int, ...], clients: int, cohort: int, inner: int, seconds: float) -> list[Row]:
    torch.manual_seed(0)
    data = Data.from_parts({f"c{k}": {"inputs": torch.randn(ROWS, *shape), "labels": torch.randint(10, (ROWS,))} for k in range(clients)})
    model = Model(net)
    nested = kl_dro(cross_entropy_losses(model), 2.0, shift=0.0, model=model) if inner == 1 else grouped(model)
    plain = Federation(cross_entropy(model), data, clients_per_round=cohort)
    fed = Federation(nested, data, clients_per_round=cohort)
    algorithms = FedDRO(LR, 0.1, STEPS, BATCH), FedAvg(LR, STEPS, BATCH)
    states = [algorithms[0].init(fed, model.vector()), algorithms[1].init(plain, model.vector())]

    def ours() -> None:
        states[0] = algorithms[0].round(fed, states[0])

    def theirs() -> None:
        states[1] = algorithms[1].round(plain, states[1])

    goal = 1 / (1.55 if inner == 1 else 1.8)
    rows = compare(f"FedDRO to FedAvg, {name}, d_g = {inner}", ours, theirs, round(goal, 3), seconds, note=fed.engine.name, threads=(1,))
    print(f"{'':<58} a FedDRO step costs ×{1 / rows[0].wall:.2f} of a FedAvg step (cpu ×{1 / rows[0].cpu:.2f})", flush=True)
    return rows


def main() -> list[Row]:
    rows = []
    for inner in (1, GROUPS):
        rows += against_fedavg("MLP 784-200-10, 10 of 100", mlp(784, 200, 10), (784,), 100, 10, inner, 6)
        rows += against_fedavg("ResNet-20, one client", federated_norm(resnet20()), (3, 32, 32), 1, 1, inner, 20)
    return rows


if __name__ == "__main__":
    main()
