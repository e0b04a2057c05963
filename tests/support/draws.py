"""Draws of a sampler as a federation makes them, and rows to draw."""

from __future__ import annotations

import numpy as np
import torch

from rookery import Batch, Data, Minimization
from rookery.data import Draw, Sampler
from rookery.data.sampling import Selection
from rookery.federation.client import Setting

ENGINES = ["loop", "vectorised", "wire"]


def draw_of(data: Data, clients: list[int] | None = None, steps: int | list[int] = 1, *, seed: int = 3, call: int = 1,
            position: int = 0) -> Draw:
    where = np.arange(len(data.names)) if clients is None else np.asarray(clients)
    setting = Setting(Minimization(lambda x, b: x.sum()), data, seed)
    numbers = np.arange(steps) if isinstance(steps, int) else np.asarray(steps)
    return Draw(data, where, setting.keys(where, "train", call), position, numbers)


def one(sampler: Sampler, data: Data, selection: Selection, client: int, step: int) -> Batch:
    return sampler.fetch(data, {name: value[client, step] for name, value in selection.items()})


def labelled(**labels: list[int]) -> Data:
    return Data.from_parts({name: {"label": torch.tensor(own), "row": torch.arange(len(own))} for name, own in labels.items()})
