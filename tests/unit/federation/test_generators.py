"""torch's global generators where several threads of a process are at work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import torch

from rookery.federation.generators import generators, seeded

CPU = torch.device("cpu")


def test_who_looks_at_the_generators_or_seeds_them_waits_for_who_has_seeded_them() -> None:
    before, looks, alone = generators(CPU), Event(), {}

    def other() -> tuple[list[bytes], float]:
        looks.set()
        found = generators(CPU)
        with seeded(7, CPU):
            return found, float(torch.rand(()))

    with seeded(7, CPU):
        alone["first"] = float(torch.rand(()))
    with ThreadPoolExecutor(1) as pool:
        with seeded(3, CPU):
            first = float(torch.rand(()))
            waiting = pool.submit(other)
            assert looks.wait(10)
            assert not waiting.done()
            with seeded(7, CPU):  # of the same thread
                assert float(torch.rand(())) == alone["first"]
            second = float(torch.rand(()))
        assert waiting.result(10) == (before, alone["first"])
    with seeded(3, CPU):
        assert (float(torch.rand(())), float(torch.rand(()))) == (first, second)
    assert generators(CPU) == before
