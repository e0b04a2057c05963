"""Further labelled rows for a model that has been trained: read, encoded and labelled as the rows that it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from ...errors import DataError
from ..folder import locate
from ..tables.encoder import Say
from ..tables.files import read_sheet
from ..tables.kinds import demand_values, whole_texts
from ..tables.schema import demand_column
from ..tables.sheet import Dialect
from .base import Table, numbers
from .images import read_pictures
from .npz import labelled_arrays, texts


def more_rows(path: str | Path, like: Table, label: str | None = None, delimiter: str | None = None, say: Say | None = None) -> Table:
    """The rows of a table's file, an NPZ file or a folder of pictures by class, as rows of the table `like`.

    A CSV or Parquet file has the columns that `like` was made of, in any order, and the column `label`; they are encoded as those were, and
    `say` is told of cells that were taken for missing. Labels are classes of `like`, by name. Pictures are brought to the size of those of
    `like`.
    """
    file = locate(path)
    where: Callable[[int], str] = "row {}".format
    if file.is_dir():
        shape = like.fields["inputs"].shape[1:]
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise DataError(f"a folder such as {file} holds pictures by class, but the model was trained on rows of shape {tuple(shape)}; "
                            "give it a CSV or NPZ file")
        inputs, labels = read_pictures(file, (int(shape[1]), int(shape[2])), "L" if shape[0] == 1 else "RGB")
    elif file.suffix.lower() == ".npz":
        found = labelled_arrays(file, label or "labels", "inputs")
        inputs, labels = torch.from_numpy(found["inputs"]), texts(found[label or "labels"])
    else:
        if like.encoder is None or like.rows is None:
            raise DataError(f"{file.name} is read as a CSV file, but the model was trained on rows that were no table of columns; give it "
                            "an NPZ file with the arrays inputs and labels, or a folder of pictures by class")
        schema = like.rows.schema
        sheet, column = read_sheet(file, Dialect(delimiter)), label or schema.label
        demand_column(sheet, column)
        demand_values(sheet, column, "label", schema.missing)
        inputs, labels = torch.from_numpy(like.encoder(sheet, schema, say)), np.asarray(whole_texts(sheet, column)).tolist()
        where = sheet.where
    if inputs.shape[1:] != like.fields["inputs"].shape[1:]:
        raise DataError(f"the rows of {file.name} must have the shape of those the model was trained on, "
                        f"{tuple(like.fields['inputs'].shape[1:])}, but have {tuple(inputs.shape[1:])}")
    return Table({"inputs": inputs, "labels": numbers(_places(labels, like.classes, file.name, where))}, like.classes, file.stem)


def _places(labels: Sequence[str], classes: Sequence[str], file: str, where: Callable[[int], str]) -> list[int]:
    place = {name: i for i, name in enumerate(classes)}
    for row, label in enumerate(labels):
        if label not in place:
            raise DataError(f"labels must be classes that the model knows ({', '.join(classes)}), but {where(row)} of {file} has "
                            f"{label!r}: correct it, or train with that class")
    return [place[label] for label in labels]
