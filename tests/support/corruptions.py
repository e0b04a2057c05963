"""Ways to corrupt a frame, each with a digest that fits: what a site must refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from frame_entries import HEADER, KEYS, NOT, OPS, TYPES, UNKNOWN, kind_of
from hypothesis import strategies as st
from recorded_frames import Moment, held, parts, picture, seal, sealed, text

from rookery.engines.frames import DTYPES, MAGIC, VERSION, pack, unpack

Draw = Callable[[Any], Any]


@dataclass(frozen=True)
class Corruption:
    """Makes a frame that must be refused with one of these errors."""

    make: Callable[[Moment, Draw], bytes]
    errors: tuple[str, ...] = ("FrameError",)
    needs: Callable[[Moment], bool] = lambda moment: True


def edit(change: Callable[[dict[str, Any], Draw], None]) -> Callable[[Moment, Draw], bytes]:
    """Change the whole header, keep the buffer, and seal anew."""
    def make(moment: Moment, draw: Draw) -> bytes:
        header, buffer = parts(moment.frame)
        before = json.dumps(header)
        change(header, draw)
        assert json.dumps(header) != before
        return sealed(header, buffer)
    return make


def edit_map(change: Callable[[dict[str, Any], Draw], None]) -> Callable[[Moment, Draw], bytes]:
    def inside(header: dict[str, Any], draw: Draw) -> None:
        change(draw(st.sampled_from([op for op in header["ops"] if op["op"] == "map"])), draw)
    return edit(inside)


def wrong_k(header: dict[str, Any], draw: Draw) -> None:
    header["k"] = draw(st.integers(-5, header["base"]))


def wrong_base(header: dict[str, Any], draw: Draw) -> None:
    header["base"] = draw(st.integers(-5, 50).filter(lambda base: base not in (0, header["base"])) | UNKNOWN)


def wrong_clients(header: dict[str, Any], draw: Draw) -> None:
    header["clients"] = draw(st.sampled_from([[-1], [1], [0, 1], [0, 0], [1 << 70]]))


def wrong_run(header: dict[str, Any], draw: Draw) -> None:
    header["run"] = draw(text.filter(lambda run: run != header["run"]) | st.just(header["run"] + "0") | st.just(header["run"][:-1]))


def unknown_op(header: dict[str, Any], draw: Draw) -> None:
    draw(st.sampled_from(header["ops"]))["op"] = draw(text.filter(lambda op: op not in OPS) | st.just("MAP"))


def extra_op(header: dict[str, Any], draw: Draw) -> None:
    header["ops"].append(draw(st.sampled_from([{"op": "eval", "code": "1"}, {"op": "map2"}, {}, [], None, 3, "map"])))


def unknown_program(op: dict[str, Any], draw: Draw) -> None:
    name = draw(text | st.sampled_from(["os.system", "builtins.eval", "rookery.algorithms.minimization.fedavg.Fed", "FedAvg",
                                         "rookery.federation.federation.Federation"]))
    op["fn"][0] = {"program": name, "fields": {}}


def unknown_method(op: dict[str, Any], draw: Draw) -> None:
    known = ["lr", "State", "title", "init", "round", "fits", "", "step ", "Step", "solves"]
    op["fn"][1] = draw(st.text(alphabet="abcxyz", min_size=6) | st.sampled_from(known))


def private_method(op: dict[str, Any], draw: Draw) -> None:
    known = ["__init__", "__class__", "__reduce__", "__getattribute__", "__init_subclass__", "_x", "__post_init__", "__eq__"]
    op["fn"][1] = draw(st.sampled_from(known))


def other_hyper_parameters(op: dict[str, Any], draw: Draw) -> None:
    fields = op["fn"][0]["fields"]
    how = draw(st.sampled_from(["rename", "add", "remove", "none", "list"]))
    name = draw(st.sampled_from(sorted(fields)))
    if how == "rename":
        fields[name + "_"] = fields.pop(name)
    elif how == "add":
        fields[draw(text.filter(lambda key: key not in fields))] = 1
    elif how == "remove":
        del fields[name]
    else:
        op["fn"][0]["fields"] = None if how == "none" else [1]


def refused_hyper_parameters(op: dict[str, Any], draw: Draw) -> None:
    op["fn"][0]["fields"]["lr"] = draw(st.sampled_from([0, -1, 0.0, -0.5]))


def missing_key(header: dict[str, Any], draw: Draw) -> None:
    where: Any = draw(st.sampled_from([header, *header["ops"]]))
    keys = [*HEADER, "v", "tensors"] if where is header else KEYS[where["op"]]
    del where[draw(st.sampled_from(keys))]


def wrong_type(header: dict[str, Any], draw: Draw) -> None:
    where: Any = draw(st.sampled_from([header, *header["ops"]]))
    key = draw(st.sampled_from(HEADER if where is header else KEYS[where["op"]]))
    where[key] = draw(st.sampled_from(NOT[TYPES[key] if where is header else kind_of(where["op"], key)]))


def unknown_reference(header: dict[str, Any], draw: Draw) -> None:
    places: list[tuple[Any, Any]] = [(header["want"], i) for i in range(len(header["want"]))]
    for op in header["ops"]:
        if op["op"] == "map":
            places += [(a, "ref") for a in op["arguments"] if "ref" in a]
        elif op["op"] == "put":
            places.append((op, "source"))
        elif op["op"] == "finish":
            places.append((op, "total"))
    where, key = draw(st.sampled_from(places))
    where[key] = draw(UNKNOWN)


def outputs_number(op: dict[str, Any], draw: Draw) -> None:
    op["out"] = draw(st.sampled_from([[], op["out"][:-1], [*op["out"], 1 << 40]]))


def negative_times(op: dict[str, Any], draw: Draw) -> None:
    op["times"] = draw(st.integers(max_value=-1))


def tensor_twice(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    header["tensors"] = header["tensors"] * 2
    return sealed(header, buffer * 2)


def other_shape(moment: Moment, draw: Draw) -> bytes:
    """Another number of bytes, padding included."""
    header, buffer = parts(moment.frame)
    entry = draw(st.sampled_from(header["tensors"]))
    size = DTYPES[entry[1]].itemsize

    def padded(shape: list[int]) -> int:
        return -(-int(np.prod(shape, dtype=object)) * size // 8)
    entry[2] = draw(st.lists(st.integers(0, 9) | st.integers(0, 1 << 60), max_size=4).filter(
        lambda shape: padded(shape) != padded(entry[2]) and (0 not in shape or max(shape) < 10)))
    return sealed(header, buffer)


def odd_tensor(header: dict[str, Any], draw: Draw) -> None:
    entry = draw(st.sampled_from(header["tensors"]))
    place = draw(st.integers(0, 2))
    entry[place] = draw(st.sampled_from([[None, "1", 1.5, [1]], ["float8", "complex64", "", None, 3, "torch.float32", "object"],
                                         [None, 3, "3", [-1], [1.5], ["3"], [None], [True, 3], {}]][place]))


def leftover(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    return sealed(header, buffer + draw(st.binary(min_size=1, max_size=40)))


def short_buffer(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    return sealed(header, buffer[: draw(st.integers(0, len(buffer) - 1))])


def non_finite(moment: Moment, draw: Draw) -> bytes:
    tensors = moment.tensors
    value = tensors[draw(st.sampled_from(sorted(tensors)))].reshape(-1)
    value[draw(st.integers(0, len(value) - 1))] = draw(st.sampled_from([float("nan"), float("inf"), -float("inf")]))
    return pack(moment.header, tensors)


def nan_in_json(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    numbers = [a for op in header["ops"] for a in op.get("arguments", []) if "value" in a]
    where: Any = draw(st.sampled_from(numbers or [header, *header["ops"]]) | st.sampled_from([header, *header["ops"]]))
    key = draw(st.sampled_from([*sorted(where), "another"]))
    where[key] = draw(st.sampled_from([float("nan"), float("inf"), -float("inf"), [float("nan")]]))
    return sealed(header, buffer)  # json.dumps writes NaN and Infinity


def wrong_version(header: dict[str, Any], draw: Draw) -> None:
    header["v"] = draw(st.integers().filter(lambda v: v != VERSION) | st.sampled_from(["1", None, [1], 1.5]))


def no_json(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    head = json.dumps(header).encode()
    bad = [b"", b" ", b"{", b"\xff\xfe", b"[]", b"null", b'"x"', b"7", b"1" * 5000, b"[" * 100_000]
    return seal(draw(st.sampled_from([*bad, head[:-1], head + b"}", head.replace(b'"', b"'")])), buffer)


def wrong_length(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    right = int.from_bytes(moment.frame[4:8], "little")
    length = draw(st.integers(0, (1 << 32) - 1).filter(lambda n: n != right))
    return seal(json.dumps(header, separators=(",", ":")).encode(), buffer, length=length)


def wrong_magic(moment: Moment, draw: Draw) -> bytes:
    header, buffer = parts(moment.frame)
    return seal(json.dumps(header).encode(), buffer, magic=draw(st.binary(min_size=4, max_size=4).filter(lambda m: m != MAGIC)))


def flip(moment: Moment, draw: Draw) -> bytes:
    frame = bytearray(moment.frame)
    for place in draw(st.sets(st.integers(0, 8 * len(frame) - 1), min_size=1, max_size=8)):
        frame[place // 8] ^= 1 << (place % 8)
    return bytes(frame)


def truncate(moment: Moment, draw: Draw) -> bytes:
    return moment.frame[draw(st.integers(1, 60)):] if draw(st.booleans()) else moment.frame[: draw(st.integers(0, len(moment.frame) - 1))]


def extend(moment: Moment, draw: Draw) -> bytes:
    more = draw(st.binary(min_size=1, max_size=40))
    return moment.frame + more if draw(st.booleans()) else more + moment.frame


def with_maps(moment: Moment) -> bool:
    return bool(moment.maps)


def with_programs(moment: Moment) -> bool:
    maps = [op for op in moment.header["ops"] if op["op"] == "map"]
    return bool(maps) and all("lr" in op["fn"][0]["fields"] for op in maps)


def with_tensors(moment: Moment) -> bool:
    return bool(moment.tensors)


def with_references(moment: Moment) -> bool:
    return any(op["op"] in ("map", "put", "finish") for op in moment.header["ops"])


STRUCTURED = {
    "wrong k": Corruption(edit(wrong_k), ("FrameError", "StateLost")),
    "wrong base": Corruption(edit(wrong_base), ("StateLost", "FrameError")),
    "wrong clients": Corruption(edit(wrong_clients)),
    "wrong run": Corruption(edit(wrong_run), ("StateLost",)),
    "unknown op": Corruption(edit(unknown_op), needs=lambda m: bool(m.header["ops"])),
    "extra op": Corruption(edit(extra_op)),
    "unknown program": Corruption(edit_map(unknown_program), needs=with_maps),
    "unknown method": Corruption(edit_map(unknown_method), needs=with_maps),
    "private method": Corruption(edit_map(private_method), needs=with_maps),
    "other hyper-parameters": Corruption(edit_map(other_hyper_parameters), needs=with_programs),
    "refused hyper-parameters": Corruption(edit_map(refused_hyper_parameters), needs=with_programs),
    "missing key": Corruption(edit(missing_key)),
    "wrong type": Corruption(edit(wrong_type)),
    "unknown reference": Corruption(edit(unknown_reference), ("StateLost", "FrameError"), with_references),
    "number of outputs": Corruption(edit_map(outputs_number), needs=with_maps),
    "negative times": Corruption(edit_map(negative_times), needs=with_maps),
    "tensor twice": Corruption(tensor_twice, needs=with_tensors),
    "other shape": Corruption(other_shape, needs=with_tensors),
    "odd tensor": Corruption(edit(odd_tensor), needs=with_tensors),
    "leftover": Corruption(leftover),
    "short buffer": Corruption(short_buffer, needs=with_tensors),
    "non-finite": Corruption(non_finite, needs=with_tensors),
    "NaN in JSON": Corruption(nan_in_json),
    "wrong version": Corruption(edit(wrong_version)),
    "no JSON": Corruption(no_json),
    "wrong length": Corruption(wrong_length),
    "wrong magic": Corruption(wrong_magic),
}
BYTES = {"flip": Corruption(flip), "truncate": Corruption(truncate), "extend": Corruption(extend)}


def check_refused(moment: Moment, frame: bytes, errors: tuple[str, ...], label: str) -> None:
    """The frame is refused by name, nothing has changed, and the genuine frame still works."""
    site = moment.fresh()
    before = picture(site)
    header, tensors = unpack(site.answer(frame))
    assert "error" in header, f"{label}: accepted"
    name, message = header["error"]
    assert name in errors, f"{label}: {name}: {message}"
    assert message
    assert not tensors
    assert header["site"] == site.name
    assert picture(site) == before
    assert site.answer(moment.frame) == moment.reply
    assert held(site) == moment.after
