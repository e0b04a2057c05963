"""Nets for images run with the channels last in memory: the same values within rounding, for any module, and sooner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rookery import Model
from rookery.models import conv4, densenet121, federated_norm, freeze_norm, lenet, resnet20, small_cnn, to_group_norm
from rookery.problems.autodiff import vjp

NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (lambda: lenet(1, 3, 16), (5, 1, 16, 16)), "small_cnn": (lambda: small_cnn(3, 3, 8), (5, 3, 8, 8)),
    "conv4": (lambda: federated_norm(conv4(3, 1, 16, 4)), (7, 1, 16, 16)), "resnet20": (lambda: freeze_norm(resnet20(3)), (4, 3, 8, 8)),
    "group norm": (lambda: to_group_norm(resnet20(3)), (4, 3, 8, 8)), "densenet121": (lambda: freeze_norm(densenet121(3)), (2, 3, 28, 28))}


def slope(net: Callable[[Tensor, Tensor], Tensor], x: Tensor, images: Tensor) -> Tensor:
    own = x.clone().requires_grad_()
    return torch.autograd.grad(F.cross_entropy(net(own, images), torch.arange(len(images)) % 3), own)[0]


@pytest.mark.parametrize("name", NETS)
def test_the_order_of_memory_changes_nothing(name: str) -> None:
    make, shape = NETS[name]
    torch.manual_seed(0)
    model = Model(make().double())
    x, images = model.vector(), torch.randn(shape, dtype=torch.float64)
    seen = list[tuple[int, ...]]()
    hook = next(layer for layer in model.net.modules() if isinstance(layer, nn.Conv2d)).register_forward_hook(
        lambda layer, given, output: seen.append(output.stride()))
    found = slope(model, x, images)
    hook.remove()
    assert seen[0][1] == 1  # of the channels
    plain = slope(lambda x, images: model._run(model.parameters(x), (images,)), x, images)
    torch.testing.assert_close(found, plain, rtol=1e-9, atol=1e-12)


class Viewing(nn.Module):
    """Many nets flatten by `view`, which takes maps in the usual order only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last, self.passes = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 16, 3), 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        out: Tensor = self.last(self.conv(images).view(len(images), -1))
        return out


def test_a_module_that_needs_the_usual_order_has_it() -> None:
    torch.manual_seed(0)
    model, images = Model(Viewing()), torch.randn(5, 3, 4, 4)
    x = model.vector()
    expected = F.linear(F.conv2d(images, model.net.conv.weight, model.net.conv.bias, padding=1).flatten(1),  # type: ignore[arg-type, union-attr]
                        model.net.last.weight, model.net.last.bias)  # type: ignore[arg-type, union-attr]
    for passes in (2, 3):  # it is tried once
        torch.testing.assert_close(model(x, images), expected)
        assert model.net.passes == passes


def test_a_fault_of_the_module_is_told_as_it_is() -> None:
    model = Model(small_cnn(3, 3, 8))
    with pytest.raises(RuntimeError, match=r"expected input.* to have 3 channels, but got 1 channels"):
        model(model.vector(), torch.zeros(2, 1, 8, 8))


@pytest.mark.parametrize("value", [torch.zeros(3, 4), torch.zeros(2, 3, 4, 5, 6), 1.0, None], ids=["vector", "volume", "number", "none"])
def test_what_is_no_image_stays(value: Any) -> None:
    from rookery.problems.model import channels_last

    assert channels_last(value) is value
    part = torch.arange(32.0).reshape(2, 1, 4, 4)[:, :, ::2]  # with gaps
    assert torch.equal(channels_last(part), part)


def test_masks_of_dropout_are_those_of_the_usual_order() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(), nn.Flatten())
    model, images = Model(net), torch.randn(2, 3, 6, 6)
    torch.manual_seed(1)
    found = model(model.vector(), images)
    torch.manual_seed(1)
    assert torch.equal(found, net(images))


def test_a_second_derivative_is_taken_in_the_usual_order_and_the_first_with_the_channels_last() -> None:
    torch.manual_seed(0)
    model, images = Model(federated_norm(conv4(3, 3, 16, 4)).double()), torch.randn(6, 3, 16, 16, dtype=torch.float64)
    x, labels, seen = model.vector(), torch.arange(6) % 3, list[bool]()
    next(layer for layer in model.net.modules() if isinstance(layer, nn.Conv2d)).register_forward_hook(
        lambda layer, given, output: seen.append(given[0].is_contiguous()))

    def moved(x: Tensor) -> Tensor:
        return x - 0.1 * vjp(lambda w: F.cross_entropy(model(w, images), labels), x, None)

    value = moved(x)
    pulled = vjp(moved, x, torch.ones_like(x))
    assert seen == [False, True]
    own = x.clone().requires_grad_()
    gradient = torch.autograd.grad(F.cross_entropy(model._run(model.parameters(own), (images,)), labels), own, create_graph=True)[0]
    torch.testing.assert_close(value, (own - 0.1 * gradient).detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(pulled, 1 - 0.1 * torch.autograd.grad(gradient.sum(), own)[0], rtol=1e-7, atol=1e-10)
