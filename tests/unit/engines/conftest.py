"""The recorded frames, once for each file of tests that takes them apart."""

import pytest
from recorded_frames import Moment, record


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    return record(tmp_path_factory)
