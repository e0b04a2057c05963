"""What crosses the network arrives exactly, or is refused without a trace."""

from __future__ import annotations

import copy
import gc
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rookery import SCAFFOLD, Compositional, Data, FedAvg, FedDRO, Federation, Minimization, Placed, Program
from rookery.engines import Wire, frames
from rookery.engines.frames import DTYPES, MAGIC, VERSION, build, describe, pack, unpack
from rookery.engines.site import Site
from rookery.errors import FrameError, RookeryError, StateLost, UploadError
from rookery.federation.oracles import Client

steady = settings(deadline=None, derandomize=True)
NAMES = ("a", "b", "c", "d")
CALLS: list[str] = []
text = st.text(alphabet='aZ9_. é"\\\n\0€😀\ud800', max_size=12)


# a federation with all kinds of frames

def loss(x: Tensor, b: Any) -> Tensor:
    CALLS.append("loss")
    return 0.5 * (x - b.u).square().sum(-1).mean()


def rows() -> Data:
    own = torch.Generator().manual_seed(0)
    return Data.from_parts({name: {"u": torch.randn(4 + k, 3, generator=own, dtype=torch.float64)} for k, name in enumerate(NAMES)})


def plain() -> Minimization:
    return Minimization(loss)


def composed() -> Compositional:
    return Compositional(lambda z: z.square().sum(), lambda x, b: (x - b.u).mean(0))


def prepared() -> Minimization:
    return Minimization(loss, statistics=lambda x, b: b.u.sum(0), finish=lambda total: Minimization(lambda x, b: loss(x - total, b)))


