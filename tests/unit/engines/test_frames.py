"""What crosses the network arrives exactly: tensors bit by bit, headers and hyper-parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recorded_frames import Moment, bits, held, steady, text
from torch import Tensor

from rookery import SCAFFOLD
from rookery.engines.frames import DTYPES, build, describe, pack, unpack
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
