"""One thread per test process: the suite runs in two processes on two cores. What a test sees does not depend on the tests before it."""

from __future__ import annotations

import os
from typing import Any

# Virtual machines may show a processor's matrix unit (AMX) and not let it work: bfloat16 products then end the process. Products are the
# same without it. The library that computes them reads this when it is first used.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
import torch

from rookery.testing import Case

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """What a test draws without a generator of its own does not depend on which tests its process ran before."""
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case's laws together, so that the process that has traced its graphs is the one that replays them."""
    places: dict[tuple[Any, ...], int] = {}

    def place(item: pytest.Item) -> int:
        case = item.callspec.params.get("case") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
        return places.setdefault((item.path, case.name if isinstance(case, Case) else None), len(places))

    items.sort(key=place)
