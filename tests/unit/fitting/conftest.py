"""A fit in a few seconds."""

from __future__ import annotations

import pytest
from fits import shorten


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)
