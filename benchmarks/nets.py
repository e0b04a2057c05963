"""FedAvg rounds of small nets, and one client step of ResNet-20, against the plain PyTorch loop over clients.

One row has a harder opponent: a loop that somebody wrote by hand for this one net, all clients' weights in one tensor a layer, the gradient
by hand, and the products added to the weights in place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

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


def our_rounds(net: nn.Module, inputs: Sequence[Tensor], labels: Sequence[Tensor], cohort: int | None,
               steps: int) -> tuple[Callable[[], None], str]:
    """A round of FedAvg at each call, and the engine that runs it."""
    data = Data.from_parts({f"c{k}": {"inputs": a, "labels": b} for k, (a, b) in enumerate(zip(inputs, labels, strict=True))})
    model = Model(copy.deepcopy(net))
    fed = Federation(cross_entropy(model), data, clients_per_round=cohort)
    algorithm = FedAvg(LR, steps, BATCH)
    box = [algorithm.init(fed, model.vector())]

    def ours() -> None:
        box[0] = algorithm.round(fed, box[0])

    return ours, fed.engine.name


def fedavg(name: str, net: nn.Module, shape: tuple[int, ...], clients: int, cohort: int, goal: float) -> list[Row]:
    torch.manual_seed(0)
    inputs = [torch.randn(ROWS, *shape) for _ in range(clients)]
    labels = [torch.randint(10, (ROWS,)) for _ in range(clients)]
    ours, engine = our_rounds(net, inputs, labels, cohort, STEPS)
    return compare(f"FedAvg, {name}, {cohort} of {clients} clients", ours, plain_round(net, inputs, labels, cohort), goal, note=engine)


def hand_batched_round(net: nn.Module, inputs: Tensor, labels: Tensor, cohort: int, steps: int) -> Callable[[], None]:
    """FedAvg of a net of two layers without autograd, over all clients at once; nothing is computed that is not needed."""
    weights = [p.detach().clone() for p in net.parameters()]
    rows = torch.arange(cohort)[:, None]

    def one_round() -> None:
        chosen = torch.randperm(len(inputs))[:cohort]
        own = [w.expand(cohort, *w.shape).clone() for w in weights]
        first, bias, second, offset = own
        x_all, y_all = inputs[chosen], labels[chosen]
        for _ in range(steps):
            index = torch.randint(inputs.shape[1], (cohort, BATCH))
            x, y = x_all[rows, index], y_all[rows, index]
            hidden = torch.baddbmm(bias[:, None], x, first.transpose(1, 2)).relu_()
            slope = torch.softmax(torch.baddbmm(offset[:, None], hidden, second.transpose(1, 2)), -1)
            slope.scatter_add_(2, y[..., None], slope.new_full((cohort, BATCH, 1), -1.0)).div_(BATCH)
            inner = torch.bmm(slope, second).mul_(hidden > 0)
            second.baddbmm_(slope.transpose(1, 2), hidden, alpha=-LR)
            offset.sub_(slope.sum(1), alpha=LR)
            first.baddbmm_(inner.transpose(1, 2), x, alpha=-LR)
            bias.sub_(inner.sum(1), alpha=LR)
        for w, o in zip(weights, own, strict=True):
            w.copy_(o.mean(0))

    return one_round


def by_hand(clients: int = 100, cohort: int = 10, steps: int = 20) -> list[Row]:
    torch.manual_seed(0)
    net = mlp(784, 200, 10)
    inputs, labels = torch.randn(clients, ROWS, 784), torch.randint(10, (clients, ROWS))
    ours, engine = our_rounds(net, list(inputs), list(labels), cohort, steps)
    return compare(f"FedAvg, MLP 784-200-10, {cohort} of {clients}, to a hand-batched loop", ours,
                   hand_batched_round(net, inputs, labels, cohort, steps), 0.8, seconds=8, note=engine)


def resnet_step() -> list[Row]:
    torch.manual_seed(0)
    net = federated_norm(resnet20())
    inputs, labels = torch.randn(ROWS, 3, 32, 32), torch.randint(10, (ROWS,))
    ours, engine = our_rounds(net, [inputs], [labels], None, STEPS)
    optimiser = torch.optim.SGD(net.parameters(), lr=LR)

    def plain() -> None:
        for _ in range(STEPS):
            index = torch.randint(ROWS, (BATCH,))
            optimiser.zero_grad()
            F.cross_entropy(net(inputs[index]), labels[index]).backward()
            optimiser.step()

    return compare("ResNet-20, 10 client steps of batch 32", ours, plain, 0.95, seconds=12, note=engine)


def main() -> list[Row]:
    return [*fedavg("30-32-10 net", mlp(30, 32, 10), (30,), 100, 100, 5.0),
            *fedavg("30-32-10 net", mlp(30, 32, 10), (30,), 100, 10, 1.0),
            *fedavg("MLP 784-200-10", mlp(784, 200, 10), (784,), 100, 10, 1.0),
            *by_hand(),
            *fedavg("small CNN", small_cnn(), (1, 28, 28), 100, 10, 0.95),
            *resnet_step()]


if __name__ == "__main__":
    main()