@dataclass(frozen=True)
class Small(Program):
    factor: float = 2.0

    def scale(self, c: Client, x: Tensor) -> Tensor:
        CALLS.append("scale")
        return self.factor * x

    def divide(self, c: Client, x: Tensor, by: float) -> tuple[Tensor, Tensor]:
        return x / by, x + 1

    def twice(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x

    def views(self, c: Client, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:2], x[1:]

    def _own(self, c: Client, x: Tensor) -> Tensor:
        return x

    def short(self, c: Client, x: Tensor) -> Tensor:
        return x.to(torch.int16)


def exchange(fed: Federation, value: float = 1.0) -> Tensor:
    mean: Tensor = fed.mean(fed.map(Small().scale, fed.broadcast(torch.full((3,), value, dtype=torch.float64))))
    return mean


@dataclass(frozen=True)
class Moment:
    """A site as it was, the genuine frame it got then, its reply, and what it held after."""

    site: Site
    frame: bytes
    reply: bytes
    after: dict[int, Any]

    def fresh(self) -> Site:
        site = copy.copy(self.site)
        site.store = {id: value.clone() for id, value in self.site.store.items()}
        return site

    def moved(self, folder: Path) -> Moment:
        """The same with a copy of the site's checkpoints, for what may write to them."""
        assert self.site.folder is not None
        shutil.copytree(self.site.folder, folder)
        site = copy.copy(self.site)
        site.folder = folder
        return replace(self, site=site)

    @property
    def header(self) -> dict[str, Any]:
        return plain_header(self.frame)

    @property
    def tensors(self) -> dict[int, Tensor]:
        return unpack(self.frame)[1]

    @property
    def maps(self) -> list[int]:
        return [i for i, op in enumerate(self.header["ops"]) if op["op"] == "map"]


def plain_header(frame: bytes) -> dict[str, Any]:
    header, _ = unpack(frame)
    del header["v"], header["tensors"]
    return header


def held(site: Site) -> dict[int, Any]:
    return {id: (value.dtype, tuple(value.shape), value.contiguous().numpy().tobytes()) for id, value in site.store.items()}


def picture(site: Site) -> Any:
    """Everything a frame could change, bit by bit."""
    files = {} if site.folder is None else {p.name: p.read_bytes() for p in sorted(site.folder.iterdir())}
    return held(site), site.counter, site.last, id(site.setting), id(site.setting.problem), site.setting.constants, files


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    """Real frames of real runs: maps, takes, puts, the constants of prepare, saves and loads."""
    recorded: list[Moment] = []
    genuine = Site.answer

    def answer(self: Site, frame: bytes) -> bytes:
        before = copy.copy(self)
        before.store = {id: value.clone() for id, value in self.store.items()}
        reply = genuine(self, frame)
        assert "error" not in unpack(reply)[0]
        recorded.append(Moment(before, frame, reply, held(self)))
        return reply

    x = torch.ones(3, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Site, "answer", answer)
        for algorithm, problem in ((SCAFFOLD(lr=0.1, local_steps=2, batch=2), plain()), (FedAvg(lr=0.1, batch=2), prepared()),
                                   (FedDRO(lr=0.1, beta=0.5, local_steps=2, batch=3), composed())):
            wire = Wire(tmp_path_factory.mktemp("sites"))
            wire.run = f"run of {algorithm.title}"  # not a random one, so that every session tests the same frames
            fed = Federation(problem, rows(), engine=wire, clients_per_round=2, seed=1)
            fed.prepare(x)
            state = algorithm.init(fed, x)
            for _ in range(3):
                state = algorithm.round(fed, state)
            wire.save("tag", [value.id for value in state if isinstance(value, Placed)])
            wire.load("tag")
            algorithm.round(fed, state)
    return recorded


def test_the_recorded_frames_are_of_every_kind(moments: list[Moment]) -> None:
    kinds = {op["op"] for m in moments for op in m.header["ops"]}
    assert kinds == {"map", "take", "put", "finish", "save", "load"}
    assert any(m.site.store for m in moments)
    assert len(moments) > 50


def test_a_recorded_frame_gives_the_recorded_reply(moments: list[Moment]) -> None:
    for moment in moments:
        site = moment.fresh()
        assert site.answer(moment.frame) == moment.reply
        assert held(site) == moment.after


# pack and unpack

def bits(value: Tensor) -> bytes:
    return value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""


@st.composite
def tensor(draw: st.DrawFn, finite: bool) -> Tensor:
    dtype = draw(st.sampled_from(sorted(DTYPES.values(), key=str)))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    size = int(np.prod(shape)) * dtype.itemsize
    if dtype is torch.bool:
        raw = bytes(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    else:
        raw = draw(st.binary(min_size=size, max_size=size))
    value = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape) if raw else torch.zeros(shape, dtype=dtype)
    return torch.nan_to_num(value) if finite and value.is_floating_point() else value


@steady
@given(st.dictionaries(st.integers(0, 1 << 40), tensor(finite=False), max_size=4))
def test_tensors_arrive_bit_by_bit(values: dict[int, Tensor]) -> None:
    header, arrived = unpack(pack({"a": 1}, values), finite=False)
    assert header["a"] == 1
    assert list(arrived) == list(values)
    for id, value in values.items():
        assert arrived[id].dtype == value.dtype
        assert arrived[id].shape == value.shape
        assert bits(arrived[id]) == bits(value)


@steady
@given(st.lists(tensor(finite=True), min_size=1, max_size=3))
def test_finite_tensors_pass_the_check(values: list[Tensor]) -> None:
    _, arrived = unpack(pack({}, dict(enumerate(values))))
    assert [bits(v) for v in arrived.values()] == [bits(v) for v in values]


@pytest.mark.parametrize("name", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0, 2), (1,), (5,), (2, 3), (1, 1, 1, 1)])
def test_every_dtype_and_shape_arrives(name: str, shape: tuple[int, ...]) -> None:
    value = (torch.arange(int(np.prod(shape))) % 2).reshape(shape).to(DTYPES[name])
    _, arrived = unpack(pack({}, {7: value}))
    assert arrived[7].dtype == DTYPES[name]
    assert arrived[7].shape == shape
    assert torch.equal(arrived[7], value)


