"""Small nets with batch norm, clients for them, and the moments of what their norms take in."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from rookery import Data, FedAvg, Federation, Minimization, Model
from rookery.models import FederatedNorm, federated_norm, freeze_norm, to_group_norm

WAYS = {"freeze": freeze_norm, "group": to_group_norm, "federated": federated_norm}
SHAPES = {"mlp": (5,), "conv": (1, 6, 6)}
SIZES = (7, 12, 18)


def net(kind: str) -> nn.Module:
    """A net whose batch norms have seen data and have weights and biases of their own."""
    torch.manual_seed(0)
    module = (nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
              if kind == "mlp" else
              nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, eps=1e-3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(),
                            nn.Flatten(), nn.Linear(24, 1)))
    for layer in norms(module, nn.modules.batchnorm._BatchNorm):
        nn.init.uniform_(layer.weight, 0.5, 1.5)
        nn.init.normal_(layer.bias)
    for _ in range(5):
        module(torch.randn(16, *SHAPES[kind]) + 1)
    return module


def norms(module: nn.Module, kind: type) -> list:
    return [layer for layer in module.modules() if isinstance(layer, kind)]


def clients(kind: str, sizes: tuple[int, ...] = SIZES) -> Data:
    g = torch.Generator().manual_seed(1)
    return Data.from_parts({f"c{i}": {"inputs": torch.randn(n, *SHAPES[kind], generator=g) * (i + 1) + i,
                                      "labels": torch.randn(n, generator=g)} for i, n in enumerate(sizes)})


def federation(model: Model, data: Data, engine: str = "loop", **options: object) -> Federation:
    def loss(x: Tensor, b: object) -> Tensor:
        return (model(x, b.inputs)[:, 0] - b.labels).square().mean()

    return Federation(Minimization(loss, model=model, **options), data, engine=engine)


def train(fed: Federation, x: Tensor, rounds: int = 3) -> Tensor:
    algorithm = FedAvg(lr=0.05, local_steps=2, batch=4)
    state = algorithm.init(fed, x)
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return state.x


def statistics(model: Model) -> list[Tensor]:
    return [s for layer in norms(model.net, FederatedNorm) for s in (layer.running_mean.clone(), layer.running_var.clone())]


def inputs_of_norms(module: nn.Module, pieces: list[Tensor]) -> list[Tensor]:
    """By torch's own batch norm in training mode: each layer's inputs over all pieces, as (values, channels)."""
    module = copy.deepcopy(module).train()
    seen = []
    for piece in pieces:
        value, here = piece, []
        for layer in module:
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                here.append(value.detach().double().movedim(1, -1).flatten(0, -2))
            value = layer(value)
        seen.append(here)
    return [torch.cat(parts) for parts in zip(*seen, strict=True)]


def expected_statistics(values: list[Tensor]) -> list[Tensor]:
    return [s.float() for v in values for s in (v.mean(0), v.var(0, unbiased=False))]
