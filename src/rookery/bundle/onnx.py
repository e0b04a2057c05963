"""A trained model as one ONNX graph, from the cells of a table or pictures to probabilities and decisions."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from .._version import __version__
from ..errors import ConfigError, ModuleError
from ..training.files import refusal, write_whole
from .portable import check, trace

OUTPUTS = ("probabilities", "decision")
LARGEST = float(np.finfo(np.float64).max)


def export_onnx(path: Path, net: nn.Module, shape: tuple[int, ...], classes: Sequence[str], encoder: Mapping[str, Any] | None,
                calibrator: Mapping[str, Any], threshold: float | None) -> Path:
    """Write a model as an ONNX file and return its path.

    The graph of a table has an input of shape (n, 1) for each column, of its name: a double for a number, NaN where it is missing; a
    double for a date, in days since 1970-01-01; a string for a category, where "" is missing, and so is what the encoder lists in
    "missing_values". The graph of pictures has one float32 input, "inputs", of shape (n, *shape). The outputs are "probabilities",
    doubles of shape (n, classes), and "decision", the class names of shape (n,).

    net:        in eval mode, from float32 of (n, *shape) to a logit for each class, or to one logit for two classes
    encoder:    how a table's columns become the net's inputs, as JSON; None where inputs are pictures
    calibrator: how outputs become probabilities: {"method": "none"}, or "platt", "temperature" or "isotonic" with their numbers
    threshold:  of two classes, the second is decided for above this probability; None: the likelier class is
    """
    onnx = _onnx()
    check(shape, classes, encoder, calibrator, threshold)
    names = [column["name"] for column in encoder["columns"]] if encoder else ["inputs"]
    taken = [name for name in names if name in OUTPUTS]
    if taken:
        raise ConfigError(f"a column must not have the name of an output of the graph, {' or '.join(OUTPUTS)}; one is called {taken[0]!r}: "
                          "rename it in the table and train again, or export with export_torch")
    prefix = "model/"
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    model = onnx.compose.add_prefix(_converted(trace(net, shape, classes)), prefix)
    graph = _Graph(onnx, prefix)
    if encoder is None:
        graph.add("Identity", [graph.picture(shape)], to=model.graph.input[0].name)
    else:
        graph.add("Concat", [graph.column(column, encoder) for column in encoder["columns"]], axis=1, to=model.graph.input[0].name)
    before = list(graph.nodes)
    graph.nodes.clear()
    probabilities = graph.calibrated(model.graph.output[0].name, calibrator)
    graph.add("Identity", [probabilities], to="probabilities")
    if threshold is None:
        place = graph.add("ArgMax", [probabilities], axis=1, keepdims=0)
    else:
        second = graph.add("Gather", [probabilities, graph.constant(1, np.int64)], axis=1)
        place = graph.add("Cast", [graph.add("Greater", [second, graph.constant(threshold)])], to_type=onnx.TensorProto.INT64)
    graph.add("Gather", [graph.texts(classes), place], axis=0, to="decision")
    _merge(onnx, model, before, graph, len(classes))
    notes = {"rookery": __version__, "classes": list(classes), "threshold": threshold, "calibrator": dict(calibrator)}
    onnx.helper.set_model_props(model, {name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                                        for name, value in {**notes, **({"encoder": dict(encoder)} if encoder else {})}.items()})
    onnx.checker.check_model(model, full_check=True)
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(path, error) from None
    write_whole(path, model.SerializeToString())
    return path


def _onnx() -> Any:
    """The package onnx, with what PyTorch needs to write its graphs."""
    try:
        importlib.import_module("onnxscript")
        for part in ("checker", "compose", "helper", "numpy_helper"):
            importlib.import_module(f"onnx.{part}")
        return importlib.import_module("onnx")
    except ModuleNotFoundError:
        raise ConfigError("exporting to ONNX needs onnx and onnxscript, which are not installed: pip install 'rookery[export]'") from None


def _converted(program: ExportedProgram) -> Any:
    """PyTorch's graph of a net, without the notes on it that name files of this machine."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=["inputs"], output_names=["outputs"])
        except torch.onnx.errors.OnnxExporterError as error:
            raise ModuleError(f"the net must be made of operations that ONNX has; PyTorch says: {error}") from error
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
    if made is None:
        raise ModuleError("PyTorch did not return the net's ONNX graph; install torch 2.6 or later")
    model: Any = made.model_proto
    model.graph.ClearField("value_info")
    model.graph.ClearField("metadata_props")
    for noted in (*model.graph.node, *model.graph.input, *model.graph.output, *model.graph.initializer):
        noted.ClearField("metadata_props")
        noted.ClearField("doc_string")
    return model


def _merge(onnx: Any, model: Any, before: Sequence[Any], graph: _Graph, classes: int) -> None:
    """Put nodes before and after those of the net, and give the graph their inputs and outputs."""
    middle = list(model.graph.node)
    for field in ("node", "input", "output"):
        model.graph.ClearField(field)
    model.graph.node.extend([*before, *middle, *graph.nodes])
    model.graph.input.extend(graph.inputs)
    model.graph.initializer.extend(graph.constants)
    for name, kind, dims in zip(OUTPUTS, (onnx.TensorProto.DOUBLE, onnx.TensorProto.STRING), (["batch", classes], ["batch"]), strict=True):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, dims))
    model.graph.name = "rookery"
    model.producer_name, model.producer_version = "rookery", __version__
    if any(node.domain == "ai.onnx.ml" for node in before):
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 2))