def test_views_strides_and_gradients_do_not_cross() -> None:
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4).requires_grad_()
    for value in (base, base.T, base[:, 1], base[::2], base.expand(2, 3, 4), base[0, 0]):
        _, arrived = unpack(pack({}, {0: value}))
        assert torch.equal(arrived[0], value)
        assert not arrived[0].requires_grad
        assert arrived[0].is_contiguous()
    _, arrived = unpack(pack({}, {0: base, 1: base}))
    arrived[0].add_(1)
    assert torch.equal(arrived[1], base)


numbers = st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.floats(allow_nan=False, allow_infinity=False)
plain_json = st.recursive(st.none() | numbers | text,
                          lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=8)


@steady
@given(st.dictionaries(text.filter(lambda key: key not in ("v", "tensors")), plain_json, max_size=4))
def test_headers_arrive(header: dict[str, Any]) -> None:
    arrived, _ = unpack(pack(header, {}))
    assert {k: v for k, v in arrived.items() if k not in ("v", "tensors")} == header


@steady
@given(st.floats(0, 1e300, exclude_min=True), st.none() | st.integers(1, 1 << 40), st.floats(1e-3, 1e3))
def test_hyper_parameters_arrive_exactly(lr: float, batch: int | None, server_lr: float) -> None:
    sent = SCAFFOLD(lr=lr, local_steps=3, batch=batch, server_lr=server_lr)
    header, _ = unpack(pack({"program": describe(sent)}, {}))
    assert build(header["program"]) == sent


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_values_are_refused_where_finite_ones_are_asked_for(bad: float) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        frame = pack({}, {3: torch.tensor([1.0, bad], dtype=dtype)})
        assert bits(unpack(frame, finite=False)[1][3]) == bits(torch.tensor([1.0, bad], dtype=dtype))
        with pytest.raises(FrameError, match="tensor 3 holds a non-finite value"):
            unpack(frame)


# one thousand corrupted frames

def seal(head: bytes, buffer: bytes = b"", magic: bytes = MAGIC, length: int | None = None) -> bytes:
    """A frame of these parts with a valid digest."""
    head += b" " * (-(len(head) + 8) % 8)
    body = magic + (len(head) if length is None else length).to_bytes(4, "little") + head + buffer
    return body + hashlib.blake2b(body, digest_size=16).digest()


