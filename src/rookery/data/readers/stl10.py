"""STL-10 (Coates, Lee, Ng, 2011): the binary version, without its unlabelled part."""

from __future__ import annotations

import numpy as np

from ...errors import DataError
from ..folder import members
from .base import Table, numbers, pixels

ARCHIVE, CHECKSUM = "stl10_binary.tar.gz", "91f7769df0f17e558f3565bffb0c7dfb"
URL = "http://ai.stanford.edu/~acoates/stl10/" + ARCHIVE


def stl10() -> tuple[Table, Table]:
    """Colour photographs in ten classes, 5 000 + 8 000 of shape (3, 96, 96)."""
    names = [f"stl10_binary/{name}" for name in ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "class_names.txt")]
    train_x, train_y, test_x, test_y, classes = members(ARCHIVE, URL, CHECKSUM, names).values()
    words = tuple(classes.decode().split())
    return _part(train_x, train_y, words), _part(test_x, test_y, words)


def _part(images: bytes, labels: bytes, classes: tuple[str, ...]) -> Table:
    if len(images) != len(labels) * 3 * 96 * 96:
        raise DataError(f"STL-10 must have {3 * 96 * 96} bytes an image, but has {len(images)} bytes for {len(labels)} labels; "
                        "unpack its archive again")
    planes = np.frombuffer(images, dtype=np.uint8).reshape(-1, 3, 96, 96).swapaxes(2, 3)  # planes are stored column by column
    return Table({"inputs": pixels(planes), "labels": numbers(np.frombuffer(labels, dtype=np.uint8)) - 1}, classes, "stl10")
