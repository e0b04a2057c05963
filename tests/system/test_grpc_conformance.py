"""Every algorithm on real processes, each with the rows of one client, behind gRPC with certificates: bit for bit as in a simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

from served_cases import BY_NAME, HALF, NAMES, SIZES
from site_processes import Processes, processes

from rookery.engines.grpc import Grpc
from rookery.engines.remote import Remote
from rookery.testing.laws import BATCH, STEPS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def transport(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grpc]:
    names = sorted({type(case.make(case.lr, STEPS, BATCH)).__name__ for case in BY_NAME.values()})
    may = f'algorithms = {names}\nmin_batch = 1\nsalt = "none"'
    found: Processes
    with processes(tmp_path_factory.mktemp("sites"), NAMES, "served_cases:rows", may=may) as found, found.transport() as network:
        yield network


@pytest.mark.parametrize("name", BY_NAME)
def test_processes_do_what_the_loop_does(transport: Grpc, name: str) -> None:
    case = BY_NAME[name]
    k = case.solved(SIZES)
    options = {"clients_per_round": None if case.one_machine else HALF, "weights": "samples", "seed": 7}
    engine = Remote(transport, seconds=300)
    roster = engine.greet(NAMES[: len(k.data.names)], {"case": name}, seed=7)
    assert roster.fields == {}
    fed, state = case.advance(replace(k, data=roster), case.lr, STEPS, BATCH, 4, engine=engine, **options)
    loop, expected = case.advance(k, case.lr, STEPS, BATCH, 4, engine="loop", **options)
    assert torch.equal(state.x, expected.x)
    assert fed.ledger == loop.ledger
