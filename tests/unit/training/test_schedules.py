"""Schedules of step sizes at rounds computed by hand, and mistakes in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import changed

from rookery.errors import ConfigError
from rookery.studies import parse
from rookery.training import Cosine, Decay, Drop


def test_schedules_at_hand_computed_rounds() -> None:
    assert [Drop(1.0, (2, 4), 0.5).at(t) for t in (1, 2, 4)] == [1.0, 0.5, 0.25]
    np.testing.assert_allclose([Decay(2.0, 0.5, 3).at(t) for t in (0, 9)], [2.0, 1.0])
    np.testing.assert_allclose([Cosine(1.0, 4, 0.2).at(t) for t in (0, 2, 4, 9)], [1.0, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(("lr", "words"), [
    ({"kind": "dorp", "initial": 0.1}, "kind = one of drop, decay, cosine.*did you mean 'drop'"), ({"initial": 0.1}, "kind = one of"),
    ({"kind": "drop", "initial": 0.1}, r"\[algorithm.lr\] needs rounds"), ({"kind": "decay", "initial": -1}, "initial must be positive")])
def test_mistakes_in_a_schedule(lr: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(changed(algorithm={"lr": lr}))
