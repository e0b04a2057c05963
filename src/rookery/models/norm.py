"""Batch norm in a federation, in three ways that `Model` accepts.

freeze_norm     the running statistics are constants; the choice for pretrained nets
to_group_norm   group norm instead, which needs no statistics (Wu and He, "Group normalization", ECCV 2018)
federated_norm  batch statistics while training; afterwards `sum_moments` sums running statistics over the clients
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from ..errors import AlgorithmError, ModuleError, ProblemError
from ..federation.federation import Federation
from ..federation.generators import seeded
from ..federation.oracles import Client
from ..federation.program import Program
from ..problems.base import Problem
from ..problems.model import Model

_New = TypeVar("_New", "FrozenNorm", nn.GroupNorm)


class FrozenNorm(nn.Module):
    """Batch norm of any dimension with constant statistics, in training too; `weight` and `bias` are trained.

    >>> [name for name, _ in FrozenNorm(3).named_parameters()]
    ['weight', 'bias']
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__()
        self.channels, self.eps = channels, eps
        self.register_parameter("weight", nn.Parameter(torch.ones(channels)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(channels)) if affine else None)
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.channels}, eps={self.eps}, affine={self.weight is not None}"


class FederatedNorm(FrozenNorm):
    """Batch norm of any dimension: the batch's statistics in training, the running ones in inference. Only `sum_moments` writes those."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True, eps=self.eps)


def freeze_norm(module: nn.Module) -> nn.Module:
    """A copy of the module whose batch norms keep their running statistics as constants.

    >>> freeze_norm(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))[1]
    FrozenNorm(4, eps=1e-05, affine=True)
    """

    def build(name: str, layer: _BatchNorm) -> nn.Module:
        if layer.running_mean is None:
            raise ModuleError(f"layer {name!r} is {type(layer).__name__} without running statistics, so there is nothing to keep; "
                              "write to_group_norm(module) or federated_norm(module) instead")
        return _like(FrozenNorm, layer)

    return _replace(module, build)


def federated_norm(module: nn.Module) -> nn.Module:
    """A copy of the module whose batch norms use the batch in training; call `sum_moments` before inference.

    >>> federated_norm(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))[1]
    FederatedNorm(4, eps=1e-05, affine=True)
    """
    return _replace(module, lambda _, layer: _like(FederatedNorm, layer))


def to_group_norm(module: nn.Module, groups: int = 2) -> nn.Module:
    """A copy of the module with group norms, of gcd(groups, channels) groups, that take over weight and bias.

    A BatchNorm1d becomes a single group (layer norm): where a channel has one value a row, small groups would keep little more
    than signs.

    >>> to_group_norm(nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)))[1].num_groups
    2
    """
    if groups < 1:
        raise ModuleError(f"groups must be at least 1; got {groups}")

    def build(name: str, layer: _BatchNorm) -> nn.Module:
        flat = isinstance(layer, nn.BatchNorm1d)
        if flat and layer.num_features == 1:
            raise ModuleError(f"layer {name!r} is BatchNorm1d of one channel, and a group of one value has no spread; "
                              "write freeze_norm(module) or federated_norm(module) instead")
        return _adopt(nn.GroupNorm(1 if flat else math.gcd(groups, layer.num_features), layer.num_features, layer.eps, layer.affine), layer)

    return _replace(module, build)


def sum_moments(fed: Federation[Problem], model: Model, x: Tensor, batch: int | None, inputs: str = "inputs",
                phase: str = "output") -> None:
    """Give the model's `FederatedNorm` layers running statistics at parameters x: the moments of their inputs over all clients' rows.

    One exchange of 2·channels + 1 numbers a layer and client, booked under `phase`; every row counts once, whatever the
    clients' weights. The clients run their rows through the net in training mode, in pieces of nearly `batch` rows: give the
    batch size of training (None: all rows), since what a layer sees depends on the batch statistics of those before it.
    Every engine runs it, client by client; a client with fewer rows than `min_batch` shows none.

    inputs: the field of the data that the module takes
    """
    if batch is not None and batch < 2:
        raise AlgorithmError(f"batch must be at least 2, as one row has no batch statistics, or None for all rows; got {batch}")
    layers = _layers(model.net)
    with fed.phase(phase):
        here = fed.present
        total = here.sum(here.map(Moments(batch, inputs).moments, here.broadcast(x)))
    expected = sum(2 * layer.channels + 1 for layer in layers)
    if total.numel() != expected:
        raise ProblemError(f"the clients sent {total.numel()} moments, this model's layers have {expected}; "
                           "give sum_moments the model that the problem has: fed.problem.model")
    for layer in layers:
        count, sums, squares, total = total.tensor_split([1, layer.channels + 1, 2 * layer.channels + 1])
        if count > 0:  # a layer that the net never called keeps what it has
            mean = sums / count
            layer.running_mean.copy_(mean)
            layer.running_var.copy_((squares / count - mean * mean).clamp_min(0))


@dataclass(frozen=True)
class Moments(Program):
    """What `sum_moments` runs at the clients."""

    batch: int | None = None
    inputs: str = "inputs"

    def moments(self, c: Client, x: Tensor) -> Tensor:
        """Count, sums and sums of squares of each layer's inputs, layer after layer, in float64."""
        model = c.problem.model
        if model is None:
            raise ProblemError("the clients find the net in their problem, and this one has none; write model=Model(module) in the problem")
        b = c.rows()
        if self.inputs not in b.fields:
            raise ProblemError(f"the clients' rows have the fields {sorted(b.fields)}; {self.inputs!r} is not one of them: "
                               "write sum_moments(..., inputs=...) with the one that the module takes")
        rows = b.fields[self.inputs]
        n = len(rows)
        if n == 0:
            return x.new_zeros(sum(2 * layer.channels + 1 for layer in _layers(model.net)), dtype=torch.float64)
        if n == 1:
            rows = torch.cat([rows, rows])  # one row has no batch statistics; twice the same row has those of draws with replacement
        pieces = 1 if self.batch is None else max(1, min(round(n / self.batch), n // max(2, c.min_batch)))
        # a copy for the hooks and the mode, of the structure only: the tensors are shared
        net = copy.deepcopy(model.net, {id(t): t for t in (*model.net.parameters(), *model.net.buffers())}).train()
        layers = _layers(net)
        sums: dict[nn.Module, Tensor] = {layer: x.new_zeros(2 * layer.channels + 1, dtype=torch.float64) for layer in layers}

        def see(layer: nn.Module, given: tuple[Tensor]) -> None:
            sums[layer] = sums[layer] + _moments(given[0])

        for layer in layers:
            layer.register_forward_pre_hook(see)
        with seeded(0, x.device):  # dropout has some masks, and the same ones on every engine
            for first in range(pieces):
                # every pieces-th row, so that rows sorted by label do not make batches of one label
                functional_call(net, model.parameters(x), (rows[first::pieces],))
        return torch.cat(list(sums.values())) * (n / len(rows))


def _moments(value: Tensor) -> Tensor:
    """Count, sum and sum of squares of each channel of (rows, channels, …)."""
    value = value.double()
    across = [d for d in range(value.dim()) if d != 1]
    count = value.new_full((1,), value.numel() // value.shape[1])
    return torch.cat([count, value.sum(across), (value * value).sum(across)])


def has_federated_norm(module: nn.Module) -> bool:
    """Whether its scores need `sum_moments` first."""
    return any(isinstance(layer, FederatedNorm) for layer in module.modules())


def _layers(module: nn.Module) -> list[FederatedNorm]:
    layers = [layer for layer in module.modules() if isinstance(layer, FederatedNorm)]
    if not layers:
        raise ModuleError("the module has no FederatedNorm layer whose statistics could be summed; write Model(federated_norm(module))")
    return layers


def _replace(module: nn.Module, build: Callable[[str, _BatchNorm], nn.Module]) -> nn.Module:
    """A copy of the module with `build(name, layer)` in the place of every batch norm; a layer that stands twice stays one."""
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and isinstance(layer, LazyModuleMixin):
            raise ModuleError(f"layer {name!r} is {type(layer).__name__}, whose channels are not known yet; "
                              "run the module once on an example batch first")
    module = copy.deepcopy(module)
    made: dict[nn.Module | None, nn.Module] = {
        layer: build(name, layer) for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                parent.add_module(name, made[child])
    return made.get(module, module)


def _like(kind: type[FrozenNorm], layer: _BatchNorm) -> FrozenNorm:
    new = kind(layer.num_features, layer.eps, layer.affine)
    if layer.running_mean is not None and layer.running_var is not None:
        new.running_mean, new.running_var = layer.running_mean, layer.running_var
    elif layer.weight is not None:
        new.to(layer.weight)
    return _adopt(new, layer)


def _adopt(new: _New, layer: _BatchNorm) -> _New:
    """The layer's own parameters in the new one, so that what is frozen or tied stays so."""
    new.weight, new.bias = layer.weight, layer.bias
    new.train(layer.training)
    return new
