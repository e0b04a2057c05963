"""Fits that try two step sizes on two splits: what they do is the same with more of them."""

from __future__ import annotations

import sys
from functools import partial

import pytest

from rookery.fitting.search import Search


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.fitting.search.GROWTH", 0)
    monkeypatch.setattr(sys.modules["rookery.fitting.fit"], "Search", partial(Search, lrs=(0.3, 1.0), splits=2))
    monkeypatch.setattr("rookery.fitting.finishing.LRS", (0.3,))