class _Graph:
    """Nodes around a net's, whose values all have names that begin with a prefix of their own."""

    def __init__(self, onnx: Any, prefix: str) -> None:
        self.onnx, self.prefix = onnx, f"{prefix}rookery/"
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.count = 0

    def _name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def add(self, operation: str, inputs: Sequence[str], to: str | None = None, domain: str = "", to_type: int | None = None,
            **attributes: Any) -> str:
        """One operation; the name of its result."""
        name = to or self._name()
        attributes |= {} if to_type is None else {"to": to_type}  # an attribute of Cast
        self.nodes.append(self.onnx.helper.make_node(operation, list(inputs), [name], name=self._name(), domain=domain, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value, dtype=dtype), self._name()))
        return str(self.constants[-1].name)

    def texts(self, values: Sequence[str]) -> str:
        made = self.onnx.helper.make_tensor(self._name(), self.onnx.TensorProto.STRING, [len(values)], [value.encode() for value in values])
        self.constants.append(made)
        return str(made.name)

    def _input(self, name: str, kind: int, dims: Sequence[str | int], about: str) -> str:
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, list(dims), doc_string=about))
        return name

    def picture(self, shape: tuple[int, ...]) -> str:
        return self._input("inputs", self.onnx.TensorProto.FLOAT, ["batch", *shape], "the pictures")

    def column(self, column: Mapping[str, Any], encoder: Mapping[str, Any]) -> str:
        """The float32 columns of a table's column."""
        kinds = self.onnx.TensorProto
        name = column["name"]
        if column["kind"] == "category":
            own = {"", *encoder.get("missing_values", ()), *column.get("missing_values", ())}
            size = len(column["categories"])
            gone = size + column["other"] if column["missing"] else -1
            known = {text: i for i, text in enumerate(column["categories"])} | dict.fromkeys(sorted(own), gone)
            cells = self._input(name, kinds.STRING, ["batch", 1], 'a category; "" where it is missing')
            place = self.add("LabelEncoder", [cells], domain="ai.onnx.ml", keys_strings=list(known), values_int64s=list(known.values()),
                             default_int64=size if column["other"] else -1)
            every = self.constant(np.arange(size + column["other"] + column["missing"])[None], np.int64)
            return self.add("Cast", [self.add("Equal", [place, every])], to_type=kinds.FLOAT)
        about = "days since 1970-01-01" if column["kind"] == "date" else "a number"
        cells = self._input(name, kinds.DOUBLE, ["batch", 1], f"{about}; NaN where it is missing")
        # a comparison that NaN and the infinities fail: neither is a value
        known_here = self.add("LessOrEqual", [self.add("Abs", [cells]), self.constant(LARGEST)])
        scaled = self.add("Div", [self.add("Sub", [cells, self.constant(column["mean"])]), self.constant(column["scale"])])
        value = self.add("Cast", [self.add("Where", [known_here, scaled, self.constant(0.0)])], to_type=kinds.FLOAT)
        if not column["missing"]:
            return value
        return self.add("Concat", [value, self.add("Cast", [self.add("Not", [known_here])], to_type=kinds.FLOAT)], axis=1)

    def calibrated(self, outputs: str, calibrator: Mapping[str, Any]) -> str:
        """Probabilities in double from the net's outputs."""
        outputs = self.add("Cast", [outputs], to_type=self.onnx.TensorProto.DOUBLE)
        method = calibrator["method"]
        if method == "temperature":
            outputs = self.add("Mul", [outputs, self.constant(calibrator["slope"])])
        if method in ("none", "temperature"):
            return self.add("Softmax", [outputs], axis=1)
        first, second = (self.add("Gather", [outputs, self.constant([i], np.int64)], axis=1) for i in (0, 1))
        margin = self.add("Sub", [second, first])
        if method == "platt":
            score = self.add("Add", [self.add("Mul", [margin, self.constant(calibrator["slope"])]), self.constant(calibrator["intercept"])])
            nothing = self.add("Mul", [score, self.constant(0.0)])
            return self.add("Softmax", [self.add("Concat", [nothing, score], axis=1)], axis=1)
        likely = self._between(margin, calibrator["knots"], calibrator["values"])
        return self.add("Concat", [self.add("Sub", [self.constant(1.0), likely]), likely], axis=1)

    def _between(self, margin: str, knots: Sequence[float], values: Sequence[float]) -> str:
        """Piecewise linear between knots and constant beyond them: at a knot, on a level piece and beyond the ends the very values."""
        places, heights, one = self.constant(knots), self.constant(values), self.constant(1, np.int64)
        passed = self.add("Cast", [self.add("GreaterOrEqual", [margin, places])], to_type=self.onnx.TensorProto.INT64)
        count = self.add("ReduceSum", [passed, self.constant([1], np.int64)], keepdims=1)
        left = self.add("Max", [self.add("Sub", [count, one]), self.constant(0, np.int64)])
        right = self.add("Min", [count, self.constant(len(knots) - 1, np.int64)])
        begin, end, low, high = (self.add("Gather", [table, at], axis=0) for table in (places, heights) for at in (left, right))
        width = self.add("Where", [self.add("Equal", [left, right]), self.constant(1.0), self.add("Sub", [end, begin])])
        share = self.add("Div", [self.add("Sub", [margin, begin]), width])
        share = self.add("Min", [self.add("Max", [share, self.constant(0.0)]), self.constant(1.0)])
        return self.add("Add", [low, self.add("Mul", [share, self.add("Sub", [high, low])])])
