"""An outer round of loss tuning as in the FedNest paper, in CPU seconds, and where they go.

A net 784-200-10 on long-tailed digits (class i keeps 0.01^{i/9}; random pixels of MNIST's shape), 100 clients, 10 in a round, batch 10 of
training rows and 10 of validation rows, 5 local epochs (40 steps), T = 3, N = 3, 1/ℓ = 0.02, step size 0.01, outer step 1; no evaluation.
The code published with the paper takes 7.4 s; it has all of a client's rows for what is averaged before local steps, and one local step on
x: that set-up is `as published`, and the others have batches and five epochs everywhere. `plain` is the loop a user would write in PyTorch
for FedNest with batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from harness import Row, compare
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import Data, Federation, FedNest, FedNestSGD, LFedNest, Model, Program
from rookery.data import Stratified, iid, long_tail
from rookery.models import mlp
from rookery.objectives import loss_tuning

PUBLISHED = 7.4
CLIENTS, COHORT, BATCH, STEPS, T, N, SMOOTHNESS, LR, TINY = 100, 10, 10, 40, 3, 3, 50.0, 0.01, 1e-9
COUNTS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)  # of MNIST
METHODS = {"FedNest": FedNest, "FedNest-SGD": FedNestSGD, "LFedNest": LFedNest}


def tail() -> Data:
    """Every second row of a client is for validation."""
    labels = np.repeat(np.arange(10), COUNTS)
    labels = labels[long_tail(labels, 0.01)]
    pixels = torch.rand(len(labels), 784, generator=torch.Generator().manual_seed(0))
    data = Data.by_site({"inputs": pixels, "labels": torch.from_numpy(labels)}, iid(len(labels), CLIENTS))
    data.fields["validation"] = torch.cat([torch.arange(size) % 2 for size in data.sizes.tolist()]).float()
    return data


def federation(data: Data, engine: str = "auto") -> tuple[Federation, Tensor, Tensor]:
    torch.manual_seed(0)
    model = Model(mlp(784, 200, 10))
    fed = Federation(loss_tuning(model, 10, sampling=Stratified("validation", BATCH)), data, clients_per_round=COHORT, engine=engine)
    x = torch.zeros(20)
    fed.prepare(x)
    return fed, x, model.vector()


def ours(name: str, data: Data, engine: str, published: bool = False) -> tuple[Callable[[], None], Federation]:
    fed, x, y = federation(data, engine)
    algorithm = METHODS[name](1.0, LR * STEPS, T, STEPS, N, SMOOTHNESS, "neumann", 2 * BATCH,
                              outer_steps=1 if published else None, full_anchors=published)
    box = [algorithm.init(fed, x, y)]

    def one() -> None:
        box[0] = algorithm.round(fed, box[0])

    return one, fed


def plain(data: Data) -> Callable[[], None]:
    """FedNest's round with modules and autograd, client after client."""
    net, x, r = mlp(784, 200, 10), torch.zeros(20), np.random.default_rng(0)
    W = list(net.parameters())
    counts = torch.bincount(data.fields["labels"][data.fields["validation"] == 1], minlength=10)
    weights = counts.sum() / (10 * counts)
    parts = [{name: field[kind] for name, field in data.views(k).items()} for k in range(CLIENTS)
             for kind in (data.views(k)["validation"] == 0, data.views(k)["validation"] == 1)]
    worker = mlp(784, 200, 10)
    V = list(worker.parameters())

    def batch(k: int, validation: bool) -> tuple[Tensor, Tensor]:
        part = parts[2 * k + validation]
        rows = torch.from_numpy(r.integers(len(part["labels"]), size=BATCH))
        return part["inputs"][rows], part["labels"][rows]

    def inner(m: nn.Module, z: Tensor, b: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(torch.sigmoid(z[:10]) * m(b[0]) + z[10:], b[1])

    def outer(m: nn.Module, b: tuple[Tensor, Tensor]) -> Tensor:
        return (weights[b[1]] * F.cross_entropy(m(b[0]), b[1], reduction="none")).mean()

    def mean(values: list[Any]) -> list[Tensor]:
        return [torch.stack(part).mean(0) for part in zip(*values, strict=True)]

    def indirect(z: Tensor, p: list[Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
        z = z.clone().requires_grad_()
        g = torch.autograd.grad(inner(net, z, b), W, create_graph=True)
        return -torch.autograd.grad(sum((a * v).sum() for a, v in zip(g, p, strict=True)), z)[0]

    def one() -> None:
        nonlocal x
        S = r.choice(CLIENTS, COHORT, replace=False).tolist()
        for _ in range(T):
            q = mean([torch.autograd.grad(inner(net, x, batch(k, False)), W) for k in S])
            ends = []
            for k in S:
                worker.load_state_dict(net.state_dict())
                for _ in range(STEPS):
                    b = batch(k, False)
                    here, there = torch.autograd.grad(inner(worker, x, b), V), torch.autograd.grad(inner(net, x, b), W)
                    with torch.no_grad():
                        for v, a, c, d in zip(V, here, there, q, strict=True):
                            v -= LR * (a - c + d)
                ends.append([v.detach().clone() for v in V])
            with torch.no_grad():
                for w, v in zip(W, mean(ends), strict=True):
                    w.copy_(v)
        v = mean([torch.autograd.grad(outer(net, batch(k, True)), W) for k in S])
        p = [a / SMOOTHNESS for a in v]
        for _ in range(N):
            products = []
            for k in r.choice(CLIENTS, COHORT, replace=False).tolist():
                g = torch.autograd.grad(inner(net, x, batch(k, False)), W, create_graph=True)
                products.append(torch.autograd.grad(sum((a * c).sum() for a, c in zip(g, v, strict=True)), W))
            v = [a - c / SMOOTHNESS for a, c in zip(v, mean(products), strict=True)]
            p = [a + c / SMOOTHNESS for a, c in zip(p, v, strict=True)]
        h = torch.stack([indirect(x, p, batch(k, False)) for k in S]).mean(0)
        moved = []
        for k in S:
            z = x
            for _ in range(STEPS):
                b = batch(k, False)
                z = z - (indirect(z, p, b) - indirect(x, p, b) + h) / STEPS
            moved.append(z)
        x = torch.stack(moved).mean(0)

    return one


@dataclass(frozen=True)
class Ask(Program):
    """Each oracle by itself, with its draw and a step along it, too small to lead anywhere."""

    def g_y(self, c: Any, y: Tensor, x: Tensor) -> Tensor:
        return y - TINY * c.g_y(x, y, c.draw(2 * BATCH))

    def f_y(self, c: Any, y: Tensor, x: Tensor) -> Tensor:
        return y - TINY * c.f_y(x, y, c.draw(2 * BATCH))

    def g_yy(self, c: Any, v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return v - TINY * c.g_yy(x, y, c.draw(2 * BATCH), v)

    def g_xy(self, c: Any, x: Tensor, y: Tensor, v: Tensor) -> Tensor:
        return x - TINY * c.g_xy(x, y, c.draw(2 * BATCH), v)


def cpu(fn: Callable[[], object], times: int = 5) -> float:
    """Median CPU seconds of a call, after two."""
    seconds = []
    for _ in range(times + 2):
        begun = time.process_time()
        fn()
        seconds.append(time.process_time() - begun)
    return median(seconds[2:])


def oracles(data: Data) -> dict[str, float]:
    """CPU seconds of one call at one client, when ten run together."""
    fed, x, y = federation(data, "vectorised")
    ask, v = Ask(), 0.01 * torch.randn(len(y))
    S = fed.cohort()
    X, Y, V = S.broadcast(x, y, v)
    calls = {"g_y": (ask.g_y, Y, X), "f_y": (ask.f_y, Y, X), "g_yy": (ask.g_yy, V, X, Y), "g_xy": (ask.g_xy, X, Y, V)}
    return {name: cpu(lambda fn=fn, given=given: S.mean(S.iterate(fn, *given, steps=STEPS))) / (STEPS * COHORT)
            for name, (fn, *given) in calls.items()}


def main() -> list[Row]:
    torch.set_num_threads(1)
    data = tail()
    each = oracles(data)
    for name in METHODS:
        for engine, published in (("auto", True), ("loop", False), ("vectorised", False), ("auto", False)):
            one, fed = ours(name, data, engine, published)
            seconds = cpu(one)
            print(f"loss tuning, {name}, {engine + ', as published' * published:<20} {seconds:6.2f} CPU s an outer round, "
                  f"×{PUBLISHED / seconds:.1f} of the published code"
                  + (f" ({fed.engine.name})" if engine == "auto" else ""), flush=True)
        rounds = 7  # that `cpu` has made
        calls = {o: number / rounds for o, number in fed.ledger["train"].calls.items() if o in each}
        print(" " * 4 + ", ".join(f"{o} {number:.0f} × {1e6 * each[o]:.0f} µs = {number * each[o]:.2f} s" for o, number in calls.items())
              + f", the rest {seconds - sum(number * each[o] for o, number in calls.items()):.2f} s", flush=True)
    one, _ = ours("FedNest", data, "auto")
    return compare("FedNest, loss tuning, MLP 784-200-10, 10 of 100", one, plain(data), seconds=10, threads=(1,))


if __name__ == "__main__":
    main()
