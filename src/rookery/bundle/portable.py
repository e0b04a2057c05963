"""A trained model as a folder that PyTorch alone can use: predict.py, the net, and how cells become numbers and outputs probabilities.

The net is written as the list of ATen operations that torch.export finds, in JSON, with its numbers in safetensors. torch.export.save
would be shorter, but loading its archives may unpickle what is in them, and its format changes between versions of PyTorch; the names and
arguments of ATen operations do not.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from .._version import __version__
from ..errors import ConfigError, ModuleError
from ..training.files import refusal, write_whole
from ._predict_template import SIZES

METHODS: dict[str, tuple[str, ...]] = {"none": (), "platt": ("slope", "intercept"), "temperature": ("slope",),
                                       "isotonic": ("knots", "values")}  # each calibration with the entries it needs
KINDS = ("number", "date", "category")


def export_torch(folder: Path, net: nn.Module, shape: tuple[int, ...], classes: Sequence[str], encoder: Mapping[str, Any] | None,
                 calibrator: Mapping[str, Any], threshold: float | None, positive: str | None = None,
                 id_column: str | None = None) -> Path:
    """Write a folder whose predict.py needs PyTorch and the standard library only, and return the folder.

    net:        in eval mode, from float32 of (n, *shape) to a logit for each class, or to one logit for two classes
    encoder:    how a table's columns become the net's inputs, as JSON; None where inputs are pictures
    calibrator: how outputs become probabilities: {"method": "none"}, or "platt", "temperature" or "isotonic" with their numbers
    threshold:  of two classes, the second is decided for above this probability; None: the likelier class is
    positive:   the name of the class whose probability is written, for a check; it must be the second of two
    id_column:  a column of new tables that the predictions repeat
    """
    check(shape, classes, encoder, calibrator, threshold)
    if positive is not None and (len(classes) != 2 or positive != classes[1]):
        raise ConfigError(f"positive must be the second of two classes, as the threshold is on its probability; got {positive!r} with the "
                          f"classes {list(classes)}: put it second")
    graph, tensors = written(trace(net, shape, classes))
    about = {"version": 1, "classes": list(classes), "positive": classes[1] if len(classes) == 2 else None, "calibrator": dict(calibrator),
             "threshold": threshold, "shape": list(shape), "id": id_column, "rookery": __version__, "torch": torch.__version__}
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(folder, error) from None
    write_whole(folder / "model.safetensors", save(tensors))
    for name, tree in (("model", graph), ("encoder", encoder), ("about", about)):
        write_whole(folder / f"{name}.json", json.dumps(tree, ensure_ascii=False, allow_nan=False, indent=None if name == "model" else 1))
    write_whole(folder / "predict.py", files(__package__).joinpath("_predict_template.py").read_bytes())
    return folder


class Outputs(nn.Module):
    """A net whose single logit, if it has one, stands beside 0, so that there is an output for each class."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.net(inputs)
        out = out[:, None] if out.dim() == 1 else out
        return torch.cat([torch.zeros_like(out), out], 1) if out.shape[1] == 1 else out


def trace(net: nn.Module, shape: tuple[int, ...], classes: Sequence[str]) -> ExportedProgram:
    """The operations of a net, for any number of rows."""
    busy = [name or "itself" for name, module in net.named_modules() if module.training]
    if busy:
        raise ModuleError(f"a net must be in eval mode to be exported, but {busy[0]!r} is in training mode; write net.eval()")
    whole = Outputs(deepcopy(net).cpu()).eval()
    sample, before = torch.zeros(3, *shape), _writings(whole)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = tuple(whole(sample).shape)
        except (RuntimeError, IndexError, ValueError) as error:
            raise ModuleError(f"the net must take float32 of shape (n, {', '.join(map(str, shape))}), but: {error}") from None
        if found != (3, len(classes)):
            raise ModuleError(f"the net must give a logit for each of {len(classes)} classes"
                              f"{', or one logit' if len(classes) == 2 else ''}; it gave {found} for 3 rows, one row of outputs each")
        if changed := [name for name, writing in _writings(whole).items() if before.get(name) != writing]:
            raise ModuleError("a net must not write to its tensors in eval mode, but this one writes to "
                              f"{changed[0].removeprefix('net.')!r}; do so in training mode only")
        try:
            return torch.export.export(whole, (sample,), dynamic_shapes=({0: Dim("batch")},))
        except Exception as error:  # torch.export raises errors of many kinds
            raise ModuleError("the net must be one that torch.export can follow for any number of rows, without branches on values; "
                              f"it says: {error}") from error


def _writings(net: nn.Module) -> dict[str, tuple[int, int]]:
    """By name, which tensors a net holds and how often each was written to."""
    return {name: (id(held), held._version) for name, held in (*net.named_parameters(), *net.named_buffers())}


