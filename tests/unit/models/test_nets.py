"""The nets of the experiments: parameters counted from the papers' tables, shapes, gradients, norms, engines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rookery import Batch, Data, FedAvg, Federation, Model
from rookery.models import conv4, densenet121, federated_norm, freeze_norm, lenet, logistic, mlp, resnet20, small_cnn, to_group_norm
from rookery.objectives import cross_entropy

WAYS = {"freeze": freeze_norm, "group": to_group_norm, "federated": federated_norm}


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def conv(before: int, after: int, size: int, bias: bool = True) -> int:
    return before * after * size**2 + bias * after


def dense(before: int, after: int) -> int:
    return before * after + after


def densenet_count(outputs: int) -> int:
    """Table 1 of the paper by hand: a batch norm has two numbers a map, a convolution no bias."""
    maps, total = 64, 3 * 64 * 49 + 2 * 64
    for block, number in enumerate((6, 12, 24, 16)):
        for _ in range(number):
            total += 2 * maps + maps * 128 + 2 * 128 + 128 * 32 * 9
            maps += 32
        if block < 3:
            total += 2 * maps + maps * (maps // 2)
            maps //= 2
    return total + 2 * maps + dense(maps, outputs)


@pytest.mark.parametrize(("net", "parameters"), [
    (logistic(784, 10), dense(784, 10)),
    (lenet(), conv(1, 20, 5) + conv(20, 50, 5) + dense(4 * 4 * 50, 500) + dense(500, 10)),
    (lenet(3, 1, 32), conv(3, 20, 5) + conv(20, 50, 5) + dense(5 * 5 * 50, 500) + dense(500, 1)),
    (conv4(5), conv(1, 64, 3) + 3 * conv(64, 64, 3) + 4 * 128 + dense(64, 5)),
    (conv4(20, 3, 32, 8), conv(3, 8, 3) + 3 * conv(8, 8, 3) + 4 * 16 + dense(4 * 8, 20)),
    (densenet121(1000), 7_978_856),
    (densenet121(), densenet_count(1)),
], ids=["logistic", "lenet", "lenet 32", "conv4", "conv4 32", "densenet121 1000", "densenet121 1"])
def test_parameters_are_those_of_the_paper_s_table(net: nn.Module, parameters: int) -> None:
    assert count(net) == parameters


def test_depth_is_in_the_name() -> None:
    """121: convolutions and the linear layer."""
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in densenet121().modules()) == 121


@pytest.mark.parametrize("side", [28, 32, 96])
@pytest.mark.parametrize("make", [
    lambda side: logistic(3 * side * side, 7), lambda side: lenet(3, 7, side), lambda side: conv4(7, 3, side, 8),
    lambda side: small_cnn(3, 7, side), lambda side: resnet20(7), lambda side: densenet121(7),
], ids=["logistic", "lenet", "conv4", "small_cnn", "resnet20", "densenet121"])
def test_every_side_gives_one_row_of_outputs_and_a_finite_gradient(make: Callable[[int], nn.Module], side: int) -> None:
    torch.manual_seed(0)
    model = Model(federated_norm(make(side)))
    x = model.vector()
    images, labels = torch.randn(2, 3, side, side), torch.tensor([1, 6])
    assert model(x, images).shape == (2, 7)
    assert model.predict(x, images).shape == (2, 7)
    gradient = cross_entropy(model).gradient(x, Batch({"inputs": images, "labels": labels}))
    assert torch.isfinite(gradient).all()
    assert float(gradient.norm()) > 0


def test_a_dense_layer_keeps_the_maps_before_it() -> None:
    torch.manual_seed(0)
    block = next(layer for layer in densenet121() if type(layer).__name__ == "_Dense")
    x = torch.randn(2, 64, 4, 4)
    out = block(x)
    assert out.shape == (2, 96, 4, 4)
    assert torch.equal(out[:, :64], x)


def test_mlp_of_no_hidden_layer_is_logistic() -> None:
    torch.manual_seed(0)
    a, b = logistic(5, 2), mlp(5, 2)
    b[0].load_state_dict(a[1].state_dict())
    x = torch.randn(3, 5)
    torch.testing.assert_close(a(x), b(x))


@pytest.mark.parametrize("way", WAYS)
def test_engines_agree_on_a_small_conv4(way: str) -> None:
    torch.manual_seed(0)
    r = torch.Generator().manual_seed(1)
    data = Data.from_parts({f"c{k}": {"inputs": torch.randn(8, 1, 16, 16, generator=r), "labels": torch.arange(8) % 3} for k in range(3)})
    net = WAYS[way](conv4(3, 1, 16, 4))
    ends = []
    for engine in ("loop", "vectorised", "wire"):
        model = Model(net)
        fed = Federation(cross_entropy(model), data, engine=engine)
        algorithm = FedAvg(lr=0.1, local_steps=2, batch=4)
        state = algorithm.init(fed, model.vector())
        for _ in range(2):
            state = algorithm.round(fed, state)
        ends.append(state.x)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-5)
    assert torch.equal(ends[0], ends[2])
    assert not torch.equal(ends[0], Model(net).vector())
