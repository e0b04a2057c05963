"""Steps of deep AUC: an AUC minimax step against a cross-entropy step of ours, and a LocalSCGDAM step against a plain PyTorch loop.

The minimax form adds two numbers to x and one to y, so it should cost what a plain loss of the same net costs. A LocalSCGDAM step takes the
gradient of a cross-entropy at x, a loss and its gradient at the tracked parameters h, and the product of the cross-entropy's Hessian with
that gradient: the first and the last share one graph, in the plain loop as in ours. Before it is timed, both are shown to do the same step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from harness import Row, compare
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from rookery import Batch, CompositionalMinimax, Data, FedAvg, Federation, LocalSCGDAM, LocalSGDA, LocalSGDAM, LocalSGDM, Minimax, Model
from rookery.data import Replacement
from rookery.models import federated_norm, mlp, resnet20
from rookery.objectives import auc, cross_entropy

LR, INNER_LR, RHO, BATCH, ROWS = 0.01, 0.1, 0.1, 32, 200
TRACKING, BETA, INNER_BETA = 0.5, 0.5, 0.5
Rows = tuple[Tensor, Tensor]  # inputs and labels


def two_classes(shape: tuple[int, ...], clients: int) -> Data:
    torch.manual_seed(0)
    return Data.from_parts({f"c{k}": {"inputs": torch.randn(ROWS, *shape), "labels": (torch.rand(ROWS) < 0.2).long()}
                            for k in range(clients)})


def rounds(algorithm: Any, fed: Federation[Any], x: Tensor, *rest: Tensor) -> Callable[[], None]:
    """A round at each call."""
    box = [algorithm.init(fed, x, *rest)]

    def one() -> None:
        box[0] = algorithm.round(fed, box[0])

    return one


def saddle(model: Model, data: Data, kind: type = Minimax, cohort: int | None = None,
           **options: Any) -> tuple[Federation[Any], Tensor, Tensor]:
    """A federation over the AUC, its share of positives agreed on, and where to start."""
    w = model.vector()
    x, y = torch.cat([w, w.new_zeros(2)]), w.new_zeros(1)
    fed = Federation(auc(model, kind, rho=RHO, positives=0, **options), data, clients_per_round=cohort)
    fed.prepare(x)
    return fed, x, y


def to_cross_entropy(name: str, net: nn.Module, shape: tuple[int, ...], clients: int, cohort: int, most: float, seconds: float,
                     steps: int, momentum: bool) -> list[Row]:
    """An AUC step against a cross-entropy step on the same net and rows; it may cost `most` times as much."""
    data, model = two_classes(shape, clients), Model(net)
    fed, x, y = saddle(model, data, cohort=cohort)
    plain = Federation(cross_entropy(model), data, clients_per_round=cohort)
    ours = rounds(LocalSGDAM(LR, INNER_LR, steps, BATCH) if momentum else LocalSGDA(LR, INNER_LR, steps, BATCH), fed, x, y)
    theirs = rounds(LocalSGDM(LR, steps, BATCH) if momentum else FedAvg(LR, steps, BATCH), plain, model.vector())
    titles = ("LocalSGDAM", "LocalSGDM") if momentum else ("LocalSGDA", "FedAvg")
    ours()  # the first round of LocalSGDAM has one estimate more
    goal = round(1 / most, 3)
    rows = compare(f"{titles[0]} on AUC to {titles[1]}, {name}", ours, theirs, goal, seconds, note=fed.engine.name, threads=(1,))
    print(f"{'':<58} an AUC step costs ×{1 / rows[0].wall:.2f} of a cross-entropy step (cpu ×{1 / rows[0].cpu:.2f})", flush=True)
    return rows


class PlainSCGDAM:
    """LocalSCGDAM at one client as a user writes it: modules, lists of tensors, and one graph for the gradient and its derivative."""

    def __init__(self, net: nn.Module, share: float, xi: Rows, zeta: Rows) -> None:
        self.net, self.p = net, share
        self.names, self.weights = [name for name, _ in net.named_parameters()], list(net.parameters())
        self.means, self.y = self.weights[0].new_zeros(2), self.weights[0].new_zeros(1)
        g, gradient = self.inner(xi)
        self.h = g
        fz, self.v = self.outer(zeta)
        self.u = self.pulled(gradient, fz)

    def step(self, xi: Rows, zeta: Rows) -> None:
        with torch.no_grad():
            for x, u in zip([*self.weights, self.means], self.u, strict=True):
                x.sub_(u, alpha=LR)
            self.y.add_(self.v, alpha=INNER_LR)
        g, gradient = self.inner(xi)
        for old, new in zip(self.h, g, strict=True):
            old.lerp_(new, TRACKING)
        fz, fy = self.outer(zeta)
        for old, new in zip(self.u, self.pulled(gradient, fz), strict=True):
            old.lerp_(new, BETA)
        self.v.lerp_(fy, INNER_BETA)

    def inner(self, rows: Rows) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """A step on the cross-entropy, and the gradient with its graph."""
        inputs, labels = rows
        out = self.net(inputs)
        loss = F.binary_cross_entropy_with_logits(out[:, 1] - out[:, 0], labels.to(out.dtype))
        gradient = torch.autograd.grad(loss, self.weights, create_graph=True)
        with torch.no_grad():
            return [*(w - RHO * d for w, d in zip(self.weights, gradient, strict=True)), self.means.clone()], gradient

    def outer(self, rows: Rows) -> tuple[list[Tensor], Tensor]:
        """The gradient of the AUC's loss at h, and in y."""
        inputs, labels = rows
        h, y, p = [part.detach().requires_grad_() for part in self.h], self.y.detach().requires_grad_(), self.p
        out = functional_call(self.net, dict(zip(self.names, h[:-1], strict=True)), (inputs,))
        s, of = torch.sigmoid(out[:, 1] - out[:, 0]), labels.to(out.dtype)
        a, b = h[-1]
        loss = ((1 - p) * (s - a) ** 2 * of + p * (s - b) ** 2 * (1 - of) + 2 * (1 + y) * (p * s * (1 - of) - (1 - p) * s * of)
                - p * (1 - p) * y ** 2).mean()
        *fz, fy = torch.autograd.grad(loss, [*h, y])
        return fz, fy

    def pulled(self, gradient: tuple[Tensor, ...], fz: list[Tensor]) -> list[Tensor]:
        """v − ρ∇²L·v, by differentiating the gradient."""
        second = torch.autograd.grad(gradient, self.weights, fz[:-1])
        return [*(v.sub_(hv, alpha=RHO) for v, hv in zip(fz[:-1], second, strict=True)), fz[-1]]

    def flat(self) -> list[Tensor]:
        return [torch.cat([part.detach().reshape(-1) for part in parts]) for parts in ([*self.weights, self.means], self.h, self.u)]


