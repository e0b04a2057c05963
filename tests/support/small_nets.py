"""Small nets with and without dropout, rows for them, and their regression."""

from __future__ import annotations

import torch
from torch import nn

from rookery import Data, Minimization, Model


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def dropped() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 1))


def table(rows: int = 6, clients: int = 1, equal: bool = False) -> Data:
    g = torch.Generator().manual_seed(1)
    parts = {}
    for k in range(clients):
        fields = {"inputs": torch.randn(rows + k, 3, generator=g), "labels": torch.randn(rows + k, generator=g)}
        parts[f"c{k}"] = {name: field[:1].expand_as(field) if equal else field for name, field in fields.items()}
    return Data.from_parts(parts)


def regression(model: Model) -> Minimization:
    return Minimization(lambda x, b: (model(x, b.inputs)[:, 0] - b.labels).square().mean(), model=model)
