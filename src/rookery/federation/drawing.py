"""What serves a client's draws: samples and noise, request after request, as pure functions of the call and the repetition."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from torch import Tensor

from ..data.sampling import Draw, Request
from ..data.store import Batch
from ..errors import DataError
from . import rng
from .client import Setting
from .noise import Noise


class Drawing:
    """Serves one client's draws as they are asked for, repetition after repetition of one call.

    Repetitions mostly ask for the same, so a request is answered for a run of them at once.

    drew: is told of every batch beyond the first of a repetition, before it is drawn
    """

    AHEAD = 64  # repetitions at once, unless they are large

    def __init__(self, setting: Setting, client: int, phase: str, call: int, times: int, drew: Callable[[], None] | None = None) -> None:
        self.setting, self.client, self.times, self.step, self.drew = setting, client, times, 0, drew
        self.clients = np.asarray([client])
        self.phase, self.call = phase, call
        self.stream = partial(_stream, {})  # knows nothing of the drawing, whose rows are freed as soon as the call has ended
        self.ahead: dict[tuple[int, Request], tuple[int, Draw, dict[str, Tensor]]] = {}
        self.rows: dict[str, Tensor] = {}  # all of the client's, once a full batch was drawn: rows of a dataset are read once a call
        self.versions: list[int] = []

    @cached_property
    def keys(self) -> rng.Keys:
        """The random keys of the call; a function that draws nothing needs none."""
        return self.setting.keys(self.clients, self.phase, self.call)

    def __call__(self, position: int, request: Request | Noise) -> Batch:
        problem, data = self.setting.problem, self.setting.data
        if isinstance(request, Noise):
            return Batch({"noise": request.numbers(self.keys, position, self.step, self.setting.salt)[0]})
        if position and self.drew is not None:
            self.drew()
        first, draw, selection = self._selected(position, request)
        if request == Request():
            rows = self._all_rows()
            try:
                batch = problem.sampling.whole(rows)
            except DataError as error:
                raise DataError(f"client {data.names[self.client]!r}: {error}") from None
        else:
            batch = problem.sampling.fetch(data, {name: index[0, self.step - first] for name, index in selection.items()})
        if problem.random:
            batch.key = self.setting.generator_seed(draw.seed(self.step - first))
        self.setting.check(batch, self.clients)
        return batch

    @classmethod
    def ahead_of(cls, request: Request) -> int:
        """How many repetitions to select at once: many small ones, or one large one."""
        return cls.AHEAD if (request.outer or 4096) * (request.inner or 1) <= 4096 else 1

    def _selected(self, position: int, request: Request) -> tuple[int, Draw, dict[str, Tensor]]:
        """The first repetition of the run that holds this one, and what was selected for the run."""
        known = self.ahead.get((position, request))
        if known is None or self.step >= known[0] + len(known[1].steps):
            steps = np.arange(self.step, min(self.step + self.ahead_of(request), self.times))
            draw = self.setting.draw(request, self.clients, self.keys, position, steps, self.stream)
            known = self.step, draw, {} if request == Request() else self.setting.problem.sampling.select(draw, request)
            self.ahead[position, request] = known
        return known

    def _all_rows(self) -> dict[str, Tensor]:
        if not self.rows:
            self.rows = self.setting.data.views(self.client)
            self.versions = [field._version for field in self.rows.values()]
        return dict(self.rows)

    def changed(self) -> bool:
        """Whether the client's rows were changed in place since a full batch, which is a view of them, was drawn."""
        return self.versions != [field._version for field in self.rows.values()]


def _stream(streams: dict[int, np.random.Generator], _: int, key: int) -> np.random.Generator:
    if key not in streams:
        streams[key] = rng.normal_stream(key)
    return streams[key]
