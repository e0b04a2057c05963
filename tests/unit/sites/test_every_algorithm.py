"""An owner who allows an algorithm by its name, and what it sends, has allowed all that it does in training; and the log has it all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hosts import ALL, host
from served_cases import BY_NAME

from rookery.engines.remote import Remote
from rookery.engines.transport import InProcess
from rookery.federation import Ledger, federation
from rookery.federation.ledger import Line
from rookery.sites.audit import Audit
from rookery.sites.host import Own
from rookery.testing import Case
from rookery.testing.laws import BATCH


def sent(case: Case, algorithm: str) -> tuple[str, ...]:
    """What a simulation sends up, as an owner may let it leave."""
    recorded, ledgers = list[Line](), list[Ledger]()

    class Recorded(Ledger):
        def __init__(self) -> None:
            super().__init__()
            self.lines = recorded
            ledgers.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(federation, "Ledger", Recorded)
        case.advance(case.solved(), case.lr, 1, BATCH, 2, engine="loop")
    assert ledgers
    return tuple(sorted({f"{algorithm}.{line.what}" for line in recorded if line.direction == "up"}))


@pytest.mark.parametrize("name", BY_NAME)
def test_its_name_is_enough(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    k = case.solved()
    algorithm = type(case.make(case.lr, 1, BATCH)).__name__
    # of one local step it takes no further ones, and sends what these are given
    given = ("FedAvgCaseII.shared_step",) if algorithm == "FedAvgCaseII" else ()
    rules = replace(ALL, algorithms=(algorithm,), others=("set-up",), values=(*sent(case, algorithm), *given))
    whole = case.federation(k, engine="loop")
    at = host(tmp_path, rules, owner=Own(lambda asked: (whole.problem, whole.data)))
    engine = Remote(InProcess({"north": at.answer}))
    fed, state = case.advance(replace(k, data=engine.greet(["north"], {})), case.lr, 1, BATCH, 2, engine=engine)
    other, expected = case.advance(k, case.lr, 1, BATCH, 2, engine="loop")
    assert torch.equal(state.x, expected.x)
    assert fed.ledger == other.ledger
    entries = list(Audit(at.place(engine.run) / "log.jsonl").entries())
    assert [entry.frame for entry in entries] == list(range(len(entries)))
    assert sum(entry.bytes for entry in entries[1:]) == engine.frame_bytes
    # what left is what the ledger says, and what did not is not there
    up = sum(fed.ledger[phase].floats_up for phase in ("setup", "train"))
    assert sum(entry.numbers for entry in entries[1:]) == up
