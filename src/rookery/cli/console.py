"""The application that commands are added to, and where they print."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from .._version import __version__

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False,
                  help="Federated nested optimisation: train from a description in TOML.")
console = Console(width=None if sys.stdout.isatty() else 120)
errors = Console(stderr=True, width=None if sys.stderr.isatty() else 200)


def complain(sentence: str) -> None:
    """To the standard error, in red."""
    errors.print(sentence, style="red", markup=False, soft_wrap=True)


def complain_softly(sentence: str) -> None:
    """To the standard error, in yellow."""
    errors.print(f"! {sentence}", style="yellow", markup=False, soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"rookery {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="the version, and nothing else")]
            = False) -> None:
    pass


def escaped(text: str) -> str:
    """A text for a table, whose brackets are no markup."""
    return text.replace("[", r"\[")
