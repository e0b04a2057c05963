"""The command `rookery site`: the resident process of an owner of rows, its log, and invitations to a federation."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, WriteError
from .console import app, console

if TYPE_CHECKING:
    from ..sites.settings import SiteFile


@app.command()
def site(words: Annotated[list[str], typer.Argument(help="site.toml to serve; log site.toml to read its log; invite NAME to make a "
                                                         "site's certificates")],
         folder: Annotated[Path, typer.Option("--folder", help="of invite: where the federation's authority is kept")]
         = Path("certificates")) -> None:
    """Serve rows to a federation without giving them away: answer what site.toml allows, refuse the rest, and write down what left."""
    match words:
        case ["invite", name]:
            from ..sites.certificates import invite

            own = invite(folder, name)
            console.print(f"hand {own} over to {name}, by a way that only they can read; {folder / 'authority.key'} stays with you",
                          markup=False, soft_wrap=True)
        case ["log", file]:
            from ..sites.settings import read_site

            _log(read_site(Path(file)))
        case [file]:
            from ..sites.settings import read_site

            _serve(read_site(Path(file)))
        case _:
            raise ConfigError("write rookery site site.toml, rookery site log site.toml, or rookery site invite NAME; got "
                              f"{' '.join(words)}")


def _serve(found: SiteFile) -> None:
    import torch

    from ..sites.service import Service
    from ..training.files import held

    torch.set_num_threads(1)
    with ExitStack() as stack:
        try:
            stack.enter_context(held(found.folder))
        except WriteError as error:  # which speaks of runs, and of --out
            raise WriteError(f"{str(error).partition(';')[0]}; write another folder in [site], or end what has this one") from None
        service = Service(found.host(), found.site.listen, found.certificates)
        service.start()

        asked: list[int] = []

        def end(number: int, frame: Any) -> None:
            """The first time what is under way is answered; the second time it is not waited for."""
            if asked:
                os._exit(128 + number)
            asked.append(number)
            service.end(3600.0)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        console.print(f"{found.site.name} listens at {found.site.listen} (port {service.port})", markup=False, soft_wrap=True)
        service.wait()


def _log(found: SiteFile) -> None:
    from ..sites.audit import Audit

    files = [*found.folder.glob("*/log.jsonl"), *found.folder.glob("refused*.jsonl")]
    if not files:
        console.print(f"nobody has asked {found.site.name} anything yet: {found.folder} has no log", markup=False, soft_wrap=True)
    for file in sorted(files, key=lambda file: file.stat().st_mtime):
        entries = list(Audit(file).entries())
        if entries:
            console.print(f"run {entries[0].run}" if file.name == "log.jsonl" else "of no run", markup=False)
        for entry in entries:
            console.print(f"  {entry.sentence}", markup=False, soft_wrap=True)
