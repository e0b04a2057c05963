"""Descriptions of runs: what is read comes back in its own words."""

from __future__ import annotations

import json

from running import GOOD, changed

from rookery import Epochs
from rookery.studies import describe, parse
from rookery.training import Drop


def test_a_description_comes_back_from_its_own_words() -> None:
    tree = changed(algorithm={"lr": {"kind": "drop", "initial": 0.1, "rounds": [3, 5]}, "local_steps": ..., "epochs": 2},
                   model={"name": "mlp", "hidden": [8, 4]}, objective={"name": "cross_entropy", "weight_decay": 0.1},
                   data={"positive": [1, 2]})
    config = parse(tree)
    assert (config.algorithm.lr, config.algorithm.local_steps) == (Drop(0.1, (3, 5)), Epochs(2.0))  # type: ignore[attr-defined]
    assert parse(describe(config)) == config
    assert parse(json.loads(json.dumps(describe(config)))) == config


def test_the_good_description_is_good() -> None:
    assert parse(GOOD).algorithm.title == "FedAvg"