def parts(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """The whole header, and the buffer of the tensors."""
    length = int.from_bytes(frame[4:8], "little")
    return json.loads(frame[8 : 8 + length]), frame[8 + length : -16]


def sealed(header: Any, buffer: bytes = b"") -> bytes:
    return seal(json.dumps(header).encode(), buffer)


Draw = Callable[[Any], Any]
OPS = {"map", "take", "put", "finish", "save", "load"}
KEYS = {"map": ["op", "fn", "arguments", "out", "times", "phase", "call", "known"], "take": ["op", "source", "default", "out"],
        "put": ["op", "pool", "source"], "finish": ["op", "total"], "save": ["op", "tag", "ids"], "load": ["op", "tag"]}
UNKNOWN = st.integers(1 << 40, 1 << 50)
NOT = {  # for each kind of entry, values of other types
    str: [None, True, 3, 1.5, [], ["x"], {}],
    int: [None, True, "3", 1.5, [], [3], {}],
    list: [None, True, 3, 1.5, "x", {}],
    "ids": [None, True, 3, 1.5, "x", {}, [None], ["x"], [1.5], [True], [[1]], [{}]],
    "ops": [None, True, 3, 1.5, "x", {}, [None], ["map"], [3], [[]], [{}]],
    "fn": [None, True, 3, "step", {}, [], ["problem"], [None, "step"], ["problem", None], ["problem", "sums", 1], [3, "step"]],
    "arguments": [None, True, 3, "x", {}, [None], [3], [[]], [{}], [{"ref": "x"}], [{"ref": None}], [{"ref": 1.5}], [{"other": 3}]],
}
TYPES = {"run": str, "k": int, "ops": "ops", "want": "ids", "free": "ids", "drop": "ids", "op": str, "fn": "fn", "arguments": "arguments",
         "times": int, "phase": str, "call": int, "known": int, "source": int, "default": int, "pool": int, "total": int,
         "tag": str, "ids": list}


def kind_of(op: str, key: str) -> Any:
    return ("ids" if op == "map" else int) if key == "out" else TYPES[key]


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
    header["k"] = draw(st.integers(-5, 50).filter(lambda k: k != header["k"]) | UNKNOWN)


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
    keys = ["run", "k", "ops", "want", "free", "drop", "commit", "v", "tensors"] if where is header else KEYS[where["op"]]
    del where[draw(st.sampled_from(keys))]


def wrong_type(header: dict[str, Any], draw: Draw) -> None:
    where: Any = draw(st.sampled_from([header, *header["ops"]]))
    key = draw(st.sampled_from(["run", "k", "ops", "want", "free", "drop"] if where is header else KEYS[where["op"]]))
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
    "wrong k": Corruption(edit(wrong_k), ("StateLost", "FrameError")),
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
    "unknown reference": Corruption(edit(unknown_reference), ("StateLost",), with_references),
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


@settings(max_examples=1000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_thousand_corrupted_frames_are_refused_without_a_trace(moments: list[Moment], data: st.DataObject) -> None:
    label = data.draw(st.sampled_from([*BYTES, "splice", *STRUCTURED]))
    if label == "splice":
        moment, other = data.draw(st.sampled_from(moments)), data.draw(st.sampled_from(moments))
        cut, paste = data.draw(st.integers(0, len(moment.frame))), data.draw(st.integers(0, len(other.frame)))
        frame = moment.frame[:cut] + other.frame[paste:]
        assume(frame not in (moment.frame, other.frame))
        check_refused(moment, frame, ("FrameError",), label)
        return
    corruption = {**BYTES, **STRUCTURED}[label]
    moment = data.draw(st.sampled_from([m for m in moments if corruption.needs(m)]))
    check_refused(moment, corruption.make(moment, data.draw), corruption.errors, label)


@pytest.mark.parametrize("label", STRUCTURED)
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_each_corruption_is_refused(label: str, moments: list[Moment], data: st.DataObject) -> None:
    """The same, kind by kind, so that a failure says which."""
    moment = data.draw(st.sampled_from([m for m in moments if STRUCTURED[label].needs(m)]))
    check_refused(moment, STRUCTURED[label].make(moment, data.draw), STRUCTURED[label].errors, label)


# single malformed frames, each with a valid digest

def of_step(moments: list[Moment]) -> Moment:
    """A frame whose third operation is SCAFFOLD's local step, at a site with state."""
    return next(m for m in moments if m.site.store and [op["op"] for op in m.header["ops"]][:3] == ["map", "take", "map"])


def step_op(header: dict[str, Any]) -> dict[str, Any]:
    op: dict[str, Any] = header["ops"][2]
    assert op["fn"][1] == "step"
    return op


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
    header = {**moment.header, "ops": [{"op": "save", "tag": tag, "ids": [min(moment.site.store)]}, {"op": "nothing"}], "want": []}
    check_refused(moment, pack(header, moment.tensors), ("FrameError",), f"save {tag!r}, then an unknown operation")


def test_a_private_client_function_is_not_for_the_network(moments: list[Moment]) -> None:
    """It would do as a client function in all but its name."""
    moment = of_step(moments)
    header = moment.header
    op = step_op(header)
    op.update(fn=[describe(Small()), "scale"], arguments=op["arguments"][:1])
    assert "error" not in unpack(moment.fresh().answer(pack(header, moment.tensors)))[0]
    op["fn"][1] = "_own"
    check_refused(moment, pack(header, moment.tensors), ("FrameError",), "_own")


# counting

def test_the_same_frame_twice_is_answered_twice_and_executed_once(moments: list[Moment]) -> None:
    for moment in (m for m in moments if m.maps):
        site = moment.fresh()
        del CALLS[:]
        first, after, calls = site.answer(moment.frame), picture(site), list(CALLS)
        assert first == moment.reply
        for _ in range(2):
            assert site.answer(moment.frame) == first
        assert picture(site) == after
        assert calls == CALLS
    assert any(m.header["ops"][m.maps[0]]["fn"][1] == "step" for m in moments if m.maps)


def test_an_earlier_frame_is_not_answered_again(moments: list[Moment]) -> None:
    """Only the last one is; two steps back is state lost."""
    run = [m for m in moments if m.site.name == "a" and m.site.run == "run of SCAFFOLD"]
    site = run[0].fresh()
    for moment in run[:2]:
        assert site.answer(moment.frame) == moment.reply
    header, _ = unpack(site.answer(run[0].frame))
    assert header["error"] == ["StateLost", "state lost: frame 1 came after frame 2"]
    assert site.counter == 2


def test_the_last_number_with_another_content_is_not_answered_from_memory(moments: list[Moment]) -> None:
    moment = of_step(moments)
    site = moment.fresh()
    site.answer(moment.frame)
    after = picture(site)
    header, _ = unpack(site.answer(pack({**moment.header, "free": []}, moment.tensors)))
    assert header["error"][0] == "StateLost"
    assert picture(site) == after


def test_a_skipped_number_says_state_lost_and_names_the_site() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    exchange(fed)
    wire.counters[2] += 1
    with pytest.raises(StateLost, match=r"^site 'c': state lost: frame 3 came after frame 1$"):
        exchange(fed)


def test_a_restarted_site_says_state_lost() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    exchange(fed)
    old = wire.sites[1]
    wire.sites[1] = Site(old.setting, old.run)
    with pytest.raises(StateLost, match=r"^site 'b': state lost: frame 2 came after frame 0$"):
        exchange(fed)


def test_a_frame_of_another_run_is_refused(moments: list[Moment]) -> None:
    moment = of_step(moments)
    site = moment.fresh()
    site.run = "the other one"
    before = picture(site)
    header, _ = unpack(site.answer(moment.frame))
    name, message = header["error"]
    assert name == "StateLost"
    assert "'the other one'" in message
    assert "'run of SCAFFOLD'" in message
    assert picture(site) == before


def test_two_runs_have_different_names() -> None:
    assert Wire().run != Wire().run


def test_an_oversized_frame_is_refused(monkeypatch: pytest.MonkeyPatch, moments: list[Moment]) -> None:
    moment = of_step(moments)
    monkeypatch.setattr(frames, "LARGEST", len(moment.frame))
    assert moment.fresh().answer(moment.frame) == moment.reply
    monkeypatch.setattr(frames, "LARGEST", len(moment.frame) - 1)
    site = moment.fresh()
    before = picture(site)
    name, message = unpack(site.answer(moment.frame))[0]["error"]
    assert name == "FrameError"
    assert str(len(moment.frame)) in message
    assert picture(site) == before


def test_an_oversized_broadcast_names_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Federation(plain(), rows(), engine="wire")
    exchange(fed)
    monkeypatch.setattr(frames, "LARGEST", 2000)
    with pytest.raises(FrameError, match=r"^site 'a': a frame may have 2000 bytes; this one has 8\d\d\d$"):
        fed.mean(fed.map(Small().scale, fed.broadcast(torch.zeros(1000, dtype=torch.float64))))
    monkeypatch.undo()
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]


# replies

def reply_with(**change: Any) -> Callable[[bytes], bytes]:
    def make(reply: bytes) -> bytes:
        header, tensors = unpack(reply)
        return pack({k: v for k, v in {**header, **change}.items() if v is not Ellipsis}, tensors)
    return make


REPLIES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda reply: b"",
    "truncated": lambda reply: reply[:-1],
    "flipped": lambda reply: bytes([*reply[:-20], reply[-20] ^ 1, *reply[-19:]]),
    "of another site": reply_with(site="c"),
    "of another number": reply_with(k=7),
    "of another run": reply_with(run="another"),
    "without tensors": lambda reply: pack(unpack(reply)[0], {}),
    "with other tensors": lambda reply: pack(unpack(reply)[0], {1: torch.ones(3, dtype=torch.float64)}),
    "with more tensors": lambda reply: pack(unpack(reply)[0], {0: torch.ones(3), 1: torch.ones(3)}),
    "of another shape": lambda reply: pack(unpack(reply)[0], {0: torch.ones(4, dtype=torch.float64)}),
    "of another dtype": lambda reply: pack(unpack(reply)[0], {0: torch.ones(3)}),
    "not finite": lambda reply: pack(unpack(reply)[0], {0: torch.full((3,), float("nan"), dtype=torch.float64)}),
    "without work": reply_with(work=...),
    "with odd work": reply_with(work={}),
    "with work of odd form": reply_with(work=[1]),
    "with odd calls": reply_with(work=[["train", 1, [], 0, 0]]),
    "with texts as numbers of calls": reply_with(work=[["train", 1, {"gradient": "many"}, 0, 0]]),
    "with odd samples": reply_with(work=[["train", 1, {}, "many", 0]]),
    "with negative samples": reply_with(work=[["train", 1, {}, -5, 0]]),
    "with odd draws": reply_with(work=[["train", 1, {}, 0, []]]),
    "with work in an unknown phase": reply_with(work=[["holiday", 1, {}, 0, 0]]),
    "with work nobody asked for": reply_with(work=[["train", 77, {}, 0, 0]]),
    "an odd error": reply_with(error=5),
    "an error of three parts": reply_with(error=["FrameError", "a", "b"]),
    "an error of an unknown name": reply_with(error=["annotations", "a"]),
    "an error without a name": reply_with(error=[None, "a"]),
}


