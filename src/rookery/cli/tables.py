"""The commands `rookery look`, `predict` and `export`: from a table to a model in use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from ..errors import BundleError, ConfigError, DataError
from .console import app, complain_softly, console, escaped

if TYPE_CHECKING:
    from ..data.tables import Dialect, Look, Sheet

SITES_SHOWN = 20


@app.command()
def look(tables: Annotated[list[str], typer.Argument(help="a CSV or Parquet file, several of one site each, or sites/NAME")],
         label: Annotated[str | None, typer.Option("--label", help="the column to predict")] = None,
         site: Annotated[str | None, typer.Option("--site", help="the column that says whose a row is")] = None,
         group: Annotated[str | None, typer.Option("--group", help="a column whose rows stay together, such as the patient")] = None,
         positive: Annotated[list[str] | None, typer.Option("--positive", help="the class that is looked for; may be given several times")]
         = None,
         delimiter: Annotated[str | None, typer.Option("--delimiter", help="what stands between the values; found out by default")] = None,
         header: Annotated[bool | None, typer.Option("--header/--no-header", help="whether the first line names the columns")] = None,
         out: Annotated[Path | None, typer.Option("--out", help="the schema; default NAME.schema.toml")] = None,
         force: Annotated[bool, typer.Option("--force", help="write over a schema that is there")] = False) -> None:
    """Look at a table before you train: what is in it, what will be done with it, and a schema to correct."""
    from ..data.readers.sites import find, name_of, schema_of, training_sheet
    from ..data.tables import Dialect
    from ..data.tables import look as look_at
    from ..training.files import write_whole

    named = [name for one in tables if (name := name_of(one)) is not None]
    target = out or Path(f"{Path(tables[0]).stem}.schema.toml")
    if target.exists() and not force:
        raise DataError(f"{target} is there already, perhaps corrected by hand; write --force to write over it, or name another file with "
                        "--out")
    if named:
        spec, sheet = find(named[0]), training_sheet(named[0])
        given = schema_of(spec, sheet)
        console.print(f"{tables[0]}: {spec.about} ({spec.publisher}; licence {spec.licence})", markup=False, soft_wrap=True)
        found = look_at(sheet, given.label, site=given.site, group=given.group, positive=given.positive, keep=given.keep, given=given)
    else:
        sheet = _sheets(tables, Dialect(delimiter, None, header), site)
        if label is None:
            raise ConfigError(f"say which column is to be predicted, with --label; {sheet.file} has {', '.join(sheet.names)}")
        owner = site or ("site" if len(tables) > 1 else None)
        found = look_at(sheet, label, site=owner, group=group, positive=positive or ())
    _show(found, sheet)
    write_whole(target, found.to_toml())
    console.print(f"the schema: {target}; correct it, and train by it with schema = \"{target}\" in [data]", markup=False, soft_wrap=True)


def _sheets(tables: list[str], dialect: Dialect, site: str | None) -> Sheet:
    from ..data.folder import locate
    from ..data.tables import read_sheets

    return read_sheets([locate(one) for one in tables], dialect, site or "site")


def _show(found: Look, sheet: Sheet) -> None:
    from ..data.tables.schema import KINDS

    how = sheet.dialect
    marks = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
    read = [f"values between {marks.get(how.delimiter, repr(how.delimiter))} ({how.delimiter!r})"] if how.delimiter else []
    read += [f"encoding {how.encoding}"] if how.encoding else []
    read += ["no header line"] if how.header is False else []
    console.print(f"{found.file}: {found.rows} rows, {len(sheet.names)} columns" + (f"; read with {', '.join(read)}" if read else ""),
                  markup=False, soft_wrap=True)
    table = Table("column", "kind", "what is done", "missing", "what it holds")
    schema = found.schema
    for name in sheet.names:
        role = {schema.label: "label", schema.site: "site", schema.group: "group"}.get(name)
        if role is not None:
            what = {"label": "predicted", "site": "the federation", "group": "kept on one side of every split"}[role]
            table.add_row(escaped(name), role, what, "0", "")
        else:
            column = found.columns[name]
            table.add_row(escaped(name), column.column.kind, KINDS[column.column.kind], str(column.missing), escaped(column.detail))
    console.print(table)
    shares = ", ".join(f"{name} {count} ({count / found.rows:.1%})" for name, count in found.classes.items())
    console.print(f"classes of {schema.label!r}: {shares}", markup=False, soft_wrap=True)
    if schema.positive:
        guess = "; that is a guess: say so with --positive" if found.guessed else ""
        console.print(f"positive class: {', '.join(schema.positive)}{guess}", markup=False, soft_wrap=True)
    if found.sites:
        _show_sites(found)
    for warning in found.warnings:
        complain_softly(warning)


def _show_sites(found: Look) -> None:
    table = Table("site", "rows", *(escaped(name) for name in list(found.classes)[:6]), title=f"{len(found.sites)} sites")
    for site in sorted(found.sites, key=lambda site: -site.rows)[:SITES_SHOWN]:
        table.add_row(escaped(site.name), str(site.rows), *(str(count) for count in list(site.classes.values())[:6]))
    console.print(table)
    if len(found.sites) > SITES_SHOWN:
        console.print(f"… and {len(found.sites) - SITES_SHOWN} smaller ones", markup=False)


@app.command()
def predict(bundle: Annotated[Path, typer.Argument(help="a bundle, or the folder of the run that left it")],
            rows: Annotated[str, typer.Argument(help="a CSV or Parquet file, sites/NAME, an NPZ file with inputs, or a folder of "
                                                     "pictures")],
            out: Annotated[Path, typer.Option("--out", "-o", help="the predictions, as CSV")],
            keep: Annotated[list[str] | None, typer.Option("--keep", help="a column to repeat; ids and groups are repeated anyway")] = None,
            delimiter: Annotated[str | None, typer.Option("--delimiter", help="what stands between the values; found out by default")]
            = None) -> None:
    """Predict: for every row what identifies it, the probability, and the decision. No label is needed."""
    from ..bundle import load
    from ..bundle.predicting import predict_file

    if Path(rows).resolve() == out.resolve():
        raise DataError(f"{out} holds the rows that are to be predicted; write the predictions to another file")
    done = predict_file(load(bundle), rows, out, keep or (), delimiter, complain_softly)
    console.print(f"{done.rows} rows: {done.told}; {out}", markup=False, soft_wrap=True)


@app.command()
def export(bundle: Annotated[Path, typer.Argument(help="a bundle, or the folder of the run that left it")],
           to: Annotated[str, typer.Option("--to", help="onnx: one file; torch: a folder with a predict.py that needs torch alone")],
           out: Annotated[Path | None, typer.Option("--out", "-o", help="where; default BUNDLE.onnx or BUNDLE-torch")] = None) -> None:
    """Export a model for use without Rookery."""
    from ..bundle import load

    if to not in ("onnx", "torch"):
        raise BundleError(f"a bundle is exported to onnx or torch; --to was given {to!r}")
    found = load(bundle)
    stem = bundle.resolve().name if bundle.resolve().name != "bundle" else bundle.resolve().parent.name
    target = out or Path(f"{stem}.onnx" if to == "onnx" else f"{stem}-torch")
    console.print(f"exported: {found.export(to, target)}", markup=False, soft_wrap=True)
