"""MNIST (LeCun, Bottou, Bengio, Haffner, 1998) and Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017): gzipped idx files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..folder import fetch
from .base import Table, numbers, pixels

# LeCun's own server refuses downloads; this is the copy that torchvision uses, of the same bytes
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FILES = {
    "mnist/train-images-idx3-ubyte.gz": (MNIST, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "mnist/train-labels-idx1-ubyte.gz": (MNIST, "d53e105ee54ea40749a09fcbcd1e9432"),
    "mnist/t10k-images-idx3-ubyte.gz": (MNIST, "9fb629c4189551a2d022fa330f9573f3"),
    "mnist/t10k-labels-idx1-ubyte.gz": (MNIST, "ec29112dd5afa0611ce80d1b7f02629c"),
    "fashion-mnist/train-images-idx3-ubyte.gz": (FASHION, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "fashion-mnist/train-labels-idx1-ubyte.gz": (FASHION, "25c81989df183df01b3e8a0aad5dffbe"),
    "fashion-mnist/t10k-images-idx3-ubyte.gz": (FASHION, "bef4ecab320f06d8554ea6380940ec79"),
    "fashion-mnist/t10k-labels-idx1-ubyte.gz": (FASHION, "bb300cfdad3c16e7a12a480ee83cd310"),
}
CLOTHES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def mnist() -> tuple[Table, Table]:
    """Handwritten digits, 60 000 + 10 000 of shape (1, 28, 28); ink is 1."""
    return _part("mnist", "train"), _part("mnist", "t10k")


def fashion_mnist() -> tuple[Table, Table]:
    """Clothes in ten classes, in MNIST's format and sizes."""
    return _part("fashion-mnist", "train"), _part("fashion-mnist", "t10k")


def _part(name: str, part: str) -> Table:
    images = _idx(f"{name}/{part}-images-idx3-ubyte.gz", 3)
    labels = _idx(f"{name}/{part}-labels-idx1-ubyte.gz", 1)
    classes = CLOTHES if name == "fashion-mnist" else tuple("0123456789")
    return Table({"inputs": pixels(images[:, None]), "labels": numbers(labels)}, classes, name)


def _idx(name: str, axes: int) -> NDArray[np.uint8]:
    """An idx file of bytes: two zeros, type 8, the number of axes, their lengths, then the values."""
    site, checksum = FILES[name]
    content = gzip.decompress(fetch(name, site + Path(name).name, checksum).read_bytes())
    start = 4 + 4 * axes
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) < start:
        raise DataError(f"{name} must be an idx file of bytes with {axes} axes, but begins with {content[:4].hex(' ')}")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{name} announces {shape} values, but has {len(content) - start} bytes of them; download it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
