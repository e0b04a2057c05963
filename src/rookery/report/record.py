"""What a run leaves in its folder, read with suspicion: a folder may be broken, foreign or hostile."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..errors import RookeryError
from ..training.files import in_use

COUNTS = ("round", "exchanges", "bytes", "samples", "seconds")  # of training so far: the axes, not the metrics
NUMBER, MAYBE, TEXT = (int, float), (int, float, NoneType), (str, NoneType)
OTHERS = "…"  # in a shape: every key that the shape does not name; and one with a question mark need not be there


@dataclass(frozen=True)
class Numbers:
    """The shape of a list of so many numbers; null may stand for them, or where there are `holes`, for any of them."""

    count: int
    maybe: bool = False
    holes: bool = False


_ACCOUNT = {**dict.fromkeys(("exchanges", "floats_up", "floats_down", "bytes_up", "bytes_down", "samples"), NUMBER),
            "calls": {OTHERS: NUMBER}}
_INTERVAL = Numbers(3)  # a value and the ends of its interval
_SHARES = dict.fromkeys(("AUC", "sensitivity", "specificity"), Numbers(3, maybe=True))
_CONFUSION = dict.fromkeys(("tp", "fp", "fn", "tn"), int)
_TESTED = {"site": str, "rows": NUMBER, "AUC?": _INTERVAL, "accuracy?": _INTERVAL}
_ASSESSMENT = {
    "classes": [str], "warnings": [str], "threshold?": MAYBE, "calibrator?": {"method": str}, "rows?": int, "positives?": int,
    "F1?": MAYBE, "confusion?": _CONFUSION, **{f"{name}?": Numbers(3, maybe=True) for name in (*_SHARES, "ppv", "npv", "accuracy")},
    **{f"reliability {when}?": [Numbers(5)] for when in ("before", "after")},
    **{f"calibration error {when}?": MAYBE for when in ("before", "after")}, "decision curve?": [Numbers(4)],
    "subgroups?": {OTHERS: [{"group": str, "rows": int, "positives": int, "withheld?": int, "predicted": MAYBE, **_SHARES,
                              "observed": Numbers(3, maybe=True), "off?": TEXT}]},
    "sites?": [_TESTED], "worst site?": _TESTED,
}
_SHAPES: dict[str, Any] = {  # of about.json; only the label has to be there
    "label": str, "title": TEXT, "seed": (int, NoneType), "command": TEXT, "config": {OTHERS: {}}, "versions": {}, "machine": TEXT,
    "engine": TEXT, "reason": TEXT, "failure": TEXT, "rounds": int, "seconds": NUMBER, "ledger": {OTHERS: _ACCOUNT},
    "sites": [{"site": str, OTHERS: MAYBE}],
    "traffic": [{"direction": frozenset({"down", "up"}), "what": str, **dict.fromkeys(("floats", "bytes", "clients", "exchange"), int)}],
    "tuning": {"metric": str, "tried": [{"values": {}, "score": MAYBE}], "chosen": {}},
    "notes": [str], "assessment": _ASSESSMENT,
}
_OPTIONAL = ("config", "versions", "ledger", "sites", "traffic", "tuning", "notes", "assessment")  # where null is the same as nothing


class ReportError(RookeryError):
    """A run's folder cannot be read, or runs cannot be told together; the message names folder and file."""


@dataclass(frozen=True, eq=False)
class Record:
    """One run: its history, what is known about it, and its scores of the test rows."""

    folder: Path
    history: tuple[dict[str, float], ...]  # a value that was null is NaN
    about: dict[str, Any]
    labels: NDArray[Any] | None = None
    scores: NDArray[Any] | None = None

    @property
    def label(self) -> str:
        return str(self.about["label"])

    @property
    def seed(self) -> int | None:
        return self.about.get("seed")

    @property
    def reason(self) -> str:
        return self.about.get("reason") or ""

    @property
    def rounds(self) -> int:
        return int(self.about.get("rounds", self.history[-1]["round"]))


