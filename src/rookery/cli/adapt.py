"""The command `rookery adapt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .console import app, console


@app.command()
def adapt(run: Annotated[Path, typer.Argument(help="the folder of a run, whose model is where the adaptation starts")],
          rows: Annotated[Path, typer.Argument(help="labelled rows: a CSV or NPZ file, or a folder of pictures by class")],
          out: Annotated[Path | None, typer.Option("--out", help="where the adapted model goes; default RUN-adapted")] = None,
          steps: Annotated[int | None, typer.Option("--steps", help="gradient steps on all rows; default: as in the run, or 3")] = None,
          lr: Annotated[float | None, typer.Option("--lr", help="their size; default: as in the run, or 0.1")] = None,
          test: Annotated[Path | None, typer.Option("--test", help="further labelled rows, scored before and after")] = None) -> None:
    """Adapt a trained model to a few labelled rows of one's own, and write the adapted model."""
    from ..studies.adapting import WEIGHTS
    from ..studies.adapting import adapt as adapt_run

    done = adapt_run(run, rows, out or run.with_name(f"{run.name}-adapted"), steps, lr, test)
    names = list(dict.fromkeys(name for scores in done.scores.values() for name in scores))
    table = Table("", *names, title=f"{done.how.steps} steps of {done.how.lr:g} on {done.rows} rows")
    for which, scores in done.scores.items():
        table.add_row(which, *(f"{scores[name]:.4f}" if name in scores else "–" for name in names))
    console.print(table)
    if test is None:
        console.print("The rows are those that the model was adapted to: scores of others (--test) say what it is worth.", markup=False)
    console.print(f"the adapted model: {done.folder / WEIGHTS}", markup=False, soft_wrap=True)
