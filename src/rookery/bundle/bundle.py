"""A bundle: a trained model with everything that using it takes, in a folder of plain files.

    model.safetensors   the net's numbers
    bundle.json         which net, its classes, calibrator and threshold, what came out on test rows, and where it is from
    schema.toml         what the columns of a table are, as training read them
    encoder.json        how they become the net's inputs
    README.md           a model card
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from ..data.tables.encoder import Encoder, Say
from ..data.tables.schema import Schema, read_schema
from ..data.tables.sheet import Sheet, from_frame
from ..errors import BundleError, DataError
from ..metrics.calibration import Calibrator
from ..training.files import write_whole
from .card import card

WEIGHTS, ABOUT, SCHEMA, ENCODER, CARD = "model.safetensors", "bundle.json", "schema.toml", "encoder.json", "README.md"
VERSION = 1
ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model in use: rows in, probabilities and decisions out.

    model:      the section [model] of the run's description, by which the net is built again
    shape:      of one row of the net's inputs
    threshold:  of two classes, the probability of the second one above which it is decided for
    found:      what came out on test rows; about: where the model is from
    by_group:   a column, and the threshold for each of its values; a value that is not there has `threshold`
    """

    net: nn.Module
    model: Mapping[str, Any]
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    calibrator: Calibrator = field(default_factory=Calibrator)
    threshold: float | None = None
    schema: Schema | None = None
    encoder: Encoder | None = None
    found: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    by_group: Mapping[str, Any] | None = None

    @cached_property
    def _net(self) -> nn.Module:
        return self.net.eval()

    def outputs(self, inputs: Tensor) -> Tensor:
        """The net's output for each class, of rows of its inputs."""
        if inputs.shape[1:] != self.shape:
            raise DataError(f"rows must have the shape that the model was trained on, {self.shape}; these have {tuple(inputs.shape[1:])}")
        parts = []
        with torch.inference_mode():
            for part in torch.split(inputs, ROWS_AT_ONCE):
                out = self._net(part)
                out = out[:, None] if out.dim() == 1 else out
                parts.append(torch.cat([torch.zeros_like(out), out], 1) if out.shape[1] == 1 and len(self.classes) == 2 else out)
        return torch.cat(parts) if parts else torch.zeros(0, len(self.classes))

    def inputs(self, rows: Any, say: Say | None = None) -> Tensor:
        """The net's inputs: of a data frame, a mapping of columns or a sheet by the encoder, of an array or tensor as they are.

        say: told of cells that are taken for missing and of values that training never saw
        """
        if isinstance(rows, (np.ndarray, Tensor)):
            found = torch.as_tensor(rows, dtype=torch.float32)
            if not bool(torch.isfinite(found).all()):
                raise DataError("inputs must be finite numbers; some of these are not: fill them in, or give a data frame, whose gaps the "
                                "model knows how to read")
            return found
        if self.encoder is None or self.schema is None:
            raise DataError(f"this model was trained on rows of shape {self.shape}, not on a table of columns; give it an array of such "
                            "rows")
        sheet = rows if isinstance(rows, Sheet) else from_frame(rows)
        missing = [name for name in self.schema.inputs if name not in sheet.names]
        if missing:
            lacking = ", ".join(map(repr, missing[:5])) + (" …" if len(missing) > 5 else "")
            raise DataError(f"{sheet.file} must have the columns that the model was trained on, but has no {lacking}; it has {sheet.names}")
        return torch.from_numpy(self.encoder(sheet, self.schema, say))

    def predict_proba(self, rows: Any, say: Say | None = None) -> NDArray[np.float64]:
        """The probability of each class, a column each in the order of `classes`, for every row."""
        return np.asarray(self.calibrator.probabilities(self.outputs(self.inputs(rows, say))).numpy())

    def predict(self, rows: Any, say: Say | None = None) -> NDArray[np.str_]:
        """The decision for every row, the name of a class."""
        return self.decided(self.predict_proba(rows, say), rows)

    def decided(self, probabilities: NDArray[np.float64], rows: Any = None) -> NDArray[np.str_]:
        """The classes that probabilities decide for; where thresholds go by group, the rows say of which group each is."""
        limit = self.threshold if self.by_group is None else self._limits(rows)
        place = probabilities.argmax(1) if limit is None else (probabilities[:, 1] > limit).astype(int)
        names: NDArray[np.str_] = np.asarray(self.classes)[place]
        return names

    def _limits(self, rows: Any) -> NDArray[np.float64]:
        """Every row's threshold, by its group."""
        assert self.by_group is not None
        column, limits = self.by_group["column"], self.by_group["thresholds"]
        if rows is None or isinstance(rows, np.ndarray | Tensor):
            raise DataError(f"this model decides by a threshold for each value of {column!r}: give rows as a table that has this column, "
                            "or take predict_proba and decide yourself")
        sheet = rows if isinstance(rows, Sheet) else from_frame(rows)
        if column not in sheet.names:
            raise DataError(f"{sheet.file} must have the column {column!r}, for whose values the model has thresholds of their own; it has "
                            f"{sheet.names}")
        return np.asarray([limits.get(value, self.threshold) for value in sheet.texts(column).tolist()], dtype=np.float64)

    def save(self, folder: str | Path) -> Path:
        """Write the bundle's files into a folder, and return it."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.net.state_dict().items()}
        write_whole(folder / WEIGHTS, save(weights))
        told = {"version": VERSION, "model": dict(self.model), "shape": list(self.shape), "classes": list(self.classes),
                "calibrator": self.calibrator.to_json(), "threshold": self.threshold, "found": dict(self.found), "about": dict(self.about)}
        if self.by_group is not None:
            told["by group"] = dict(self.by_group)
        write_whole(folder / ABOUT, json.dumps(told, indent=1, ensure_ascii=False))
        if self.schema is not None and self.encoder is not None:
            write_whole(folder / SCHEMA, self.schema.to_toml(head="What the columns are, as the model was trained on them."))
            write_whole(folder / ENCODER, json.dumps(self.encoder.to_json(self.schema), indent=1, ensure_ascii=False))
        write_whole(folder / CARD, card(self.about, self.found, self.classes, self.threshold, self.calibrator, self.schema, self.by_group))
        return folder

    def export(self, to: str, path: str | Path) -> Path:
        """The model as a file "onnx", or as a folder for "torch" alone."""
        if self.by_group is not None:
            raise BundleError(f"an exported model decides by one threshold, and this one has one for each value of "
                              f"{self.by_group['column']!r}: use it with rookery predict, or keep a method that does without")
        encoder = None if self.encoder is None or self.schema is None else self.encoder.to_json(self.schema)
        calibrator = {key: value for key, value in self.calibrator.to_json().items() if key != "note"}
        if to == "onnx":
            from .onnx import export_onnx

            return export_onnx(Path(path), self._net, self.shape, self.classes, encoder, calibrator, self.threshold)
        if to == "torch":
            from .portable import export_torch

            return export_torch(Path(path), self._net, self.shape, self.classes, encoder, calibrator, self.threshold)
        raise BundleError(f"a bundle is exported to \"onnx\" or \"torch\"; got {to!r}")


def load(folder: str | Path) -> Bundle:
    """The bundle in a folder, or in that of the run that left it.

    >>> load("/nowhere")
    Traceback (most recent call last):
    rookery.errors.BundleError: /nowhere must be a bundle, as rookery run leaves one in its folder under bundle, but has no bundle.json
    """
    folder = Path(folder)
    folder = folder / "bundle" if (folder / "bundle" / ABOUT).is_file() else folder
    if not (folder / ABOUT).is_file():
        raise BundleError(f"{folder} must be a bundle, as rookery run leaves one in its folder under bundle, but has no {ABOUT}")
    told = _json(folder / ABOUT)
    try:
        version, shape, classes = told["version"], tuple(told["shape"]), tuple(told["classes"])
        model, calibrator, threshold = told["model"], Calibrator.from_json(told["calibrator"]), told["threshold"]
    except (KeyError, TypeError) as error:
        raise BundleError(f"{folder / ABOUT} is not whole: {error} is missing or of another form; take the bundle again from its "
                          "run") from None
    if version != VERSION:
        raise BundleError(f"{folder} is a bundle of version {version}, and this Rookery reads version {VERSION}: use the one that wrote it")
    schema = encoder = None
    if (folder / ENCODER).is_file():
        encoder, schema = Encoder.from_json(_json(folder / ENCODER)), read_schema(folder / SCHEMA)
    net = _net(model, shape, len(classes), folder)
    try:
        net.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise BundleError(f"{folder / WEIGHTS} must hold the numbers of the net that {ABOUT} names, but {str(error).splitlines()[0]}; "
                          "take the bundle again from its run") from None
    return Bundle(net, model, shape, classes, calibrator, threshold, schema, encoder, told.get("found", {}), told.get("about", {}),
                  told.get("by group"))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} is not whole ({error}); take the bundle again from its run") from None


def _net(model: Mapping[str, Any], shape: Sequence[int], classes: int, folder: Path) -> nn.Module:
    from ..studies.description import model_section

    return model_section(dict(model), folder).net(tuple(shape), classes)
