"""FedAvg rounds of small nets, and one client step of ResNet-20, against the plain PyTorch loop over clients."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from harness import Row, compare
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import Data, FedAvg, Federation, Model
from rookery.models import federated_norm, mlp, resnet20, small_cnn
from rookery.objectives import cross_entropy

LR, BATCH, STEPS, ROWS = 0.05, 32, 10, 200


def plain_round(net: nn.Module, inputs: list[Tensor], labels: list[Tensor], cohort: int) -> Callable[[], None]:
    """What a user writes: for each client load the weights, train, and average the weights."""
    worker = copy.deepcopy(net)

    def one_round() -> None:
        chosen = torch.randperm(len(inputs))[:cohort].tolist()
        total = [torch.zeros_like(p) for p in net.parameters()]
        for k in chosen:
            worker.load_state_dict(net.state_dict())
            optimiser = torch.optim.SGD(worker.parameters(), lr=LR)
            for _ in range(STEPS):
                index = torch.randint(len(labels[k]), (BATCH,))
                optimiser.zero_grad()
                F.cross_entropy(worker(inputs[k][index]), labels[k][index]).backward()
                optimiser.step()
            with torch.no_grad():
                for t, p in zip(total, worker.parameters(), strict=True):
                    t += p / cohort
        with torch.no_grad():
            for p, t in zip(net.parameters(), total, strict=True):
                p.copy_(t)

    return one_round


def fedavg(name: str, net: nn.Module, shape: tuple[int, ...], clients: int, cohort: int, goal: float) -> list[Row]:
    torch.manual_seed(0)
    inputs = [torch.randn(ROWS, *shape) for _ in range(clients)]
    labels = [torch.randint(10, (ROWS,)) for _ in range(clients)]
    data = Data.from_parts({f"c{k}": {"inputs": a, "labels": b} for k, (a, b) in enumerate(zip(inputs, labels, strict=True))})
    model = Model(copy.deepcopy(net))
    fed = Federation(cross_entropy(model), data, participate=cohort)
    algorithm = FedAvg(LR, STEPS, BATCH)
    box = [algorithm.init(fed, model.vector())]

    def ours() -> None:
        box[0] = algorithm.round(fed, box[0])

    return compare(f"FedAvg, {name}, {cohort} of {clients} clients", ours, plain_round(net, inputs, labels, cohort), goal,
                   note=fed.engine.name)


def resnet_step() -> list[Row]:
    torch.manual_seed(0)
    net = federated_norm(resnet20())
    inputs, labels = torch.randn(ROWS, 3, 32, 32), torch.randint(10, (ROWS,))
    model = Model(copy.deepcopy(net))
    fed = Federation(cross_entropy(model), Data.from_parts({"c": {"inputs": inputs, "labels": labels}}))
    algorithm = FedAvg(LR, STEPS, BATCH)
    box = [algorithm.init(fed, model.vector())]
    optimiser = torch.optim.SGD(net.parameters(), lr=LR)

    def ours() -> None:
        box[0] = algorithm.round(fed, box[0])

    def plain() -> None:
        for _ in range(STEPS):
            index = torch.randint(ROWS, (BATCH,))
            optimiser.zero_grad()
            F.cross_entropy(net(inputs[index]), labels[index]).backward()
            optimiser.step()

    return compare("ResNet-20, 10 client steps of batch 32", ours, plain, 0.95, seconds=12, note=fed.engine.name)


def main() -> list[Row]:
    return [*fedavg("30-32-10 net", mlp(30, 32, 10), (30,), 100, 100, 5.0),
            *fedavg("30-32-10 net", mlp(30, 32, 10), (30,), 100, 10, 1.0),
            *fedavg("MLP 784-200-10", mlp(784, 200, 10), (784,), 100, 10, 1.0),
            *fedavg("small CNN", small_cnn(), (1, 28, 28), 100, 10, 0.95),
            *resnet_step()]


if __name__ == "__main__":
    main()