@pytest.mark.parametrize("label", REPLIES)
def test_a_malformed_reply_is_refused_with_the_site_s_name(label: str) -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    site, genuine = wire.sites[1], wire.sites[1].answer
    site.answer = lambda frame: REPLIES[label](genuine(frame))  # type: ignore[method-assign]
    with pytest.raises(RookeryError, match=r"(client|site) 'b'"):
        exchange(fed)
    assert fed.ledger["train"].exchanges == 0


def test_a_non_finite_upload_crosses_and_is_named() -> None:
    fed = Federation(plain(), rows(), engine="wire")
    with pytest.raises(UploadError, match="non-finite") as caught:
        fed.mean(fed.map(Small().divide, fed.broadcast(torch.ones(3)), np.asarray([1.0, 1.0, 0.0, 1.0]))[0])
    assert caught.value.client == "c"


def test_an_upload_that_no_frame_carries_is_refused_and_the_next_exchange_works() -> None:
    fed = Federation(plain(), rows(), engine="wire")
    with pytest.raises(UploadError, match=r"client 'a'.*int16"):
        fed.sum(fed.map(Small().short, fed.broadcast(torch.ones(3))))
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]


def test_a_fault_in_a_loss_reaches_the_server_with_the_site_s_name() -> None:
    def broken(x: Tensor, b: Any) -> Tensor:
        raise ZeroDivisionError("my own fault")

    fed = Federation(Minimization(broken), rows(), engine="wire")
    algorithm = FedAvg(lr=0.1)
    with pytest.raises(RookeryError, match=r"^site 'a': the oracle 'gradient' failed with ZeroDivisionError: my own fault"):
        algorithm.round(fed, algorithm.init(fed, torch.zeros(3, dtype=torch.float64)))
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]


