"""The nets of the papers' experiments."""

from __future__ import annotations

from itertools import pairwise

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
