"""Noise of a client's own: a pure function of seed, client name, call and repetition, as its samples are, on every engine."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..errors import AlgorithmError
from . import rng

Kind = Literal["normal", "uniform"]
NOISE_KEY = rng.name_key("noise")  # keeps noise apart from the samples of the same call
BLOCK = 2**20  # numbers made at once


class Noise(NamedTuple):
    """What a client function asks for with `c.noise`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    kind: Kind = "normal"

    @classmethod
    def like(cls, value: Tensor, kind: Kind) -> Noise:
        if kind not in get_args(Kind) or not isinstance(value, Tensor) or not value.is_floating_point():
            what = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise AlgorithmError(f'c.noise(like, kind) takes a floating-point tensor and "normal" or "uniform"; got {what} and {kind!r}')
        return cls(tuple(value.shape), value.dtype, value.device, kind)

    def numbers(self, keys: rng.Keys, position: int, step: int, salt: int = 0) -> Tensor:
        """(clients, *shape): noise number `position` of repetition `step` in the call that these keys stand for."""
        keys, count = rng.combine(keys, NOISE_KEY, position, step), math.prod(self.shape)
        out = torch.empty(len(keys), count, dtype=self.dtype)
        most = max(1, BLOCK // max(1, count))
        for first in range(0, len(keys), most):
            u = torch.from_numpy(rng.uniform(keys[first : first + most], count, salt))
            out[first : first + most] = torch.special.ndtri(u) if self.kind == "normal" else u
        if self.kind == "uniform":
            out.clamp_(max=1 - torch.finfo(self.dtype).eps / 2)  # rounding to few digits must not reach 1
        return out.reshape(len(keys), *self.shape).to(self.device)
