"""Single malformed frames, each with a valid digest, are refused and leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corruptions import check_refused
from recorded_frames import Moment, Small, of_step, parts, seal, sealed, step_op, values

from rookery import SCAFFOLD
from rookery.engines.frames import pack, unpack
from rookery.engines.programs import describe, digest_of, named


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def program(name: str) -> Any:
    return {"program": name, "fields": {}}


ODD_STEPS: dict[str, dict[str, Any]] = {
    "a negative call": {"call": -1},
    "a call beyond 64 bits": {"call": 1 << 64},
    "a phase that is no text": {"phase": "\ud800"},
    "an unknown phase": {"phase": "party"},
    "a negative number of known draws": {"known": -1},
    "a method of the class's own type": {"fn": [describe(SCAFFOLD(lr=0.1)), "mro"]},
    "a method of the problem's own type": {"fn": ["problem", "mro"]},
    "a program that is no dataclass": {"fn": [program("rookery.federation.program.Schedule"), "at"]},
    "an abstract program": {"fn": [program("rookery.algorithms.base.Algorithm"), "round"]},
    "no arguments": {"arguments": []},
    "too few arguments": {"arguments": [{"value": 1.0}]},
    "too many arguments": {"arguments": [{"value": 1.0}] * 9},
    "an argument of an unknown program": {"arguments": [{"value": program("x")}] * 4},
    "an argument that is no dataclass": {"arguments": [{"value": program("rookery.federation.program.Schedule")}] * 4},
    "deeply nested lists": {"arguments": [{"value": nested(600)}] * 4},
    "an output twice": {"out": [7, 7]},
}


@pytest.mark.parametrize("label", ODD_STEPS)
def test_an_odd_operation_is_refused(label: str, moments: list[Moment]) -> None:
    moment = of_step(moments)
    header = moment.header
    step_op(header).update(ODD_STEPS[label])
    check_refused(moment, pack(header, moment.tensors), ("FrameError",), label)


@pytest.mark.parametrize("op", [
    {"op": "save", "tag": "new", "ids": [[1]]}, {"op": "save", "tag": "new", "ids": [{}]}, {"op": "save", "tag": "new", "ids": ["x"]},
    {"op": "save", "tag": "new", "ids": [1.5]}, {"op": "save", "tag": "../new", "ids": []}, {"op": "save", "tag": "", "ids": []},
    {"op": "save", "tag": "a" * 300, "ids": []}, {"op": "save", "tag": "a.b", "ids": []}, {"op": "save", "tag": "a/b", "ids": []},
    {"op": "load", "tag": "a" * 300}, {"op": "load", "tag": "../tag"}, {"op": "load", "tag": "\0"}, {"op": "load", "tag": "\ud800"},
    {"op": "finish", "total": 0}, {"op": "take", "source": 1, "default": 2}, {"op": "put", "pool": 1},
], ids=lambda op: str(op)[:50])
def test_an_odd_save_or_load_is_refused(op: dict[str, Any], moments: list[Moment], tmp_path: Path) -> None:
    moment = of_step(moments).moved(tmp_path / "sites")
    check_refused(moment, pack({**moment.header, "ops": [op], "want": []}, moment.tensors), ("FrameError",), str(op))


def one_more(moment: Moment, entry: list[Any], more: bytes) -> bytes:
    header, buffer = parts(moment.frame)
    return sealed({**header, "tensors": [*header["tensors"], entry]}, buffer + more)


ODD_TENSORS: dict[str, tuple[list[Any], bytes]] = {
    "a length beyond 64 bits": ([9999, "float32", [0, 1 << 70]], b""),
    "a size beyond 64 bits": ([9999, "float32", [1 << 62, 1 << 62, 0]], b""),
    "70 dimensions": ([9999, "float32", [1] * 70], b"\0" * 8),
    "70 empty dimensions": ([9999, "float32", [0] * 70], b""),
    "a truth value as number": ([True, "float32", [0]], b""),
    "padding that is not zero": ([9999, "float32", [1]], b"\0" * 4 + b"\1" * 4),
    "no padding": ([9999, "float32", [1]], b"\0" * 4),
    "truth values other than 0 and 1": ([9999, "bool", [8]], b"\2" * 8),
}


@pytest.mark.parametrize("label", ODD_TENSORS)
def test_an_odd_tensor_is_refused(label: str, moments: list[Moment]) -> None:
    moment = of_step(moments)
    check_refused(moment, one_more(moment, *ODD_TENSORS[label]), ("FrameError",), label)


@pytest.mark.parametrize("change", [{"v": True}, {"v": 1.0}, {"want": "twice"}, {"k": 3.0}], ids=str)
def test_an_odd_header_is_refused(change: dict[str, Any], moments: list[Moment]) -> None:
    moment = of_step(moments)
    header, buffer = parts(moment.frame)
    if change == {"want": "twice"}:
        change = {"want": header["want"] * 2}
    check_refused(moment, sealed({**header, **change}, buffer), ("FrameError",), str(change))


def test_a_number_beyond_the_largest_is_refused(moments: list[Moment]) -> None:
    """1e999 is good JSON, and infinite in Python."""
    moment = of_step(moments)
    header, buffer = parts(moment.frame)
    assert step_op(header)["arguments"][3] == {"value": 0.1}
    step_op(header)["arguments"][3] = {"value": "HERE"}
    check_refused(moment, seal(json.dumps(header).replace('"HERE"', "1e999").encode(), buffer), ("FrameError",), "1e999")


@pytest.mark.parametrize("change", [
    {"arguments": "text"}, {"arguments": "nothing"}, {"arguments": "number"}, {"fields": {"batch": "two"}}, {"fields": {"batch": [2]}},
], ids=str)
def test_what_only_the_client_function_can_refuse_leaves_no_trace(change: dict[str, Any], moments: list[Moment]) -> None:
    """A value of the wrong type for this function: an error by name, of whatever kind, and nothing has changed."""
    moment = of_step(moments)
    header = moment.header
    op = step_op(header)
    if "fields" in change:
        op["fn"][0]["fields"].update(change["fields"])
    elif change["arguments"] == "number":
        op["arguments"][0] = {"value": 1.5}
    else:
        op["arguments"][3] = {"value": "text" if change["arguments"] == "text" else None}
    check_refused(moment, pack(header, moment.tensors), ("FrameError", "EngineError", "AlgorithmError"), str(change))


@pytest.mark.parametrize("tag", ["half", "tag"])
def test_a_refused_frame_has_saved_nothing(tag: str, moments: list[Moment], tmp_path: Path) -> None:
    """A save before the operation that is refused: no checkpoint appears on disk, and an older one stays what it was."""
    moment = of_step(moments).moved(tmp_path / "sites")
    assert moment.site.file("tag").exists()
    header = {**moment.header, "ops": [{"op": "save", "tag": tag, "ids": [min(values(moment.site))]}, {"op": "nothing"}], "want": []}
    check_refused(moment, pack(header, moment.tensors), ("FrameError",), f"save {tag!r}, then an unknown operation")


def test_a_private_client_function_is_not_for_the_network(moments: list[Moment]) -> None:
    """It would do as a client function in all but its name."""
    moment = of_step(moments)
    header = moment.header
    op = step_op(header)
    op.update(fn=[describe(Small()), "scale"], arguments=op["arguments"][:1])
    header["programs"] = {name: digest_of(name) for name in named(describe(Small()))}
    assert "error" not in unpack(moment.fresh().answer(pack(header, moment.tensors)))[0]
    op["fn"][1] = "_own"
    check_refused(moment, pack(header, moment.tensors), ("FrameError",), "_own")
