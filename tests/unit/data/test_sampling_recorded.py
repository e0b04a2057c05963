"""Draws as they were recorded: without `min_batch` and without a salt, no change may shift a row of a published run."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch

from rookery import Batch, Data, Minimization
from rookery.data import Balanced, Episodes, Normal, PerTask, Positives, Replacement, Request, Shuffled, Stored, Stratified
from rookery.federation.client import ClientContext, Drawing, Setting
from rookery.objectives.trainval import TrainValSampler

KINDS: list[tuple[Any, Request, str]] = [
    (Replacement(), Request(9), "fa46392c2ee484c2"),
    (Replacement(), Request(40), "cec657bcea02e6a7"),
    (Replacement(), Request(), "3c05895f228ac509"),
    (Shuffled(), Request(9), "91b05a55a51585e1"),
    (Stratified("labels", 3), Request(9), "0e58b49c5477dcc6"),
    (Stratified("labels", share=0.5, importance=True), Request(16), "fde03f73190b779a"),
    (TrainValSampler("validation", 4), Request(9), "bff5d6a37b1a9541"),
    (Balanced("kind"), Request(10), "e91d98e92877006f"),
    (Positives(), Request(5, 8), "dc7e501ccc301dda"),
    (Positives(enrich=4), Request(5, 12), "f5c21fb74952fa41"),
    (Positives(enrich=4, among=True), Request(3, 12), "06867e213eb5b7df"),
    (Positives(inner="negatives"), Request(5, 12), "745ad0ed26311cb4"),
    (Stored("eta"), Request(7, 4), "0f318f2292cb2bcd"),
    (PerTask("kind", query=3), Request(2, 4), "b35081269497138c"),
    (PerTask(query=3), Request(2, 4), "eaeabeab6d7bd904"),
    (Episodes(2, 2, "kind"), Request(3, 2), "13f8c7bc5293e055"),
    (Normal((2,), (3,)), Request(4, 5), "1a3d3bcb5f3cc545"),
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
            found.update(c.noise(torch.zeros(3, dtype=torch.float64)).numpy().tobytes())
    assert found.hexdigest()[:16] == recorded