# checkpoints at sites

def scaffold(wire: Wire, rounds: int, clients_per_round: int = 2) -> tuple[Federation, Any]:
    fed = Federation(plain(), rows(), engine=wire, clients_per_round=clients_per_round)
    algorithm = SCAFFOLD(lr=0.1, local_steps=2, batch=2)
    state = algorithm.init(fed, torch.zeros(3, dtype=torch.float64))
    for _ in range(rounds):
        state = algorithm.round(fed, state)
    return fed, state


def test_sites_save_and_load_under_a_tag(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    _, state = scaffold(wire, 1)
    wire.save("after-1", [state.ci.id])
    saved = [held(site).get(state.ci.id) for site in wire.sites]
    assert sum(value is not None for value in saved) == 2
    assert len(list(tmp_path.iterdir())) == 4
    for site in wire.sites:
        assert site.file("after-1").exists()
        site.store = {id: value + 1 for id, value in site.store.items()}
    wire.load("after-1", {state.ci.id: state.ci.id})
    assert [held(site).get(state.ci.id) for site in wire.sites] == saved

    later = Wire(tmp_path)
    Federation(plain(), rows(), engine=later)
    later.load("after-1", {state.ci.id: state.ci.id})
    assert [held(site) for site in later.sites] == [{} if value is None else {state.ci.id: value} for value in saved]


def test_a_missing_tag_says_state_lost_and_names_the_site(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    fed, state = scaffold(wire, 1, clients_per_round=4)
    with pytest.raises(StateLost, match=r"^site 'a': state lost: no checkpoint 'never' at this site$"):
        wire.load("never")
    wire.save("once", [state.ci.id])
    wire.sites[2].file("once").unlink()
    with pytest.raises(StateLost, match=r"^site 'c': state lost: no checkpoint 'once' at this site$"):
        wire.load("once")
    assert exchange(fed).tolist() == [2.0, 2.0, 2.0]


def test_a_site_without_a_folder_says_so() -> None:
    wire = Wire()
    Federation(plain(), rows(), engine=wire)
    for ask in (lambda: wire.save("tag", []), lambda: wire.load("tag")):
        with pytest.raises(StateLost, match=r"^site 'a': .*no folder"):
            ask()


def test_a_damaged_checkpoint_at_a_site_is_refused_by_name(tmp_path: Path) -> None:
    wire = Wire(tmp_path)
    _, state = scaffold(wire, 1, clients_per_round=4)
    wire.save("tag", [state.ci.id])
    file = wire.sites[1].file("tag")
    file.write_bytes(file.read_bytes()[:-3])
    before = picture(wire.sites[1])
    with pytest.raises(RookeryError, match=r"^site 'b'") as caught:
        wire.load("tag")
    assert type(caught.value).__name__ in ("StateLost", "CheckpointError")
    assert picture(wire.sites[1]) == before


@pytest.mark.parametrize("method", ["twice", "views"])
def test_values_that_share_memory_are_saved(tmp_path: Path, method: str) -> None:
    """A client function may return its argument, or two views of it."""
    wire = Wire(tmp_path)
    fed = Federation(plain(), rows(), engine=wire)
    first, second = fed.map(getattr(Small(), method), fed.broadcast(torch.tensor([1.0, 2.0, 3.0])))
    exchange(fed)
    wire.save("tag", [first.id, second.id])
    saved = held(wire.sites[0])
    later = Wire(tmp_path)
    Federation(plain(), rows(), engine=later)
    later.load("tag", {first.id: first.id, second.id: second.id})
    assert held(later.sites[0]) == {id: saved[id] for id in (first.id, second.id)}


def test_sites_of_one_folder_keep_apart(tmp_path: Path) -> None:
    """Names that differ only where a file system would not tell them apart."""
    names = ("A", "a", "a/b", "a.b", "..", "ä")
    wire = Wire(tmp_path)
    fed = Federation(plain(), Data.from_parts({name: {"u": torch.zeros(2, 3)} for name in names}), engine=wire)
    value = fed.map(Small().divide, fed.broadcast(torch.ones(3)), np.arange(1.0, 7.0))[0]
    exchange(fed)
    wire.save("tag", [value.id])
    assert len(list(tmp_path.iterdir())) == 6
    before = [held(site)[value.id] for site in wire.sites]
    assert len(set(before)) == 6
    wire.load("tag")
    assert [held(site)[value.id] for site in wire.sites] == before


# nothing is left behind

@pytest.mark.parametrize(("algorithm", "problem", "bound"), [
    (FedAvg(lr=0.1, local_steps=2, batch=2), plain, 1), (SCAFFOLD(lr=0.1, local_steps=2, batch=2), plain, 3),
    (FedDRO(lr=0.1, beta=0.5, local_steps=2, batch=3), composed, 5),
], ids=["FedAvg", "SCAFFOLD", "FedDRO"])
def test_sites_do_not_fill_up(algorithm: Any, problem: Callable[[], Any], bound: int) -> None:
    wire = Wire()
    fed = Federation(problem(), rows(), engine=wire, clients_per_round=2)
    state = algorithm.init(fed, torch.zeros(3, dtype=torch.float64))
    counts = []
    for _ in range(20):
        state = algorithm.round(fed, state)
        counts.append([len(site.store) for site in wire.sites])
    assert max(map(max, counts)) <= bound
    assert max(map(max, counts[10:])) <= max(map(max, counts[:10]))
    assert all(site.counter >= 3 for site in wire.sites)
    del state
    gc.collect()
    exchange(fed)
    exchange(fed)
    left = [dict(site.store) for site in wire.sites]
    exchange(fed)
    assert all(len(store) <= 2 for store in left)  # what the last exchange itself used
    assert all(not set(before) & set(site.store) for before, site in zip(left, wire.sites, strict=True))


def test_a_value_without_a_handle_disappears_at_the_next_exchange() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    x = fed.broadcast(torch.ones(3, dtype=torch.float64))
    y, z = fed.map(Small().divide, x, 2.0)
    fed.mean(y)
    assert all({x.id, z.id} <= set(site.store) for site in wire.sites)
    gone = {y.id, z.id}  # y was averaged, and leaves with the next frame: until then the exchange could be repeated
    del z
    fed.mean(fed.map(Small().scale, x))
    assert all(x.id in site.store and not gone & set(site.store) for site in wire.sites)


def test_a_site_that_was_away_frees_what_it_missed_when_it_is_next_reached() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    x = fed.broadcast(torch.ones(3, dtype=torch.float64))
    fed.mean(fed.map(Small().scale, x))
    gone = x.id
    del x
    some = fed.cohort(2)
    some.mean(some.map(Small().scale, some.broadcast(torch.ones(3))))
    away = [k for k in range(4) if k not in some.index]
    assert [gone in site.store for site in wire.sites] == [k in away for k in range(4)]
    exchange(fed)
    assert all(gone not in site.store for site in wire.sites)
    assert all(gone not in ids for ids in wire.late)


def test_a_refused_upload_leaves_no_values_behind() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    bad, other = fed.map(Small().divide, fed.broadcast(torch.ones(3)), np.asarray([1.0, 1.0, 0.0, 1.0]))
    with pytest.raises(UploadError):
        fed.mean(bad)
    del bad, other
    gc.collect()
    exchange(fed)
    exchange(fed)
    assert all(len(site.store) <= 2 for site in wire.sites)  # what the last exchange itself used


def test_the_bytes_that_crossed_are_counted() -> None:
    wire = Wire()
    fed = Federation(plain(), rows(), engine=wire)
    crossed = []
    for site in wire.sites:
        def answer(frame: bytes, genuine: Callable[[bytes], bytes] = site.answer) -> bytes:
            reply = genuine(frame)
            crossed.append(len(frame) + len(reply))
            return reply
        site.answer = answer  # type: ignore[method-assign]
    exchange(fed)
    assert len(crossed) == 4
    assert wire.frame_bytes == sum(crossed)
    payload = fed.ledger["train"].bytes_up + fed.ledger["train"].bytes_down
    assert payload == 2 * 4 * 3 * 8
    assert wire.frame_bytes > payload
