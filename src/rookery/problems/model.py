"""The one seam between `nn.Module` and flat vectors: `Model` reads any module as a function of x ∈ R^d."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModuleError
from .autodiff import _depth, _functional

_RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
# A layer of these kinds costs more under vmap with one set of weights per client than in a loop over clients.
_HEAVY = (nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention)


class Model:
    """A module as a function of one flat vector of its trainable parameters.

    >>> model = Model(nn.Linear(3, 1))
    >>> model.size, model(torch.zeros(model.size), torch.ones(2, 3)).shape
    (4, torch.Size([2, 1]))

    `model.vector()` is the starting point, `model.module(x)` a copy of the module with x in it, `model.predict(x, inputs)`
    evaluates in inference mode. Parameters with `requires_grad=False` and buffers stay constants: a buffer that a forward pass
    changes is state outside x, and refused by the pass that changes it. Python attributes that a forward pass changes are not seen.

    A module that takes keywords or puts out more than a tensor is called by `forward(module, *inputs)`, which returns the tensor:

    >>> pair = Model(nn.GRU(3, 2, batch_first=True), forward=lambda module, inputs: module(inputs)[0][:, -1])
    >>> pair.predict(pair.vector(), torch.ones(5, 4, 3)).shape
    torch.Size([5, 2])

    With Hugging Face's, `forward=lambda module, ids, mask: module(input_ids=ids, attention_mask=mask).logits` and, in the loss,
    `model(x, batch.ids, batch.mask)`. `model.module(x)` is called as the module itself is.
    """

    def __init__(self, module: nn.Module, forward: Callable[..., Any] | None = None) -> None:
        if not isinstance(module, nn.Module):
            raise ModuleError(f"Model takes a torch.nn.Module; got {type(module).__name__}. A function of x needs no Model: write it into "
                              "the loss")
        self.net, self._forward = module, forward
        if not module.training:
            module.train()  # as a training loop would; single layers set to eval() under a module in training stay so
        named = dict(module.named_parameters())
        lazy = [name for name, p in named.items() if isinstance(p, nn.parameter.UninitializedParameter)]
        if lazy:
            raise ModuleError(f"parameter {lazy[0]!r} has no shape yet; run the module once on an example batch before Model(module)")
        trained = {name: p for name, p in named.items() if p.requires_grad}
        if not trained:
            raise ModuleError("the module has no trainable parameters; set requires_grad=True on those to train")
        dtypes = {p.dtype for p in trained.values()}
        if len(dtypes) > 1 or not next(iter(dtypes)).is_floating_point:
            raise ModuleError(f"trainable parameters must share one floating dtype; found {sorted(map(str, dtypes))}: "
                              "write module.float() first, and precision= on the federation for mixed precision")
        for name, layer in module.named_modules():
            if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
                raise ModuleError(f"layer {name!r} keeps running statistics, which are state outside x; set track_running_stats=False")
            if isinstance(layer, nn.utils.parametrizations._SpectralNorm):
                raise ModuleError(f"{name!r} is a spectral norm, whose power iteration is state outside x; train without it")
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                raise ModuleError(f"layer {name!r} is {type(layer).__name__}, whose running statistics are state outside x. Write "
                                  "Model(freeze_norm(module)) to keep them as constants (pretrained nets), "
                                  "Model(to_group_norm(module)) to replace them, or Model(federated_norm(module)) to sum them over clients")
        self._names = tuple(trained)
        known = {id(p): name for name, p in trained.items()}  # a tied parameter has several places and one name
        self._places: list[tuple[dict[str, Any], str, str]] = [
            (layer._parameters, name, known[id(p)])
            for layer in module.modules() for name, p in layer._parameters.items() if id(p) in known]
        self._own = [slots[name] for slots, name, _ in self._places]
        self._buffers = _buffers(module)
        self._steady = False  # whether a pass in training has left the buffers' values as they were
        self._shapes = tuple(p.shape for p in trained.values())
        self._sizes = [p.numel() for p in trained.values()]
        self.size = sum(self._sizes)
        self.stochastic = any(isinstance(layer, _RANDOM) or _dropout_inside(layer) for layer in module.modules())
        # masks of dropout are drawn in the order of memory, and shall not depend on it
        self._images = not self.stochastic and any(isinstance(layer, nn.Conv2d) for layer in module.modules())
        self.heavy = next((type(layer).__name__ for layer in module.modules() if isinstance(layer, _HEAVY)), None)

    def vector(self) -> Tensor:
        """The module's present parameters as one vector (a copy)."""
        parameters = dict(self.net.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self._names]).clone()

    def parameters(self, x: Tensor) -> dict[str, Tensor]:
        """Views of x in the module's shapes. Coordinates beyond `size` are left to the caller."""
        if x.dim() != 1 or len(x) < self.size:
            raise ModuleError(f"this module has {self.size} trainable parameters; the vector has shape {tuple(x.shape)}")
        own = x if len(x) == self.size else x[: self.size]  # the derivative of a slice would fill another vector
        return {name: part.view(shape) for name, part, shape in zip(self._names, torch.split(own, self._sizes), self._shapes, strict=True)}

    def __call__(self, x: Tensor, *inputs: Any) -> Any:
        """The module's output at parameters x, in training mode."""
        # a second derivative takes longer through norms whose channels are last
        if self._images and not _functional.get() and _depth.get() < 2:
            try:
                return self._run(self.parameters(x), tuple(map(channels_last, inputs)))
            except RuntimeError:  # such as a view of maps that only the usual order allows; another fault comes again
                output = self._run(self.parameters(x), inputs)
                self._images = False
                return output
        return self._run(self.parameters(x), inputs)

    def _run(self, parameters: dict[str, Tensor], inputs: tuple[Any, ...]) -> Any:
        """The module with other tensors in the place of its parameters. (`torch.func.functional_call` looks every name up each time.)"""
        plain = not _functional.get()
        before = [(slots[name], slots[name]._version) for slots, name, _ in self._buffers] if plain else []
        # torch.batch_norm changes running statistics without counting it, so values are compared once
        values = [b.clone() for b, _ in before] if plain and not self._steady else []
        kept = [] if plain else [(layer, _tensors(layer)) for layer in self.net.modules()]
        try:
            for slots, name, full in self._places:
                slots[name] = parameters[full]
            output = self.net(*inputs) if self._forward is None else self._forward(self.net, *inputs)
        finally:
            for (slots, name, _), own in zip(self._places, self._own, strict=True):
                slots[name] = own
            for layer, attributes in kept:  # a tensor of a trace must not outlive it
                for name in _tensors(layer):
                    del vars(layer)[name]
                vars(layer).update(attributes)
        if plain:
            self._refuse_state(before, values)
            self._steady = self._steady or self.net.training
        return output

    def _refuse_state(self, before: list[tuple[Tensor, int]], values: list[Tensor]) -> None:
        """Refuse a forward pass that changed a buffer: its results would depend on the passes before it, at other clients too."""
        changed = [full for (slots, name, full), (b, version) in zip(self._buffers, before, strict=True)
                   if slots.get(name) is not b or b._version != version]
        if not self._steady:
            changed += [full for (_, _, full), (b, _), value in zip(self._buffers, before, values, strict=True)
                        if not bool(((b == value) | (b.isnan() & value.isnan())).all())]
            changed += [full for _, _, full in _buffers(self.net)[len(self._buffers):]]  # registered by the pass itself
        if changed:
            raise ModuleError(f"the forward pass changes the buffer {changed[0]!r}, which is state outside x: results would depend on the "
                              "order of the clients, and a resumed run would differ. Keep it constant (eval() on a layer that averages "
                              "while it trains), make it a parameter, or leave the layer out")

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the module with x as its parameters, in inference mode: what to export."""
        # what a pass left in attributes (old weight norms, pruning, activations kept to look at) is of a graph, and cannot be copied
        left = {id(t): t.detach().clone() for layer in self.net.modules() for t in _tensors(layer).values() if not t.is_leaf}
        fresh = copy.deepcopy(self.net, left)
        with torch.no_grad():
            own = dict(fresh.named_parameters())
            for name, value in self.parameters(x.detach()).items():
                own[name].copy_(value)
        return fresh.eval()

    def predict(self, x: Tensor, inputs: Any, batch: int = 4096) -> Tensor:
        """The output in inference mode, in pieces of `batch` rows. Several inputs stand in a tuple; a dict of tensors is one input."""
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        rows = len(next(iter(given[0].values())) if isinstance(given[0], dict) else given[0])
        modes = [(layer, layer.training) for layer in self.net.modules()]
        self.net.eval()
        try:
            with torch.no_grad():
                pieces = [self._run(self.parameters(x), tuple(_cut(value, first, first + batch) for value in given))
                          for first in range(0, max(rows, 1), batch)]
        finally:
            for layer, mode in modes:
                layer.training = mode
        if not all(isinstance(piece, Tensor) for piece in pieces):
            raise ModuleError(f"predict joins tensors of rows, and the module put out {type(pieces[0]).__name__}: write "
                              "Model(module, forward=…) with a function that picks the tensor, such as "
                              "lambda module, inputs: module(inputs).logits")
        return torch.cat(pieces)


def channels_last(value: Any) -> Any:
    """Images with the channels last in memory, where processors pool, normalise and convolve sooner; anything else as it is.

    >>> channels_last(torch.zeros(2, 3, 4, 4)).stride(), channels_last(torch.zeros(2, 1, 4, 4)).stride()
    ((48, 1, 12, 3), (16, 1, 4, 1))
    """
    if not isinstance(value, Tensor) or value.dim() != 4 or value.device.type != "cpu":
        return value
    if value.shape[1] == 1 and value.is_contiguous():  # is in both orders at once, and torch takes the strides for the usual one
        return value.as_strided(value.shape, (value.stride(0), 1, *value.stride()[2:]))
    return value.contiguous(memory_format=torch.channels_last)


def _tensors(layer: nn.Module) -> dict[str, Tensor]:
    """Tensors in attributes of a layer that are neither parameters nor buffers."""
    return {name: value for name, value in vars(layer).items() if isinstance(value, Tensor)}


def _cut(value: Any, first: int, last: int) -> Any:
    """Some rows of a tensor, or of each tensor of a dict."""
    return {name: column[first:last] for name, column in value.items()} if isinstance(value, dict) else value[first:last]


def _buffers(module: nn.Module) -> list[tuple[dict[str, Any], str, str]]:
    """Where each buffer stands, and its full name."""
    return [(layer._buffers, key, f"{name}.{key}" if name else key) for name, layer in module.named_modules()
            for key, b in layer._buffers.items() if b is not None and not b.is_inference()]


def _dropout_inside(layer: nn.Module) -> bool:
    """Layers such as nn.LSTM and nn.MultiheadAttention take dropout as a number."""
    rate = getattr(layer, "dropout", 0.0)
    return isinstance(rate, float | int) and rate > 0
