"""Clients with training and validation rows, as the nested objectives take them."""

from __future__ import annotations

import numpy as np

from rookery import Data

CLASSES, INPUTS = 3, 4
SIZES = {"north": (6, 5), "south": (8, 4), "east": (5, 7)}  # training and validation rows


def rows(seed: int = 0) -> Data:
    r = np.random.default_rng(seed)
    parts = {}
    for name, (train, held) in SIZES.items():
        n = train + held
        inputs = r.standard_normal((n, INPUTS))
        labels = np.argmax(inputs[:, :CLASSES] + 0.8 * r.standard_normal((n, CLASSES)), 1)
        labels[:CLASSES] = range(CLASSES)
        labels[train : train + CLASSES] = range(CLASSES)
        parts[name] = {"inputs": inputs, "labels": labels, "validation": np.arange(n) >= train, "group": r.integers(0, 5, n),
                       "targets": inputs @ r.standard_normal(INPUTS) + 0.3 * r.standard_normal(n)}
    return Data.from_parts(parts)
