"""The bytes that cross a network: a JSON header, one contiguous buffer, a digest. No code and no pickle.

    "RKR1" | header length, 4 bytes | header | tensors, each padded to 8 bytes | digest, 16 bytes

Everything is checked on arrival; a frame that is not exactly right is refused before anything is touched.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from array import array
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import FrameError
from ..federation.reducer import CODES, all_finite, numbers_of

MAGIC, VERSION = b"RKR1", 4
LARGEST = 1 << 31  # bytes of a frame
_DIGEST, _MOST_AXES = 16, 16
_BLOCK = 4096  # bytes of tensors that a digest sees as one number
_ALIGNED = 16  # bytes: where the first tensor begins, as Python's own memory does
_ODD = (np.arange(1, _BLOCK // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
DTYPES = {str(t).removeprefix("torch."): t for t in
          (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)}
_SIZES = {name: dtype.itemsize for name, dtype in DTYPES.items()}
_FLOATING = {name for name, dtype in DTYPES.items() if dtype.is_floating_point}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
with warnings.catch_warnings():  # torch says once that nobody may write to a tensor of bytes, and client functions that do are refused
    warnings.simplefilter("ignore")
    torch.frombuffer(b"0", dtype=torch.uint8)


class Buffer:
    """Tensors by number as the bytes of a frame; one may be used in the frames of several sites."""

    def __init__(self, tensors: dict[int, Tensor]) -> None:
        self.listed, parts = list[list[Any]](), list[Any]()
        for id, tensor in tensors.items():
            name = NAMES.get(tensor.dtype)
            if name is None:
                raise FrameError(f"tensors cross the network as {', '.join(DTYPES)}; this one is "
                                 f"{str(tensor.dtype).removeprefix('torch.')}: convert it in the client function")
            self.listed.append([id, name, list(tensor.shape)])
            raw = _bytes(tensor)
            parts.append(raw)
            if padding := -len(raw) % 8:
                parts.append(bytes(padding))
        self.body: Any = parts[0] if len(parts) == 1 else b"".join(parts)
        self.digest = digest_of_tensors(self.body)


def _bytes(tensor: Tensor) -> Any:
    """A tensor's bytes: those of a large one where they are, those of a small one as a copy, which is quicker."""
    if (code := CODES.get(tensor.dtype)) is not None and not isinstance(numbers := numbers_of(tensor), Tensor):
        return array(code, numbers).tobytes()
    if tensor.dtype == torch.bfloat16:  # which NumPy does not know
        tensor = tensor.detach().view(torch.int16)
    whole = tensor.numpy(force=True)
    if whole.nbytes < _BLOCK:
        return whole.tobytes()
    return memoryview(np.ascontiguousarray(whole).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def pack(header: dict[str, Any], tensors: dict[int, Tensor] | Buffer) -> bytes:
    """A frame of this header and these tensors, by number."""
    buffer = tensors if isinstance(tensors, Buffer) else Buffer(tensors)
    head = _ENCODER.encode({**header, "v": VERSION, "tensors": buffer.listed}).encode()
    head += b" " * (-(len(head) + 8) % _ALIGNED)
    front = MAGIC + len(head).to_bytes(4, "little") + head
    return b"".join((front, buffer.body, sealed(front, buffer.digest)))  # the one copy


def sealed(front: bytes, digest: bytes) -> bytes:
    """The digest of a frame, from all before its tensors, which says its own length, and the digest of these."""
    return hashlib.blake2b(front + digest, digest_size=_DIGEST).digest()


def digest_of_tensors(body: Any) -> bytes:
    """A digest of tensors' bytes that takes a fraction of the time that sending them takes: it finds accidents, not attackers.

    It is the BLAKE2b of one number for each 4096 bytes, the sum of their 512 words, each times an odd number of its own, modulo 2⁶⁴; bytes
    beyond the last whole 4096 count as they are. Fewer than 4096 bytes stand for themselves.
    """
    whole = len(body) - len(body) % _BLOCK
    if not whole:
        return bytes(body)
    blocks = np.frombuffer(body, np.uint64, whole // 8).reshape(-1, len(_ODD))
    found = hashlib.blake2b(np.einsum("ij,j->i", blocks, _ODD), digest_size=_DIGEST)  # type: ignore[arg-type]
    found.update(body[whole:])
    return found.digest()


def unpack(frame: bytes, finite: bool = True) -> tuple[dict[str, Any], dict[int, Tensor]]:
    """The header and the tensors of a frame; `FrameError` for anything else, and for non-finite values where `finite` is asked."""
    if len(frame) > LARGEST:
        raise FrameError(f"a frame may have {LARGEST} bytes; this one has {len(frame)}")
    if len(frame) < 8 + _DIGEST:
        raise FrameError(f"truncated: {len(frame)} bytes are fewer than a frame's fixed parts")
    if frame[:4] != MAGIC:
        raise FrameError(f"a frame begins with {MAGIC!r}; this one with {frame[:4]!r}")
    start = 8 + int.from_bytes(frame[4:8], "little")
    if start > len(frame) - _DIGEST:
        raise FrameError(f"the header should have {start - 8} bytes, the frame has {len(frame) - _DIGEST - 8}")
    body: Any = memoryview(frame)[start:-_DIGEST] if len(frame) - start > _BLOCK else frame[start:-_DIGEST]  # a copy of few is quicker
    if sealed(frame[:start], digest_of_tensors(body)) != frame[-_DIGEST:]:
        raise FrameError("altered or truncated on the way: the digest does not match")
    try:
        header = _DECODER.decode(frame[8:start].decode())
    except (ValueError, RecursionError) as error:
        raise FrameError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict) or type(header.get("v")) is not int or header["v"] != VERSION:
        raise FrameError(f"protocol version {VERSION} is spoken here; "
                         f"the frame has {header.get('v') if isinstance(header, dict) else header!r}")
    return header, _tensors(header, body, finite)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a number that may cross the network")
    return value


# made once: a small frame is on its way no longer than json needs to make its own
_ENCODER = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_number, parse_float=_number)


