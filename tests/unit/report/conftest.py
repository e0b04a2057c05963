"""One browser for all files of tests that look at pages."""

from collections.abc import Iterator

import pytest
from browser import CHROMIUM, Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with Browser() as one:
        yield one
