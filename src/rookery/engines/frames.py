"""The bytes that cross a network: a JSON header, one contiguous buffer, a digest. No code and no pickle.

    "RKR1" | header length, 4 bytes | header | tensors, each padded to 8 bytes | digest, 16 bytes

Everything is checked on arrival; a frame that is not exactly right is refused before anything is touched.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ..errors import FrameError
from ..program import PROGRAMS, Program

MAGIC, VERSION = b"RKR1", 1
LARGEST = 1 << 31
_DIGEST = 16
DTYPES = {str(t).removeprefix("torch."): t for t in
          (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)}


def pack(header: dict[str, Any], tensors: dict[int, Tensor]) -> bytes:
    """A frame of this header and these tensors, by number."""
    parts, listed = [], []
    for id, tensor in tensors.items():
        flat = tensor.detach().cpu().contiguous()
        listed.append([id, str(flat.dtype).removeprefix("torch."), list(flat.shape)])
        raw = flat.reshape(-1).view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        parts.append(raw + b"\0" * (-len(raw) % 8))
    head = json.dumps({**header, "v": VERSION, "tensors": listed}, allow_nan=False, separators=(",", ":")).encode()
    head += b" " * (-(len(head) + 8) % 8)
    body = b"".join([MAGIC, len(head).to_bytes(4, "little"), head, *parts])
    return body + hashlib.blake2b(body, digest_size=_DIGEST).digest()


def unpack(frame: bytes, finite: bool = True) -> tuple[dict[str, Any], dict[int, Tensor]]:
    """The header and the tensors of a frame; `FrameError` for anything else, and for non-finite values where `finite` is asked."""
    if len(frame) > LARGEST:
        raise FrameError(f"a frame may have {LARGEST} bytes; this one has {len(frame)}")
    if len(frame) < 8 + _DIGEST:
        raise FrameError(f"truncated: {len(frame)} bytes are fewer than a frame's fixed parts")
    body, digest = frame[:-_DIGEST], frame[-_DIGEST:]
    if body[:4] != MAGIC:
        raise FrameError(f"a frame begins with {MAGIC!r}; this one with {bytes(body[:4])!r}")
    if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
        raise FrameError("altered or truncated on the way: the digest does not match")
    length = int.from_bytes(body[4:8], "little")
    if 8 + length > len(body):
        raise FrameError(f"the header should have {length} bytes, the frame has {len(body) - 8}")
    try:
        header = json.loads(body[8 : 8 + length], parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict) or header.get("v") != VERSION:
        raise FrameError(f"protocol version {VERSION} is spoken here; the frame has {header.get('v') if isinstance(header, dict) else header!r}")
    return header, _tensors(header, memoryview(body)[8 + length :], finite)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number that may cross the network")


def _tensors(header: dict[str, Any], buffer: memoryview, finite: bool) -> dict[int, Tensor]:
    tensors: dict[int, Tensor] = {}
    place = 0
    for entry in expect(header, "tensors", list):
        match entry:
            case [int(id), str(name), list(shape)] if name in DTYPES and all(type(n) is int and n >= 0 for n in shape):
                pass
            case _:
                raise FrameError(f"a tensor is listed as [number, dtype, shape]; this is {entry!r}")
        dtype, count = DTYPES[name], math.prod(shape)
        size = count * dtype.itemsize
        if place + size > len(buffer):
            raise FrameError(f"tensor {id} of shape {shape} needs {size} bytes, {len(buffer) - place} are left")
        if id in tensors:
            raise FrameError(f"tensor {id} is listed twice")
        raw = bytearray(buffer[place : place + size])
        value = torch.frombuffer(raw, dtype=dtype).reshape(shape) if count else torch.zeros(shape, dtype=dtype)
        if finite and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise FrameError(f"tensor {id} holds a non-finite value")
        tensors[id] = value
        place += size + (-size % 8)
    if place != len(buffer):
        raise FrameError(f"{len(buffer) - place} bytes are left over after the last tensor")
    return tensors


def expect(header: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """A header's entry of the right type."""
    value = header.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise FrameError(f"the header needs {key!r}; it has {value!r}")
    return value


def describe(value: Any) -> Any:
    """A hyper-parameter, or a program with its hyper-parameters, as JSON."""
    if isinstance(value, Program):
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        return {"program": name, "fields": {f.name: describe(getattr(value, f.name)) for f in fields(value)}}  # type: ignore[arg-type]
    if isinstance(value, tuple | list):
        return [describe(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise FrameError(f"a hyper-parameter that crosses the network is a number, a text, or a list of them; got {type(value).__name__}")


def build(note: Any) -> Any:
    """The inverse of `describe`, for programs this process has imported."""
    if isinstance(note, list):
        return tuple(build(v) for v in note)
    if not isinstance(note, dict):
        return note
    name, values = note.get("program"), note.get("fields")
    if not isinstance(name, str) or name not in PROGRAMS or not isinstance(values, dict):
        raise FrameError(f"unknown program {name!r}; import its module at this site")
    cls = PROGRAMS[name]
    if set(values) != {f.name for f in fields(cls)}:  # type: ignore[arg-type]
        raise FrameError(f"{name} has the hyper-parameters {[f.name for f in fields(cls)]}; the frame has {sorted(values)}")  # type: ignore[arg-type]
    try:
        return cls(**{key: build(value) for key, value in values.items()})
    except Exception as error:
        raise FrameError(f"{name} refuses its hyper-parameters: {error}") from None
