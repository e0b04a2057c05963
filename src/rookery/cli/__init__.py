"""The entry point of `rookery`: imports next to nothing, so that help comes at once, and says what to install where that is missing."""

from __future__ import annotations

import sys

from ..errors import RookeryError
from .exits import INTERRUPTED, WRONG


def main() -> None:
    """Errors on purpose become one sentence; anything else is a fault and shows its trace."""
    try:
        from . import adapt, commands, compare, federate, fit, show, site, tables  # noqa: F401 (they add themselves to the application)
        from .console import app, complain
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "click", "rich"):
            raise
        print("rookery: the command line needs typer and rich, which are not installed: pip install 'rookery[cli]'", file=sys.stderr)
        sys.exit(WRONG)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        app(prog_name="rookery")
    except (RookeryError, OSError) as error:  # a data file that cannot be read
        complain(f"rookery: {error}")
        sys.exit(WRONG)

