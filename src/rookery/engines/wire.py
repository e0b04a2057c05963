"""Clients in this process, but reached only through real frames: what keeps every algorithm fit for a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..federation.client import Setting
from .places import Place
from .remote import Remote
from .site import Site
from .transport import InProcess


class Wire(Remote):
    """Keeps every client behind a `Site` in this process, and reaches it only through the bytes that a network would carry.

    folder:  where the sites keep their checkpoints
    clients_per_site: how many clients a site has
    """

    name = "wire"

    def __init__(self, folder: Path | str | None = None, clients_per_site: int = 1) -> None:
        super().__init__()
        self.folder = None if folder is None else Path(folder)
        self.clients_per_site = clients_per_site
        self.sites: list[Site] = []

    def connect(self, setting: Setting) -> None:
        """Cut the server's data, which a real site has for itself."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        for first in range(0, len(setting.data.names), self.clients_per_site):
            clients = list(range(first, min(first + self.clients_per_site, len(setting.data.names))))
            own = replace(setting, data=setting.data.part(*clients), constants=None, checked=set())
            self.sites.append(Site(own, self.run, self.folder))
            self.places.append(Place(self.sites[-1].name, clients))
        self.transport = InProcess({site.name: lambda frame, site=site: site.answer(frame) for site in self.sites})  # type: ignore[misc]
