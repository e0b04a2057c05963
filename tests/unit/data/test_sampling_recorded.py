"""Draws as they were recorded: without `min_batch` and without a salt, no change may shift a row of a published run."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from rookery import Batch, Data, Minimization
from rookery.data import Balanced, Episodes, PerTask, Positives, Replacement, Request, Shuffled, Stored, Stratified
from rookery.federation.client import ClientContext, Setting
from rookery.federation.drawing import Drawing
from rookery.objectives.trainval import TrainValSampler

KINDS: list[tuple[Any, Request, str]] = [
    (Replacement(), Request(9), "b4c4fe8d23aea015"),
    (Replacement(), Request(40), "aa93e3cd71b7b6b4"),
    (Replacement(), Request(), "476fb47674e10a93"),
    (Shuffled(), Request(9), "ed7ba505ab751649"),
    (Stratified("labels", 3), Request(9), "a7dbc86f7d2d3112"),
    (Stratified("labels", share=0.5, importance=True), Request(16), "1ce5a3e43abf582c"),
    (TrainValSampler("validation", 4), Request(9), "460cf5ab3d54625f"),
    (Balanced("kind"), Request(10), "09ed8c64a84cf456"),
    (Positives(), Request(5, 8), "69f0ebbb8882a535"),
    (Positives(enrich=4), Request(5, 12), "b6c4ba7296efecd1"),
    (Positives(enrich=4, among=True), Request(3, 12), "e8ffaa9a1c86074b"),
    (Positives(inner="negatives"), Request(5, 12), "4b6646f16fad02cc"),
    (Stored("eta"), Request(7, 4), "d961fcd4e2aabfac"),
    (PerTask("kind", query=3), Request(2, 4), "dd50a072fadae67c"),
    (PerTask(query=3), Request(2, 4), "7d3253e82381b8ac"),
    (Episodes(2, 2, "kind"), Request(3, 2), "9514e2bd24e88e03"),
]


def rows() -> Data:
    def own(n: int) -> dict[str, Any]:
        i = torch.arange(n)
        return {"labels": (i % 4 == 0).long(), "kind": i % 3, "validation": (i % 5 < 2).long(), "eta": 100.0 * i[:, None] + torch.arange(6)}

    return Data.from_parts({"north": own(24), "south": own(61)})


def digest(batch: Batch) -> bytes:
    return b"".join(leaf.contiguous().numpy().tobytes() for leaf in batch.leaves())


@pytest.mark.parametrize(("sampler", "request_", "recorded"), KINDS, ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_draws_are_those_that_were_recorded(sampler: Any, request_: Request, recorded: str) -> None:
    setting, found = Setting(Minimization(lambda x, b: x.sum(), sampling=sampler), rows(), 5), hashlib.sha256()
    for client in range(2):
        drawing = Drawing(setting, client, "train", 3, 70)  # more repetitions than are selected at once
        for step in range(70):
            drawing.step = step
            c = ClientContext(setting, 70, drawing, client=client)
            for _ in range(2):
                found.update(digest(c.draw(*request_)))
            found.update(c.noise(torch.zeros(3, dtype=torch.float64), "uniform").numpy().tobytes())
    assert found.hexdigest()[:16] == recorded