def written(program: ExportedProgram) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A program as JSON, and its tensors by their names in it."""
    held: dict[str, Any] = {**dict(program.named_parameters()), **dict(program.named_buffers()), **program.constants}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    steps: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    inputs = output = ""
    for node in program.graph.nodes:
        if node.op == "placeholder" and specs[node.name].kind == InputKind.USER_INPUT:
            inputs = node.name
        elif node.op == "placeholder":
            tensors |= {node.name: held[specs[node.name].target].detach().clone().contiguous()} if node.users else {}
        elif node.op == "output":
            output = node.args[0][0].name
        else:
            steps.append({"name": node.name, "operation": _operation(node.target), "args": _plain(list(node.args)),
                          "kwargs": _plain(dict(node.kwargs))})
    return {"version": 1, "input": inputs, "steps": steps, "output": output}, tensors


def _operation(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return str(target)
    if target in SIZES.values():
        return f"operator.{target.__name__}"
    raise ModuleError(f"an exported net must be made of PyTorch's own operations on tensors, but this one calls {target}; "
                      "write that part with torch functions")


def _plain(value: Any) -> Any:
    """An argument as JSON; what JSON lacks is an object with one entry."""
    if isinstance(value, torch.fx.Node):
        return {"value": value.name}
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return None  # wherever the inputs are
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ModuleError(f"the arguments of an exported net's operations must be tensors, numbers and texts, but one is {value!r}")


def check(shape: tuple[int, ...], classes: Sequence[str], encoder: Mapping[str, Any] | None, calibrator: Mapping[str, Any],
          threshold: float | None) -> None:
    """Refuse ingredients of an export that do not fit together."""
    if len(classes) < 2 or len({*classes}) < len(classes) or not all(isinstance(name, str) for name in classes):
        raise ConfigError(f"the classes must be two or more different texts; got {list(classes)!r}")
    method = calibrator.get("method")
    if method not in METHODS:
        raise ConfigError(f"the calibrator's method is one of {', '.join(METHODS)}; got {method!r}")
    for name in METHODS[method]:
        value = calibrator.get(name)
        if not (_finite(value) if name in ("slope", "intercept") else isinstance(value, list) and value and all(map(_finite, value))):
            raise ConfigError(f"a calibrator of method {method!r} needs {name!r}, finite; got {value!r}")
    if method in ("platt", "isotonic") and len(classes) != 2:
        raise ConfigError(f"a calibrator of method {method!r} is for two classes; got {len(classes)}: write 'temperature' or 'none'")
    if method == "isotonic":
        knots, values = calibrator["knots"], calibrator["values"]
        if len(knots) != len(values) or any(a >= b for a, b in pairwise(knots)) or not all(0 <= v <= 1 for v in values):
            raise ConfigError("an isotonic calibrator has increasing knots and as many values from 0 to 1; got "
                              f"{len(knots)} knots and {len(values)} values: {knots[:8]} and {values[:8]}")
    if threshold is not None and (len(classes) != 2 or not _finite(threshold) or not 0 <= threshold <= 1):
        raise ConfigError(f"a threshold is from 0 to 1 and for two classes, else None; got {threshold!r} with {len(classes)} classes")
    if encoder is not None:
        width = _width(encoder)
        if tuple(shape) != (width,):
            raise ConfigError(f"the net must take what the encoder gives, {width} numbers a row; its inputs have the shape {tuple(shape)}")


def _width(encoder: Mapping[str, Any]) -> int:
    """How many numbers an encoder makes of a row; a wrong one is refused."""
    if encoder.get("version") != 1 or not isinstance(encoder.get("columns"), list) or not encoder["columns"]:
        raise ConfigError("an encoder has \"version\": 1 and a list of \"columns\"; got version "
                          f"{encoder.get('version')!r} and the entries {list(encoder)}")
    names = [column.get("name") for column in encoder["columns"]]
    twice = [name for name in names if not isinstance(name, str) or not name or names.count(name) > 1]
    if twice:
        raise ConfigError(f"every column of an encoder needs a name of its own; got {twice[0]!r}: rename it")
    return sum(map(_column_width, encoder["columns"]))


def _column_width(column: Mapping[str, Any]) -> int:
    kind = column.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"the kind of column {column['name']!r} is one of {', '.join(KINDS)}; got {kind!r}")
    needs: dict[str, Callable[[Any], bool]] = {"missing": _is_bool}
    if kind == "category":
        needs |= {"other": _is_bool, "categories": lambda value: isinstance(value, list) and len({*value}) == len(value) and "" not in value
                  and all(isinstance(one, str) for one in value)}
    else:
        needs |= {"mean": _finite, "scale": lambda value: _finite(value) and value != 0}
        needs |= {"format": lambda value: isinstance(value, str) and value != ""} if kind == "date" else {}
    for entry, holds in needs.items():
        if not holds(column.get(entry)):
            what = {"missing": "true or false", "other": "true or false", "categories": "a list of different texts, none empty",
                    "mean": "a finite number", "scale": "a finite number other than 0", "format": 'a text such as "%d.%m.%Y"'}[entry]
            raise ConfigError(f"{entry!r} of column {column['name']!r} must be {what}; got {column.get(entry)!r}")
    return (len(column["categories"]) + column["other"] if kind == "category" else 1) + int(column["missing"])


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
