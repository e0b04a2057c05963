"""Fits go through the sites one by one and over the step sizes given: with so few rounds that takes less time than preparing graphs."""

from __future__ import annotations

import pytest

from rookery.federation.engine import choose


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.fitting.search.GROWTH", 0)
    monkeypatch.setattr("rookery.studies.build.choose", lambda engine: choose("loop"))
