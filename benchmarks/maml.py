"""Conditional steps of nets: MAML on Conv4 against a plain PyTorch loop, Acc-FCSG-M against FCSG, the AP surrogate against cross-entropy.

The plain loop is what a user writes: for each task a step with `create_graph=True`, the loss of the query rows at the stepped parameters,
and a backward pass through both. Before it is timed, both are shown to compute the same gradient. Acc-FCSG-M takes two gradients a step
where FCSG takes one. The AP surrogate scores b + m rows once, as cross-entropy does on as many.
"""

from __future__ import annotations

import copy

import torch
from auc import rounds, two_classes
from harness import Row, compare
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from rookery import FCSG, AccFCSGM, Batch, Data, FedAvg, Federation, Model
from rookery.data import Episodes
from rookery.models import conv4, federated_norm, lenet
from rookery.objectives import ap_surrogate, cross_entropy, maml

LR, INNER_LR, TASKS, WAYS, QUERY = 0.05, 0.4, 5, 5, 15
CLASSES, DRAWINGS, STEPS, SCORED = 20, 20, 2, 60
Tasks = tuple[Tensor, Tensor, Tensor, Tensor]  # inputs and labels of the support, inputs and labels of the query, task after task


def characters(dtype: torch.dtype = torch.float32) -> Data:
    torch.manual_seed(0)
    return Data.from_parts({"c0": {"inputs": torch.rand(CLASSES * DRAWINGS, 1, 28, 28, dtype=dtype),
                                   "labels": torch.arange(CLASSES).repeat_interleave(DRAWINGS)}})


def plain_gradient(net: nn.Module, tasks: Tasks) -> list[Tensor]:
    """The mean over the tasks of the gradient of the query's loss after a step on the support's."""
    weights = dict(net.named_parameters())
    total = [torch.zeros_like(w) for w in weights.values()]
    for support, labels, query, wanted in zip(*tasks, strict=True):
        loss = F.cross_entropy(functional_call(net, weights, (support,)), labels)
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        moved = {name: w - INNER_LR * s for (name, w), s in zip(weights.items(), slopes, strict=True)}
        outer = F.cross_entropy(functional_call(net, moved, (query,)), wanted) / len(tasks[0])
        for t, g in zip(total, torch.autograd.grad(outer, list(weights.values())), strict=True):
            t += g
    return total


def drawn(data: Data, shots: int) -> Tasks:
    """Tasks drawn by hand: classes without replacement, rows of each without replacement."""
    inputs = data.fields["inputs"].view(CLASSES, DRAWINGS, 1, 28, 28)
    parts = []
    for _ in range(TASKS):
        own = torch.stack([inputs[c][torch.randperm(DRAWINGS)[: shots + QUERY]] for c in torch.randperm(CLASSES)[:WAYS]])
        parts.append((own[:, :shots].flatten(0, 1), own[:, shots:].flatten(0, 1)))
    support, query = (torch.stack(part) for part in zip(*parts, strict=True))
    new = torch.arange(WAYS)
    return support, new.repeat_interleave(shots).expand(TASKS, -1), query, new.repeat_interleave(QUERY).expand(TASKS, -1)


def same_gradient(net: nn.Module, shots: int) -> None:
    """Raise an error unless ours and the plain loop have the same gradient of the same tasks, in double precision."""
    net = copy.deepcopy(net).double()
    tasks = drawn(characters(torch.float64), shots)
    support, labels, query, wanted = tasks
    model = Model(copy.deepcopy(net))
    batch = Batch({"inputs": query, "labels": wanted}, None, Batch({"inputs": support, "labels": labels}))
    ours = maml(model, INNER_LR).gradient(model.vector(), batch)
    theirs = torch.cat([g.reshape(-1) for g in plain_gradient(net, tasks)])
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    apart = float((ours - theirs).abs().max() / theirs.abs().max())
    print(f"MAML on Conv4, {shots}-shot: the gradients of ours and of the plain loop differ by {apart:.0e} of the largest")


def against_plain(shots: int, seconds: float) -> list[Row]:
    torch.manual_seed(1)
    net, data = federated_norm(conv4(WAYS)), characters()
    same_gradient(net, shots)
    model = Model(copy.deepcopy(net))
    fed = Federation(maml(model, INNER_LR, sampling=Episodes(WAYS, QUERY)), data)
    ours = rounds(FCSG(LR, STEPS, TASKS, shots), fed, model.vector())

    def plain() -> None:
        for _ in range(STEPS):
            slopes = plain_gradient(net, drawn(data, shots))
            with torch.no_grad():
                for w, g in zip(net.parameters(), slopes, strict=True):
                    w.sub_(g, alpha=LR)

    rows = compare(f"FCSG on MAML, Conv4, {TASKS} tasks of {shots} shot(s)", ours, plain, round(1 / 1.05, 3), seconds, note=fed.engine.name,
                   threads=(1,))
    print(f"{'':<58} a client step costs ×{1 / rows[0].wall:.2f} of the plain loop's (cpu ×{1 / rows[0].cpu:.2f})", flush=True)
    return rows


def accelerated(shots: int, seconds: float) -> list[Row]:
    """Acc-FCSG-M against FCSG, step for step."""
    torch.manual_seed(1)
    model, data = Model(federated_norm(conv4(WAYS))), characters()
    fed, other = (Federation(maml(model, INNER_LR, sampling=Episodes(WAYS, QUERY)), data) for _ in range(2))
    ours = rounds(AccFCSGM(LR, STEPS, TASKS, shots), fed, model.vector())
    theirs = rounds(FCSG(LR, STEPS, TASKS, shots), other, model.vector())
    ours()  # the first estimate is a single gradient
    rows = compare(f"Acc-FCSG-M to FCSG on MAML, Conv4, {shots} shot(s)", ours, theirs, round(1 / 2.05, 3), seconds, note=fed.engine.name,
                   threads=(1,))
    print(f"{'':<58} an Acc-FCSG-M step costs ×{1 / rows[0].wall:.2f} of FCSG's (cpu ×{1 / rows[0].cpu:.2f})", flush=True)
    return rows


def average_precision(seconds: float) -> list[Row]:
    """FCSG on the AP surrogate against FedAvg on cross-entropy: as many rows pass the net."""
    torch.manual_seed(1)
    data, model = two_classes((1, 28, 28), 1), Model(lenet(1, 2))
    fed, plain = Federation(ap_surrogate(model), data), Federation(cross_entropy(model), data)
    ours = rounds(FCSG(LR, 10, SCORED // 3, SCORED - SCORED // 3), fed, model.vector())
    theirs = rounds(FedAvg(LR, 10, SCORED), plain, model.vector())
    rows = compare(f"FCSG on AP to FedAvg, LeNet, {SCORED} rows scored", ours, theirs, round(1 / 1.1, 3), seconds, note=fed.engine.name,
                   threads=(1,))
    print(f"{'':<58} an AP step costs ×{1 / rows[0].wall:.2f} of a cross-entropy step (cpu ×{1 / rows[0].cpu:.2f})", flush=True)
    return rows


def main() -> list[Row]:
    return against_plain(1, 20) + accelerated(1, 30) + average_precision(6)


if __name__ == "__main__":
    main()
