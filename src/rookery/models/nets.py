"""The nets of the papers' experiments."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them.

    >>> mlp(784, 200, 10)[0].weight.shape
    torch.Size([200, 784])
    """
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def logistic(features: int, outputs: int = 1) -> nn.Sequential:
    """One linear layer on the flattened input: logits, one for two classes.

    >>> sum(p.numel() for p in logistic(28 * 28, 10).parameters())
    7850
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(features, outputs))


def lenet(channels: int = 1, outputs: int = 10, side: int = 28) -> nn.Sequential:
    """LeNet: 20 and 50 filters of 5×5 with pooling, then 500 hidden units, for images of `side`² pixels (at least 16²).

    After LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", Proceedings of the IEEE 1998.

    >>> sum(p.numel() for p in lenet().parameters())
    431080
    """
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(nn.Conv2d(channels, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(50 * left**2, 500), nn.ReLU(), nn.Linear(500, outputs))


def conv4(outputs: int = 5, channels: int = 1, side: int = 28, filters: int = 64) -> nn.Sequential:
    """Four times a 3×3 convolution, batch norm, ReLU and 2×2 pooling, then a linear layer: the net of few-shot experiments.

    Vinyals, Blundell, Lillicrap, Kavukcuoglu, Wierstra, "Matching networks for one shot learning", NeurIPS 2016, section 4.1.1.

    >>> sum(p.numel() for p in conv4().parameters())
    112261
    """
    layers: list[nn.Module] = []
    for before in (channels, filters, filters, filters):
        layers += [nn.Conv2d(before, filters, 3, padding=1), nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(filters * (side // 16) ** 2, outputs))


def small_cnn(channels: int = 1, outputs: int = 10, side: int = 28) -> nn.Sequential:
    """Two 3×3 convolutions with pooling and two linear layers, for images of `side`² pixels."""
    return nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * (side // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, outputs))


class _Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.grow = after - before

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.grow:  # option A of the paper: subsample and pad with zero channels, no parameters
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.grow // 2, self.grow - self.grow // 2))
        return F.relu(out + x)


def resnet20(outputs: int = 10, channels: int = 3) -> nn.Sequential:
    """ResNet-20 for 32×32 images (He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016, section 4.2).

    >>> sum(p.numel() for p in resnet20().parameters())
    269722
    """
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [_Block(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, outputs))


def _composite(before: int, after: int, size: int) -> list[nn.Module]:
    """H of the paper: batch norm, ReLU, convolution."""
    return [nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, after, size, padding=size // 2, bias=False)]


class _Dense(nn.Sequential):
    """A layer of a dense block: its new maps are appended to all the maps before it."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__(*_composite(before, 4 * growth, 1), *_composite(4 * growth, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        new: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return torch.cat([x, new], 1)


def densenet121(outputs: int = 1, channels: int = 3) -> nn.Sequential:
    """DenseNet-121: dense blocks of 6, 12, 24 and 16 layers with bottlenecks, growth 32, maps halved between blocks.

    Huang, Liu, van der Maaten, Weinberger, "Densely connected convolutional networks", CVPR 2017, Table 1. Starts with He's initial
    weights. Images of 28×28 pixels pass too.

    >>> sum(p.numel() for p in densenet121(1000).parameters())
    7978856
    """
    maps, growth = 64, 32
    layers: list[nn.Module] = [nn.Conv2d(channels, maps, 7, 2, 3, bias=False), nn.BatchNorm2d(maps), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for number in (6, 12, 24, 16):
        if maps > 64:  # between two blocks; an odd side is rounded up, so that small images do not vanish
            layers += [*_composite(maps, maps // 2, 1), nn.AvgPool2d(2, ceil_mode=True)]
            maps //= 2
        layers += [_Dense(maps + growth * i, growth) for i in range(number)]
        maps += growth * number
    net = nn.Sequential(*layers, nn.BatchNorm2d(maps), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(maps, outputs))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return net