def _tensors(header: dict[str, Any], buffer: memoryview | bytes, finite: bool) -> dict[int, Tensor]:
    tensors: dict[int, Tensor] = {}
    place = 0
    for entry in expect(header, "tensors", list):
        id, name, shape = _listed(entry)
        if id in tensors:
            raise FrameError(f"tensor {id} is listed twice")
        size = math.prod(shape) * _SIZES[name]
        padding = -size % 8
        end = place + size + padding
        if end > len(buffer):
            raise FrameError(f"tensor {id} of shape {shape} needs {size + padding} bytes, {len(buffer) - place} are left")
        if padding and buffer[end - padding : end] != bytes(padding):
            raise FrameError(f"tensor {id} of shape {shape} is followed by bytes that belong to nothing")
        raw: Any = buffer[place : place + size]
        if size < _BLOCK or place % _ALIGNED:  # a large tensor is not copied: it has the frame's own bytes
            raw = bytearray(raw)
        tensors[id] = _tensor(id, raw, name, shape, finite)
        place = end
    if place != len(buffer):
        raise FrameError(f"{len(buffer) - place} bytes are left over after the last tensor")
    return tensors


def _listed(entry: Any) -> tuple[int, str, list[int]]:
    """The number, dtype and shape of a tensor; its form is looked at by hand, which takes half of what matching it takes."""
    if type(entry) is list and len(entry) == 3:
        id, name, shape = entry
        if type(id) is int and type(name) is str and name in DTYPES and type(shape) is list and len(shape) <= _MOST_AXES:
            for number in shape:
                if type(number) is not int or not 0 <= number <= LARGEST:
                    break
            else:
                return id, name, shape
    raise FrameError(f"a tensor is listed as [number, dtype, shape]; this is {entry!r}")


def _tensor(id: int, raw: Any, name: str, shape: list[int], finite: bool) -> Tensor:
    if name == "bool" and bytes(raw).translate(None, b"\0\1"):
        raise FrameError(f"tensor {id} is bool and holds bytes other than 0 and 1")
    try:
        value = torch.frombuffer(raw, dtype=DTYPES[name]) if len(raw) else torch.zeros(shape, dtype=DTYPES[name])
        if len(shape) != 1:
            value = value.reshape(shape)
    except (RuntimeError, TypeError):
        raise FrameError(f"{shape} is not a shape of a tensor") from None
    if finite and name in _FLOATING and not all_finite(value):
        raise FrameError(f"tensor {id} holds a non-finite value")
    return value


def expect(header: dict[str, Any], key: str, kind: type) -> Any:
    """A header's entry of exactly this type."""
    value = header.get(key)
    if type(value) is not kind:
        raise FrameError(f"{key!r} must be {kind.__name__}; it is {value!r}")
    return value


def natural(header: dict[str, Any], key: str) -> int:
    """A header's entry that counts something."""
    value = header.get(key)
    if type(value) is not int or not 0 <= value < 2**63:
        raise FrameError(f"{key!r} must be a whole number from 0 to 2**63 - 1; it is {value!r}")
    return value


def numbers(header: dict[str, Any], key: str) -> list[int]:
    """A header's list of distinct whole numbers."""
    ids: list[int] = expect(header, key, list)
    if ids and (not all(type(id) is int for id in ids) or len(set(ids)) != len(ids)):
        raise FrameError(f"{key!r} lists distinct numbers of values; it has {ids!r}")
    return ids
