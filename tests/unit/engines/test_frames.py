"""What crosses the network arrives exactly: tensors bit by bit, headers and hyper-parameters."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recorded_frames import Moment, bits, held, steady, text
from torch import Tensor

from rookery import SCAFFOLD
from rookery.engines.frames import DTYPES, digest_of_tensors, pack, unpack
from rookery.engines.programs import build, describe
from rookery.errors import FrameError


def test_the_recorded_frames_are_of_every_kind(moments: list[Moment]) -> None:
    kinds = {op["op"] for m in moments for op in m.header["ops"]}
    assert kinds == {"map", "take", "put", "finish", "save", "load"}
    assert any(held(m.site) for m in moments)
    assert len(moments) > 50


def test_a_recorded_frame_gives_the_recorded_reply(moments: list[Moment]) -> None:
    for moment in moments:
        site = moment.fresh()
        assert site.answer(moment.frame) == moment.reply
        assert held(site) == moment.after


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


def test_a_large_tensor_has_the_bytes_of_its_frame_and_a_small_one_keeps_no_frame() -> None:
    sent = {1: torch.randn(5000), 2: torch.randn(3), 3: torch.randn(77, 100, dtype=torch.float64), 4: torch.rand(6000) > 0.5,
            5: torch.randn(4096).to(torch.bfloat16), 6: torch.zeros(0, 9)}
    frame = pack({}, sent)
    _, arrived = unpack(frame)
    begins = np.frombuffer(frame, np.uint8).ctypes.data

    def own(value: Tensor) -> bool:
        return begins <= value.data_ptr() < begins + len(frame)

    assert all(bits(arrived[id]) == bits(value) for id, value in sent.items())
    assert own(arrived[1])
    assert not own(arrived[2])
    # where a vector begins decides how some processors round
    assert all(value.data_ptr() % 16 == 0 for value in arrived.values())


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


def longhand(body: bytes) -> bytes:
    """The digest of tensors' bytes as the page about frames has it, in Python's own numbers."""
    odd = [(k * 0x9E3779B97F4A7C15 | 1) % 2**64 for k in range(1, 513)]
    whole = len(body) // 4096 * 4096
    words = [int.from_bytes(body[at : at + 8], "little") for at in range(0, whole, 8)]
    if not whole:
        return body
    sums = [sum(word * by for word, by in zip(words[at : at + 512], odd, strict=True)) % 2**64 for at in range(0, len(words), 512)]
    return hashlib.blake2b(b"".join(value.to_bytes(8, "little") for value in sums) + body[whole:], digest_size=16).digest()


@pytest.mark.parametrize("size", [0, 8, 512, 4095, 4096, 4097, 8192, 9000])
def test_the_digest_of_tensors_is_that_of_the_page(size: int) -> None:
    body = np.random.default_rng(size).bytes(size)
    assert digest_of_tensors(body) == digest_of_tensors(memoryview(body)) == longhand(body)


@steady
@given(st.integers(0, 8 * 4096 - 1), st.integers(0, 4095), st.integers(0, 4095))
def test_a_flipped_bit_and_two_words_in_each_other_s_place_are_found(bit: int, one: int, other: int) -> None:
    value = torch.arange(4096, dtype=torch.int64)
    frame = bytearray(pack({}, {1: value}))
    start = len(frame) - 16 - 8 * 4096
    flipped, swapped = bytearray(frame), bytearray(frame)
    flipped[start + bit // 8] ^= 1 << bit % 8
    a, b = slice(start + 8 * one, start + 8 * one + 8), slice(start + 8 * other, start + 8 * other + 8)
    swapped[a], swapped[b] = frame[b], frame[a]
    for changed in (flipped, swapped) if one != other else (flipped,):
        with pytest.raises(FrameError, match="altered or truncated on the way"):
            unpack(bytes(changed))


def test_large_finite_values_whose_sum_is_not_finite_may_cross() -> None:
    values = torch.full((3,), 3e38)
    assert torch.equal(unpack(pack({}, {1: values}))[1][1], values)
    with pytest.raises(FrameError, match="non-finite"):
        unpack(pack({}, {1: torch.tensor([float("inf"), float("-inf"), 1.0])}))