def load(folder: Path | str) -> Record:
    """The run in a folder: `history.jsonl`, `about.json` and, where there are any, `predictions.npz`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ReportError(f"a report is made from folders of runs, as `rookery run` leaves them; {folder} is not a folder")
    if in_use(folder):
        raise ReportError(f"a report is made of runs that have ended; {folder} is in use: a run is under way in it. Wait for its end")
    history = tuple(_row(folder / "history.jsonl", number, line)
                    for number, line in enumerate(_text(folder / "history.jsonl").splitlines(), 1) if line.strip())
    if not history:
        raise ReportError(f"{folder / 'history.jsonl'} must hold a line per evaluation and holds none; rookery run … --resume writes "
                          "it anew from the checkpoint")
    about = _parse(folder / "about.json", _text(folder / "about.json"))
    if not isinstance(about, dict) or "label" not in about:
        raise ReportError(f"{folder / 'about.json'} must be an object with \"label\", the method's name; it has none: "
                          "rookery run … --resume writes it anew, or add it")
    about = {key: value for key, value in about.items() if value is not None or key not in _OPTIONAL}
    for key, shape in _SHAPES.items():
        if key in about and (wrong := complaint(about[key], shape, key)):
            raise ReportError(f"{folder / 'about.json'}: {wrong}; correct the file, or leave the run out")
    labels, scores = _predictions(folder / "predictions.npz")
    return Record(folder, history, about, labels, scores)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error})"
        raise ReportError(f"{path} {what}; a report needs the folder of a run that has ended") from error


def _parse(path: Path, text: str, where: str = "") -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}{where} is not JSON ({error}); it may have been cut off: rookery run … --resume writes it anew, "
                          "or leave the run out") from error


def _row(path: Path, number: int, line: str) -> dict[str, float]:
    row = _parse(path, line, f", line {number},")
    if wrong := complaint(row, {**dict.fromkeys(COUNTS, NUMBER), OTHERS: MAYBE}, "the row"):
        raise ReportError(f"{path}, line {number}: {wrong}; a row has {', '.join(COUNTS)} and metrics, all of them numbers")
    return {key: math.nan if value is None else float(value) for key, value in row.items()}


def complaint(value: Any, shape: Any, where: str) -> str | None:
    """What keeps a value from its shape: a type, types, a set of words, so many numbers, a list of one shape, or an object by keys.

    >>> complaint({"a": 1, "b": ["x", 2]}, {"a": int, OTHERS: [str]}, "it")
    'it.b[1] must be a text; it is 2'
    """
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where} must be an object; it is {_short(value)}"
        if missing := [key for key in shape if key != OTHERS and not key.endswith("?") and key not in value]:
            return f"{where} must have {', '.join(missing)}; it has {_short(list(value))}"
        parts = [(value[key], shape.get(key, shape.get(f"{key}?", shape.get(OTHERS, object))), f"{where}.{key}") for key in value]
    elif isinstance(shape, Numbers):
        kinds = MAYBE if shape.holes else NUMBER
        fits = isinstance(value, list) and len(value) == shape.count and all(isinstance(item, kinds) for item in value)
        fits = fits or (value is None and shape.maybe)
        return None if fits else f"{where} must be a list of {shape.count} numbers; it is {_short(value)}"
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} must be a list; it is {_short(value)}"
        parts = [(item, shape[0], f"{where}[{index}]") for index, item in enumerate(value)]
    elif isinstance(shape, frozenset):
        return None if isinstance(value, str) and value in shape else f"{where} must be one of {sorted(shape)}; it is {_short(value)}"
    else:
        kind = {str: "a text", TEXT: "a text", bool: "true or false"}.get(
            shape, "a whole number" if shape in (int, (int, NoneType)) else "a number")
        return None if isinstance(value, shape) else f"{where} must be {kind}; it is {_short(value)}"
    return next(filter(None, (complaint(*part) for part in parts)), None)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "…"


def _predictions(path: Path) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    if not path.exists():
        return None, None
    try:
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            labels, scores = arrays["labels"], arrays["scores"]
    except (OSError, ValueError, KeyError, IndexError, EOFError, BadZipFile) as error:
        raise ReportError(f"{path} must hold the arrays \"labels\" and \"scores\" ({error}); remove it, or run again") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iub" or scores.ndim not in (1, 2) or scores.dtype.kind not in "iuf" \
            or len(scores) != len(labels):
        raise ReportError(f"{path} must hold whole numbers \"labels\" (n,) and \"scores\" (n,) or (n, classes); "
                          f"it holds {labels.dtype} {labels.shape} and {scores.dtype} {scores.shape}; remove it, or run again")
    return labels, scores[:, 0] if scores.shape[1:] == (1,) else scores