@dataclass(frozen=True)
class Seen(Replacement):
    """Draws as usual, and keeps what was drawn, so that the plain loop can be given the same rows."""

    drawn: list[Rows] = field(default_factory=list, compare=False)

    def fetch(self, data: Data, selection: Any) -> Batch:
        batch = super().fetch(data, selection)
        self.drawn.append((batch.inputs, batch.labels))
        return batch


def same_steps(net: nn.Module, data: Data, steps: int = 2) -> None:
    """Raise an error unless ours and the plain loop are at the same place after some steps on the same rows, in double precision."""
    net, seen = copy.deepcopy(net).double(), Seen()
    inputs, labels = data.fields["inputs"].double(), data.fields["labels"]
    exact = Data.from_parts({"c0": {"inputs": inputs, "labels": labels}})
    fed, x, y = saddle(Model(copy.deepcopy(net)), exact, CompositionalMinimax, sampling=seen)
    algorithm = LocalSCGDAM(LR, INNER_LR, steps, BATCH, TRACKING, BETA, INNER_BETA)
    state = algorithm.round(fed, algorithm.init(fed, x, y))
    draws = list(zip(seen.drawn[::2], seen.drawn[1::2], strict=True))
    assert len(draws) == steps + 1
    plain = PlainSCGDAM(net, float(labels.double().mean()), *draws[0])
    for xi, zeta in draws[1:]:
        plain.step(xi, zeta)
    pairs = [*zip((state.x, state.h, state.u), plain.flat(), strict=True), (state.y, plain.y), (state.v, plain.v)]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    apart = max(float((ours - theirs).abs().max() / theirs.abs().max()) for ours, theirs in pairs)
    print(f"LocalSCGDAM and the plain loop: x, y, h, u and v after {steps} steps on the same rows differ by {apart:.0e} of the largest")


def localscgdam(seconds: float, steps: int = 3) -> list[Row]:
    data = two_classes((3, 32, 32), 1)
    torch.manual_seed(1)
    net = federated_norm(resnet20(2))
    same_steps(net, data)
    fed, x, y = saddle(Model(copy.deepcopy(net)), data, CompositionalMinimax)
    ours = rounds(LocalSCGDAM(LR, INNER_LR, steps, BATCH, TRACKING, BETA, INNER_BETA), fed, x, y)
    inputs, labels = data.fields["inputs"], data.fields["labels"]

    def draw() -> Rows:
        index = torch.randint(ROWS, (BATCH,))
        return inputs[index], labels[index]

    loop = PlainSCGDAM(copy.deepcopy(net), float(labels.double().mean()), draw(), draw())

    def plain() -> None:
        for _ in range(steps):
            loop.step(draw(), draw())

    ours()  # the first round has one estimate more
    rows = compare(f"LocalSCGDAM on AUC, ResNet-20, {steps} client steps", ours, plain, round(1 / 1.08, 3), seconds, note=fed.engine.name,
                   threads=(1,))
    model = Model(copy.deepcopy(net))
    single = rounds(FedAvg(LR, steps, BATCH), Federation(cross_entropy(model), data), model.vector())
    cost = compare("LocalSCGDAM on AUC to FedAvg, ResNet-20", ours, single, None, seconds, note=fed.engine.name, threads=(1,))
    print(f"{'':<58} a LocalSCGDAM step costs ×{1 / rows[0].wall:.2f} of the plain loop's (cpu ×{1 / rows[0].cpu:.2f}) and "
          f"{1 / cost[0].wall:.2f} cross-entropy steps (cpu {1 / cost[0].cpu:.2f})", flush=True)
    return rows + cost


def main() -> list[Row]:
    rows = []
    for momentum in (False, True):
        rows += to_cross_entropy("MLP 784-200-2, 10 of 100", mlp(784, 200, 2), (784,), 100, 10, 1.4, 6, 10, momentum)
        rows += to_cross_entropy("ResNet-20, one client", federated_norm(resnet20(2)), (3, 32, 32), 1, 1, 1.05, 20, 3, momentum)
    return rows + localscgdam(30)


if __name__ == "__main__":
    main()
