"""Sites of one client each in this process, which stop answering, and are restarted, when a test says so."""

from __future__ import annotations

from pathlib import Path

from rookery.engines.site import Site
from rookery.engines.transport import InProcess
from rookery.testing.faults import Faulty, FaultyWire


def quiet(folder: Path | None = None, tries: int = 1) -> FaultyWire:
    """Sites of one client each, and no faults but those that a test makes."""
    wire = FaultyWire(share=0.0, tries=tries)
    wire.clients_per_site, wire.folder = 1, folder
    return wire


def network(wire: FaultyWire) -> Faulty:
    assert isinstance(wire.transport, Faulty)
    return wire.transport


def restart(wire: FaultyWire, place: int) -> None:
    """The process of a site ends and begins anew: what it held in memory is gone, its folder is there."""
    old = wire.sites[place]
    wire.sites[place] = Site(old.empty.setting, old.run, old.folder)
    network(wire).transport = InProcess({site.name: site.answer for site in wire.sites})
