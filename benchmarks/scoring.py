"""Scores of 1 000 clients of unequal sizes, computed where the rows are, against one forward pass over the pooled rows.

`evaluate` runs the net over the rows of many clients at once and adds up some numbers of each row by client. The opponents are the pooled
forward pass alone, which nobody can do without, and the pooled pass with the same numbers summed over all rows. With two classes the
scores of an untrained net lie close together, so that a second exchange brings a finer histogram; the opponent makes the first one only.
"""

from __future__ import annotations

import numpy as np
import torch
from harness import Row, compare
from torch import Tensor

from rookery import Data, Federation, Model
from rookery.metrics import class_sums, default_edges, evaluate, from_sums, score_histogram
from rookery.models import mlp
from rookery.objectives import cross_entropy

CLIENTS, FEWEST, MOST, WIDTH = 1000, 5, 200, 784


def scoring(classes: int, most: float = 1.2, seconds: float = 10.0) -> list[Row]:
    """`evaluate` may cost `most` times one pooled forward pass."""
    torch.manual_seed(0)
    few = np.random.default_rng(0).random(CLIENTS) ** 2.5  # most clients are small
    sizes = (FEWEST + (MOST - FEWEST) * few).astype(int).tolist()
    inputs, labels = torch.randn(sum(sizes), WIDTH), torch.randint(classes, (sum(sizes),))
    parts = list(zip(inputs.split(sizes), labels.split(sizes), strict=True))
    held = Data.from_parts({f"c{k}": {"inputs": a, "labels": b} for k, (a, b) in enumerate(parts)})
    train = Data.from_parts({f"c{k}": {"inputs": a[:1], "labels": b[:1]} for k, (a, b) in enumerate(parts)})
    model = Model(mlp(WIDTH, 200, classes))
    fed, x = Federation(cross_entropy(model), train.with_splits(validation=held)), model.vector()

    def ours() -> dict[str, float]:
        return evaluate(fed, x, "validation", classes).values

    def forward() -> Tensor:
        return model.predict(x, inputs)

    def pooled() -> dict[str, float]:
        out = forward()
        if classes == 2:
            score_histogram(out[:, 1] - out[:, 0], labels, default_edges())
        return from_sums(class_sums(out, labels, classes).sum(0), classes)

    found, expected = ours(), pooled()
    assert all(abs(found[name] - value) < 1e-6 for name, value in expected.items()), (found, expected)
    before = fed.ledger["evaluation"].exchanges
    ours()
    note = f"{len(labels)} rows, {fed.ledger['evaluation'].exchanges - before} exchange(s)"
    name = f"scores of {CLIENTS} clients, {classes} classes"
    rows = compare(f"{name}, to a pooled pass", ours, forward, round(1 / most, 3), seconds, note=note, threads=(1,))
    rows += compare(f"{name}, to that with sums", ours, pooled, None, seconds, note=note, threads=(1,))
    print(f"{'':<58} scoring costs ×{1 / rows[0].wall:.2f} of a pooled pass (cpu ×{1 / rows[0].cpu:.2f}), "
          f"×{1 / rows[1].wall:.2f} of one with sums (cpu ×{1 / rows[1].cpu:.2f})", flush=True)
    return rows


def main() -> list[Row]:
    return scoring(10) + scoring(2)


if __name__ == "__main__":
    main()
